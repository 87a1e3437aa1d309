//! One stream of sequence numbers: what is new, late, duplicate, missing, lost.
//!
//! Every sequence number ends in exactly one place: it arrived, or it is lost. A number is lost when
//! it leaves the reorder window without having arrived; until then it is missing and may still come.

use crate::limits::REORDER_WINDOW;

/// What one sequence number means to its stream.
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

/// A verdict, and how many earlier numbers this arrival declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// What this number is.
    pub verdict: Verdict,
    /// Numbers that just left the window without having arrived.
    pub lost: u64,
}

impl Accepted {
    /// Whether the message is to be delivered.
    #[inline]
    pub fn is_deliverable(self) -> bool {
        matches!(self.verdict, Verdict::New { .. } | Verdict::Late)
    }
}

/// The receiving side of one stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The number after the newest that arrived.
    next: u64,
    /// Bit i: `next - 1 - i` has not arrived and is not yet counted as lost.
    missing: u64,
    /// Numbers behind `next` that may still arrive; 0 where the medium keeps order.
    window: u32,
    /// Numbers before this one are not ours to miss: they count when they arrive, not when they do not.
    start: u64,
}

impl Stream {
    /// A stream whose next number is `next`; `ordered` where the medium never reorders.
    pub fn starting_at(next: u32, ordered: bool) -> Self {
        // One wrap is set aside, so that numbers just before the start expand to something below it.
        let next = u64::from(next) + (1 << 32);
        Self { next, missing: 0, window: if ordered { 0 } else { REORDER_WINDOW }, start: next }
    }

    /// A stream of which is known only that `next` has not been sent yet: what was sent just before may be on its way to
    /// us, or may never have been for us. It is taken if it comes, and not missed if it does not.
    pub fn joined_at(next: u32, ordered: bool) -> Self {
        let stream = Self::starting_at(next, ordered);
        let missing = if ordered { 0 } else { u64::MAX >> (64 - stream.window) };
        Self { missing, ..stream }
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

    /// The number that comes next, where the medium keeps order.
    #[inline]
    pub fn next_in_order(&self) -> Option<u32> {
        (self.window == 0).then_some(self.next as u32)
    }

    /// Takes the frame with that number: what [`Self::accept`] does with it, and no loss can be found by it.
    #[inline]
    pub fn accept_next_in_order(&mut self) {
        debug_assert_eq!(self.window, 0);
        self.next += 1;
    }

    /// Takes the number of a frame that arrived.
    #[inline]
    pub fn accept(&mut self, sequence: u32) -> Accepted {
        let number = self.expand(sequence);
        if number < self.next {
            return Accepted { verdict: self.accept_old(number), lost: 0 };
        }
        let skipped = number - self.next;
        let lost = self.advance(number);
        self.missing &= !1;
        Accepted { verdict: Verdict::New { skipped }, lost }
    }

    /// The sender says that everything before `sequence` was sent. Returns how many numbers are lost now.
    pub fn handle_progress(&mut self, sequence: u32) -> u64 {
        let number = self.expand(sequence);
        if number <= self.next {
            return 0;
        }
        let newest_itself = u64::from(self.window == 0);
        self.advance(number - 1) + newest_itself
    }

    /// Nothing more will come before `sequence`. Returns how many numbers are lost now.
    pub fn handle_end(&mut self, sequence: u32) -> u64 {
        self.handle_progress(sequence) + self.handle_stop()
    }

    /// Nothing more will come, and where the stream ended is not known. Returns how many numbers are lost now.
    pub fn handle_stop(&mut self) -> u64 {
        let lost = u64::from(self.missing());
        self.missing = 0;
        lost
    }

    fn accept_old(&mut self, number: u64) -> Verdict {
        let age = self.next - 1 - number;
        if age >= u64::from(self.window) {
            return Verdict::Stale;
        }
        let bit = 1_u64 << age;
        if self.missing & bit == 0 {
            return Verdict::Duplicate;
        }
        self.missing &= !bit;
        Verdict::Late
    }

    /// Moves on so that `newest` is the newest number, itself marked missing where a window is kept.
    /// Returns how many numbers before `newest` are lost.
    #[inline]
    fn advance(&mut self, newest: u64) -> u64 {
        let steps = newest + 1 - self.next;
        let missed = self.ours(self.missing);
        self.next = newest + 1;
        if self.window == 0 {
            return steps - 1;
        }
        let kept = u64::from(self.window);
        let falling = if steps >= kept { missed } else { missed >> (kept - steps) };
        let never_held = steps.saturating_sub(kept);
        self.missing = if steps >= kept { u64::MAX >> (64 - kept) } else { self.shifted(steps) };
        u64::from(falling.count_ones()) + never_held
    }

    /// The bits after `steps` new numbers, all of them missing.
    fn shifted(&self, steps: u64) -> u64 {
        let mask = u64::MAX >> (64 - self.window);
        ((self.missing << steps) | ((1 << steps) - 1)) & mask
    }

    /// The full number that `sequence` is the low half of: the one nearest to the expected.
    #[inline]
    fn expand(&self, sequence: u32) -> u64 {
        let distance = sequence.wrapping_sub(self.next as u32).cast_signed();
        self.next.saturating_add_signed(i64::from(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn an_ordered_stream_loses_at_once() {
        let mut stream = Stream::starting_at(0, true);
        assert_eq!(stream.accept(0), Accepted { verdict: Verdict::New { skipped: 0 }, lost: 0 });
        assert_eq!(stream.accept(3), Accepted { verdict: Verdict::New { skipped: 2 }, lost: 2 });
        assert_eq!(stream.accept(2).verdict, Verdict::Stale);
        assert_eq!(stream.handle_end(10), 6);
    }

    #[test]
    fn the_next_in_order_is_what_any_number_would_be_taken_for() {
        let (mut one, mut other) = (Stream::starting_at(u32::MAX, true), Stream::starting_at(u32::MAX, true));
        for _ in 0..3 {
            let next = one.next_in_order().unwrap();
            one.accept_next_in_order();
            assert_eq!(other.accept(next), Accepted { verdict: Verdict::New { skipped: 0 }, lost: 0 });
            assert_eq!(one.next_in_order(), other.next_in_order());
        }
        assert_eq!(Stream::starting_at(0, false).next_in_order(), None);
    }

    #[test]
    fn a_late_frame_is_late_once() {
        let mut stream = Stream::starting_at(0, false);
        stream.accept(0);
        assert_eq!(stream.accept(2), Accepted { verdict: Verdict::New { skipped: 1 }, lost: 0 });
        assert_eq!(stream.accept(1).verdict, Verdict::Late);
        assert_eq!(stream.accept(1).verdict, Verdict::Duplicate);
        assert_eq!(stream.accept(2).verdict, Verdict::Duplicate);
        assert_eq!(stream.handle_end(3), 0);
    }

    #[test]
    fn numbers_wrap() {
        let mut stream = Stream::starting_at(u32::MAX, false);
        assert_eq!(stream.accept(u32::MAX).verdict, Verdict::New { skipped: 0 });
        assert_eq!(stream.accept(1).verdict, Verdict::New { skipped: 1 });
        assert_eq!(stream.accept(0).verdict, Verdict::Late);
        assert_eq!(stream.handle_end(2), 0);
    }

    #[test]
    fn what_came_before_the_start_is_stale_or_duplicate_never_new() {
        let mut stream = Stream::starting_at(0, false);
        assert!(!stream.accept(u32::MAX).is_deliverable());
        assert!(!stream.accept(u32::MAX - 1000).is_deliverable());
    }

    #[test]
    fn who_joins_takes_what_is_on_its_way_and_misses_none_of_it() {
        let mut stream = Stream::joined_at(500, false);
        assert_eq!(stream.missing(), 0);
        assert_eq!(stream.accept(499).verdict, Verdict::Late);
        assert_eq!(stream.accept(499).verdict, Verdict::Duplicate);
        assert_eq!(stream.accept(400).verdict, Verdict::Stale);
        assert_eq!(stream.accept(700), Accepted { verdict: Verdict::New { skipped: 200 }, lost: 137 });
        assert_eq!(stream.missing(), 63);
        assert_eq!(stream.handle_end(701), 63);
    }

    proptest! {
        /// Oracle: a set of all numbers that arrived. Each number is delivered at most once, and at
        /// the end sent = delivered + lost, whatever was dropped, doubled, or moved.
        #[test]
        fn every_number_ends_in_one_place(
            start: u32,
            arrivals in proptest::collection::vec((0_u32..400, 0_u32..3), 1..300),
            jump in prop_oneof![Just(0_u32), 60_u32..70, 1000_u32..5000],
            ordered: bool,
        ) {
            let mut stream = Stream::starting_at(start, ordered);
            let mut delivered = BTreeSet::new();
            let mut lost = 0;
            let half = arrivals.len() / 2;
            let offsets: Vec<u32> = arrivals.iter().enumerate()
                .map(|(i, (n, jitter))| i as u32 + n % 90 * jitter + if i > half { jump } else { 0 }).collect();
            for &offset in &offsets {
                let accepted = stream.accept(start.wrapping_add(offset));
                lost += accepted.lost;
                if accepted.is_deliverable() {
                    prop_assert!(delivered.insert(offset), "delivered twice: {}", offset);
                }
            }
            let end = offsets.iter().max().unwrap() + 1 + jump;
            lost += stream.handle_end(start.wrapping_add(end));
            prop_assert_eq!(delivered.len() as u64 + lost, u64::from(end));
            prop_assert_eq!(stream.missing(), 0);
        }
    }
}
