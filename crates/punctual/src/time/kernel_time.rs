//! The kernel's stamp of a message, as a reading of the node's clock.
//!
//! The kernel stamps by `CLOCK_REALTIME`, which people and their daemons set. A stamp is believed if that clock was not set
//! between two looks around it; it is then nearer to the arrival than anything that a thread reads after waking.

use punctual_machine::clock::{Clock, monotonic_ns, realtime_ns};
use punctual_proto::Nanos;

/// What two readings in a row may lie apart, and what slewing may make of the age of a stamp, nanoseconds.
const LOOK_ERROR_NS: u64 = 2_000;

/// A clock that moved by more than this during a wait was set, nanoseconds. Slewing is 500 parts in a million at most.
const MOVED_MAX_NS: u64 = 100_000;

/// Stamps older than this are not believed: slewing would make more of them than [`LOOK_ERROR_NS`].
const AGE_MAX_NS: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct KernelTime {
    clock: &'static Clock,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC` before the wait.
    before: i128,
}

fn difference() -> i128 {
    i128::from(realtime_ns()) - i128::from(monotonic_ns())
}

impl KernelTime {
    pub(super) fn new(clock: &'static Clock) -> Self {
        Self { clock, before: difference() }
    }

    /// Looks at the clocks before a wait.
    pub(super) fn note(&mut self) {
        self.before = difference();
    }

    /// When a message came that the kernel stamped, in nanoseconds of the node's clock: not before it did, and by little
    /// later. `None` if the stamp cannot be believed.
    pub(super) fn arrival(&self, kernel_ns: u64) -> Option<Nanos> {
        let real = realtime_ns();
        let here = Nanos(self.clock.nanos(self.clock.now()));
        self.arrival_by(kernel_ns, real, here, difference())
    }

    /// The same by these readings: both clocks', and `CLOCK_REALTIME` less `CLOCK_MONOTONIC` behind them.
    fn arrival_by(&self, kernel_ns: u64, real: u64, here: Nanos, after: i128) -> Option<Nanos> {
        let age = real.checked_sub(kernel_ns).filter(|&age| age <= AGE_MAX_NS)?;
        // Whatever the clock was set or slewed by since the wait began may lie between the stamp and now.
        let moved = u64::try_from((after - self.before).unsigned_abs()).unwrap_or(u64::MAX);
        let error = moved.saturating_add(LOOK_ERROR_NS);
        (error <= MOVED_MAX_NS).then_some(())?;
        Some(Nanos(here.0.saturating_sub(age).saturating_add(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a wall clock that is stepped by an hour, either way and at any instant of a wait, moves no arrival: the stamp is
    /// given up.
    #[test]
    fn a_stamp_across_a_step_is_not_believed() {
        const HOUR: i128 = 3_600_000_000_000;
        let kernel_time = KernelTime { clock: Clock::get(), before: 100 * HOUR };
        let (here, stamp, age) = (Nanos(5_000_000), 1_000 * HOUR, 700_u64);
        let arrival = |step_before_stamp: i128, step_after_stamp: i128| {
            let stamp = stamp + step_before_stamp;
            let real = stamp + i128::from(age) + step_after_stamp;
            let [stamp, real] = [stamp, real].map(|ns| u64::try_from(ns).expect("after 1970"));
            kernel_time.arrival_by(
                stamp,
                real,
                here,
                kernel_time.before + step_before_stamp + step_after_stamp,
            )
        };
        assert_eq!(arrival(0, 0), Some(Nanos(here.0 - age + LOOK_ERROR_NS)));
        for step in [HOUR, -HOUR] {
            assert_eq!(arrival(step, 0), None, "{step} before the stamp");
            assert_eq!(arrival(0, step), None, "{step} after it");
        }
        // Slewing is believed within its bound.
        assert_eq!(arrival(0, 500), Some(Nanos(here.0 - (age + 500) + 500 + LOOK_ERROR_NS)));
    }
}
