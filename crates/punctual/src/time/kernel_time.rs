//! The kernel's stamp of a message, as a reading of the node's clock.
//!
//! The kernel stamps by `CLOCK_REALTIME`, which people and their daemons set. A stamp is believed if that clock was not set
//! between two looks around it; it is then nearer to the arrival than anything that a thread reads after waking.
//!
//! The look before may not be the last one: a message may have come before that and be read behind it. Looks are as far apart as
//! stamps may be old, so that the one before the last is always before the stamp.

use punctual_machine::clock::wall_clock::{MOVED_MAX_NS, difference, moved_ns};
use punctual_machine::clock::{Clock, realtime_ns};
use punctual_proto::Nanos;

use super::SLEW_DIVISOR;

/// Most that two readings in a row may lie apart, nanoseconds.
const LOOK_ERROR_NS: u64 = 2_000;

/// Stamps older than this are not believed, nanoseconds.
const AGE_MAX_NS: u64 = 2_000_000;

#[derive(Clone, Copy, Debug)]
struct Look {
    /// By the node's clock.
    at: Nanos,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
    difference: i128,
}

#[derive(Debug)]
pub(super) struct KernelTime {
    clock: &'static Clock,
    /// At least [`AGE_MAX_NS`] before the last.
    before: Look,
    last: Look,
}

impl KernelTime {
    pub(super) fn new(clock: &'static Clock) -> Self {
        let look = Look { at: Nanos(clock.nanos(clock.now())), difference: difference() };
        Self { clock, before: look, last: look }
    }

    /// Looks at the clocks before a wait.
    pub(super) fn note(&mut self) {
        let at = Nanos(self.clock.nanos(self.clock.now()));
        if at.0.abs_diff(self.last.at.0) >= AGE_MAX_NS {
            self.note_look(Look { at, difference: difference() });
        }
    }

    fn note_look(&mut self, look: Look) {
        self.before = std::mem::replace(&mut self.last, look);
        // A clock that began anew has no look behind it.
        if look.at < self.before.at {
            self.before = look;
        }
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
        // A clock that was set forwards between the stamp and the look before would put it before that look.
        let arrived = here.0.checked_sub(age).filter(|&arrived| arrived >= self.before.at.0)?;
        // Any step by which the clock was set since may lie between the stamp and now.
        let error = moved_ns(self.before.difference, after).saturating_add(LOOK_ERROR_NS);
        // Slewing moves `CLOCK_MONOTONIC` as well, and shows in no look.
        (error <= MOVED_MAX_NS).then(|| Nanos(arrived.saturating_add(error + age / SLEW_DIVISOR)))
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
        let look = Look { at: Nanos(4_000_000), difference: 100 * HOUR };
        let kernel_time = KernelTime { clock: Clock::get(), before: look, last: look };
        let (here, stamp, age) = (Nanos(5_000_000), 1_000 * HOUR, 700_u64);
        let arrival = |step_before_stamp: i128, step_after_stamp: i128| {
            let stamp = stamp + step_before_stamp;
            let real = stamp + i128::from(age) + step_after_stamp;
            let [stamp, real] = [stamp, real].map(|ns| u64::try_from(ns).expect("after 1970"));
            kernel_time.arrival_by(stamp, real, here, look.difference + step_before_stamp + step_after_stamp)
        };
        let slewed = age / SLEW_DIVISOR;
        assert_eq!(arrival(0, 0), Some(Nanos(here.0 - age + LOOK_ERROR_NS + slewed)));
        for step in [HOUR, -HOUR] {
            assert_eq!(arrival(step, 0), None, "{step} before the stamp");
            assert_eq!(arrival(0, step), None, "{step} after it");
        }
        // A little is believed, and may lie on either side of the stamp.
        let slewed = (age + 500) / SLEW_DIVISOR;
        assert_eq!(arrival(0, 500), Some(Nanos(here.0 - (age + 500) + 500 + LOOK_ERROR_NS + slewed)));
    }

    /// Goal: a message that came before the last look moves no arrival forwards in time, though the clock was set between the two.
    #[test]
    fn a_stamp_before_the_last_look_is_checked() {
        let look = |at, difference| Look { at: Nanos(at), difference };
        let mut kernel_time = KernelTime { clock: Clock::get(), before: look(0, 50), last: look(0, 50) };
        kernel_time.note_look(look(10_000_000, 50));
        // It came at 12.9 ms. At 13 ms the clock was set ahead by 1 ms, which the look behind that does not show.
        let (stamp, step) = (900_000_000, 1_000_000);
        kernel_time.note_look(look(13_100_000, 50 + i128::from(step)));
        let by = |here: u64| (stamp + here - 12_900_000 + step, Nanos(here), 50 + i128::from(step));
        let (real, here, after) = by(13_200_000);
        assert_eq!(kernel_time.arrival_by(stamp, real, here, after), None);
        // Two looks later nothing of it is left, and one that came before them is not believed either.
        kernel_time.note_look(look(15_200_000, 50 + i128::from(step)));
        let (real, here, after) = by(13_850_000);
        assert_eq!(kernel_time.arrival_by(stamp, real, here, after), None);
        let came = kernel_time.arrival_by(real, real + 80_000, Nanos(15_300_000), after);
        assert_eq!(came, Some(Nanos(15_300_000 - 80_000 + LOOK_ERROR_NS + 10_000)));
    }

    /// Goal: stamps are believed again once the node's clock, which began anew, has been looked at.
    #[test]
    fn a_clock_that_begins_anew_is_looked_at() {
        const HOUR: u64 = 3_600_000_000_000;
        let clock = Clock::get();
        let ahead = Look { at: Nanos(clock.nanos(clock.now()) + 10 * HOUR), difference: 50 };
        let mut kernel_time = KernelTime { clock, before: ahead, last: ahead };
        kernel_time.note();
        let now = Nanos(clock.nanos(clock.now()));
        assert!(kernel_time.last.at <= now && kernel_time.before.at <= now, "{kernel_time:?}");
    }

    /// Goal: a clock that is slewed as fast as daemons do puts no arrival before it was.
    #[test]
    fn slewing_puts_no_arrival_too_early() {
        let look = Look { at: Nanos(0), difference: 50 };
        let kernel_time = KernelTime { clock: Clock::get(), before: look, last: look };
        let (stamp, arrived) = (900_000_000, 5_000_000_u64);
        for age in [0, 1_000, 100_000, 1_800_000] {
            // `CLOCK_MONOTONIC` runs as fast: the difference stays.
            let real = stamp + age + age / 12;
            let found = kernel_time.arrival_by(stamp, real, Nanos(arrived + age), 50).expect("a young one");
            assert!(found.0 >= arrived, "{age}: {found:?}");
        }
    }
}
