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
}

impl Stream {
    /// A stream whose next number is `next`; `ordered` where the medium never reorders.
    pub fn starting_at(next: u32, ordered: bool) -> Self {
        // One wrap is set aside, so that numbers just before the start expand to something below it.
        let next = u64::from(next) + (1 << 32);
        Self { next, missing: 0, window: if ordered { 0 } else { REORDER_WINDOW } }
    }

    /// Numbers that are missing and may still come.
    pub fn missing(&self) -> u32 {
        self.missing.count_ones()
    }

    /// Takes the number of a frame that arrived.
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
        let lost = self.handle_progress(sequence) + u64::from(self.missing());
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
    fn advance(&mut self, newest: u64) -> u64 {
        let steps = newest + 1 - self.next;
        self.next = newest + 1;
        if self.window == 0 {
            return steps - 1;
        }
        let kept = u64::from(self.window);
        let falling = if steps >= kept { self.missing } else { self.missing >> (kept - steps) };
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
