//! Time for a protocol, which never goes back.

use std::cell::Cell;

use punctual_machine::clock::Clock;
use punctual_proto::Nanos;
use punctual_proto::recency::began_anew;

/// The clock's counter, in nanoseconds. Over a suspend it may begin anew: time then goes on from where it was.
#[derive(Debug)]
pub(super) struct SteadyClock {
    pub(super) clock: &'static Clock,
    /// The furthest reading of the counter. Processors may differ in it: one that is behind adds nothing.
    read: Cell<u64>,
    /// The time that was last told.
    told: Cell<Nanos>,
}

impl SteadyClock {
    pub(super) fn get() -> Self {
        let clock = Clock::get();
        let read = clock.nanos(clock.now());
        Self { clock, read: Cell::new(read), told: Cell::new(Nanos(read)) }
    }

    pub(super) fn now(&self) -> Nanos {
        self.at(self.clock.nanos(self.clock.now()))
    }

    /// The time at a reading of the counter.
    fn at(&self, read: u64) -> Nanos {
        let before = self.read.get();
        // Nobody knows how long it was away.
        let is_anew = began_anew(read, before);
        let passed = if is_anew { 0 } else { read.saturating_sub(before) };
        self.read.set(if is_anew { read } else { read.max(before) });
        let now = self.told.get().plus(Nanos(passed));
        self.told.set(now);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time goes on with the counter, also after that began anew, and never back. Two counters that differ do not add to it.
    #[test]
    fn a_counter_that_begins_anew_does_not_turn_time_back() {
        let steady =
            SteadyClock { clock: Clock::get(), read: Cell::new(10_000_000_000), told: Cell::new(Nanos(7)) };
        for (read, told) in
            [(10_000_000_005, 12), (10_000_000_003, 12), (10_000_000_006, 13), (1_000, 13), (1_200, 213)]
        {
            assert_eq!(steady.at(read), Nanos(told), "{read}");
        }
    }
}
