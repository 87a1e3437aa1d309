//! Clocks that begin anywhere, run fast or slow, wander, and are set.

use super::rng::Rng;
use crate::time::Nanos;

const BILLION: i128 = 1_000_000_000;

/// Interval at which a clock's rate wanders.
pub const WANDER_EVERY: Nanos = Nanos::from_millis(10);

/// No clock drifts by more, in any plan.
const DRIFT_MAX_PPB: i64 = 900_000_000;

/// A clock of one node. Readings are whole nanoseconds; its count is known to 10⁻⁹ of one.
#[derive(Clone, Debug)]
pub struct Clock {
    since: Nanos,
    counted: i128,
    /// By how much it runs fast, parts in 10⁹.
    pub drift_ppb: i64,
    /// Farther the drift never wanders.
    pub drift_max_ppb: i64,
    /// Highest rate at which the drift changes.
    pub wander_max_ppb_per_s: i64,
}

impl Clock {
    /// A clock without drift that reads `skew` when the world begins.
    pub fn skewed(skew: Nanos) -> Self {
        let counted = i128::from(skew.0) * BILLION;
        Self { since: Nanos(0), counted, drift_ppb: 0, drift_max_ppb: 0, wander_max_ppb_per_s: 0 }
    }

    fn rate(&self) -> i128 {
        BILLION + i128::from(self.drift_ppb)
    }

    fn counted(&self, at: Nanos) -> i128 {
        self.counted + i128::from(at.since(self.since).0) * self.rate()
    }

    /// Its reading at an instant of the true time, which is not before its last change.
    pub fn read(&self, at: Nanos) -> Nanos {
        Nanos(u64::try_from(self.counted(at) / BILLION).unwrap_or(0))
    }

    /// Since when it has counted without a change.
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// The first instant of the true time at which it shows `reading` or more.
    pub fn when(&self, reading: Nanos) -> Nanos {
        let ahead = i128::from(reading.0) * BILLION - self.counted;
        let wait = -(-ahead.max(0)).div_euclid(self.rate());
        u64::try_from(wait).map_or(Nanos::NEVER, |wait| self.since.plus(Nanos(wait)))
    }

    fn mark(&mut self, now: Nanos) {
        (self.counted, self.since) = (self.counted(now), now);
    }

    /// It is set by `step_ns`.
    pub fn step(&mut self, now: Nanos, step_ns: i64) {
        self.mark(now);
        self.counted += i128::from(step_ns) * BILLION;
    }

    /// It shows `reading` now, as that of a machine that was started again.
    pub fn begin(&mut self, now: Nanos, reading: Nanos) {
        (self.counted, self.since) = (i128::from(reading.0) * BILLION, now);
    }

    /// From now on it drifts by this; it never stands still.
    pub fn set_drift(&mut self, now: Nanos, drift_ppb: i64) {
        self.mark(now);
        self.drift_ppb = drift_ppb.clamp(-DRIFT_MAX_PPB, DRIFT_MAX_PPB);
    }

    /// Its rate changes as [`Self::wander_max_ppb_per_s`] allows in the time of [`WANDER_EVERY`].
    pub fn wander(&mut self, now: Nanos, rng: &mut Rng) {
        let step_max = self.wander_max_ppb_per_s * WANDER_EVERY.0 as i64 / 1_000_000_000;
        let drift = self.drift_ppb + rng.between(-step_max, step_max);
        self.set_drift(now, drift.clamp(-self.drift_max_ppb, self.drift_max_ppb));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a timeout is neither early nor late by a nanosecond, for any drift.
    #[test]
    fn the_instant_of_a_reading_is_exact() {
        let mut rng = Rng::new(1);
        for _ in 0..1_000 {
            let mut clock = Clock::skewed(Nanos(rng.below(1 << 50)));
            clock.set_drift(Nanos(rng.below(1 << 40)), rng.between(-210_000, 210_000));
            clock.step(Nanos((1 << 40) + rng.below(1 << 40)), rng.between(-1_000, 1_000));
            let reading = clock.read(clock.since()).plus(Nanos(1 + rng.below(1 << 45)));
            let when = clock.when(reading);
            assert!(clock.read(when) >= reading && clock.read(Nanos(when.0 - 1)) < reading);
            assert_eq!(clock.when(Nanos(0)), clock.since(), "an instant that has passed is now");
        }
        assert_eq!(Clock::skewed(Nanos(0)).when(Nanos::NEVER), Nanos::NEVER);
    }

    #[test]
    fn a_clock_wanders_within_its_limits() {
        let mut clock = Clock { drift_max_ppb: 100, wander_max_ppb_per_s: 3_000, ..Clock::skewed(Nanos(5)) };
        let (mut rng, mut farthest) = (Rng::new(3), 0);
        for tick in 1..1_000 {
            let before = clock.drift_ppb;
            clock.wander(Nanos(tick * WANDER_EVERY.0), &mut rng);
            assert!(clock.drift_ppb.abs_diff(before) <= 30);
            farthest = farthest.max(clock.drift_ppb.abs());
        }
        assert_eq!(farthest, 100);
    }
}
