//! The wall clock, by which the kernel stamps messages: a stamp from before it was set says nothing of its age.

use super::{Clock, Ticks, monotonic_ns, realtime_ns, stamp_age};

/// A clock that moved by more than this between two looks was set, nanoseconds.
pub const MOVED_MAX_NS: u64 = 100_000;

/// Looks before the clock counts as set: a thread that is interrupted between two readings reads two instants.
const LOOKS_MAX: usize = 4;

/// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`: it changes where the clock is set, and while the machine sleeps. Slewing moves both alike.
pub fn difference() -> i128 {
    difference_at(realtime_ns())
}

fn difference_at(real_ns: u64) -> i128 {
    i128::from(real_ns) - i128::from(monotonic_ns())
}

/// Distance that the clock was moved by between two looks, nanoseconds.
pub fn moved_ns(before: i128, after: i128) -> u64 {
    u64::try_from((after - before).unsigned_abs()).unwrap_or(u64::MAX)
}

/// Tells when the kernel stamped messages, as far as the wall clock was not set since.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    difference: i128,
    /// Each look since then has found that difference.
    since: Ticks,
}

/// Readings of the clocks, one after the other.
#[derive(Clone, Copy, Debug)]
struct Look {
    real_ns: u64,
    difference: i128,
    /// By the node's clock. It is read last: a thread that is interrupted takes a message for younger than it is, never for late.
    at: Ticks,
}

impl Look {
    #[inline]
    fn now(clock: &Clock) -> Self {
        let real_ns = realtime_ns();
        let difference = difference_at(real_ns);
        Self { real_ns, difference, at: clock.now() }
    }
}

impl WallClock {
    /// As the clock is now: it says nothing of stamps from before.
    pub fn new(clock: &Clock) -> Self {
        let Look { difference, at, .. } = Look::now(clock);
        Self { difference, since: at }
    }

    /// A kernel's stamp, `CLOCK_REALTIME` nanoseconds, as an instant of the node's clock; 0 = not known. All clocks are read now, so that
    /// neither drift nor a calibration's error has time to grow.
    #[inline]
    pub fn instant(&mut self, clock: &Clock, kernel_ns: u64) -> Ticks {
        if kernel_ns == 0 { Ticks::default() } else { self.instant_by(clock, kernel_ns, || Look::now(clock)) }
    }

    #[inline]
    fn instant_by(&mut self, clock: &Clock, kernel_ns: u64, mut read: impl FnMut() -> Look) -> Ticks {
        let first = read();
        if self.is_steady(&first) {
            return self.arrival(clock, kernel_ns, &first);
        }
        self.look_again(read).map_or_else(Ticks::default, |look| self.arrival(clock, kernel_ns, &look))
    }

    #[inline]
    fn is_steady(&self, look: &Look) -> bool {
        moved_ns(self.difference, look.difference) <= MOVED_MAX_NS
    }

    /// Returns a look that finds the clock as it was. There is none if it was set, and then nothing is known of stamps from before.
    #[cold]
    fn look_again(&mut self, mut read: impl FnMut() -> Look) -> Option<Look> {
        for left in (1..LOOKS_MAX).rev() {
            let look = read();
            if self.is_steady(&look) {
                return Some(look);
            }
            if left == 1 {
                *self = Self { difference: look.difference, since: look.at };
            }
        }
        None
    }

    #[inline]
    fn arrival(&self, clock: &Clock, kernel_ns: u64, look: &Look) -> Ticks {
        let age = stamp_age(kernel_ns, look.real_ns).map(|age| clock.ticks(age));
        let arrived = age.and_then(|age| look.at.0.checked_sub(age.0)).map(Ticks);
        arrived.filter(|&arrived| arrived >= self.since).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    /// The readings so long after the test began, of a clock that is ahead by `step_ns` then.
    fn look_at(clock: &Clock, ns: u64, step_ns: i64) -> Look {
        let real_ns = (1_000_000 * MS + ns).checked_add_signed(step_ns).expect("after 1970");
        let difference = i128::from(500_000 * MS) + i128::from(step_ns);
        Look { real_ns, difference, at: at(clock, ns) }
    }

    fn at(clock: &Clock, ns: u64) -> Ticks {
        Ticks(1 << 50).plus(clock.ticks(Duration::from_nanos(ns)))
    }

    /// Goal: a message that lay in the kernel while the clock was set took no time by its stamp, in neither direction. So do those that
    /// came before that was noticed; the next ones are known again.
    #[test]
    fn a_stamp_from_before_a_step_says_nothing() {
        let clock = Clock::get();
        let second = i64::try_from(1_000 * MS).expect("small");
        for step_ns in [second, -second, second / 1_000] {
            let began = look_at(clock, 0, 0);
            let mut wall = WallClock { difference: began.difference, since: began.at };
            let mut instant = |stamped: (u64, i64), read: (u64, i64)| {
                let kernel_ns = look_at(clock, stamped.0, stamped.1).real_ns;
                let found = wall.instant_by(clock, kernel_ns, || look_at(clock, read.0, read.1));
                (found.0 != 0).then(|| clock.nanos(Ticks(found.0.abs_diff(at(clock, stamped.0).0))))
            };
            // Ticks of a duration are rounded.
            let is_known = |found: Option<u64>| found.is_some_and(|error_ns| error_ns < 100);
            assert!(is_known(instant((5_000 * MS, 0), (5_001 * MS, 0))));
            // It may have lain there for long.
            assert!(is_known(instant((5_002 * MS, 0), (9_000 * MS, 0))));
            let (stamped, read) = ((9_001 * MS, 0), (9_001 * MS + 50_000, step_ns));
            assert_eq!(instant(stamped, read), None, "{step_ns}");
            assert_eq!(instant((9_001 * MS + 10_000, 0), (9_002 * MS, step_ns)), None, "{step_ns}");
            assert!(is_known(instant((9_003 * MS, step_ns), (9_004 * MS, step_ns))), "{step_ns}");
        }
    }

    /// Goal: a thread that is interrupted between two readings does not take the clock for set.
    #[test]
    fn an_interrupted_look_is_repeated() {
        let clock = Clock::get();
        let began = look_at(clock, 0, 0);
        let mut wall = WallClock { difference: began.difference, since: began.at };
        let kernel_ns = look_at(clock, 5 * MS, 0).real_ns;
        let mut looks = 0;
        let found = wall.instant_by(clock, kernel_ns, || {
            looks += 1;
            let look = look_at(clock, 6 * MS, 0);
            let late = if looks < LOOKS_MAX { i128::from(10 * MS) } else { 0 };
            Look { difference: look.difference - late, ..look }
        });
        assert_eq!(looks, LOOKS_MAX);
        assert!(found.0 != 0 && wall.since == began.at, "{found:?} {wall:?}");
    }
}
