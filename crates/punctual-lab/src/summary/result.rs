//! One cell of a summary.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Clock;
use crate::doubt::{Cause, Doubt};
use crate::sample::{CellId, Outcome, Phase, Samples};
use crate::stall::{self, StallRule};
use crate::stats::{
    Distribution, Figure, Quantile, StageShare, stage_shares, stages_over_total, upper_median,
};

/// The figures of one phase. `None`: the sample cannot say, or the figure is infinite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Messages, however they ended.
    pub count: u64,
    /// The fastest answer.
    pub min: Option<u64>,
    /// Over answered messages only.
    pub mean: Option<f64>,
    /// Half are later.
    pub p50: Option<u64>,
    /// One in ten is later.
    pub p90: Option<u64>,
    /// One in a hundred is later.
    pub p99: Option<u64>,
    /// One in a thousand is later.
    pub p999: Option<u64>,
    /// The latest message; `None` if one was lost, for that is infinitely late.
    pub max: Option<u64>,
    /// The slowest answer.
    pub max_answered: Option<u64>,
    /// The lowest of p50 … max that is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infinite_from: Option<String>,
}

impl Figures {
    /// p50 … max as drawings take them: infinite where they are among the lost, none where the sample cannot say.
    pub fn tail_ns(&self) -> [Option<f64>; 5] {
        let figures = [self.p50, self.p90, self.p99, self.p999, self.max];
        let names = Quantile::PRINTED.iter().map(|(name, _)| *name).chain(["max"]);
        let infinite = names.into_iter().position(|name| self.infinite_from.as_deref() == Some(name));
        std::array::from_fn(|place| {
            let is_infinite = infinite.is_some_and(|from| place >= from);
            figures[place].map(|ns| ns as f64).or_else(|| is_infinite.then_some(f64::INFINITY))
        })
    }

    /// Those of one distribution.
    pub fn of(all: &Distribution) -> Self {
        let printed = Quantile::PRINTED.map(|(name, quantile)| (name, all.quantile(quantile)));
        let infinite =
            printed.iter().copied().chain([("max", all.max())]).find(|(_, f)| *f == Figure::Infinite);
        let [p50, p90, p99, p999] = printed.map(|(_, figure)| figure.ns());
        Self {
            count: all.count(),
            min: all.min_ns(),
            mean: all.mean_ns().map(|ns| (ns * 10.0).round() / 10.0),
            p50,
            p90,
            p99,
            p999,
            max: all.max().ns(),
            max_answered: all.answered_max_ns(),
            infinite_from: infinite.map(|(name, _)| name.to_owned()),
        }
    }
}

/// Account of the messages taken: `taken` = `delivered` + every counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Messages the system accepted.
    pub taken: u64,
    /// Messages that reached their application.
    pub delivered: u64,
    /// Every other end a message can have.
    pub counters: BTreeMap<String, u64>,
}

impl Ledger {
    /// Nothing vanished and nothing was invented.
    pub fn sums(&self) -> bool {
        let ended = [self.delivered].into_iter().chain(self.counters.values().copied());
        // Of 64 bits a file that was edited may have too many for them.
        u128::from(self.taken) == ended.map(u128::from).sum()
    }
}

/// One cell, all its trials pooled. The figures are those of the steady state; the counters of broken
/// promises (`lost` to `reordered`) cover every phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// The cell.
    #[serde(flatten)]
    pub cell: CellId,
    /// Of the steady state.
    #[serde(flatten)]
    pub figures: Figures,
    /// `ns`; of a throughput `B/s`, or `op/s` of operations.
    pub unit: String,
    /// Messages that never came.
    pub lost: u64,
    /// Messages answered wrongly.
    pub mismatched: u64,
    /// Messages not answered when the trial ended.
    #[serde(default)]
    pub unfinished: u64,
    /// Messages of which the other side said that it does not serve them.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub refused: u64,
    /// Of the unfinished ones, messages that were never sent.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub skipped: u64,
    /// Messages whose stages take longer than they did.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub stages_over_total: u64,
    /// Messages that arrived once more.
    #[serde(default)]
    pub duplicated: u64,
    /// Messages that arrived after a younger one.
    #[serde(default)]
    pub reordered: u64,
    /// Standstills in the steady state.
    pub stalls: u64,
    /// Per minute of steady state; `None` if less than a second was observed.
    #[serde(default)]
    pub stalls_per_minute: Option<f64>,
    /// CPU time of the responder per message, waiting included; `None` if it was not taken.
    #[serde(default)]
    pub cpu_ns_per_message: Option<f64>,
    /// Number of times that the cell was measured.
    #[serde(default)]
    pub trials: u64,
    /// Latency of the first message of each trial that opened everything anew; null if it never came.
    #[serde(default)]
    pub first_ns: Vec<Option<u64>>,
    /// Of the warm-up, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Figures>,
    /// Where the time of the steady state went, if messages were stamped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageShare>,
    /// If the experiment keeps one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// Values that the experiment adds (`docs/summary.md`).
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl CellResult {
    /// From the trials of one cell.
    pub fn of(cell: &CellId, trials: &[Samples], warmup: u64) -> Self {
        let steady = Distribution::of(trials, Phase::Steady, warmup);
        let warm = Distribution::of(trials, Phase::WarmUp, warmup);
        let rule = steady.median_ns().map(StallRule::for_median);
        let stalls: usize = rule.map_or(0, |rule| {
            trials.iter().map(|t| stall::steady_stalls(t, cell.load, rule, warmup).len()).sum()
        });
        let lasted_ns = sum(trials.iter().map(|t| stall::steady_ns(t, cell.load, warmup)));
        let ended = |outcome| trials.iter().map(|t| t.count_of(outcome)).sum();
        Self {
            cell: cell.clone(),
            figures: Figures::of(&steady),
            unit: "ns".to_owned(),
            lost: ended(Outcome::Lost),
            mismatched: ended(Outcome::Mismatched),
            unfinished: ended(Outcome::Unfinished),
            refused: ended(Outcome::Refused),
            skipped: sum(trials.iter().map(|t| t.facts.skipped)),
            stages_over_total: stages_over_total(trials),
            duplicated: sum(trials.iter().map(|t| t.facts.duplicated)),
            reordered: sum(trials.iter().map(|t| t.facts.reordered)),
            stalls: stalls as u64,
            stalls_per_minute: stall::per_minute(stalls, lasted_ns),
            cpu_ns_per_message: cpu_ns_per_message(trials),
            trials: trials.len() as u64,
            first_ns: first_ns(trials, warmup),
            warmup: (warm.count() > 0).then(|| Figures::of(&warm)),
            stages: stage_shares(trials, warmup),
            ledger: None,
            more: BTreeMap::new(),
        }
    }

    /// A throughput, from the speeds of its runs, bytes a second. Its figures are those of the runs: the middle one is `p50`.
    pub fn of_speeds(cell: &CellId, speeds: &[f64]) -> Self {
        let mut sorted: Vec<u64> = speeds.iter().map(|speed| speed.round() as u64).collect();
        sorted.sort_unstable();
        let figures = Figures {
            count: sorted.len() as u64,
            min: sorted.first().copied(),
            mean: (!speeds.is_empty()).then(|| (speeds.iter().sum::<f64>() / speeds.len() as f64).round()),
            p50: sorted.get(sorted.len().saturating_sub(1) / 2).copied(),
            max: sorted.last().copied(),
            ..Figures::default()
        };
        let (unit, trials) = ("B/s".to_owned(), speeds.len() as u64);
        Self { figures, unit, trials, ..Self::of(cell, &[], 0) }
    }

    /// A number that the experiment added.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.more.get(name)?.as_f64()
    }

    /// The rows that it added; none where it added nothing.
    pub fn rows<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        let rows = self.more.get(name).cloned().unwrap_or_default();
        serde_json::from_value(rows).unwrap_or_default()
    }

    /// Adds what the experiment knows of it: the fields of an object.
    pub fn extend(&mut self, more: serde_json::Value) {
        if let serde_json::Value::Object(more) = more {
            self.more.extend(more);
        }
    }

    /// Everything sent came once, right and in order, and the ledger sums.
    pub fn kept_promises(&self) -> bool {
        [self.lost, self.mismatched, self.duplicated, self.reordered] == [0; 4]
            && self.ledger.as_ref().is_none_or(Ledger::sums)
    }

    /// Messages of every phase.
    fn messages(&self) -> u64 {
        let warmup = self.warmup.as_ref().map_or(0, |figures| figures.count);
        self.figures.count.saturating_add(warmup).saturating_add(self.first_ns.len() as u64)
    }

    pub(super) fn doubts(&self, clock: &Clock) -> Vec<Doubt> {
        let subject = || self.cell.to_string();
        let mut doubts: Vec<Doubt> = Vec::new();
        let mut add = |cause: Cause| doubts.push(cause.into());
        if self.lost > 0 {
            add(Cause::Lost { subject: subject(), count: self.lost });
        }
        if self.mismatched > 0 {
            add(Cause::Mismatched { subject: subject(), count: self.mismatched });
        }
        let unfinished = self.unfinished.saturating_sub(self.skipped);
        if unfinished > 0 {
            add(Cause::Unfinished { subject: subject(), count: unfinished });
        }
        if self.skipped > 0 {
            add(Cause::Skipped { subject: subject(), count: self.skipped });
        }
        if self.duplicated > 0 {
            add(Cause::Duplicated { subject: subject(), count: self.duplicated });
        }
        if self.reordered > 0 {
            add(Cause::Reordered { subject: subject(), count: self.reordered });
        }
        if let Some(figure_ns) = self.figures.p50.filter(|&ns| ns < clock.resolution_ns()) {
            add(Cause::BelowResolution { subject: subject(), figure_ns, step_ns: clock.step_ns });
        }
        if self.stages_over_total > 0 {
            let (count, of) = (self.stages_over_total, self.messages());
            add(Cause::StagesOverlap { subject: subject(), count, of });
        }
        doubts
    }
}

/// A file that was edited may hold any numbers: their sum ends with the largest there is.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn cpu_ns_per_message(trials: &[Samples]) -> Option<f64> {
    // 0 is a time that was not taken, not one that was short.
    let known = || trials.iter().filter(|trial| trial.facts.cpu_ns > 0);
    let messages = sum(known().map(|trial| trial.facts.cpu_messages.unwrap_or(trial.len() as u64)));
    let cpu_ns = sum(known().map(|trial| trial.facts.cpu_ns));
    (cpu_ns > 0 && messages > 0).then(|| (cpu_ns as f64 / messages as f64).round())
}

fn first_ns(trials: &[Samples], warmup: u64) -> Vec<Option<u64>> {
    let answer = |t: &Samples, row: usize| (t.outcome[row] == Outcome::Answered).then(|| t.total_ns[row]);
    trials.iter().flat_map(|t| t.rows(Phase::First, warmup).map(|row| answer(t, row))).collect()
}

/// The start of the steady state that is compared with its second half, and when that is a doubt.
const START_PART: usize = 10;
const START_COUNT_MIN: usize = 20;
const START_RATIO_MAX: f64 = 1.25;

/// The start of the steady state is still slower than its end: the warm-up was too short.
pub(super) fn slow_start(cell: &CellId, trials: &[Samples], warmup: u64) -> Option<Cause> {
    let (mut start, mut end) = (Vec::new(), Vec::new());
    let opens =
        |t: &&Samples| t.index.first().is_some_and(|&index| index <= t.facts.warmup.unwrap_or(warmup));
    for samples in trials.iter().filter(opens) {
        let rows: Vec<usize> = samples.rows(Phase::Steady, warmup).collect();
        let ns = |rows: &[usize]| rows.iter().map(|&row| samples.total_ns[row]).collect::<Vec<_>>();
        start.extend(ns(&rows[..rows.len() / START_PART]));
        end.extend(ns(&rows[rows.len() / 2..]));
    }
    if start.len() < START_COUNT_MIN {
        return None;
    }
    let (first_ns, median_ns) = (upper_median(&mut start)?, upper_median(&mut end)?);
    let count = start.len() as u64;
    let is_slow = first_ns as f64 > median_ns as f64 * START_RATIO_MAX;
    is_slow.then(|| Cause::FirstSlow { subject: cell.to_string(), count, first_ns, median_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Facts, StageColumn};

    /// Goal: numbers of a file that somebody edited neither end the program nor wrap to a promise that was kept.
    #[test]
    fn absurd_numbers_keep_no_promise() {
        let counters = |counts: [u64; 2]| ["a", "b"].map(str::to_owned).into_iter().zip(counts).collect();
        let sums = |taken, delivered, counts| Ledger { taken, delivered, counters: counters(counts) }.sums();
        assert!(sums(7, 4, [1, 2]) && !sums(7, 4, [1, 1]));
        assert!(!sums(0, u64::MAX, [1, 0]) && !sums(1, 1, [u64::MAX, 1]));
        let cell = CellResult::of(&CellId::new("shared", "spin"), &[], 0);
        assert!(cell.kept_promises());
        assert!(!CellResult { lost: u64::MAX, mismatched: 1, ..cell }.kept_promises());
        let clock = Clock { step_ns: u64::MAX, ..Clock::default() };
        let figures = Figures { p50: Some(5), ..Figures::default() };
        let doubts =
            CellResult { figures, ..CellResult::of(&CellId::new("udp", "spin"), &[], 0) }.doubts(&clock);
        assert!(doubts.len() == 1 && doubts[0].what.contains("less than ten clock steps"), "{doubts:?}");
        let facts = Facts { skipped: u64::MAX, duplicated: 2, cpu_ns: u64::MAX, ..Facts::default() };
        let trial = Samples { facts, ..Samples::default() };
        let cell = CellResult::of(&CellId::new("udp", "spin"), &[trial.clone(), trial], 0);
        assert_eq!((cell.skipped, cell.duplicated), (u64::MAX, 4));
    }

    /// Goal: a user who is told to see the doubts finds one there for each promise that was broken.
    #[test]
    fn every_broken_promise_is_a_doubt() {
        let kept = CellResult::of(&CellId::new("udp", "spin"), &[], 0);
        let clock = Clock { step_ns: 1, stamp_ns: 1.0, record_ns: 1.0, more: BTreeMap::new() };
        assert_eq!(kept.doubts(&clock), []);
        let broken: [fn(&mut CellResult) -> &mut u64; 4] = [
            |cell| &mut cell.lost,
            |cell| &mut cell.mismatched,
            |cell| &mut cell.duplicated,
            |cell| &mut cell.reordered,
        ];
        for (place, count) in broken.into_iter().enumerate() {
            let mut cell = kept.clone();
            *count(&mut cell) = 1;
            assert!(!cell.kept_promises());
            assert_eq!(cell.doubts(&clock).len(), 1, "counter {place}");
        }
    }

    /// Goal: of so many messages are those whose stages exceed them: all of both in every phase. Method: the first, a warm-up of four and
    /// five steady ones, all with a stage that took longer than they did.
    #[test]
    fn stages_that_overlap_are_part_of_all_messages() {
        let mut samples = Samples::default();
        (0..10).for_each(|index| samples.push(index, 0, 0, 100, Outcome::Answered));
        samples.stages.push(StageColumn { name: "medium".to_owned(), ns: vec![500; 10] });
        let cell = CellResult::of(&CellId::new("udp", "spin"), &[samples], 5);
        let clock = Clock { step_ns: 1, stamp_ns: 1.0, record_ns: 1.0, more: BTreeMap::new() };
        let overlap = Cause::StagesOverlap { subject: cell.cell.to_string(), count: 10, of: 10 };
        assert!(cell.doubts(&clock).contains(&overlap.into()), "{:?}", cell.doubts(&clock));
    }

    /// Goal: messages of trials whose CPU time was not taken are in no share of it, nor are those of a warm-up.
    #[test]
    fn cpu_time_is_that_of_its_own_trials() {
        let trial = |messages: u64, cpu_ns| {
            let mut samples = Samples::default();
            (0..messages).for_each(|index| samples.push(index, 0, 0, 1, Outcome::Answered));
            samples.facts.cpu_ns = cpu_ns;
            samples
        };
        assert_eq!(cpu_ns_per_message(&[trial(10, 5_000), trial(90, 0)]), Some(500.0));
        assert_eq!(cpu_ns_per_message(&[trial(10, 5_000), trial(10, 7_000)]), Some(600.0));
        assert_eq!(cpu_ns_per_message(&[trial(10, 0)]), None);
        let mut behind_warm_up = trial(10, 5_000);
        (behind_warm_up.facts.warmup, behind_warm_up.facts.cpu_messages) = (Some(5), Some(4));
        assert_eq!(cpu_ns_per_message(&[behind_warm_up]), Some(1_250.0));
    }
}
