//! Time since a runtime was started, for all of its threads.

use std::sync::{Mutex, PoisonError};

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_proto::Nanos;
use punctual_proto::recency::BEHIND_NS_MAX;

/// The furthest reading is kept so exactly: threads that write it each time would take its line from each other.
const KEPT_NS: u64 = 1_000_000;

/// Nanoseconds since the start by the clock's counter. Over a suspend that may begin anew: time then goes on from where it was.
#[derive(Debug)]
pub(super) struct SteadyTime {
    clock: &'static Clock,
    /// The counter at the start, if it had gone on all the time since; it may be less than nothing, and wraps.
    started_ns: Counter,
    /// About the furthest time that was told.
    furthest_ns: Counter,
    begins: Mutex<()>,
}

impl SteadyTime {
    /// From an instant of this clock.
    pub(super) fn from(clock: &'static Clock, started: Ticks) -> Self {
        Self::since(clock, clock.nanos(started), 0)
    }

    fn since(clock: &'static Clock, started_ns: u64, furthest_ns: u64) -> Self {
        let time = Self {
            clock,
            started_ns: Counter::default(),
            furthest_ns: Counter::default(),
            begins: Mutex::default(),
        };
        time.started_ns.set(started_ns);
        time.furthest_ns.set(furthest_ns);
        time
    }

    #[inline]
    pub(super) fn now(&self) -> Nanos {
        let now_ns = self.read_ns();
        let furthest_ns = self.furthest_ns.get();
        if now_ns < 0 || now_ns.cast_unsigned() < furthest_ns {
            return self.look_behind();
        }
        let now_ns = now_ns.cast_unsigned();
        if now_ns - furthest_ns > KEPT_NS {
            self.furthest_ns.set(now_ns);
        }
        Nanos(now_ns)
    }

    /// Processors may differ in their counters: one that is behind at the start is before it.
    #[inline]
    fn read_ns(&self) -> i64 {
        // In this order: a reading of before a suspend with a start of after it would lie far ahead.
        let started_ns = self.started_ns.get();
        self.clock.nanos(self.clock.now()).wrapping_sub(started_ns).cast_signed()
    }

    /// A reading behind the furthest one: of another processor, of a thread that had none meanwhile, or of a counter that began anew.
    #[cold]
    fn look_behind(&self) -> Nanos {
        let furthest_ns = self.furthest_ns.get();
        if self.has_begun_anew(furthest_ns) {
            let _alone = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have been here meanwhile.
            if self.has_begun_anew(furthest_ns) {
                // Nobody knows how long it was away.
                self.started_ns.set(self.clock.nanos(self.clock.now()).wrapping_sub(furthest_ns));
            }
            return Nanos(furthest_ns);
        }
        // Not the reading of before: another thread may have found the new beginning meanwhile.
        Nanos(self.read_ns().max(0).cast_unsigned())
    }

    /// Compares a time that was told with a reading that is taken after it.
    fn has_begun_anew(&self, told_ns: u64) -> bool {
        told_ns.cast_signed().saturating_sub(self.read_ns()) > BEHIND_NS_MAX.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time goes on where it was when the counter begins anew, whether it is behind the start of the runtime or behind the last
    /// reading. Method: a start that lies ahead, or a reading.
    #[test]
    fn time_goes_on_when_the_counter_begins_anew() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let clock = Clock::get();
        let read_ns = clock.nanos(clock.now());
        for (started_ns, told_ns) in [(read_ns + HOUR_NS, 0), (read_ns + HOUR_NS, 7), (read_ns, HOUR_NS)] {
            let time = SteadyTime::since(clock, started_ns, told_ns);
            let first = time.now();
            assert_eq!(first, Nanos(told_ns));
            let until = std::time::Instant::now() + std::time::Duration::from_millis(2);
            while std::time::Instant::now() < until {}
            let later = time.now();
            assert!(later > first && later < first.plus(Nanos(HOUR_NS)), "{later:?}");
        }
    }

    /// Goal: a thread that read the counter before another one found the new beginning is told the time of after it.
    #[test]
    fn a_thread_that_comes_second_is_told_the_same_time() {
        let clock = Clock::get();
        let told_ns = 3_600_000_000_000;
        let time = SteadyTime::since(clock, clock.nanos(clock.now()), told_ns);
        assert_eq!(time.now(), Nanos(told_ns), "the first");
        assert!(time.look_behind() >= Nanos(told_ns), "the second");
    }

    /// Goal: counters of processors that differ by little turn no time back for good.
    #[test]
    fn a_counter_that_is_a_little_behind_is_no_new_one() {
        let clock = Clock::get();
        let time = SteadyTime::since(clock, clock.nanos(clock.now()) + 100_000, 0);
        assert!(time.now() < Nanos(100_000_000));
        while time.now() == Nanos(0) {}
        assert!(time.now() < Nanos(60_000_000_000));
    }
}
