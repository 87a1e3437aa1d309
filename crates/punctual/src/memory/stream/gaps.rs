//! Detection of time between the messages of a publication.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

/// Of so many times that readers are told of something, one is looked at: looking takes two readings of the clock. A prime: bursts of
/// a power of two would be looked at in the same place always.
pub(super) const LOOK_EVERY: u32 = 61;

/// From here on a gap is one: a few cache lines come from another core in that time.
const GAP_MIN: Duration = Duration::from_nanos(100);

/// A line is sent to the readers in that time, measured with 8 KiB. A gap in which not all of a message's can go is none for them.
const LINE_TIME: Duration = Duration::from_nanos(6);

/// Lines of 16 KiB. Readers of as much are there and back 3 to 8 % sooner if it was sent to them, those of 32 KiB no more.
const LINES_MAX: u64 = 256;

/// Tells if time passes between what is told to readers, and how much. Then the lines of the next message are taken from them in that
/// time, and those of the last one go to them. In a stream without gaps each message would wait for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    /// So many times more, and the gap is looked at.
    until_look: u32,
    /// So many lines can be sent in the shorter of the last two gaps, as there is a long one between bursts.
    lines_per_gap: u64,
    /// In the last one.
    last: u64,
    /// When that was told of behind which a gap is looked for; zero while none is.
    begin: Ticks,
    least: Ticks,
    /// In which all of [`LINES_MAX`] can be sent; a single line's time may be less than a tick.
    most: Ticks,
}

impl Gaps {
    /// Until the first look there is time for everything.
    pub(super) fn new(clock: &Clock) -> Self {
        let (least, most) = (clock.ticks(GAP_MIN), clock.ticks(LINE_TIME * LINES_MAX as u32));
        Self {
            until_look: LOOK_EVERY,
            lines_per_gap: LINES_MAX,
            last: LINES_MAX,
            begin: Ticks::default(),
            least,
            most,
        }
    }

    /// So many lines can be sent in a gap; none if there are no gaps.
    #[inline]
    pub(super) fn lines_per_gap(&self) -> u64 {
        self.lines_per_gap
    }

    /// Counts that readers were told of something. Returns true if a gap is to be looked for behind it.
    #[inline]
    pub(super) fn count(&mut self) -> bool {
        self.until_look -= 1;
        self.until_look == 0
    }

    /// Readers were told of something, and the next message shows whether there are gaps.
    pub(super) fn begin(&mut self, now: Ticks) {
        self.begin = now;
        self.until_look = LOOK_EVERY;
    }

    /// True if the next message ends a gap that is looked at.
    #[inline]
    pub(super) fn is_looking(&self) -> bool {
        self.begin != Ticks::default()
    }

    pub(super) fn end(&mut self, now: Ticks) {
        let gap = now.since(self.begin);
        let sent = gap.0.min(self.most.0) * LINES_MAX / self.most.0.max(1);
        let lines = if gap < self.least { 0 } else { sent };
        self.lines_per_gap = lines.min(self.last);
        self.last = lines;
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
        assert!(gaps.lines_per_gap() > 0 && !gaps.is_looking());
        let looks =
            [(20, false), (5000, false), (5000, true), (40, false), (150, false), (30, false), (150, false)];
        for (nanos, expected) in looks.into_iter().chain([(150, true)]) {
            let begin = clock.now();
            gaps.begin(begin);
            assert!(gaps.is_looking());
            gaps.end(begin.plus(clock.ticks(Duration::from_nanos(nanos))));
            assert_eq!((gaps.lines_per_gap() > 0, gaps.is_looking()), (expected, false), "{nanos} ns");
        }
        let [few, many] = [150, 9_000].map(|nanos| {
            for _ in 0..2 {
                gaps.begin(Ticks(1));
                gaps.end(Ticks(1).plus(clock.ticks(Duration::from_nanos(nanos))));
            }
            gaps.lines_per_gap()
        });
        assert!((20..30).contains(&few) && many == LINES_MAX, "{few} and {many} lines");
    }
}
