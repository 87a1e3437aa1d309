//! Chance with a seed: the same numbers on every machine.

/// Pseudo-random numbers (SplitMix64; Steele, Lea, Flood 2014). Anybody can guess them: not for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(u64);

const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Rng {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one place in a world, such as a seed, a link and the number of a message there. Numbers drawn anywhere else do
    /// not change its numbers.
    pub fn at(place: &[u64]) -> Self {
        Self(place.iter().fold(0, |state, &word| mix(state.wrapping_add(INCREMENT) ^ mix(word))))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }

    /// From 0 to less than `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// From `low` to `high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low) as u64 + 1) as i64
    }

    /// True if an event that happens this often, of a thousand times, happens now.
    pub fn happens(&mut self, permille: u32) -> bool {
        self.below(1_000) < u64::from(permille)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the authors' program gives for seed 1234567.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let numbers = [(); 3].map(|()| rng.number());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn limits_hold_and_are_reached() {
        let mut rng = Rng::new(1);
        let drawn = [(); 200].map(|()| (rng.below(3), rng.between(-1, 1)));
        for wanted in 0..3 {
            assert!(drawn.iter().any(|&(below, between)| below == wanted && between <= 1));
            assert!(drawn.iter().any(|&(_, between)| between == wanted as i64 - 1));
        }
        assert!(drawn.iter().all(|&(below, between)| below < 3 && (-1..=1).contains(&between)));
        assert!(!rng.happens(0) && rng.happens(1_000) && rng.below(0) == 0);
    }

    #[test]
    fn places_are_apart() {
        let first = |place: &[u64]| Rng::at(place).number();
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[0]), first(&[0, 0]));
        assert_eq!(first(&[7, 8, 9]), first(&[7, 8, 9]));
    }
}
