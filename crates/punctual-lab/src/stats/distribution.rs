//! Exact quantiles of a sample in which a lost message is infinitely late.

use crate::sample::{Outcome, Phase, Samples};

/// A quantile is printed only if this many samples lie beyond it: fewer are anecdotes.
pub const BEYOND_MIN: u64 = 10;

/// A fraction of the sample, exact: 99.9 % of 10,000 is 9,990, not 9,989.999….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantile {
    per_million: u64,
}

impl Quantile {
    /// The median.
    pub const P50: Self = Self { per_million: 500_000 };
    /// One in ten is later.
    pub const P90: Self = Self { per_million: 900_000 };
    /// One in a hundred is later.
    pub const P99: Self = Self { per_million: 990_000 };
    /// One in a thousand is later.
    pub const P999: Self = Self { per_million: 999_000 };
    /// Those of the summary, ascending, with their names there.
    pub const PRINTED: [(&'static str, Self); 4] =
        [("p50", Self::P50), ("p90", Self::P90), ("p99", Self::P99), ("p999", Self::P999)];

    /// `None` unless below one million.
    pub fn per_million(per_million: u64) -> Option<Self> {
        (per_million < 1_000_000).then_some(Self { per_million })
    }

    /// Number of samples at or below it, of `count`: the nearest rank, from 1.
    pub fn rank(self, count: u64) -> u64 {
        let rank = (u128::from(count) * u128::from(self.per_million)).div_ceil(1_000_000);
        u64::try_from(rank).expect("a rank is at most its count").max(1)
    }

    /// Enough samples lie beyond it.
    pub fn is_supported(self, count: u64) -> bool {
        count.saturating_sub(self.rank(count)) >= BEYOND_MIN
    }
}

/// Statement that can be made about a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The sample is too small: print nothing.
    Unsupported,
    /// It falls among the messages that never came.
    Infinite,
    /// Nanoseconds.
    Ns(u64),
}

impl Figure {
    /// The nanoseconds, where there are any.
    pub fn ns(self) -> Option<u64> {
        match self {
            Self::Ns(ns) => Some(ns),
            Self::Unsupported | Self::Infinite => None,
        }
    }
}

/// The latencies of one phase, sorted. Unfinished messages stand at their age, lost, mismatched and refused ones
/// beyond everything.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    finite_ns: Vec<u64>,
    infinite: u64,
    answered: u64,
    answered_sum_ns: u128,
    answered_min_ns: Option<u64>,
    answered_max_ns: Option<u64>,
}

impl Distribution {
    /// Pools the phase over trials.
    pub fn of(trials: &[Samples], phase: Phase, warmup: u64) -> Self {
        let mut all = Self::default();
        for samples in trials {
            for row in samples.rows(phase, warmup) {
                all.record(samples.total_ns[row], samples.outcome[row]);
            }
        }
        all.finite_ns.sort_unstable();
        all
    }

    fn record(&mut self, total_ns: u64, outcome: Outcome) {
        match outcome {
            Outcome::Lost | Outcome::Mismatched | Outcome::Refused => self.infinite += 1,
            Outcome::Unfinished => self.finite_ns.push(total_ns),
            Outcome::Answered => {
                self.finite_ns.push(total_ns);
                self.answered += 1;
                self.answered_sum_ns += u128::from(total_ns);
                self.answered_min_ns = Some(self.answered_min_ns.map_or(total_ns, |m| m.min(total_ns)));
                self.answered_max_ns = self.answered_max_ns.max(Some(total_ns));
            }
        }
    }

    /// Messages, however they ended.
    pub fn count(&self) -> u64 {
        self.finite_ns.len() as u64 + self.infinite
    }

    /// The finite latencies, ascending.
    pub fn finite_ns(&self) -> &[u64] {
        &self.finite_ns
    }

    /// The value at the nearest rank, if [`BEYOND_MIN`] samples lie beyond it.
    pub fn quantile(&self, quantile: Quantile) -> Figure {
        if quantile.is_supported(self.count()) {
            self.at_rank(quantile.rank(self.count()))
        } else {
            Figure::Unsupported
        }
    }

    /// The median regardless of the count: for thresholds and plots, never printed as a result.
    pub fn median_ns(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.at_rank(Quantile::P50.rank(self.count())).ns()).flatten()
    }

    /// The latest message; infinite as soon as one is lost.
    pub fn max(&self) -> Figure {
        if self.count() == 0 { Figure::Unsupported } else { self.at_rank(self.count()) }
    }

    fn at_rank(&self, rank: u64) -> Figure {
        let place = usize::try_from(rank - 1).expect("a rank is an index into memory");
        self.finite_ns.get(place).map_or(Figure::Infinite, |&ns| Figure::Ns(ns))
    }

    /// The fastest answer.
    pub fn min_ns(&self) -> Option<u64> {
        self.answered_min_ns
    }

    /// The slowest answer.
    pub fn answered_max_ns(&self) -> Option<u64> {
        self.answered_max_ns
    }

    /// Over answered messages only: lost messages have no share in it, so it never stands alone.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.answered_sum_ns as f64 / self.answered as f64)
    }
}
