//! Clocks that are set while something is measured: a doubt, though intervals come from none that can be set.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::clock::{monotonic_ns, realtime_ns};

use crate::doubt::Cause;

/// Two clocks may drift apart by as much of the time that passed: the kernel slews by 0.05 % at most (`adjtimex(2)`), and our
/// clock is calibrated better than that.
const DRIFT_PART: i128 = 1_000;

/// Beside the drift: the thread may lose the processor between two readings.
const STEP_MIN: Duration = Duration::from_millis(20);

/// Readings that are made together, so that two of them are as narrow as the scheduler lets them be.
const TRIES: usize = 4;

/// One reading of each clock, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The clock that intervals come from.
    own: u64,
    /// `CLOCK_MONOTONIC`.
    monotonic: u64,
    /// `CLOCK_REALTIME`: the time of day.
    realtime: u64,
}

impl Clocks {
    /// All clocks now.
    pub fn read() -> Self {
        let clock = Clock::get();
        let own = || clock.nanos(clock.now().since(Ticks(0)));
        let attempt = || {
            let (before, monotonic, realtime, after) = (own(), monotonic_ns(), realtime_ns(), own());
            (after.saturating_sub(before), Self { own: before, monotonic, realtime })
        };
        let best = (0..TRIES).map(|_| attempt()).min_by_key(|&(width, _)| width);
        best.unwrap_or_else(attempt).1
    }

    /// Doubts about `subject`, measured between `earlier` and now.
    pub fn doubts_since(&self, earlier: &Self, subject: &str) -> Vec<Cause> {
        let passed = distance(self.own, earlier.own);
        let stepped = |clock, now, then| {
            let by = distance(now, then) - passed;
            let allowed = passed.abs() / DRIFT_PART + STEP_MIN.as_nanos().cast_signed();
            let by_ms = i64::try_from(by / 1_000_000).unwrap_or(i64::MAX);
            (by.abs() > allowed).then(|| Cause::ClockStepped { subject: subject.to_owned(), clock, by_ms })
        };
        let monotonic = stepped("the monotonic clock", self.monotonic, earlier.monotonic);
        let realtime = stepped("the time of day", self.realtime, earlier.realtime);
        monotonic.into_iter().chain(realtime).collect()
    }
}

fn distance(later: u64, earlier: u64) -> i128 {
    i128::from(later) - i128::from(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const THEN: Clocks = Clocks { own: SECOND, monotonic: 5 * SECOND, realtime: 1_700_000_000 * SECOND };

    /// Every clock goes on by as much.
    fn later(ns: u64) -> Clocks {
        Clocks { own: THEN.own + ns, monotonic: THEN.monotonic + ns, realtime: THEN.realtime + ns }
    }

    #[test]
    fn clocks_that_agree_raise_no_doubt() {
        assert_eq!(later(2 * SECOND).doubts_since(&THEN, "a"), []);
        let slewed = Clocks { realtime: later(600 * SECOND).realtime + SECOND / 2, ..later(600 * SECOND) };
        assert_eq!(slewed.doubts_since(&THEN, "a"), [], "the kernel may slew by 0.05 %");
        assert_eq!(Clocks::read().doubts_since(&Clocks::read(), "a").len(), 0);
    }

    #[test]
    fn a_clock_that_is_set_is_named_with_how_far() {
        let now = later(2 * SECOND);
        let ahead = Clocks { realtime: now.realtime + 3_600 * SECOND, ..now };
        let cause = |clock, by_ms| Cause::ClockStepped { subject: "a".to_owned(), clock, by_ms };
        assert_eq!(ahead.doubts_since(&THEN, "a"), [cause("the time of day", 3_600_000)]);
        let back = Clocks { realtime: now.realtime - 90 * SECOND, ..now };
        assert_eq!(back.doubts_since(&THEN, "a"), [cause("the time of day", -90_000)]);
        assert_eq!(
            back.doubts_since(&THEN, "a")[0].to_string(),
            "a: the time of day was set by -90000 ms while measuring"
        );
    }

    /// Goal: our own clock, if it is the one that jumps, disagrees with both others.
    #[test]
    fn our_own_clock_is_a_suspect_too() {
        let jumped = Clocks { own: later(SECOND).own + 50_000_000, ..later(SECOND) };
        assert_eq!(jumped.doubts_since(&THEN, "a").len(), 2);
    }
}
