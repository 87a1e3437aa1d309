//! Slow messages that were released together are one stall.

use proptest::prelude::*;
use punctual_lab::sample::{Load, Outcome, Samples};
use punctual_lab::stall::{StallRule, per_minute, stalls, steady_stalls};

const MS: u64 = 1_000_000;

/// The asynchronous reception of the vehicles experiment: 1,506 samples, p50 22 µs, max 3,248 µs; fourteen
/// exceed 1 ms and fall in steps of the send spacing, because one receiver stood still once.
fn vehicles() -> Samples {
    const SPACING_NS: u64 = 170_000;
    let mut samples = Samples::default();
    let stall_begins = 700;
    for index in 0..1506 {
        let sent_ns = index * SPACING_NS;
        let waited = (index as i64 - stall_begins).unsigned_abs();
        let total_ns = match index as i64 >= stall_begins {
            true if waited * SPACING_NS < 3_226_000 => 3_248_000 - waited * SPACING_NS,
            _ => 22_000 + (index % 7) * 1000,
        };
        samples.push(index, sent_ns, sent_ns, total_ns, Outcome::Answered);
    }
    samples
}

#[test]
fn fourteen_slow_messages_are_one_stall() {
    let samples = vehicles();
    assert_eq!(samples.total_ns.iter().filter(|&&ns| ns > MS).count(), 14);
    let rule = StallRule::for_trials(std::slice::from_ref(&samples), 10).expect("answered");
    let stalls = steady_stalls(&samples, Load::Closed, rule, 10);
    assert_eq!(stalls.len(), 1, "{stalls:?}");
    assert_eq!((stalls[0].first_index, stalls[0].longest_ns), (700, 3_248_000));
    assert!(stalls[0].messages >= 14, "{stalls:?}");
}

#[test]
fn two_stalls_are_two() {
    let mut samples = vehicles();
    for (row, waited_ns) in [(100, 9 * MS), (101, 8_830_000), (102, 8_660_000)] {
        samples.total_ns[row] = waited_ns;
    }
    let rule = StallRule::for_median(22_000);
    let stalls = stalls(&samples, Load::Closed, rule, |_| true);
    assert_eq!(stalls.iter().map(|s| s.first_index).collect::<Vec<_>>(), [100, 700]);
}

#[test]
fn under_open_load_the_wait_begins_when_the_message_is_due() {
    let mut samples = Samples::default();
    // Held back by the sender: due 1 ms apart, all sent and answered at 10 ms.
    for index in 0..10 {
        let due_ns = index * MS;
        samples.push(index, due_ns, 10 * MS, 10 * MS - due_ns, Outcome::Answered);
    }
    let rule = StallRule { threshold_ns: MS / 2, gap_ns: 1000 };
    assert_eq!(stalls(&samples, Load::Open, rule, |_| true).len(), 1);
}

#[test]
fn the_lost_are_in_no_stall_and_the_unfinished_are_one() {
    let mut samples = Samples::default();
    for index in 0..10 {
        let sent_ns = index * MS;
        let outcome = if index < 5 { Outcome::Lost } else { Outcome::Unfinished };
        samples.push(index, sent_ns, sent_ns, 20 * MS - sent_ns, outcome);
    }
    let stalls = stalls(&samples, Load::Closed, StallRule::for_median(1000), |_| true);
    assert_eq!(stalls.iter().map(|s| (s.first_index, s.messages)).collect::<Vec<_>>(), [(5, 5)]);
}

#[test]
fn a_slow_route_is_not_a_stalled_one() {
    assert_eq!(StallRule::for_median(200).threshold_ns, 100_200);
    assert_eq!(StallRule::for_median(1_000_000).threshold_ns, 8_000_000);
}

#[test]
fn a_rate_needs_a_second() {
    assert_eq!(per_minute(1, MS), None);
    assert_eq!(per_minute(1, 1000 * MS), Some(60.0));
}

proptest! {
    #[test]
    fn every_slow_message_is_in_one_stall(totals in prop::collection::vec(0u64..10_000_000, 0..200), spacing in 1u64..1_000_000) {
        let mut samples = Samples::default();
        for (index, &total_ns) in (0u64..).zip(&totals) {
            samples.push(index, index * spacing, index * spacing, total_ns, Outcome::Answered);
        }
        let rule = StallRule::for_median(100_000);
        let stalls = stalls(&samples, Load::Closed, rule, |_| true);
        let slow = totals.iter().filter(|&&ns| ns > rule.threshold_ns).count() as u64;
        prop_assert_eq!(stalls.iter().map(|s| s.messages).sum::<u64>(), slow);
        prop_assert_eq!(stalls.iter().map(|s| s.longest_ns).max(), totals.iter().copied().filter(|&ns| ns > rule.threshold_ns).max());
        prop_assert!(stalls.windows(2).all(|pair| pair[1].release_ns > pair[0].release_ns));
    }
}
