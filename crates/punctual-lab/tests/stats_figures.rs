//! Exact figures: lost messages stay in, unsupported figures stay out.

use proptest::prelude::*;
use punctual_lab::sample::{ABSENT_NS, CellId, Outcome, Phase, Samples, StageColumn};
use punctual_lab::stats::{Distribution, Figure, Quantile, bins, stage_shares, stages_over_total};
use punctual_lab::store::Header;
use punctual_lab::summary::Figures;
use punctual_lab::summary::Summary;

fn answered(latencies_ns: &[u64]) -> Samples {
    let mut samples = Samples::default();
    for (index, &ns) in (10u64..).zip(latencies_ns) {
        samples.push(index, 0, 0, ns, Outcome::Answered);
    }
    samples
}

fn steady(samples: &Samples) -> Distribution {
    Distribution::of(std::slice::from_ref(samples), Phase::Steady, 10)
}

proptest! {
    /// At least the stated fraction is at or below a quantile, and at least ten samples beyond its rank.
    #[test]
    fn a_quantile_is_what_its_name_says(
        latencies in prop::collection::vec(0u64..5000, 0..3000), per_million in 0u64..1_000_000
    ) {
        let all = steady(&answered(&latencies));
        let quantile = Quantile::per_million(per_million).expect("below one million");
        let count = latencies.len() as u64;
        let rank = (u128::from(count) * u128::from(per_million)).div_ceil(1_000_000).max(1);
        match all.quantile(quantile) {
            Figure::Ns(value) => {
                prop_assert!(u128::from(count) - rank >= 10);
                let below = latencies.iter().filter(|&&ns| ns < value).count() as u128;
                let up_to = latencies.iter().filter(|&&ns| ns <= value).count() as u128;
                prop_assert!(below < rank && rank <= up_to);
            }
            Figure::Unsupported => prop_assert!(u128::from(count) < rank + 10),
            Figure::Infinite => prop_assert!(false, "nothing is lost"),
        }
    }

    #[test]
    fn losing_a_message_never_improves_a_figure(
        latencies in prop::collection::vec(1u64..5000, 1..400), lost in prop::collection::vec(any::<prop::sample::Index>(), 0..20)
    ) {
        let before = answered(&latencies);
        let mut after = before.clone();
        for place in lost {
            let row = place.index(latencies.len());
            after.outcome[row] = Outcome::Lost;
        }
        let (before, after) = (steady(&before), steady(&after));
        prop_assert_eq!(before.count(), after.count());
        for (_, quantile) in Quantile::PRINTED {
            match (before.quantile(quantile), after.quantile(quantile)) {
                (Figure::Ns(one), Figure::Ns(other)) => prop_assert!(other >= one),
                (Figure::Unsupported, other) => prop_assert_eq!(other, Figure::Unsupported),
                (_, other) => prop_assert_eq!(other, Figure::Infinite),
            }
        }
    }

    #[test]
    fn bins_hold_every_message_in_order(latencies in prop::collection::vec(0u64..100_000_000_000, 0..500)) {
        let bins = bins(&latencies, 24);
        prop_assert_eq!(bins.iter().map(|b| b.count).sum::<u64>(), latencies.len() as u64);
        prop_assert!(bins.windows(2).all(|pair| pair[0].high_ns <= pair[1].low_ns * 1.000_001));
    }
}

#[test]
fn a_quantile_needs_ten_samples_beyond_it() {
    for (count, expected) in [
        (20, [true, false, false, false]),
        (999, [true, true, false, false]),
        (1000, [true, true, true, false]),
    ] {
        assert_eq!(Quantile::PRINTED.map(|(_, q)| q.is_supported(count)), expected, "of {count}");
    }
    assert!(!Quantile::P999.is_supported(9_999) && Quantile::P999.is_supported(10_000));
    assert!(!Quantile::P50.is_supported(19) && !Quantile::P50.is_supported(0));
}

#[test]
fn a_lost_message_is_infinite_and_has_no_share_in_the_mean() {
    let mut samples = answered(&[100; 1000]);
    for row in 0..20 {
        samples.outcome[row * 3] = if row % 2 == 0 { Outcome::Lost } else { Outcome::Mismatched };
    }
    let figures = Figures::of(&steady(&samples));
    assert_eq!(
        (figures.count, figures.p50, figures.p90, figures.p99, figures.max),
        (1000, Some(100), Some(100), None, None)
    );
    assert_eq!((figures.mean, figures.max_answered), (Some(100.0), Some(100)));
    assert_eq!(figures.infinite_from.as_deref(), Some("p99"));
}

#[test]
fn the_unfinished_stand_at_their_age() {
    let mut samples = answered(&[100; 100]);
    samples.push(500, 0, 0, 9_000, Outcome::Unfinished);
    let figures = Figures::of(&steady(&samples));
    assert_eq!((figures.max, figures.max_answered, figures.mean), (Some(9_000), Some(100), Some(100.0)));
}

#[test]
fn phases_are_apart() {
    let samples = Samples { index: (0..1000).collect(), ..answered(&[7; 1000]) };
    let counts = [Phase::First, Phase::WarmUp, Phase::Steady]
        .map(|phase| Distribution::of(std::slice::from_ref(&samples), phase, 100).count());
    assert_eq!(counts, [1, 99, 900]);
}

#[test]
fn stages_and_the_unexplained_add_up() {
    let mut samples = answered(&[1000; 50]);
    samples.stages.push(StageColumn { name: "posted".to_owned(), ns: vec![300; 50] });
    samples.stages.push(StageColumn { name: "woken".to_owned(), ns: vec![450; 50] });
    samples.stages[1].ns[7] = ABSENT_NS;
    let shares = stage_shares(&[samples], 10);
    let names: Vec<(&str, i64, u64)> =
        shares.iter().map(|s| (s.name.as_str(), s.median_ns, s.count)).collect();
    assert_eq!(names, [("posted", 300, 50), ("woken", 450, 49), ("unexplained", 250, 50)]);
    let sum: f64 = shares.iter().map(|s| s.share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
}

#[test]
fn overlapping_stamps_are_seen() {
    let mut samples = answered(&[1000; 50]);
    samples.stages.push(StageColumn { name: "posted".to_owned(), ns: vec![1300; 50] });
    assert_eq!(stage_shares(&[samples], 10)[1].median_ns, -300);
}

/// Goal: a few messages whose instants contradict each other are counted and doubted, although no median shows them.
#[test]
fn a_few_overlapping_stamps_are_a_doubt() {
    let mut samples = answered(&[1000; 50]);
    let ns = (0..50).map(|row| if row < 3 { 1021 } else { 1000 }).collect();
    samples.stages.push(StageColumn { name: "posted".to_owned(), ns });
    samples.stages.push(StageColumn { name: "read".to_owned(), ns: vec![0; 50] });
    assert_eq!(stages_over_total(&[samples.clone()]), 3);
    let mut summary = Summary::new(&Header::new("survey"));
    summary.add(&CellId::new("shared", "spin"), &[samples], 10);
    let doubts: Vec<&str> = summary.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
    assert!(doubts.iter().any(|what| what.contains("the stages of 3 exceed their total")), "{doubts:?}");
}

/// Goal: a message that was never sent is not unanswered: its doubt asks for something else.
#[test]
fn a_message_never_sent_is_no_late_answer() {
    let mut samples = answered(&[1000; 50]);
    samples.outcome[7] = Outcome::Unfinished;
    samples.facts.skipped = 1;
    let mut summary = Summary::new(&Header::new("vehicles"));
    summary.add(&CellId::new("socket", "application"), &[samples], 10);
    let doubts: Vec<&str> = summary.doubts.iter().map(|doubt| doubt.what.as_str()).collect();
    assert!(doubts.iter().any(|what| what.contains("1 message was never sent")), "{doubts:?}");
    assert!(!doubts.iter().any(|what| what.contains("no answer yet")), "{doubts:?}");
}
