//! Distance between two processors' counters.
//!
//! One thread on each. The first reads its counter, asks, and reads again when the answer is there; the second reads its own in
//! between. So its reading lies between the two, if the counters are one; any excess beyond them is skew. The rounds in which the
//! answer came fastest leave the least room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Clock, Ticks};
use crate::cpu::pin_to;
use crate::sync::{AtomicU64, Ordering, spin_hint};

/// Rounds, and how long they may take: a thread may have lost its processor.
const ROUNDS: usize = 2_000;
const LASTING_MAX: Duration = Duration::from_millis(30);

/// Counters that are one differ by less between two processors: a step of the counter, and what its reading takes.
const READING_NS_MAX: i64 = 100;

/// One round: asked, read by the other processor, answered.
type Round = [Ticks; 3];

/// Where the second processor's counter stands beside the first's: at least `low`, at most `high` nanoseconds ahead.
/// Zero between them: nothing tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Lower bound.
    pub low_ns: i64,
    /// Upper bound.
    pub high_ns: i64,
}

/// Measures it in some 1 ms, 30 ms at most; `None` if a thread got no turn, or there is one processor only.
pub fn skew_between(cpus: [usize; 2]) -> Option<Skew> {
    if cpus[0] == cpus[1] {
        return None;
    }
    let (question, reply) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + LASTING_MAX;
    let other = {
        let (question, reply) = (Arc::clone(&question), Arc::clone(&reply));
        std::thread::spawn(move || {
            pin_to(cpus[1]).ok()?;
            answer(&question, &reply, end)
        })
    };
    let asker = std::thread::spawn(move || {
        pin_to(cpus[0]).ok()?;
        ask(&question, &reply, end)
    });
    let rounds = asker.join().ok().flatten();
    other.join().ok().flatten()?;
    bounds(&rounds?, Clock::get())
}

/// A question is a reading of the asker's counter, its answer one of the other's: the words carry all there is, so that no
/// order of accesses matters.
fn ask(question: &AtomicU64, answer: &AtomicU64, end: Instant) -> Option<Vec<Round>> {
    let clock = Clock::get();
    let mut rounds = Vec::with_capacity(ROUNDS);
    let mut last = 0;
    for _ in 0..ROUNDS {
        let asked = clock.now();
        question.store(asked.0, Ordering::Relaxed);
        last = other_than(last, answer, end)?;
        rounds.push([asked, Ticks(last), clock.now_after_loads()]);
    }
    Some(rounds)
}

fn answer(question: &AtomicU64, answer: &AtomicU64, end: Instant) -> Option<()> {
    let clock = Clock::get();
    let mut last = 0;
    for _ in 0..ROUNDS {
        last = other_than(last, question, end)?;
        answer.store(clock.now_after_loads().0, Ordering::Relaxed);
    }
    Some(())
}

/// Waits for another number.
fn other_than(last: u64, word: &AtomicU64, end: Instant) -> Option<u64> {
    let mut looks = 0_u32;
    loop {
        let found = word.load(Ordering::Relaxed);
        if found != last {
            return Some(found);
        }
        spin_hint();
        looks += 1;
        // The clock is asked rarely: it is what is measured.
        if looks.is_multiple_of(1024) && Instant::now() >= end {
            return None;
        }
    }
}

/// Every round says that the second counter is ahead by `seen − answered` at least and by `seen − asked` at most.
fn bounds(rounds: &[Round], clock: &Clock) -> Option<Skew> {
    let ahead = |of: Ticks, before: Ticks| {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        if of >= before {
            signed(clock.nanos(of.since(before)))
        } else {
            -signed(clock.nanos(before.since(of)))
        }
    };
    let low_ns = rounds.iter().map(|[_, seen, answered]| ahead(*seen, *answered)).max()?;
    let high_ns = rounds.iter().map(|[asked, seen, _]| ahead(*seen, *asked)).min()?;
    Some(Skew { low_ns: low_ns - READING_NS_MAX, high_ns: high_ns + READING_NS_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a counter that is ahead, or behind, is told from one that is not. Method: rounds with a known skew.
    #[test]
    fn a_skew_shows_where_no_round_leaves_room() {
        let clock = Clock::get();
        let second = clock.ticks(Duration::from_secs(1));
        let tick =
            |ns: i64| Ticks(second.0.checked_add_signed((second.0 as f64 * ns as f64 / 1e9) as i64).unwrap());
        let rounds = |skew: i64| -> Vec<Round> {
            let round = |there: i64, back: i64| [tick(0), tick(there + skew), tick(there + back)];
            vec![round(300, 300), round(150, 900), round(900, 160)]
        };
        let none = bounds(&rounds(0), clock).unwrap();
        assert!(none.low_ns < 0 && none.high_ns > 0, "{none:?}");
        let ahead = bounds(&rounds(1_000), clock).unwrap();
        // Readings are whole ticks, and each bound is the distance of two.
        let err = 5 + (2_000.0 / clock.ticks_per_us()).ceil() as i64;
        assert!(
            (ahead.low_ns - 740).abs() <= err && (ahead.high_ns - 1_250).abs() <= err,
            "{ahead:?}, {err}"
        );
        let behind = bounds(&rounds(-1_000), clock).unwrap();
        assert!(behind.high_ns < 0, "{behind:?}");
        assert_eq!(bounds(&[], clock), None);
    }

    /// Goal: it ends, and on a machine whose counter is one it says so.
    #[test]
    fn the_counters_of_this_machine_are_compared() {
        let cpus = crate::cpu::allowed();
        assert_eq!(skew_between([cpus[0]; 2]), None);
        let Some(&last) = cpus.last().filter(|&&last| last != cpus[0]) else {
            crate::skipped!("one processor");
            return;
        };
        match skew_between([cpus[0], last]) {
            Some(skew) => assert!(skew.low_ns <= skew.high_ns, "{skew:?}"),
            None => crate::skipped!("a thread got no turn within {LASTING_MAX:?}"),
        }
    }
}
