//! Late threads and their causes, with a fix and without: anything that a fix makes worse is reported with its cause.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::explain::cause::Cause;
use crate::explain::evidence::TrialEvidence;
use crate::explain::finding::explain;
use crate::explain::loss::Loss;
use crate::explain::of_run::{evidence, is_part};
use crate::explain::stage::rule_for;
use crate::report::section::{Section, TableOf};
use crate::sample::{CellId, Samples};
use crate::stats::{ERROR, chances};
use crate::store::{Run, StoreError};
use crate::units::{count, micros, rate};

/// Stalls of one cause at one side, or messages that were lost there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// The role of the thread that was late.
    pub role: String,
    /// Why.
    pub cause: Cause,
    /// Stalls a minute, or messages lost, without the fix and with it.
    pub per_minute: [f64; 2],
    /// The longest, without and with, nanoseconds.
    pub longest_ns: [u64; 2],
    /// Runs with the fix in which there was one.
    pub runs: usize,
    /// More than twice as frequent with the fix, or the longest more than twice as long, and for certain more than by chance.
    pub is_new: bool,
    /// The fix to try.
    pub fix: String,
}

/// Owner of a stall for which no thread is known.
const NOBODY: &str = "nobody";

/// In place of a role: messages that never came, of which nothing is known.
const LOST: &str = "lost messages";

/// By the role of the thread that was late, and why.
type Whose = (String, Cause);

/// Total of one cause in one run, or on one side.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    events: u64,
    longest_ns: u64,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.events += more.events;
        self.longest_ns = self.longest_ns.max(more.longest_ns);
    }

    fn per_minute(&self, minutes: f64) -> f64 {
        self.events as f64 / minutes.max(f64::MIN_POSITIVE)
    }
}

/// One stall.
struct Late {
    cell: CellId,
    whose: Whose,
    longest_ns: u64,
    excess_ns: u64,
}

/// From which time on a message of a cell is late in every trial of both sides. A fix that makes the body faster would else make stalls of
/// messages that were as late before.
type Thresholds = BTreeMap<CellId, u64>;

/// One run: its duration, and its late messages.
#[derive(Default)]
struct OfRun {
    minutes: f64,
    /// Stalls that are not yet in the sums.
    late: Vec<Late>,
    sums: BTreeMap<Whose, Sum>,
}

impl OfRun {
    fn of(run: &Run, thresholds: &mut Thresholds, notes: &mut Vec<String>) -> Result<Self, StoreError> {
        let mut of_run = Self::default();
        for trial in &run.trials {
            // Evidence that is damaged explains nothing, and the stalls are there.
            let evidence = evidence(trial, 1, notes)?;
            // Messages that were late on a part of the way count with the whole way.
            if !is_part(run, trial, evidence.as_ref()) {
                of_run.add(&trial.load()?, &trial.cell, evidence.as_ref(), thresholds);
            }
        }
        Ok(of_run)
    }

    fn add(
        &mut self,
        samples: &Samples,
        cell: &CellId,
        evidence: Option<&TrialEvidence>,
        thresholds: &mut Thresholds,
    ) {
        self.minutes += lasted_ns(samples) as f64 / 60e9;
        let threshold_ns = rule_for(samples).threshold_ns;
        let highest_ns = thresholds.entry(cell.clone()).or_default();
        *highest_ns = threshold_ns.max(*highest_ns);
        for one in explain(samples, cell.load, evidence).into_iter().filter(|one| one.behind.is_none()) {
            let whose = (one.role.as_deref().unwrap_or(NOBODY).to_owned(), one.cause());
            let (longest_ns, excess_ns) = (one.stall.longest_ns, one.excess_ns);
            self.late.push(Late { cell: cell.clone(), whose, longest_ns, excess_ns });
        }
        let lost = Loss::of(samples, evidence).unwrap_or_default();
        for (cause, parts) in lost.causes() {
            parts.iter().for_each(|(role, some)| self.count((role.clone(), cause), *some, 0));
        }
        if lost.unexplained > 0 {
            self.count((LOST.to_owned(), Cause::UNEXPLAINED), lost.unexplained, 0);
        }
    }

    fn count(&mut self, whose: Whose, events: u64, longest_ns: u64) {
        self.sums.entry(whose).or_default().add(Sum { events, longest_ns });
    }

    /// With the stalls in the sums that are some by these thresholds.
    fn counted(mut self, thresholds: &Thresholds) -> Self {
        let is_late = |late: &Late| thresholds.get(&late.cell).is_none_or(|&ns| late.longest_ns > ns);
        for late in std::mem::take(&mut self.late).into_iter().filter(is_late) {
            self.count(late.whose, 1, late.excess_ns);
        }
        self
    }

    fn get(&self, whose: &Whose) -> Sum {
        self.sums.get(whose).copied().unwrap_or_default()
    }
}

/// All stalls of both sides, by side and cause; those that took longest with the fix first. Evidence that is damaged is noted.
///
/// # Errors
/// Samples or evidence cannot be read.
pub fn outliers(without: &[Run], with: &[Run], notes: &mut Vec<String>) -> Result<Vec<Outlier>, StoreError> {
    let mut thresholds = Thresholds::default();
    let mut of = |runs: &[Run]| {
        runs.iter().map(|run| OfRun::of(run, &mut thresholds, notes)).collect::<Result<Vec<_>, _>>()
    };
    let sides = [of(without)?, of(with)?];
    let [without, with] =
        sides.map(|side| side.into_iter().map(|run| run.counted(&thresholds)).collect::<Vec<_>>());
    Ok(judge([&without, &with]))
}

fn judge(sides: [&[OfRun]; 2]) -> Vec<Outlier> {
    let mut all: Vec<&Whose> = sides.iter().copied().flatten().flat_map(|run| run.sums.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let certain = certain(&all, sides);
    let judged = all.into_iter().zip(certain).map(|(whose, certain)| judged(whose, certain, sides));
    let mut all: Vec<Outlier> = judged.collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.longest_ns[1]), one.role.clone(), one.cause));
    all
}

/// Of each, whether it is more frequent with the fix, and whether longer, than chance makes any of all. The unit is the run: stalls come in
/// clusters.
fn certain(all: &[&Whose], [without, with]: [&[OfRun]; 2]) -> Vec<[bool; 2]> {
    let runs = || without.iter().chain(with);
    let frequent = all.iter().map(|whose| runs().map(|run| run.get(whose).per_minute(run.minutes)).collect());
    let long = all.iter().map(|whose| runs().map(|run| run.get(whose).longest_ns as f64).collect());
    let figures: Vec<Vec<f64>> = frequent.chain(long).collect();
    let certain: Vec<bool> =
        chances(&figures, without.len()).into_iter().map(|chance| chance <= ERROR).collect();
    let (frequent, long) = certain.split_at(all.len());
    frequent.iter().zip(long).map(|(&frequent, &long)| [frequent, long]).collect()
}

fn judged(whose: &Whose, certain: [bool; 2], sides: [&[OfRun]; 2]) -> Outlier {
    let mut sums = [Sum::default(); 2];
    let mut rates = [0.0; 2];
    for (side, runs) in sides.into_iter().enumerate() {
        runs.iter().for_each(|run| sums[side].add(run.get(whose)));
        rates[side] = sums[side].per_minute(runs.iter().map(|run| run.minutes).sum());
    }
    let is_frequent = rates[1] > 2.0 * rates[0];
    let is_long = sums[1].longest_ns > 2 * sums[0].longest_ns;
    Outlier {
        role: whose.0.clone(),
        cause: whose.1,
        per_minute: rates,
        longest_ns: sums.map(|sum| sum.longest_ns),
        runs: sides[1].iter().filter(|run| run.get(whose).events > 0).count(),
        is_new: (is_frequent && certain[0]) || (is_long && certain[1]),
        fix: whose.1.fix().to_owned(),
    }
}

/// From the first message to the last. Rows are in any order: of vehicles, values that were lost stand at the end.
fn lasted_ns(samples: &Samples) -> u64 {
    let sent = || samples.sent_ns.iter().copied();
    sent().max().zip(sent().min()).map_or(0, |(last, first)| last - first)
}

/// A lost message took no time.
fn longest(ns: u64) -> String {
    if ns == 0 { "–".to_owned() } else { micros(ns as f64) }
}

/// Tables of outliers: the new ones, and all.
pub fn sections(outliers: &[Outlier]) -> Vec<Section> {
    let table = TableOf::new(outliers)
        .name("late", |one| &one.role)
        .prose("cause", |one| one.cause.to_string())
        .number("a minute", |one| rate(one.per_minute[0]))
        .number("with it", |one| rate(one.per_minute[1]))
        .number("longest, µs", |one| longest(one.longest_ns[0]))
        .number("with it, µs", |one| longest(one.longest_ns[1]))
        .keyed(1);
    let all = Section::new("Who was late and why, without the fix and with it");
    let all = if outliers.is_empty() { all.words("Nobody.") } else { all.table(table) };
    let new: Vec<&Outlier> = outliers.iter().filter(|one| one.is_new).collect();
    let mut section = Section::new("New with the fix");
    if new.is_empty() {
        section = section.words("No cause is for certain more than twice as frequent or as long with it.");
    }
    for one in new {
        let [longest_without, longest] = one.longest_ns;
        let up_to = match longest {
            0 => String::new(),
            _ => format!(
                ", up to {} µs where {} were the longest",
                micros(longest as f64),
                micros(longest_without as f64)
            ),
        };
        section = section.words(format!(
            "{}: {}: {} a minute where {} were{up_to}, in {} runs. Against that: {}.",
            one.role,
            one.cause,
            rate(one.per_minute[1]),
            rate(one.per_minute[0]),
            count(one.runs as u64),
            one.fix,
        ));
    }
    vec![all, section]
}

#[cfg(test)]
mod tests {
    use punctual_machine::fault_cost::FAULT_NS_MIN;
    use punctual_proto::sim::Rng;

    use super::*;
    use crate::sample::{Kind, Load, Outcome};
    use crate::stats::Floats;
    use crate::store::{Header, Store};

    /// Goal: a trial lasts from its first message to its last, regardless of the order of its rows.
    #[test]
    fn a_trial_lasts_from_first_to_last() {
        let mut samples = Samples::default();
        assert_eq!(lasted_ns(&samples), 0);
        for (index, (sent_ns, outcome)) in
            [(500, Outcome::Answered), (900, Outcome::Answered), (100, Outcome::Lost)].into_iter().enumerate()
        {
            samples.push(index as u64, sent_ns, sent_ns, 1, outcome);
        }
        assert_eq!(lasted_ns(&samples), 800);
    }

    /// A run of a minute with so many stalls of each of some causes, the longest so long.
    fn run(causes: &[(u64, u64)]) -> OfRun {
        let whose = |number| (format!("thread {number}"), Cause::UNEXPLAINED);
        let sums = causes.iter().enumerate();
        let sums = sums.map(|(number, &(events, longest_ns))| (whose(number), Sum { events, longest_ns }));
        OfRun { minutes: 1.0, late: Vec::new(), sums: sums.collect() }
    }

    fn is_new<const N: usize>(without: [(u64, u64); N], with: [(u64, u64); N]) -> bool {
        let [without, with] = [without, with].map(|side| side.map(|one| run(&[one])));
        judge([&without, &with])[0].is_new
    }

    /// Goal: a cause that is more than twice as frequent or as long in nearly all runs is new. A difference that may be chance, or is
    /// small, is not.
    #[test]
    fn a_new_cause_shows_in_most_runs() {
        let none = [(0, 0); 5];
        assert!(is_new([(1, 9), (0, 0), (2, 9), (1, 9), (0, 0)], [(8, 9), (7, 9), (9, 9), (6, 9), (9, 9)]));
        assert!(is_new(none, [(1, 5), (1, 9), (1, 9), (1, 9), (1, 9)]));
        let usual = [(2, 9), (3, 9), (2, 8), (3, 7), (2, 9)];
        assert!(is_new(usual, [(2, 50), (3, 40), (2, 45), (3, 60), (2, 50)]));
        assert!(!is_new(usual, [(2, 10), (3, 10), (2, 10), (3, 10), (2, 10)]));
        assert!(!is_new(none, [(1, 5), (1, 9), (0, 0), (0, 0), (0, 0)]));
        // Two runs of each side are never certain.
        assert!(!is_new([(0, 0), (0, 0)], [(9, 5), (9, 9)]));
    }

    /// Goal: nor is a cause new of which one run had more, or a longer one, where the others were as without the fix.
    #[test]
    fn one_run_that_lies_off_makes_nothing_new() {
        let usual = [(5, 9); 5];
        assert!(!is_new(usual, [(5, 9), (5, 500), (5, 9), (5, 9), (5, 9)]));
        assert!(!is_new(usual, [(5, 9), (90, 9), (5, 9), (5, 9), (5, 9)]));
        // In one run more, in another longer.
        assert!(!is_new(usual, [(5, 500), (90, 9), (5, 9), (5, 9), (5, 9)]));
        // One each in two of five, where one of five had one.
        let once = [(1, 9), (0, 0), (0, 0), (0, 0), (0, 0)];
        assert!(!is_new(once, [(1, 9), (1, 9), (0, 0), (0, 0), (0, 0)]));
        let words = |outliers: &[Outlier]| format!("{:?}", sections(outliers));
        assert!(words(&judge([&[run(&[(5, 9)])], &[run(&[(90, 9)])]])).contains("for certain"));
    }

    /// Events of a Poisson process in a run, and the longest, by an exponential law.
    fn poisson(rng: &mut Rng, mean: f64) -> (u64, u64) {
        let (mut events, mut longest, mut at) = (0, 0.0_f64, -rng.unit().ln());
        while at < mean {
            events += 1;
            longest = longest.max(-rng.unit().ln());
            at -= rng.unit().ln();
        }
        (events, (longest * 1e6) as u64)
    }

    /// Of so many verdicts, those with something new among five causes, and those in which it is the first of them. That cause is so
    /// many times as frequent with the fix.
    fn verdicts(seeds: u64, mean: f64, times: f64) -> [usize; 2] {
        let mut found = [0; 2];
        for seed in 0..seeds {
            let mut rng = Rng::at(&[seed]);
            let mut side = |times: f64| -> Vec<OfRun> {
                let one = |rng: &mut Rng| {
                    let causes = [times, 1.0, 1.0, 1.0, 1.0].map(|times| poisson(rng, mean * times));
                    run(&causes)
                };
                (0..5).map(|_| one(&mut rng)).collect()
            };
            let all = judge([&side(1.0), &side(times)]);
            found[0] += usize::from(all.iter().any(|one| one.is_new));
            found[1] += usize::from(all.iter().any(|one| one.is_new && one.role == "thread 0"));
        }
        found
    }

    /// Goal: where a fix changes nothing, no more than one verdict in twenty calls a cause new, be causes rare or not.
    #[test]
    fn chance_is_seldom_called_new() {
        for mean in [0.4, 3.0] {
            let [new, _] = verdicts(2_000, mean, 1.0);
            assert!(new <= 100, "{new} of 2,000 verdicts, {mean} of each cause in a run");
        }
    }

    /// Goal: a cause that a fix makes five times as frequent is found.
    #[test]
    fn a_cause_that_a_fix_makes_frequent_is_found() {
        let [_, found] = verdicts(200, 4.0, 5.0);
        assert!(found >= 190, "{found} of 200");
    }

    /// Goal: messages that only the fix loses are new with it, also where nothing is known of them.
    #[test]
    fn a_loss_of_unknown_cause_is_told() {
        let run = |lost: u64| {
            let mut samples = Samples::default();
            for number in 0..100 {
                let outcome = if number < lost { Outcome::Lost } else { Outcome::Answered };
                samples.push(number, number * 1_000_000, number * 1_000_000, 1_000, outcome);
            }
            let mut of_run = OfRun::default();
            let cell = CellId { load: Load::Open, ..CellId::new("shared", "futex") };
            of_run.add(&samples, &cell, None, &mut Thresholds::default());
            of_run
        };
        let [without, with] = [[0; 5], [7, 9, 8, 7, 9]].map(|side| side.map(run));
        let all = judge([&without, &with]);
        let told: Vec<_> =
            all.iter().map(|one| (one.role.as_str(), one.cause, one.runs, one.is_new)).collect();
        assert_eq!(told, [(LOST, Cause::UNEXPLAINED, 5, true)]);
    }

    /// Five runs of messages that take `body_ns`, but for five that take `late_ns`.
    fn runs(place: &std::path::Path, side: &str, body_ns: u64, late_ns: u64) -> Vec<Run> {
        let made = |number: u64| {
            let out = place.join(format!("{side} {number}"));
            let mut store = Store::import(Some(&out), &Header::new("response")).expect("room");
            let mut samples = Samples::default();
            for row in 0..1_000 {
                let total_ns = if row % 200 == 100 + number { late_ns } else { body_ns + row };
                samples.push(row, row * 1_000_000, row * 1_000_000, total_ns, Outcome::Answered);
            }
            store.append(&CellId::new("udp", "blocking"), 0, &samples).expect("room");
            Run::open(&out).expect("a run")
        };
        (0..5).map(made).collect()
    }

    /// Goal: stalls that were there before are not new where the body is faster, so that a threshold of its own has them late; those that
    /// are late by the slower body's, too, are.
    #[test]
    fn a_faster_body_makes_nothing_new() {
        let place = tempfile::tempdir().expect("room");
        let slow = runs(place.path(), "slow", 60_000, 300_000);
        let new = |name: &str, late_ns: u64| {
            let fast = runs(place.path(), name, 12_000, late_ns);
            let all = outliers(&slow, &fast, &mut Vec::new()).expect("readable");
            all.iter().filter(|one| one.is_new).map(|one| one.runs).collect::<Vec<_>>()
        };
        assert_eq!(new("as late", 300_000), [0; 0]);
        assert_eq!(new("later", 900_000), [5]);
    }

    /// Goal: messages that are stored a second time, as a part of their way, count once.
    #[test]
    fn a_part_of_the_way_counts_nothing() {
        let place = tempfile::tempdir().expect("room");
        let out = place.path().join("run");
        let mut store = Store::import(Some(&out), &Header::new("survey")).expect("room");
        let mut samples = Samples::default();
        for number in 0..100 {
            let outcome = if number < 7 { Outcome::Lost } else { Outcome::Answered };
            samples.push(number, number * 1_000_000, number * 1_000_000, 1_000, outcome);
        }
        for (kind, is_part) in [(Kind::RoundTrip, false), (Kind::OneWay, true)] {
            let path =
                store.append(&CellId { kind, ..CellId::new("shared", "futex") }, 0, &samples).expect("room");
            let evidence = TrialEvidence { fault_ns: FAULT_NS_MIN, is_part, ..TrialEvidence::default() };
            store.append_evidence(&path, &evidence).expect("room");
        }
        let counts_once = || {
            let mut notes = Vec::new();
            let run = Run::open(&out).expect("a run");
            let of_run = OfRun::of(&run, &mut Thresholds::default(), &mut notes).expect("readable");
            let lasted_ns = lasted_ns(&samples) as f64;
            assert!((of_run.minutes * 60e9 - lasted_ns).abs() < 1.0, "{} minutes", of_run.minutes);
            assert_eq!(of_run.get(&(LOST.to_owned(), Cause::UNEXPLAINED)).events, 7);
            notes
        };
        assert_eq!(counts_once(), Vec::<String>::new());
        // Nor where its evidence is damaged, and does not say that it is a part. The damage is reported.
        let files = std::fs::read_dir(out.join("evidence")).expect("it is there");
        let files: Vec<_> = files.map(|file| file.expect("it is there").path()).collect();
        let part = files.iter().find(|file| file.to_string_lossy().contains("one_way")).expect("of the part");
        std::fs::write(part, "damaged").expect("room");
        let notes = counts_once();
        assert!(matches!(&notes[..], [note] if note.starts_with(&*part.to_string_lossy())), "{notes:?}");
    }
}
