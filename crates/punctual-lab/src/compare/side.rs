//! Both sides of a comparison, resampled.

use super::{Aspect, Difference, Measure, Options, Order};
use crate::sample::{Outcome, Phase, Samples};
use crate::stall::{StallRule, steady_ns, steady_stalls};
use crate::stats::Xorshift;
use crate::stats::bootstrap::{Mixture, deviation, draw};

/// Student's t by degrees of freedom from 1, and the normal limit: two-sided 5 % shared by six aspects.
const STUDENT: [f64; 20] = [
    76.390, 10.886, 6.232, 4.851, 4.219, 3.863, 3.636, 3.479, 3.364, 3.277, 3.208, 3.153, 3.107, 3.069,
    3.036, 3.008, 2.984, 2.963, 2.944, 2.927,
];
const NORMAL: f64 = 2.638;
/// What a lost message counts as while resampling, in greatest finite latencies: far, yet finite.
const LOST_FACTOR: f64 = 10.0;
/// Anscombe: the root of a Poisson count plus this has a deviation of one half.
const ROOT_SHIFT: f64 = 0.375;

fn student(freedom: usize) -> f64 {
    match freedom {
        0 => f64::INFINITY,
        _ => STUDENT.get(freedom - 1).copied().unwrap_or(STUDENT[STUDENT.len() - 1]),
    }
}

/// One rule for both, by the slower median, so that a shift of the body is not a thousand stalls.
pub(super) fn common_rule(a: &[Samples], b: &[Samples], warmup: u64) -> Option<StallRule> {
    let rules = [StallRule::for_trials(a, warmup), StallRule::for_trials(b, warmup)];
    rules.into_iter().flatten().max_by_key(|rule| rule.threshold_ns)
}

/// One side: its trials as numbers.
pub(super) struct Side {
    mixture: Option<Mixture>,
    messages: u64,
    /// Value above which a quantile is infinite.
    finite_max: f64,
    pub(super) infinite: u64,
    /// Per trial: logarithm of the slowest answer.
    max_ln: Vec<f64>,
    stalls: Vec<f64>,
    minutes: Vec<f64>,
}

impl Side {
    /// Trials without a steady message are left out: they say nothing.
    pub(super) fn new(trials: &[Samples], rule: Option<StallRule>, options: &Options) -> Self {
        let warmup = options.warmup;
        let trials: Vec<&Samples> =
            trials.iter().filter(|t| t.rows(Phase::Steady, warmup).next().is_some()).collect();
        let slowest = |t: &Samples| {
            t.rows(Phase::Steady, warmup).filter(|&r| is_finite(t, r)).map(|r| t.total_ns[r]).max()
        };
        let finite_max = trials.iter().filter_map(|t| slowest(t)).max().unwrap_or(1).max(1) as f64;
        let values: Vec<Vec<f64>> =
            trials.iter().map(|t| values(t, warmup, finite_max * LOST_FACTOR)).collect();
        let lost = |v: &Vec<f64>| v.iter().filter(|&&ns| ns > finite_max).count() as u64;
        let stalls = |t: &Samples| rule.map_or(0, |rule| steady_stalls(t, options.load, rule, warmup).len());
        Self {
            messages: values.iter().map(|v| v.len() as u64).sum(),
            finite_max,
            infinite: values.iter().map(lost).sum(),
            mixture: (!values.is_empty()).then(|| Mixture::new(&values)),
            max_ln: trials.iter().filter_map(|t| slowest(t)).map(|ns| (ns.max(1) as f64).ln()).collect(),
            stalls: trials.iter().map(|t| stalls(t) as f64).collect(),
            minutes: trials.iter().map(|t| steady_ns(t, options.load, warmup) as f64 / 60e9).collect(),
        }
    }

    pub(super) fn trials(&self) -> usize {
        self.mixture.as_ref().map_or(0, Mixture::trials)
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// The aspect with the trials drawn as often as `times` says: a logarithm, or the root of a rate.
    fn value(&self, aspect: Aspect, times: &[u32], random: Option<&mut Xorshift>) -> Option<f64> {
        match aspect.quantile() {
            Some(quantile) => {
                let mixture = self.mixture.as_ref().filter(|_| quantile.is_supported(self.messages))?;
                Some(match random {
                    Some(random) => mixture.resampled_ln(times, quantile.fraction(), random),
                    None => mixture.quantile_ln(times, quantile.fraction()),
                })
            }
            None if aspect == Aspect::Max => {
                (self.max_ln.len() == times.len()).then(|| weighted(&self.max_ln, times) / sum(times))
            }
            None => {
                let minutes = weighted(&self.minutes, times);
                (minutes > 0.0).then(|| ((weighted(&self.stalls, times) + ROOT_SHIFT) / minutes).sqrt())
            }
        }
    }

    /// The aspect of one trial alone, for the spread between trials.
    fn alone(&self, aspect: Aspect) -> Vec<f64> {
        let one = |k: usize| (0..self.trials()).map(|t| u32::from(t == k)).collect::<Vec<_>>();
        (0..self.trials()).filter_map(|k| self.value(aspect, &one(k), None)).collect()
    }

    /// What the table shows.
    fn shown(&self, aspect: Aspect) -> Option<f64> {
        let all = vec![1; self.trials()];
        if aspect == Aspect::StallsPerMinute {
            return Some(self.stalls.iter().sum::<f64>() / self.minutes.iter().sum::<f64>());
        }
        let ns = self.value(aspect, &all, None)?.exp();
        (ns <= self.finite_max * 1.000_001).then_some(ns)
    }

    /// Deviation of the root of the stall rate if stalls came at random.
    fn root_scatter(&self) -> f64 {
        0.5 / self.minutes.iter().sum::<f64>().sqrt()
    }
}

fn is_finite(samples: &Samples, row: usize) -> bool {
    matches!(samples.outcome[row], Outcome::Answered | Outcome::Unfinished)
}

fn values(samples: &Samples, warmup: u64, lost: f64) -> Vec<f64> {
    let value = |row: usize| if is_finite(samples, row) { samples.total_ns[row].max(1) as f64 } else { lost };
    let mut values: Vec<f64> = samples.rows(Phase::Steady, warmup).map(value).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn weighted(values: &[f64], times: &[u32]) -> f64 {
    values.iter().zip(times).map(|(v, &m)| v * f64::from(m)).sum()
}

fn sum(times: &[u32]) -> f64 {
    times.iter().copied().map(f64::from).sum()
}

/// Both sides.
pub(super) struct Pair {
    pub(super) a: Side,
    pub(super) b: Side,
}

impl Pair {
    /// Those aspects that both sides support.
    pub(super) fn measures(&self, options: &Options) -> Vec<Measure> {
        let paired = options.order == Order::Interleaved && self.a.trials() == self.b.trials();
        if self.a.trials().min(self.b.trials()) == 0 {
            return Vec::new();
        }
        let mut random = Xorshift::new(options.seed);
        let mut moved: Vec<Vec<f64>> = Aspect::ALL.map(|_| Vec::with_capacity(options.resamples)).into();
        for _ in 0..options.resamples {
            let times_a = draw(self.a.trials(), &mut random);
            let times_b = if paired { times_a.clone() } else { draw(self.b.trials(), &mut random) };
            for (aspect, moved) in Aspect::ALL.into_iter().zip(&mut moved) {
                let a = self.a.value(aspect, &times_a, Some(&mut random));
                let b = self.b.value(aspect, &times_b, Some(&mut random));
                moved.extend(a.zip(b).map(|(a, b)| b - a));
            }
        }
        let each = Aspect::ALL.into_iter().zip(&moved);
        each.filter_map(|(aspect, moved)| self.measure(aspect, moved, options)).collect()
    }

    fn measure(&self, aspect: Aspect, moved: &[f64], options: &Options) -> Option<Measure> {
        let a = self.a.value(aspect, &vec![1; self.a.trials()], None)?;
        let b = self.b.value(aspect, &vec![1; self.b.trials()], None)?;
        let half = self.half_width(aspect, moved, options);
        // A rate of stalls is compared by its root, everything else by its logarithm.
        let ratio = |change: f64| match aspect {
            Aspect::StallsPerMinute => ((a + change) / a).max(0.0).powi(2),
            _ => change.exp(),
        };
        let (shown_a, shown_b) = (self.a.shown(aspect), self.b.shown(aspect));
        let (low, high) = (ratio(b - a - half), ratio(b - a + half));
        let matters = ratio(b - a).max(1.0 / ratio(b - a)) >= aspect.ratio_min()
            && (aspect == Aspect::StallsPerMinute
                || (b.exp() - a.exp()).abs() >= options.resolution_ns as f64);
        let difference = match (matters, high < 1.0, low > 1.0) {
            (true, true, _) => Difference::Faster,
            (true, _, true) => Difference::Slower,
            _ => Difference::None,
        };
        let finite = shown_a.is_some() && shown_b.is_some();
        Some(Measure {
            aspect,
            a: shown_a,
            b: shown_b,
            ratio: finite.then(|| ratio(b - a)),
            low: if low.is_finite() { low } else { 0.0 },
            high: high.is_finite().then_some(high),
            difference,
        })
    }

    fn half_width(&self, aspect: Aspect, moved: &[f64], options: &Options) -> f64 {
        let trials = self.a.trials().min(self.b.trials());
        let t = match options.order {
            Order::Interleaved => student(trials - 1),
            // Apart, each side has a spread of its own.
            Order::Separate => student(self.a.trials() + self.b.trials() - 2),
        };
        // The bootstrap divides by n where an unbiased variance divides by n − 1.
        let small = if trials > 1 { trials as f64 / (trials - 1) as f64 } else { 1.0 };
        let mut variance = deviation(moved).powi(2) * small;
        if options.order == Order::Separate {
            // Runs drift at least as far apart as trials of one run do.
            variance += deviation(&self.a.alone(aspect)).powi(2) + deviation(&self.b.alone(aspect)).powi(2);
        }
        let half = if trials > 1 { t * variance.sqrt() } else { f64::INFINITY };
        match aspect {
            Aspect::StallsPerMinute => half.max(NORMAL * self.a.root_scatter().hypot(self.b.root_scatter())),
            _ => half,
        }
    }
}
