//! Two runs of the same thing say so; a real change is found.

use punctual_lab::compare::{Aspect, Basis, Comparison, Difference, Options, Order, Trials, compare};
use punctual_lab::sample::{Load, Outcome, Samples};
use punctual_lab::stats::Floats;
use punctual_proto::sim::Rng;

/// A machine that drifts from trial to trial, with a heavy tail and bursts of stalls.
struct Machine {
    random: Rng,
    median_ns: f64,
    stalls_mean: f64,
}

impl Machine {
    fn trial(&mut self, count: u64, drift: f64) -> Samples {
        let random = &mut self.random;
        let shift = (drift + 0.03 * random.normal()).exp();
        let tail_chance = 0.02 * (0.4 * random.normal()).exp();
        let stall_chance = self.stalls_mean * (0.6 * random.normal()).exp() / count as f64;
        let mut samples = Samples::with_capacity(1000);
        let mut now_ns = 0;
        for index in 0..count {
            let body = self.median_ns * shift * (0.15 * random.normal()).exp();
            let tail = if random.unit() < tail_chance { body * random.unit().powf(-0.6) } else { 0.0 };
            let stall = if random.unit() < stall_chance { 5e5 * random.unit().powf(-0.7) } else { 0.0 };
            let total_ns = (body + tail + stall) as u64;
            samples.push(index, now_ns, now_ns, total_ns, Outcome::Answered);
            now_ns += 50_000 + total_ns;
        }
        samples
    }
}

/// Runs of both machines, of one trial each, under one weather, as interleaving gives them.
fn pairs(seed: u64, count: u64, factor: f64, stalls: [f64; 2]) -> [Vec<Trials>; 2] {
    let mut a = Machine { random: Rng::new(seed), median_ns: 8_000.0, stalls_mean: stalls[0] };
    let mut b = Machine { random: Rng::new(!seed), median_ns: 8_000.0 * factor, stalls_mean: stalls[1] };
    let mut weather = Rng::new(seed + 7_000_000);
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let drift = 0.05 * weather.normal();
        of_a.push(vec![a.trial(count, drift)]);
        of_b.push(vec![b.trial(count, drift)]);
    }
    [of_a, of_b]
}

fn verdict(comparison: &Comparison, aspect: Aspect) -> Difference {
    comparison.measures.iter().find(|m| m.aspect == aspect).expect("supported").difference
}

const WORLDS: u64 = 200;

#[test]
fn the_same_thing_is_rarely_called_different() {
    let options = Options::new(Load::Closed, 10);
    let differs = |seed: &u64| {
        let [a, b] = pairs(*seed, 2_500, 1.0, [3.0, 3.0]);
        compare("same", &a, &b, &[], &options).differs()
    };
    let alarms: Vec<u64> = (0..WORLDS).filter(differs).collect();
    println!("interleaved: {} false alarms of {WORLDS}", alarms.len());
    assert!(alarms.len() as u64 * 20 <= WORLDS, "false alarms at seeds {alarms:?}");
}

/// In how many of 50 worlds a change of p50 by this factor is called so.
fn found(factor: f64, expected: Difference) -> usize {
    let options = Options::new(Load::Closed, 10);
    let is_found = |seed: &u64| {
        let [a, b] = pairs(*seed, 2_500, factor, [3.0, 3.0]);
        verdict(&compare("changed", &a, &b, &[], &options), Aspect::P50) == expected
    };
    (0..50).filter(is_found).count()
}

#[test]
fn a_fifth_more_or_less_is_found() {
    let (slower, faster) = (found(1.2, Difference::Slower), found(1.0 / 1.2, Difference::Faster));
    println!("found: slower {slower}, faster {faster} of 50");
    assert!(slower >= 40 && faster >= 40, "found: slower {slower}, faster {faster} of 50");
}

#[test]
fn a_fix_that_creates_stalls_is_reported_as_both() {
    let [a, b] = pairs(5, 4_000, 0.5, [0.0, 20.0]);
    let comparison = compare("fix", &a, &b, &[], &Options::new(Load::Closed, 10));
    assert_eq!(verdict(&comparison, Aspect::P50), Difference::Faster);
    assert_eq!(verdict(&comparison, Aspect::StallsPerMinute), Difference::Slower);
    assert!(comparison.sentence.contains("B is faster: p50 -5"), "{}", comparison.sentence);
    assert!(comparison.sentence.contains("but slower: "), "{}", comparison.sentence);
}

/// Goal: the statement about a change that would have been seen is true of the clock, too. Method: runs that lie close together, and a
/// clock whose ten steps are a fifth of the median.
#[test]
fn no_change_below_the_steps_of_the_clock_would_have_been_seen() {
    let [a, b] = [0, 1].map(|_| runs(|_| (Some(9_000), 40)));
    let said = |resolution_ns| {
        let options = Options { resolution_ns, ..Options::new(Load::Closed, 10) };
        compare("coarse", &a, &b, &[], &options)
    };
    let (fine, coarse) = (said(10), said(1_700));
    assert!(
        fine.sentence.contains("a change of p50 by 5 % would have been seen in one case of two"),
        "{}",
        fine.sentence
    );
    assert!(coarse.sentence.contains("a change of p50 by 21 % would have been seen"), "{}", coarse.sentence);
    assert_eq!((fine.is_unresolved, coarse.is_unresolved), (false, true));
    assert_eq!((fine.pairs_needed, coarse.pairs_needed), (Some(5), Some(1_000)));
}

#[test]
fn two_pairs_are_doubted_and_one_says_nothing() {
    let [a, b] = pairs(9, 2_500, 3.0, [0.0, 0.0]);
    let options = Options::new(Load::Closed, 10);
    let two = compare("two", &a[..2], &b[..2], &[], &options);
    assert!(
        two.doubts.iter().any(|d| d.what.contains("2 pairs of runs where 5 are needed")),
        "{:?}",
        two.doubts
    );
    let one = compare("one", &a[..1], &b[..1], &[], &options);
    assert!(!one.differs() && one.sentence.starts_with("Cannot say"), "{}", one.sentence);
    assert_eq!(compare("none", &[], &b, &[], &options).measures, Vec::new());
}

/// Goal: a run without a message leaves with its partner, so that the pairs behind it stay pairs, and a doubt names it. Of runs that
/// were not taken in turn it leaves alone. Method: B takes a fifth more than A on each day, and the days are far apart.
#[test]
fn a_run_without_a_message_leaves_with_its_partner() {
    let side = |factor: u64, silent: u64| -> Vec<Trials> {
        let run = |day: u64| {
            let mut samples = Samples::default();
            let messages = if day == silent { 0 } else { 2_000 };
            for index in 0..messages {
                let total_ns = day * factor * (800 + index % 10 + day % 3);
                samples.push(index, index * 50_000, index * 50_000, total_ns, Outcome::Answered);
            }
            vec![samples]
        };
        (1..=8).map(run).collect()
    };
    let (a, b) = (side(10, 6), side(12, 1));
    let options = Options::new(Load::Closed, 10);
    let comparison = compare("restless", &a, &b, &[], &options);
    assert_eq!(comparison.basis, Basis::Pairs(6));
    assert_eq!(verdict(&comparison, Aspect::P50), Difference::Slower, "{comparison:?}");
    let named = |comparison: &Comparison| -> Vec<String> {
        let doubts = comparison.doubts.iter().map(|doubt| doubt.what.clone());
        doubts.filter(|what| what.contains("run 6 of A, run 1 of B")).collect()
    };
    let [doubt] = &named(&comparison)[..] else { panic!("{:?}", comparison.doubts) };
    assert!(doubt.starts_with("restless: ") && doubt.contains("partner"), "{doubt}");
    let apart = compare("apart", &a, &b, &[], &Options { order: Order::Separate, ..options });
    assert_eq!(apart.basis, Basis::Runs(12));
    let [doubt] = &named(&apart)[..] else { panic!("{:?}", apart.doubts) };
    assert!(!doubt.contains("partner"), "{doubt}");
}

#[test]
fn a_lost_message_is_infinitely_late() {
    let [a, mut b] = pairs(3, 2_500, 1.0, [0.0, 0.0]);
    for trial in b.iter_mut().flatten() {
        for row in (100..trial.len()).step_by(5) {
            trial.outcome[row] = Outcome::Lost;
        }
    }
    let comparison = compare("lossy", &a, &b, &[], &Options::new(Load::Closed, 10));
    let p90 = comparison.measures.iter().find(|m| m.aspect == Aspect::P90).expect("supported");
    assert_eq!((p90.b, p90.ratio, p90.difference), (None, None, Difference::Slower));
    assert!(comparison.sentence.ends_with("A lost 0, B lost 2400."), "{}", comparison.sentence);
}

/// Goal: every message without a right answer is called what it was, in the warm-up, too; none but a lost one is called lost.
#[test]
fn messages_without_an_answer_are_called_by_their_end() {
    let [a, mut b] = pairs(3, 2_500, 1.0, [0.0, 0.0]);
    let ends = [(5, Outcome::Lost), (6, Outcome::Mismatched), (7, Outcome::Refused)];
    let compared = |b: &[Trials]| compare("same", &a, b, &[], &Options::new(Load::Closed, 10));
    for (row, outcome) in ends {
        b[1][0].outcome[row] = outcome;
    }
    let warm_up = compared(&b);
    let told = "; A lost 0, B lost 1; A answered wrongly 0, B answered wrongly 1; A refused 0, B refused 1.";
    assert!(warm_up.sentence.ends_with(told), "{}", warm_up.sentence);
    for trial in b.iter_mut().flatten() {
        (trial.outcome[5], trial.outcome[6]) = (Outcome::Answered, Outcome::Answered);
        (100..trial.len()).step_by(5).for_each(|row| trial.outcome[row] = Outcome::Refused);
    }
    let refused = compared(&b);
    assert_eq!(verdict(&refused, Aspect::P90), Difference::Slower);
    assert_eq!((refused.lost_b, refused.mismatched_b, refused.refused_b), (0, 0, 2_401));
    assert!(!refused.sentence.contains("lost"), "{}", refused.sentence);
}

/// Goal: messages of one side that came twice or out of order are told, however fast they were.
#[test]
fn doubled_and_reordered_messages_are_told() {
    let [a, mut b] = pairs(7, 2_500, 1.0, [3.0, 3.0]);
    let compared = |b: &[Trials]| compare("same", &a, b, &[], &Options::new(Load::Closed, 10));
    assert!(!compared(&b).sentence.contains("doubled"), "{}", compared(&b).sentence);
    b[1][0].facts.duplicated = 3;
    b[4][0].facts.reordered = 2;
    let comparison = compared(&b);
    assert_eq!((comparison.duplicated_a, comparison.duplicated_b), (0, 3));
    assert_eq!((comparison.reordered_a, comparison.reordered_b), (0, 2));
    let told = "; A doubled 0, B doubled 3; A reordered 0, B reordered 2.";
    assert!(comparison.sentence.ends_with(told), "{}", comparison.sentence);
}

/// Five runs of a side, of 2,000 messages each; `slow` says of a run how long its slow messages took, or that they were lost, and
/// how many they are.
fn runs(slow: impl Fn(u64) -> (Option<u64>, u64)) -> Vec<Trials> {
    let run = |number: u64| {
        let (slow_ns, count) = slow(number);
        let mut samples = Samples::default();
        for index in 0..2_000_u64 {
            // No two runs are the same, and no two messages.
            let ns = 8_000 + 37 * (index % 10) + 11 * number;
            let is_slow = index >= 2_000 - count;
            let outcome = if is_slow && slow_ns.is_none() { Outcome::Lost } else { Outcome::Answered };
            let total_ns = if is_slow { slow_ns.unwrap_or(0) + number } else { ns };
            samples.push(index, index * 50_000, index * 50_000, total_ns, outcome);
        }
        // The slowest answer of a side that loses the others.
        samples.total_ns[500] = samples.total_ns[500].max(1_000_000);
        vec![samples]
    };
    (0..5).map(run).collect()
}

fn measured(comparison: &Comparison, aspect: Aspect) -> (Option<f64>, Option<f64>, Difference) {
    let measure = comparison.measures.iter().find(|m| m.aspect == aspect).expect("supported");
    (measure.a, measure.b, measure.difference)
}

/// Goal: a side that loses messages is worse than one that answers each, however late that is, in its max, too.
#[test]
fn nothing_is_later_than_what_is_lost() {
    let options = Options::new(Load::Closed, 10);
    let (lossy, late) = (runs(|_| (None, 40)), runs(|_| (Some(20_000_000), 40)));
    for (a, b, better) in [(&lossy, &late, Difference::Faster), (&late, &lossy, Difference::Slower)] {
        let comparison = compare("lossy", a, b, &[], &options);
        for aspect in [Aspect::P99, Aspect::Max] {
            let (a, b, difference) = measured(&comparison, aspect);
            assert_eq!(
                (a.is_none(), b.is_none()),
                (better == Difference::Faster, better == Difference::Slower)
            );
            assert_eq!(difference, better, "{aspect:?}: {}", comparison.sentence);
        }
        assert!(!comparison.sentence.contains("; but "), "{}", comparison.sentence);
    }
}

/// Goal: of what is infinite on both sides no difference is claimed, and none of a loss in one run that may be chance.
#[test]
fn two_infinities_are_not_told_apart() {
    let options = Options::new(Load::Closed, 10);
    let (few, many) = (runs(|_| (None, 40)), runs(|_| (None, 60)));
    let mut slower = many.clone();
    slower.iter_mut().flatten().for_each(|trial| trial.total_ns[600] = 50_000_000);
    for b in [&many, &slower] {
        let comparison = compare("lossy", &few, b, &[], &options);
        for aspect in [Aspect::P99, Aspect::Max] {
            assert_eq!(measured(&comparison, aspect), (None, None, Difference::None), "{aspect:?}");
        }
    }
    let once = runs(|number| if number == 2 { (None, 40) } else { (Some(9_000), 40) });
    let comparison = compare("once", &runs(|_| (Some(9_000), 40)), &once, &[], &options);
    assert_eq!(measured(&comparison, Aspect::P99).2, Difference::None, "{}", comparison.sentence);
    let (a, b, difference) = measured(&comparison, Aspect::Max);
    assert_eq!((a.is_some(), b, difference), (true, None, Difference::None), "{}", comparison.sentence);
}

#[test]
fn a_seed_repeats_a_verdict() {
    let [a, b] = pairs(11, 1_500, 1.1, [3.0, 3.0]);
    let options = Options::new(Load::Open, 10);
    assert_eq!(compare("again", &a, &b, &[], &options), compare("again", &a, &b, &[], &options));
}

/// Goal: a rate is no rate of a moment. Method: one stall in trials of 5 ms.
#[test]
fn one_stall_in_five_milliseconds_is_not_thousands_a_minute() {
    let trial = |stalls: bool| {
        let mut samples = Samples::default();
        for index in 0..100_u64 {
            let total_ns = if stalls && index == 50 { 500_000 } else { 5_000 };
            samples.push(index, index * 50_000, index * 50_000, total_ns, Outcome::Answered);
        }
        vec![samples]
    };
    let sides = [false, true].map(|stalls| (0..5).map(|_| trial(stalls)).collect::<Vec<Trials>>());
    let comparison = compare("brief", &sides[0], &sides[1], &[], &Options::new(Load::Closed, 10));
    let rate = comparison.measures.iter().find(|m| m.aspect == Aspect::StallsPerMinute);
    assert_eq!(rate, None, "{rate:?}");
    assert!(!comparison.sentence.contains("stalls"), "{}", comparison.sentence);
}

/// Goal: two single runs do not say what only runs can say.
#[test]
fn two_single_runs_say_that_they_cannot_say() {
    let [a, b] = pairs(1, 2_500, 1.25, [0.0, 0.0]);
    let options = Options { order: Order::Separate, ..Options::new(Load::Closed, 10) };
    let one = |runs: Vec<Trials>| vec![runs.into_iter().flatten().collect::<Trials>()];
    let comparison = compare("two", &one(a), &one(b), &[], &options);
    assert_eq!(comparison.basis, Basis::Bound);
    assert!(!comparison.differs() && comparison.sentence.starts_with("Cannot say below "), "{comparison:?}");
    assert!(comparison.doubts.iter().any(|d| d.do_.contains("--interleave")), "{:?}", comparison.doubts);
}
