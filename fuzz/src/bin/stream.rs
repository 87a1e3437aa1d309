//! A stream of sequence numbers against an oracle that keeps every missing number in a set.
//!
//! Input: the first number (4 bytes), then operations of 5 bytes: which, and how far.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use punctual_proto::limits::REORDER_WINDOW;
use punctual_proto::{Moment, Stream, Verdict};

/// No time passes.
const NOW: Moment = Moment { now_ns: 0, fresh_ns: 0 };

fuzz_target!(|bytes: &[u8]| {
    let Some((head, mut rest)) = bytes.split_first_chunk::<4>() else { return };
    let first = u32::from_le_bytes(*head);
    let mut stream = Stream::starting_at(first.into(), NOW);
    let mut oracle = Oracle::starting_at(first);
    while let Some((operation, more)) = rest.split_first_chunk::<5>() {
        let distance = i32::from_le_bytes([operation[1], operation[2], operation[3], operation[4]]);
        step(&mut stream, &mut oracle, operation[0], distance);
        rest = more;
    }
    oracle.lost += oracle.stop();
    stream.handle_stop();
    let passed = oracle.next - oracle.first;
    assert_eq!(oracle.delivered + oracle.lost, passed, "every number ends in exactly one place");
});

/// One operation on both, whose answers must be equal.
fn step(stream: &mut Stream, oracle: &mut Oracle, operation: u8, distance: i32) {
    // Most distances are small, so that windows fill; every eighth operation goes anywhere.
    let distance = if operation & 0b111_000 == 0 { distance } else { distance % 100 };
    let number = oracle.next.saturating_add_signed(i64::from(distance));
    // A number before the first is none of the sender's.
    let sent = number.saturating_sub(SET_ASIDE);
    let lost = match operation & 0b111 {
        0 => {
            let lost = oracle.progress(sent + SET_ASIDE);
            assert_eq!(stream.handle_progress(sent, NOW), lost);
            lost
        }
        1 => {
            let lost = oracle.progress(sent + SET_ASIDE) + oracle.stop();
            assert_eq!(stream.handle_end(sent, NOW), lost);
            lost
        }
        2 => {
            let lost = oracle.stop();
            assert_eq!(stream.handle_stop(), lost);
            lost
        }
        _ => {
            let (verdict, lost) = oracle.accept(number);
            let accepted = stream.accept(number as u32, NOW);
            assert_eq!((accepted.verdict, accepted.lost), (verdict, lost));
            oracle.delivered += u64::from(accepted.is_deliverable());
            lost
        }
    };
    oracle.lost += lost;
    assert_eq!(stream.missing() as usize, oracle.missing.len());
}

/// So that numbers before the first are numbers too.
const SET_ASIDE: u64 = 1 << 32;

const WINDOW: u64 = REORDER_WINDOW as u64;

struct Oracle {
    first: u64,
    next: u64,
    missing: BTreeSet<u64>,
    delivered: u64,
    lost: u64,
}

impl Oracle {
    fn starting_at(first: u32) -> Self {
        let first = u64::from(first) + SET_ASIDE;
        Self { first, next: first, missing: BTreeSet::new(), delivered: 0, lost: 0 }
    }

    fn accept(&mut self, number: u64) -> (Verdict, u64) {
        if number >= self.next {
            let skipped = number - self.next;
            // The number itself arrives: it is never missing, and so never lost.
            let lost = self.miss_up_to(number, number + 1);
            return (Verdict::New { skipped }, lost);
        }
        if number + WINDOW < self.next {
            return (Verdict::Stale, 0);
        }
        let late = self.missing.remove(&number);
        (if late { Verdict::Late } else { Verdict::Duplicate }, 0)
    }

    fn progress(&mut self, number: u64) -> u64 {
        if number <= self.next { 0 } else { self.miss_up_to(number, number) }
    }

    fn stop(&mut self) -> u64 {
        std::mem::take(&mut self.missing).len() as u64
    }

    /// Everything from `self.next` up to `end` is missing, then `next` is expected. Returns how many are lost by that.
    fn miss_up_to(&mut self, end: u64, next: u64) -> u64 {
        let floor = next - WINDOW;
        let never_kept = floor.clamp(self.next, end);
        let kept = self.missing.split_off(&floor);
        let fallen = std::mem::replace(&mut self.missing, kept).len() as u64;
        self.missing.extend(never_kept..end);
        let lost = fallen + (never_kept - self.next);
        self.next = next;
        lost
    }
}
