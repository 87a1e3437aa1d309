//! Random numbers that a seed repeats everywhere.

/// Marsaglia's xorshift64*, so that a seed repeats a verdict everywhere.
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// Any seed will do: seeds that differ little give unrelated sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mixed =
            (seed ^ (seed >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ (mixed >> 31)).max(1))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// In 0 … count − 1; uneven by less than count / 2⁶⁴.
    pub fn below(&mut self, count: usize) -> usize {
        let wide = u128::from(self.bits()) * count as u128;
        usize::try_from(wide >> 64).expect("less than count")
    }

    /// Mean 0, deviation 1 (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}
