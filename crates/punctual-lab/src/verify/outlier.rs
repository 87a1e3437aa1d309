//! Who was late and why, with a fix and without: what a fix makes worse is said with its cause.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::explain::cause::Cause;
use crate::explain::evidence::TrialEvidence;
use crate::explain::finding::explain;
use crate::explain::loss::Loss;
use crate::report::section::{Cell, Column, Section, Table, numbers};
use crate::sample::Samples;
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
    /// There are more than twice as many with the fix, or one twice as long, in two runs or more.
    pub is_new: bool,
    /// What to try.
    pub fix: String,
}

#[derive(Default)]
struct Sum {
    events: [u64; 2],
    longest_ns: [u64; 2],
    runs: usize,
}

/// All stalls of both sides, by side and cause; those that took longest with the fix first.
///
/// # Errors
/// Samples cannot be read.
pub fn outliers(without: &[Run], with: &[Run]) -> Result<Vec<Outlier>, StoreError> {
    let mut sums: BTreeMap<(String, Cause), Sum> = BTreeMap::new();
    let mut minutes = [0.0; 2];
    for (side, runs) in [without, with].into_iter().enumerate() {
        for run in runs {
            let mut met: Vec<(String, Cause)> = Vec::new();
            for trial in &run.trials {
                let samples = trial.load()?;
                minutes[side] += lasted_ns(&samples) as f64 / 60e9;
                // Evidence that is damaged explains nothing, and the stalls are there.
                let evidence: Option<TrialEvidence> = trial.evidence().unwrap_or_default();
                let mut add = |role: String, cause: Cause, events: u64, longest_ns: u64| {
                    let key = (role, cause);
                    let sum = sums.entry(key.clone()).or_default();
                    sum.events[side] += events;
                    sum.longest_ns[side] = sum.longest_ns[side].max(longest_ns);
                    if side == 1 && !met.contains(&key) {
                        sum.runs += 1;
                        met.push(key);
                    }
                };
                for one in explain(&samples, trial.cell.load, evidence.as_ref()) {
                    if one.behind.is_none() {
                        let role = one.role.clone().unwrap_or_else(|| "nobody".to_owned());
                        add(role, one.cause(), 1, one.excess_ns);
                    }
                }
                let lost = Loss::of(&samples, evidence.as_ref()).unwrap_or_default();
                for (cause, parts) in lost.causes() {
                    parts.iter().for_each(|(role, some)| add(role.clone(), cause, *some, 0));
                }
            }
        }
    }
    let mut all: Vec<Outlier> =
        sums.into_iter().map(|((role, cause), sum)| judged(role, cause, &sum, minutes)).collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.longest_ns[1]), one.role.clone(), one.cause));
    Ok(all)
}

/// From the first message to the last. Rows are in any order: of vehicles, values that were lost stand at the end.
fn lasted_ns(samples: &Samples) -> u64 {
    let sent = || samples.sent_ns.iter().copied();
    sent().max().zip(sent().min()).map_or(0, |(last, first)| last - first)
}

fn judged(role: String, cause: Cause, sum: &Sum, minutes: [f64; 2]) -> Outlier {
    let per_minute = [0, 1].map(|side: usize| sum.events[side] as f64 / minutes[side].max(f64::MIN_POSITIVE));
    let is_more = per_minute[1] > 2.0 * per_minute[0] || sum.longest_ns[1] > 2 * sum.longest_ns[0];
    Outlier {
        role,
        cause,
        per_minute,
        longest_ns: sum.longest_ns,
        runs: sum.runs,
        is_new: is_more && sum.runs >= 2,
        fix: cause.fix().to_owned(),
    }
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
    use super::*;
    use crate::sample::Outcome;

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

    /// Goal: what is twice as frequent or as long in two runs is new; what was in one run alone may be chance.
    #[test]
    fn what_is_new_was_in_two_runs() {
        let is_new = |events, longest_ns, runs| {
            let sum = Sum { events, longest_ns, runs };
            judged("responder".to_owned(), Cause::UNEXPLAINED, &sum, [1.0, 1.0]).is_new
        };
        assert!(is_new([1, 5], [9, 9], 2));
        assert!(is_new([0, 2], [0, 9], 2));
        assert!(is_new([5, 5], [9, 50], 3));
        assert!(!is_new([5, 5], [9, 10], 3));
        assert!(!is_new([0, 5], [0, 50], 1));
    }
}
