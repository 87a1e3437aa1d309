//! One stream of sequence numbers: new, late, duplicate, missing and lost ones.
//!
//! Every number ends in exactly one place: it arrived, or it is lost. A number is lost when it leaves the reorder window
//! without having arrived; until then it is missing and may still come.
//!
//! Numbers have 64 bits. A frame carries the lower half of its own, a sender's word of how far it is carries all of it. The
//! upper half of a frame's number follows from the newest before it, as long as fewer than 2^31 lie between them. Where more
//! may, the time that has passed tells ([`Moment`]), or the sender, who says how far it is.

use crate::limits::{MESSAGE_INTERVAL_NS_MIN, REORDER_WINDOW};
use crate::recency::{Moment, elapsed_ns};

/// The largest number that a sender is believed: 2^62 messages take 14,000 years at 10 million a second.
const NUMBER_MAX: u64 = 1 << 62;

/// Numbers that are set aside, so that those just before the first are numbers too.
const SET_ASIDE: u64 = 1 << 32;

/// Half of the numbers that a frame can carry.
const HALF_LAP: u64 = 1 << 31;

/// Every number behind the newest that may still arrive, as bits.
const WINDOW: u64 = u64::MAX >> (64 - REORDER_WINDOW);

/// Meaning of one sequence number to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The number that was expected, or a later one.
    New {
        /// Numbers between the newest before it and this one.
        skipped: u64,
    },
    /// Missing until now: it overtook nothing, it was overtaken.
    Late,
    /// Already here. Must not be delivered.
    Duplicate,
    /// Older than the window; already counted as lost or delivered. Must not be delivered.
    Stale,
}

/// A verdict, and what this arrival says of earlier numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Verdict on this number.
    pub verdict: Verdict,
    /// Numbers that just left the window without having arrived.
    pub lost: u64,
    /// So many numbers had been skipped that only the time tells it from an old one. The multiple of 2^32 that was lost in addition is
    /// not known before the sender says how far it is.
    pub restarted: bool,
}

impl Accepted {
    /// True if the message is to be delivered.
    #[inline]
    pub fn is_deliverable(self) -> bool {
        matches!(self.verdict, Verdict::New { .. } | Verdict::Late)
    }
}

/// State of knowledge about the beginning of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// Its first number.
    Known,
    /// Its first number is at most this: an earlier one begins it, a later one shows a loss.
    NoLater,
    /// Nothing: the first number that is heard begins it.
    Unknown,
}

/// The receiving side of one stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The number after the newest that arrived.
    next: u64,
    /// Bit i: `next - 1 - i` has not arrived and is not yet counted as lost.
    missing: u64,
    /// Numbers before this one are not ours to miss: they count when they arrive, not when they do not.
    start: u64,
    beginning: Beginning,
    /// Frames alone have told of this stream: the upper half of its numbers is a guess.
    lap_unknown: bool,
    /// The newest number was sent after this.
    newest_ns: u64,
}

impl Stream {
    /// A stream whose first number is `next`.
    pub fn starting_at(next: u64, moment: Moment) -> Self {
        let next = next.min(NUMBER_MAX) + SET_ASIDE;
        Self {
            next,
            missing: 0,
            start: next,
            beginning: Beginning::Known,
            lap_unknown: false,
            newest_ns: moment.fresh_ns,
        }
    }

    /// A stream whose first number is `next` or one a little before it.
    pub fn starting_by(next: u64, moment: Moment) -> Self {
        Self { beginning: Beginning::NoLater, ..Self::starting_at(next, moment) }
    }

    /// A stream of which nothing is known: the first number that is heard begins it.
    pub fn unheard(moment: Moment) -> Self {
        Self { beginning: Beginning::Unknown, lap_unknown: true, ..Self::starting_at(0, moment) }
    }

    /// A stream of which is known only that `next` has not been sent yet. A message sent just before may be on its way to us, or may
    /// never have been for us. It is taken if it comes, and not missed if it does not.
    fn joined_at(next: u64, moment: Moment) -> Self {
        Self { missing: WINDOW, ..Self::starting_at(next, moment) }
    }

    /// True if so much came after this number that nothing of it can be late any more.
    pub fn is_past(&self, number: u64) -> bool {
        self.next > number.saturating_add(SET_ASIDE + u64::from(REORDER_WINDOW))
    }

    /// Numbers that are missing and may still come.
    pub fn missing(&self) -> u32 {
        self.ours(self.missing).count_ones()
    }

    /// Of a set of numbers behind `next`, those not before the start.
    #[inline]
    fn ours(&self, numbers: u64) -> u64 {
        match self.next - self.start {
            0 => 0,
            count if count >= 64 => numbers,
            count => numbers & ((1 << count) - 1),
        }
    }

    /// Takes the number of a frame that arrived, of which the frame has the lower half.
    #[inline]
    pub fn accept(&mut self, sequence: u32, moment: Moment) -> Accepted {
        if sequence == self.next as u32 && self.missing == 0 && self.beginning == Beginning::Known {
            // The frequent case: the next one, and nothing before it is open.
            self.next += 1;
            self.newest_ns = moment.fresh_ns;
            return Accepted { verdict: Verdict::New { skipped: 0 }, lost: 0, restarted: false };
        }
        self.accept_any(sequence, moment)
    }

    fn accept_any(&mut self, sequence: u32, moment: Moment) -> Accepted {
        let number = self.expand(sequence, moment);
        if self.beginning != Beginning::Known {
            self.begin(number);
        }
        if number < self.next {
            return Accepted { verdict: self.accept_old(number), lost: 0, restarted: false };
        }
        let skipped = number - self.next;
        let lost = self.advance(number);
        self.missing &= !1;
        self.newest_ns = moment.fresh_ns;
        Accepted { verdict: Verdict::New { skipped }, lost, restarted: skipped >= HALF_LAP }
    }

    /// The sender says that everything before `number` was sent. Returns how many numbers are lost now.
    pub fn handle_progress(&mut self, number: u64, moment: Moment) -> u64 {
        if self.beginning == Beginning::Unknown || self.begins_before(number) {
            *self = Self::joined_at(number, moment);
            return 0;
        }
        self.beginning = Beginning::Known;
        if number > NUMBER_MAX {
            return 0;
        }
        let number = number + SET_ASIDE;
        if self.lap_unknown {
            self.find_lap(number);
        }
        if number < self.next {
            return 0;
        }
        self.newest_ns = moment.fresh_ns;
        if number == self.next { 0 } else { self.advance(number - 1) }
    }

    /// The sender says by another way that everything before `number` was sent. The statement may have overtaken frames of this stream.
    /// It therefore only bounds the beginning of a stream of which nothing else is known.
    pub fn handle_bound(&mut self, number: u64, moment: Moment) {
        if self.beginning == Beginning::Unknown {
            *self = Self { beginning: Beginning::NoLater, ..Self::joined_at(number, moment) };
        }
    }

    /// True if the stream begins at this number, which is before the latest possible beginning.
    fn begins_before(&self, number: u64) -> bool {
        self.beginning == Beginning::NoLater && number.saturating_add(SET_ASIDE) < self.start
    }

    /// Nothing more will come before `number`. Returns how many numbers are lost now.
    pub fn handle_end(&mut self, number: u64, moment: Moment) -> u64 {
        if self.beginning == Beginning::Unknown {
            return self.handle_stop();
        }
        self.handle_progress(number, moment) + self.handle_stop()
    }

    /// Nothing more will come, and where the stream ended is not known. Returns how many numbers are lost now.
    pub fn handle_stop(&mut self) -> u64 {
        let lost = u64::from(self.missing());
        self.missing = 0;
        lost
    }

    /// The first number that arrives of a stream whose beginning is not known. It may have overtaken others, as when the first
    /// frames for a node go to everybody and the next to its address: those are taken if they come, and not missed if they do not.
    #[cold]
    fn begin(&mut self, number: u64) {
        if self.beginning == Beginning::Unknown || number < self.start {
            (self.next, self.start, self.missing) = (number, number, WINDOW);
        }
        self.beginning = Beginning::Known;
    }

    /// The sender's count tells the upper half of the numbers that arrived: it is less than half a lap away from them.
    #[cold]
    fn find_lap(&mut self, number: u64) {
        let distance = (number as u32).wrapping_sub(self.next as u32).cast_signed();
        let next = number.saturating_add_signed(-i64::from(distance));
        self.start = next.saturating_sub(self.next - self.start);
        self.next = next;
        self.lap_unknown = false;
    }

    fn accept_old(&mut self, number: u64) -> Verdict {
        let age = self.next - 1 - number;
        if age >= u64::from(REORDER_WINDOW) {
            return Verdict::Stale;
        }
        let bit = 1_u64 << age;
        if self.missing & bit == 0 {
            return Verdict::Duplicate;
        }
        self.missing &= !bit;
        Verdict::Late
    }

    /// Moves on so that `newest` is the newest number, itself marked missing.
    /// Returns how many numbers before `newest` are lost.
    #[inline]
    fn advance(&mut self, newest: u64) -> u64 {
        let steps = newest + 1 - self.next;
        let missed = self.ours(self.missing);
        self.next = newest + 1;
        let kept = u64::from(REORDER_WINDOW);
        let falling = if steps >= kept { missed } else { missed >> (kept - steps) };
        let never_held = steps.saturating_sub(kept);
        self.missing = if steps >= kept { WINDOW } else { self.shifted(steps) };
        u64::from(falling.count_ones()) + never_held
    }

    /// The bits after `steps` new numbers, all of them missing.
    fn shifted(&self, steps: u64) -> u64 {
        ((self.missing << steps) | ((1 << steps) - 1)) & WINDOW
    }

    /// The full number that `sequence` is the lower half of: the nearest to the expected, unless more may have passed.
    #[inline]
    fn expand(&self, sequence: u32, moment: Moment) -> u64 {
        let ahead = sequence.wrapping_sub(self.next as u32);
        if ahead.cast_signed() >= 0 || self.may_have_passed(ahead, moment) {
            self.next + u64::from(ahead)
        } else {
            self.next - u64::from(ahead.wrapping_neg())
        }
    }

    /// True if so many numbers can have been sent since the newest: then a number that seems old is new. A number within the window is
    /// late all the same.
    #[cold]
    fn may_have_passed(&self, ahead: u32, moment: Moment) -> bool {
        let passed_ns = elapsed_ns(moment.now_ns, self.newest_ns);
        ahead.wrapping_neg() > REORDER_WINDOW && passed_ns / MESSAGE_INTERVAL_NS_MIN >= u64::from(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recency::SILENCE_NS;

    /// No time passes.
    const NOW: Moment = Moment { now_ns: 0, fresh_ns: 0 };

    fn starting_at(next: u64) -> Stream {
        Stream::starting_at(next, NOW)
    }

    fn new(skipped: u64, lost: u64) -> Accepted {
        Accepted { verdict: Verdict::New { skipped }, lost, restarted: false }
    }

    #[test]
    fn a_late_frame_is_late_once() {
        let mut stream = starting_at(0);
        stream.accept(0, NOW);
        assert_eq!(stream.accept(2, NOW), new(1, 0));
        assert_eq!(stream.accept(1, NOW).verdict, Verdict::Late);
        assert_eq!(stream.accept(1, NOW).verdict, Verdict::Duplicate);
        assert_eq!(stream.accept(2, NOW).verdict, Verdict::Duplicate);
        assert_eq!(stream.handle_end(3, NOW), 0);
    }

    #[test]
    fn numbers_wrap() {
        let mut stream = starting_at(u64::from(u32::MAX));
        assert_eq!(stream.accept(u32::MAX, NOW), new(0, 0));
        assert_eq!(stream.accept(1, NOW), new(1, 0));
        assert_eq!(stream.accept(0, NOW).verdict, Verdict::Late);
        assert_eq!(stream.handle_end((1 << 32) + 2, NOW), 0);
    }

    #[test]
    fn a_frame_from_before_the_start_is_not_delivered() {
        let mut stream = starting_at(0);
        assert!(!stream.accept(u32::MAX, NOW).is_deliverable());
        assert!(!stream.accept(u32::MAX - 1000, NOW).is_deliverable());
    }

    #[test]
    fn a_joining_reader_takes_frames_on_their_way_and_misses_none() {
        let mut stream = Stream::unheard(NOW);
        assert_eq!(stream.handle_progress(500, NOW), 0);
        assert_eq!(stream.missing(), 0);
        assert_eq!(stream.accept(499, NOW).verdict, Verdict::Late);
        assert_eq!(stream.accept(499, NOW).verdict, Verdict::Duplicate);
        assert_eq!(stream.accept(400, NOW).verdict, Verdict::Stale);
        assert_eq!(stream.accept(700, NOW), new(200, 137));
        assert_eq!(stream.missing(), 63);
        assert_eq!(stream.handle_end(701, NOW), 63);
    }

    /// Goal: the frame that is heard first may have overtaken others. They are delivered once if they come, and are not missed.
    #[test]
    fn a_frame_overtaken_at_the_beginning_is_late() {
        for mut stream in [Stream::unheard(NOW), Stream::starting_by(8, NOW)] {
            assert_eq!(stream.accept(2, NOW), new(0, 0));
            assert_eq!(stream.missing(), 0);
            assert_eq!(stream.accept(0, NOW).verdict, Verdict::Late);
            assert_eq!(stream.accept(0, NOW).verdict, Verdict::Duplicate);
            assert_eq!(stream.accept(2, NOW).verdict, Verdict::Duplicate);
            assert_eq!(stream.handle_end(3, NOW), 0);
        }
    }

    #[test]
    fn an_earlier_number_begins_a_stream_and_a_later_one_shows_a_loss() {
        for (first, lost) in [(97, 0), (100, 0), (103, 3)] {
            let mut stream = Stream::starting_by(100, NOW);
            assert_eq!(stream.accept(first, NOW).lost, 0);
            assert_eq!(stream.handle_end(u64::from(first) + 1, NOW), lost);
        }
    }

    /// Goal: a count that overtook frames loses none of them, and what is lost behind it is missed. Method: a stream that is known
    /// by such a count alone, then what its own way brings: frames of before, a count of before, one of after, and frames of after.
    #[test]
    fn a_count_that_overtook_frames_loses_none() {
        let bounded = || {
            let mut stream = Stream::unheard(NOW);
            stream.handle_bound(100, NOW);
            stream
        };
        let mut stream = bounded();
        assert!((0..200).all(|number| stream.accept(number, NOW) == new(0, 0)));
        stream.handle_bound(500, NOW);
        assert_eq!((stream.missing(), stream.handle_end(200, NOW)), (0, 0), "the stream is known");
        let mut stream = bounded();
        assert_eq!(stream.handle_progress(10, NOW), 0);
        assert_eq!((stream.accept(10, NOW), stream.handle_end(111, NOW)), (new(0, 0), 100));
        let mut stream = bounded();
        assert_eq!(stream.handle_progress(200, NOW), 36);
        assert_eq!(stream.accept(90, NOW).verdict, Verdict::Stale, "its loss is counted");
        assert_eq!(stream.handle_end(200, NOW), 64);
        let mut stream = bounded();
        assert_eq!((stream.accept(103, NOW), stream.handle_end(104, NOW)), (new(3, 0), 3));
    }

    /// Goal: a receiver that began in the middle of a lap that it could not know misses nothing when it learns which.
    #[test]
    fn the_lap_of_a_stream_is_learned_without_a_loss() {
        let lap = 5 << 32;
        let mut stream = Stream::unheard(NOW);
        assert_eq!(stream.accept(u32::MAX, NOW), new(0, 0));
        assert_eq!(stream.accept(1, NOW), new(1, 0));
        assert_eq!(stream.handle_progress(lap + 2, NOW), 0);
        assert_eq!(stream.handle_end(lap + 10, NOW), 9);
    }

    #[test]
    fn progress_that_no_honest_sender_claims_is_not_believed() {
        let mut stream = starting_at(7);
        assert_eq!(stream.handle_progress(u64::MAX, NOW), 0);
        assert_eq!(stream.accept(7, NOW), new(0, 0));
        let mut stream = starting_at(u64::MAX);
        assert!(stream.accept(9, NOW).is_deliverable());
        stream.handle_progress(NUMBER_MAX, NOW);
        assert!(stream.accept(u32::MAX >> 1, NOW).is_deliverable());
    }

    /// Goal: after a gap of any size everything later is taken, and the gap is lost: when the sender says how far it is, or at
    /// once if as many can have been sent meanwhile.
    #[test]
    fn no_gap_makes_a_stream_deaf() {
        let half = 1_u64 << 31;
        for gap in [half - 1, half, half + 1, 2 * half, 3 * half, 9 * half + 5] {
            let mut wire = starting_at(10);
            assert_eq!(wire.handle_progress(10 + gap, NOW), gap - 64);
            assert_eq!(wire.accept((10 + gap) as u32, NOW), new(0, 1));
            let mut silent = starting_at(10);
            let later = Moment { now_ns: 2 * SILENCE_NS, fresh_ns: 2 * SILENCE_NS };
            let accepted = silent.accept((10 + gap) as u32, later);
            let known = gap % (2 * half);
            assert_eq!(accepted.verdict, Verdict::New { skipped: known });
            assert_eq!(accepted.restarted, known >= half, "{gap}");
            assert_eq!(accepted.lost + silent.handle_end(11 + gap, later), gap);
        }
    }

    /// Goal: an old number stays old, after a silence of any length, if it is within the window, or if so much cannot have passed.
    #[test]
    fn a_silence_makes_nothing_new_that_cannot_be() {
        let mut stream = starting_at(1_000);
        stream.accept(1_000, NOW);
        let at = |now_ns| Moment { now_ns, fresh_ns: now_ns };
        assert_eq!(stream.accept(900, at(SILENCE_NS)).verdict, Verdict::Stale);
        assert_eq!(stream.accept(1_000, at(10 * SILENCE_NS)).verdict, Verdict::Duplicate);
        assert!(!stream.accept(1_000 + (1 << 31) + 1, at(SILENCE_NS - 1_000)).is_deliverable());
        assert!(stream.accept(1_000 + (1 << 31) + 1, at(SILENCE_NS)).is_deliverable());
    }
}
