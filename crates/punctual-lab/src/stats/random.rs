//! Random numbers as statistics need them, from the generator of the virtual world: a seed repeats a verdict everywhere.

use punctual_proto::sim::Rng;

/// Numbers that are no integers: the virtual world has no use for them.
pub trait Floats {
    /// In (0, 1).
    fn unit(&mut self) -> f64;

    /// Mean 0, deviation 1 (Box–Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

impl Floats for Rng {
    fn unit(&mut self) -> f64 {
        ((self.number() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}
