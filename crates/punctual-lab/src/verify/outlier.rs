//! Who was late and why, with a fix and without: what a fix makes worse is said with its cause.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::explain::cause::Cause;
use crate::explain::evidence::TrialEvidence;
use crate::explain::finding::explain;
use crate::explain::loss::Loss;
use crate::explain::of_run::{evidence, is_part};
use crate::report::section::{Cell, Column, Section, Table, numbers};
use crate::sample::{Load, Samples};
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
    /// In two runs or more with the fix there are more than twice as many as without, or one more than twice as long.
    pub is_new: bool,
    /// What to try.
    pub fix: String,
}

/// What was in one run alone may be chance.
const RUNS_MIN: usize = 2;

/// Whose a stall is of which no thread is known.
const NOBODY: &str = "nobody";

/// In place of a role: messages that never came, of which nothing is known.
const LOST: &str = "lost messages";

/// By the role of the thread that was late, and why.
type Whose = (String, Cause);

/// What was of one cause in one run, or on one side.
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
}

/// One run: how long it lasted, and what was late in it.
#[derive(Default)]
struct OfRun {
    minutes: f64,
    sums: BTreeMap<Whose, Sum>,
}

impl OfRun {
    fn of(run: &Run, notes: &mut Vec<String>) -> Result<Self, StoreError> {
        let mut of_run = Self::default();
        for trial in &run.trials {
            // Evidence that is damaged explains nothing, and the stalls are there.
            let evidence = evidence(trial, 1, notes)?;
            // What was late on a part of the way counts with the whole way.
            if !is_part(run, trial, evidence.as_ref()) {
                of_run.add(&trial.load()?, trial.cell.load, evidence.as_ref());
            }
        }
        Ok(of_run)
    }

    fn add(&mut self, samples: &Samples, load: Load, evidence: Option<&TrialEvidence>) {
        self.minutes += lasted_ns(samples) as f64 / 60e9;
        let mut add = |role: &str, cause: Cause, events: u64, longest_ns: u64| {
            self.sums.entry((role.to_owned(), cause)).or_default().add(Sum { events, longest_ns });
        };
        for one in explain(samples, load, evidence) {
            if one.behind.is_none() {
                add(one.role.as_deref().unwrap_or(NOBODY), one.cause(), 1, one.excess_ns);
            }
        }
        let lost = Loss::of(samples, evidence).unwrap_or_default();
        for (cause, parts) in lost.causes() {
            parts.iter().for_each(|(role, some)| add(role, cause, *some, 0));
        }
        if lost.unexplained > 0 {
            add(LOST, Cause::UNEXPLAINED, lost.unexplained, 0);
        }
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
    let mut of = |runs: &[Run]| runs.iter().map(|run| OfRun::of(run, notes)).collect::<Result<Vec<_>, _>>();
    Ok(judge([&of(without)?, &of(with)?]))
}

fn judge(sides: [&[OfRun]; 2]) -> Vec<Outlier> {
    let mut all: Vec<&Whose> = sides.iter().copied().flatten().flat_map(|run| run.sums.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let mut all: Vec<Outlier> = all.into_iter().map(|whose| judged(whose, sides)).collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.longest_ns[1]), one.role.clone(), one.cause));
    all
}

fn judged(whose: &Whose, sides: [&[OfRun]; 2]) -> Outlier {
    let per_minute = |events: u64, minutes: f64| events as f64 / minutes.max(f64::MIN_POSITIVE);
    let mut sums = [Sum::default(); 2];
    let mut rates = [0.0; 2];
    for (side, runs) in sides.into_iter().enumerate() {
        runs.iter().for_each(|run| sums[side].add(run.get(whose)));
        rates[side] = per_minute(sums[side].events, runs.iter().map(|run| run.minutes).sum());
    }
    let runs_in = |is_so: &dyn Fn(&OfRun) -> bool| sides[1].iter().filter(|run| is_so(run)).count();
    let is_frequent = |rate: f64| rate > 2.0 * rates[0];
    // Two runs of many may have one each by chance: all together must be more frequent, too.
    let frequent = runs_in(&|run| is_frequent(per_minute(run.get(whose).events, run.minutes)));
    let long = runs_in(&|run| run.get(whose).longest_ns > 2 * sums[0].longest_ns);
    Outlier {
        role: whose.0.clone(),
        cause: whose.1,
        per_minute: rates,
        longest_ns: sums.map(|sum| sum.longest_ns),
        runs: runs_in(&|run| run.get(whose).events > 0),
        is_new: (is_frequent(rates[1]) && frequent >= RUNS_MIN) || long >= RUNS_MIN,
        fix: whose.1.fix().to_owned(),
    }
}

/// From the first message to the last. Rows are in any order: of vehicles, values that were lost stand at the end.
fn lasted_ns(samples: &Samples) -> u64 {
    let sent = || samples.sent_ns.iter().copied();
    sent().max().zip(sent().min()).map_or(0, |(last, first)| last - first)
}

/// What was lost took no time.
fn longest(ns: u64) -> String {
    if ns == 0 { "–".to_owned() } else { micros(ns as f64) }
}

/// As tables: what is new, and all.
pub fn sections(outliers: &[Outlier]) -> Vec<Section> {
    let mut columns = vec![Column::name("late"), Column::prose("cause")];
    columns.extend(numbers(["a minute", "with it", "longest, µs", "with it, µs"]));
    let mut table = Table::new(columns);
    for one in outliers {
        table.row([
            Cell::from(&one.role),
            Cell::from(one.cause.to_string()),
            rate(one.per_minute[0]).into(),
            rate(one.per_minute[1]).into(),
            longest(one.longest_ns[0]).into(),
            longest(one.longest_ns[1]).into(),
        ]);
    }
    let all = Section::new("Who was late and why, without the fix and with it");
    let all = if outliers.is_empty() { all.words("Nobody.") } else { all.table(table) };
    let new: Vec<&Outlier> = outliers.iter().filter(|one| one.is_new).collect();
    let mut section = Section::new("New with the fix");
    if new.is_empty() {
        section = section.words("No cause is more frequent or longer with it.");
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

    use super::*;
    use crate::explain::evidence::Recording;
    use crate::sample::{CellId, Kind, Outcome};
    use crate::store::{Header, Store};

    /// Goal: a trial lasts from its first message to its last, in whatever order its rows are.
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

    /// A run of a minute with so many stalls of one cause, the longest so long.
    fn run((events, longest_ns): (u64, u64)) -> OfRun {
        let whose = ("responder".to_owned(), Cause::UNEXPLAINED);
        OfRun { minutes: 1.0, sums: [(whose, Sum { events, longest_ns })].into() }
    }

    fn is_new<const N: usize>(without: [(u64, u64); N], with: [(u64, u64); N]) -> bool {
        let [without, with] = [without, with].map(|side| side.map(run));
        judge([&without, &with])[0].is_new
    }

    /// Goal: what is twice as frequent or as long in two runs is new; what was in one run alone may be chance.
    #[test]
    fn what_is_new_was_in_two_runs() {
        assert!(is_new([(1, 9), (0, 0)], [(2, 9), (3, 9)]));
        assert!(is_new([(0, 0), (0, 0)], [(1, 5), (1, 9)]));
        assert!(is_new([(2, 9), (3, 9)], [(2, 50), (3, 40)]));
        assert!(!is_new([(2, 9), (3, 9)], [(2, 10), (3, 10)]));
        assert!(!is_new([(0, 0), (0, 0)], [(5, 50), (0, 0)]));
    }

    /// Goal: nor is a cause new of which one run had more, or a longer one, where the others were as without the fix.
    #[test]
    fn one_run_that_lies_off_makes_nothing_new() {
        assert!(!is_new([(5, 9), (5, 9), (5, 9)], [(5, 9), (5, 500), (5, 9)]));
        assert!(!is_new([(5, 9), (5, 9), (5, 9)], [(5, 9), (90, 9), (5, 9)]));
        // In one run more, in another longer.
        assert!(!is_new([(5, 9), (5, 9), (5, 9)], [(5, 500), (90, 9), (5, 9)]));
        // One each in two of five, where one of five had one.
        let once = [(1, 9), (0, 0), (0, 0), (0, 0), (0, 0)];
        assert!(!is_new(once, [(1, 9), (1, 9), (0, 0), (0, 0), (0, 0)]));
    }

    /// Goal: messages that only the fix loses are new with it, also where nothing is known of them.
    #[test]
    fn what_is_lost_for_unknown_reasons_is_told() {
        let run = |lost: u64| {
            let mut samples = Samples::default();
            for number in 0..100 {
                let outcome = if number < lost { Outcome::Lost } else { Outcome::Answered };
                samples.push(number, number * 1_000_000, number * 1_000_000, 1_000, outcome);
            }
            let mut of_run = OfRun::default();
            of_run.add(&samples, Load::Open, None);
            of_run
        };
        let all = judge([&[run(0), run(0)], &[run(7), run(9)]]);
        let told: Vec<_> =
            all.iter().map(|one| (one.role.as_str(), one.cause, one.runs, one.is_new)).collect();
        assert_eq!(told, [(LOST, Cause::UNEXPLAINED, 2, true)]);
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
            let evidence = TrialEvidence {
                threads: Vec::new(),
                stages: Vec::new(),
                recording: Recording::Off,
                dumps: Vec::new(),
                fault_ns: FAULT_NS_MIN,
                began_ns: 0,
                place: None,
                is_part,
            };
            store.append_evidence(&path, &evidence).expect("room");
        }
        let counts_once = || {
            let mut notes = Vec::new();
            let of_run = OfRun::of(&Run::open(&out).expect("a run"), &mut notes).expect("readable");
            let lasted_ns = lasted_ns(&samples) as f64;
            assert!((of_run.minutes * 60e9 - lasted_ns).abs() < 1.0, "{} minutes", of_run.minutes);
            assert_eq!(of_run.get(&(LOST.to_owned(), Cause::UNEXPLAINED)).events, 7);
            notes
        };
        assert_eq!(counts_once(), Vec::<String>::new());
        // Nor where its evidence is damaged, and does not say that it is a part. That it is damaged is said.
        let files = std::fs::read_dir(out.join("evidence")).expect("it is there");
        let files: Vec<_> = files.map(|file| file.expect("it is there").path()).collect();
        let part = files.iter().find(|file| file.to_string_lossy().contains("one_way")).expect("of the part");
        std::fs::write(part, "damaged").expect("room");
        let notes = counts_once();
        assert!(matches!(&notes[..], [note] if note.starts_with(&*part.to_string_lossy())), "{notes:?}");
    }
}
