//! Values of one run for one cell: a number per aspect, in which differences are ratios. A message without a right answer is infinitely
//! late: for it stands what is later than all that came in any of the runs that are compared.

use super::{Aspect, Options, Trials};
use crate::sample::{Outcome, Phase, Samples};
use crate::stall::{StallRule, steady_ns, steady_stalls};
use crate::stats::mean;

/// Value of a message without a right answer, in greatest finite latencies of all runs that are compared: far, yet finite.
const INFINITE_FACTOR: f64 = 10.0;
/// Anscombe: the root of a Poisson count plus this has a deviation of one half.
const ROOT_SHIFT: f64 = 0.375;

/// One aspect of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Value {
    /// A logarithm of nanoseconds, or the root of a rate per minute; `None` if the run does not support it.
    pub(super) all: Option<f64>,
    /// The same of each trial alone.
    pub(super) trials: Vec<f64>,
}

/// One run, reduced.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RunValue {
    pub(super) messages: u64,
    /// Messages without a right answer by the way in which they ended, in any phase.
    pub(super) lost: u64,
    pub(super) mismatched: u64,
    pub(super) refused: u64,
    /// Messages that arrived once more, and messages that arrived after a younger one, in any phase.
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    /// Logarithm of the slowest answer of all runs that are compared: values beyond it are infinite.
    pub(super) finite_ln: f64,
    pub(super) stalls: f64,
    pub(super) minutes: f64,
    pub(super) values: [Value; Aspect::ALL.len()],
}

impl RunValue {
    /// Trials without a steady message are left out: they say nothing. `slowest_ns` is the slowest answer of all runs that are
    /// compared.
    pub(super) fn of(
        trials: &[Samples],
        rule: Option<StallRule>,
        slowest_ns: u64,
        options: &Options,
    ) -> Self {
        let warmup = options.warmup;
        let count_of = |of: &dyn Fn(&Samples) -> u64| {
            trials.iter().fold(0, |sum: u64, trial| sum.saturating_add(of(trial)))
        };
        let [duplicated, reordered] = [count_of(&|t| t.facts.duplicated), count_of(&|t| t.facts.reordered)];
        let [lost, mismatched, refused] = [Outcome::Lost, Outcome::Mismatched, Outcome::Refused]
            .map(|outcome| count_of(&|t| t.count_of(outcome)));
        let trials: Vec<&Samples> =
            trials.iter().filter(|t| t.rows(Phase::Steady, warmup).next().is_some()).collect();
        let finite_max = slowest_ns.max(1) as f64;
        let sorted: Vec<Vec<f64>> =
            trials.iter().map(|t| latencies(t, warmup, finite_max * INFINITE_FACTOR)).collect();
        let mut pooled: Vec<f64> = sorted.concat();
        pooled.sort_unstable_by(f64::total_cmp);
        let count = pooled.len() as u64;
        let stalls = |t: &Samples| rule.map_or(0, |rule| steady_stalls(t, options.load, rule, warmup).len());
        let stalls: Vec<f64> = trials.iter().map(|t| stalls(t) as f64).collect();
        let minutes: Vec<f64> =
            trials.iter().map(|t| steady_ns(t, options.load, warmup) as f64 / 60e9).collect();
        let of_aspect = |aspect: Aspect| match aspect.quantile() {
            Some(quantile) => Value {
                all: quantile.is_supported(count).then(|| at(&pooled, quantile.rank(count))),
                trials: sorted.iter().map(|t| at(t, quantile.rank(t.len() as u64))).collect(),
            },
            None if aspect == Aspect::Max => maxima(&sorted, finite_max),
            None => rate(&stalls, &minutes),
        };
        Self {
            messages: count,
            lost,
            mismatched,
            refused,
            duplicated,
            reordered,
            finite_ln: finite_max.ln(),
            stalls: stalls.iter().sum(),
            minutes: minutes.iter().sum(),
            values: Aspect::ALL.map(of_aspect),
        }
    }

    pub(super) fn get(&self, aspect: Aspect) -> &Value {
        &self.values[aspect as usize]
    }

    /// As if every latency were multiplied: the run that a true change would have made of this one.
    pub(super) fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        for aspect in Aspect::ALL.into_iter().filter(|&aspect| aspect != Aspect::StallsPerMinute) {
            let value = &mut scaled.values[aspect as usize];
            value.all = value.all.map(|ln| ln + factor.ln());
            value.trials.iter_mut().for_each(|ln| *ln += factor.ln());
        }
        scaled.finite_ln += factor.ln();
        scaled
    }
}

/// The slowest of each trial. The value of a run with a message that had no right answer is infinite, in whichever trial that was.
fn maxima(sorted: &[Vec<f64>], finite_max: f64) -> Value {
    let slowest = || sorted.iter().filter_map(|trial| trial.last().copied());
    let trials: Vec<f64> = slowest().map(f64::ln).collect();
    let infinite = slowest().find(|&ns| ns > finite_max);
    let all = infinite.map(f64::ln).or_else(|| (!trials.is_empty()).then(|| mean(&trials)));
    Value { all, trials }
}

/// The root of a rate.
fn rate(stalls: &[f64], minutes: &[f64]) -> Value {
    let root = |stalls: f64, minutes: f64| ((stalls + ROOT_SHIFT) / minutes).sqrt();
    let lasted: f64 = minutes.iter().sum();
    let each = stalls.iter().zip(minutes).filter(|&(_, &minutes)| minutes > 0.0);
    Value {
        all: (lasted > 0.0).then(|| root(stalls.iter().sum(), lasted)),
        trials: each.map(|(&stalls, &minutes)| root(stalls, minutes)).collect(),
    }
}

/// The logarithm of the value at a rank, from 1.
fn at(sorted: &[f64], rank: u64) -> f64 {
    let place = usize::try_from(rank - 1).expect("a rank is an index into memory");
    sorted[place.min(sorted.len() - 1)].ln()
}

fn is_finite(samples: &Samples, row: usize) -> bool {
    matches!(samples.outcome[row], Outcome::Answered | Outcome::Unfinished)
}

/// The slowest answer of all of them.
pub(super) fn slowest_ns<'a>(runs: impl Iterator<Item = &'a Trials>, warmup: u64) -> u64 {
    runs.flatten().filter_map(|trial| slowest_of(trial, warmup)).max().unwrap_or(1)
}

fn slowest_of(samples: &Samples, warmup: u64) -> Option<u64> {
    let finite = samples.rows(Phase::Steady, warmup).filter(|&row| is_finite(samples, row));
    finite.map(|row| samples.total_ns[row]).max()
}

fn latencies(samples: &Samples, warmup: u64, infinite: f64) -> Vec<f64> {
    let value =
        |row: usize| if is_finite(samples, row) { samples.total_ns[row].max(1) as f64 } else { infinite };
    let mut values: Vec<f64> = samples.rows(Phase::Steady, warmup).map(value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}
