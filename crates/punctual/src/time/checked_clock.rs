//! The node's clock, checked by the kernel's that goes on while the machine sleeps.
//!
//! A counter may stand still over a suspend, or begin anew behind it. `CLOCK_MONOTONIC` stands still over each.

use std::time::Duration;

use punctual_machine::clock::{Clock, Pace, boottime_ns};
use punctual_proto::Nanos;

use super::SLEW_DIVISOR;

/// Difference between the two clocks that is allowed even over the shortest time, nanoseconds: processors' counters differ a little.
const ERROR_NS: i128 = 1_000_000;

/// The kernel's clock is read when so much has passed by the own one, or that is so far behind. It takes the kernel longer to stop all
/// threads before a sleep, and to let them run again.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A reading of the kernel's clock between two of the node's, nanoseconds. A thread that loses the processor meanwhile has them far
/// apart.
#[derive(Clone, Copy, Debug)]
struct Sandwich {
    before: u64,
    kernel: u64,
    after: u64,
}

impl Sandwich {
    fn read(clock: &Clock) -> Self {
        let own = || clock.nanos(clock.now());
        let (before, kernel, after) = (own(), boottime_ns(), own());
        Self { before, kernel, after }
    }

    /// True if the node's clock went on from there to here as the kernel's did.
    fn follows(&self, earlier: &Self) -> bool {
        let between = |from: u64, to: u64| i128::from(to) - i128::from(from);
        let passed = between(earlier.kernel, self.kernel);
        let slack = passed / i128::from(SLEW_DIVISOR) + ERROR_NS;
        let (least, most) = (between(earlier.after, self.before), between(earlier.before, self.after));
        (least - slack..=most + slack).contains(&passed)
    }
}

/// The node's clock.
#[derive(Debug)]
pub(super) struct CheckedClock {
    clock: &'static Clock,
    looks: Pace,
    last: Sandwich,
    /// From here on it has gone on.
    began: Nanos,
    /// Before the last sleep it had gone on from the one to the other: the last reading before a look that found nothing.
    former: (Nanos, Nanos),
}

impl CheckedClock {
    pub(super) fn new(clock: &'static Clock) -> Self {
        let last = Sandwich::read(clock);
        let (began, former) = (Nanos(0), (Nanos::NEVER, Nanos(0)));
        Self { clock, looks: Pace::new(LOOK_EVERY), last, began, former }
    }

    /// Its time now, and whether it went on since it was asked last. If not, what was known of it holds no more.
    pub(super) fn read(&mut self) -> (Nanos, bool) {
        let now = self.clock.now();
        if !self.looks.is_due(now) {
            return (Nanos(self.clock.nanos(now)), true);
        }
        let last = std::mem::replace(&mut self.last, Sandwich::read(self.clock));
        let (now, goes_on) = (Nanos(self.last.after), self.last.follows(&last));
        if !goes_on {
            // Of a counter that began anew, readings of before are none that can be told from those behind.
            let is_one_count = last.before <= now.0;
            self.former = (self.began, Nanos(if is_one_count { last.before } else { 0 }));
            self.began = now;
        }
        (now, goes_on)
    }

    /// True if it went on between two of its readings, as far as is known.
    pub(super) fn went_on(&self, earlier: Nanos, later: Nanos) -> bool {
        let (began, ended) = self.former;
        self.began <= earlier || began <= earlier && later <= ended
    }

    /// It is as if the machine had slept for so long since it was asked last.
    #[cfg(test)]
    pub(super) fn pretend_sleep(&mut self, length: Duration) {
        self.last.kernel -= length.as_nanos() as u64;
        self.looks = Pace::new(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const HOUR: u64 = 3_600_000 * MS;

    /// Goal: a sleep is noticed whether the counter stood still or began anew; a slewed clock, a lost processor and a long time
    /// without a look are none.
    #[test]
    fn a_sleep_is_told_from_all_else() {
        let (own, kernel) = (10 * HOUR, 12 * HOUR);
        let earlier = Sandwich { before: own, kernel, after: own + 100 };
        let later = |own: u64, kernel: u64| Sandwich { before: own, kernel, after: own + 100 };
        for passed in [0, 1_000, MS, 125 * MS, 60_000 * MS, HOUR] {
            let (own, kernel) = (own + passed, kernel + passed);
            assert!(later(own, kernel).follows(&earlier), "{passed}");
            assert!(later(own, kernel - passed / 11).follows(&earlier), "{passed}: slewed");
            assert!(later(own, kernel + passed / 11).follows(&earlier), "{passed}: slewed");
            assert!(
                later(own.saturating_sub(2_000), kernel).follows(&earlier),
                "{passed}: another processor"
            );
            for slept in [20 * MS + passed / 6, 8 * HOUR] {
                assert!(!later(own, kernel + slept).follows(&earlier), "{passed} and {slept} of sleep");
            }
            for anew in [0, 20_000 * MS, 9 * HOUR] {
                assert!(!later(anew, kernel + HOUR).follows(&earlier), "{passed}: begun anew, at {anew}");
            }
        }
        // The processor was lost before the kernel's reading, or behind it.
        for (before, after) in [(own + MS, own + 500 * MS), (own + 500 * MS, own + 999 * MS)] {
            let torn = Sandwich { before, kernel: kernel + 500 * MS, after };
            assert!(torn.follows(&earlier), "{before} {after}");
            assert!(later(own + HOUR, kernel + HOUR).follows(&torn), "{before} {after}");
        }
    }

    /// Goal: the kernel is not asked at each reading. Method: the next look would find that the machine slept.
    #[test]
    fn the_kernel_is_asked_now_and_then() {
        let mut clock = CheckedClock::new(Clock::get());
        clock.pretend_sleep(Duration::from_secs(10));
        clock.looks = Pace::new(Duration::from_secs(3_600));
        assert!(clock.looks.is_due(clock.clock.now()));
        let (first, goes_on) = clock.read();
        let (second, still_goes_on) = clock.read();
        assert!(goes_on && still_goes_on && second >= first);
        clock.looks = Pace::new(LOOK_EVERY);
        assert!(!clock.read().1);
    }

    /// Goal: readings of before and behind a sleep are told from those of one side.
    #[test]
    fn a_sleep_lies_between_two_readings() {
        let mut clock = CheckedClock::new(Clock::get());
        let sleep = |clock: &mut CheckedClock| {
            // A look that finds nothing, a reading behind it that no look has judged, and the look that finds the sleep.
            let (before, _) = clock.read();
            std::thread::sleep(2 * LOOK_EVERY);
            assert!(clock.read().1);
            let unjudged = Nanos(clock.clock.nanos(clock.clock.now()));
            std::thread::sleep(2 * LOOK_EVERY);
            clock.pretend_sleep(Duration::from_secs(10));
            let (began, goes_on) = clock.read();
            let behind = Nanos(began.0 + 1);
            assert!(!goes_on && !clock.went_on(before, began) && !clock.went_on(before, behind));
            assert!(clock.went_on(before, before) && clock.went_on(began, behind));
            assert!(!clock.went_on(before, unjudged), "it may be of behind the sleep");
            assert!(!clock.went_on(unjudged, behind), "it may be of before the sleep");
            before
        };
        let first = sleep(&mut clock);
        let second = sleep(&mut clock);
        assert!(!clock.went_on(first, second), "a sleep lies between, and another behind");
    }

    /// Goal: this machine's clock goes on, by what the kernel says.
    #[test]
    fn the_clock_goes_on() {
        let mut clock = CheckedClock::new(Clock::get());
        let mut last = Nanos(0);
        for _ in 0..100 {
            let (now, goes_on) = clock.read();
            assert!(goes_on && now >= last, "{last:?} {now:?}");
            last = now;
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}
