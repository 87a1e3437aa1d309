//! Detection of time between the messages of a publication.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

/// Of so many messages one is looked at: looking takes two readings of the clock. A prime: bursts of a power of two would be looked at
/// in the same place always.
pub(super) const LOOK_EVERY: u64 = 61;

/// From here on a gap is one: a few cache lines come from another core in that time.
const GAP_MIN: Duration = Duration::from_nanos(100);

/// Tells if time passes between messages. Then the lines of the next one are taken from their readers in that time, and those of the
/// last one go to them. In a stream of messages one by one they would be taken twice, as the reader's processor reads ahead.
/// Two looks in a row must have found a gap, as there is one between bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    are_there: bool,
    /// The last look found one.
    was_there: bool,
    /// When the message that is looked at was told of; zero while none is.
    begin: Ticks,
    least: Ticks,
}

impl Gaps {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { are_there: true, was_there: true, begin: Ticks::default(), least: clock.ticks(GAP_MIN) }
    }

    #[inline]
    pub(super) fn are_there(&self) -> bool {
        self.are_there
    }

    /// A message was told of, and the next one shows whether there are gaps.
    pub(super) fn begin(&mut self, now: Ticks) {
        self.begin = now;
    }

    /// True if the next message ends a gap that is looked at.
    #[inline]
    pub(super) fn is_looking(&self) -> bool {
        self.begin != Ticks::default()
    }

    pub(super) fn end(&mut self, now: Ticks) {
        let is_there = now.since(self.begin) >= self.least;
        self.are_there = is_there && self.was_there;
        self.was_there = is_there;
        self.begin = Ticks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a stream without gaps is seen, and so is one that has them again.
    #[test]
    fn gaps_come_and_go() {
        let clock = Clock::get();
        let mut gaps = Gaps::new(clock);
        assert!(gaps.are_there() && !gaps.is_looking());
        let looks =
            [(20, false), (5000, false), (5000, true), (40, false), (150, false), (30, false), (150, false)];
        for (nanos, expected) in looks.into_iter().chain([(150, true)]) {
            let begin = clock.now();
            gaps.begin(begin);
            assert!(gaps.is_looking());
            gaps.end(begin.plus(clock.ticks(Duration::from_nanos(nanos))));
            assert_eq!((gaps.are_there(), gaps.is_looking()), (expected, false), "{nanos} ns");
        }
    }
}
