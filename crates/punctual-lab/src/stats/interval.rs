//! Interval of a median of values that were taken round by round.

use std::cmp::Ordering;

use punctual_proto::sim::Rng;
use serde::{Deserialize, Serialize};

use super::median;

/// Resamples of an interval.
const RESAMPLES: usize = 2_000;
/// Of the resamples that an interval holds, in parts of a thousand left out at each side.
const OUTSIDE: usize = 25;

/// A median with its interval, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median of the rounds' values.
    pub ns: f64,
    /// Below it lie 2.5 % of the resamples; `None` of fewer than [`Self::VALUES_MIN`] values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_ns: Option<f64>,
    /// Above it lie 2.5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_ns: Option<f64>,
}

impl Interval {
    /// Values below which there is no interval. All of four lie on one side of their median once in eight times. The range from the
    /// least to the largest is no 95 %, and the bootstrap knows no more than them.
    pub const VALUES_MIN: usize = 5;

    /// Of values that were taken round by round: the bootstrap draws rounds (Efron 1979, percentile method).
    pub fn of(values: &[f64], seed: u64) -> Self {
        let ns = median(values);
        if values.len() < Self::VALUES_MIN {
            return Self { ns, low_ns: None, high_ns: None };
        }
        let mut random = Rng::new(seed);
        let mut resampled: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut draw = || values[random.below(values.len() as u64) as usize];
                median(&values.iter().map(|_| draw()).collect::<Vec<_>>())
            })
            .collect();
        resampled.sort_unstable_by(f64::total_cmp);
        let at =
            |thousandth: usize| resampled.get((RESAMPLES * thousandth / 1000).min(RESAMPLES - 1)).copied();
        Self { ns, low_ns: at(OUTSIDE), high_ns: at(1000 - OUTSIDE) }
    }

    /// True if it certainly lies above zero.
    pub fn is_above_zero(&self) -> bool {
        self.low_ns.is_some_and(|low| low > 0.0)
    }

    /// True if it certainly lies below zero.
    pub fn is_below_zero(&self) -> bool {
        self.high_ns.is_some_and(|high| high < 0.0)
    }

    /// True if it is distinguishable from zero.
    pub fn excludes_zero(&self) -> bool {
        self.is_above_zero() || self.is_below_zero()
    }

    /// Both ends, where it has them.
    pub fn ends(&self) -> Option<[f64; 2]> {
        self.low_ns.zip(self.high_ns).map(|(low, high)| [low, high])
    }

    /// By what it surely is at least; without an interval, by its median.
    pub fn compare(&self, other: &Self) -> Ordering {
        let rank = |one: &Self| one.low_ns.unwrap_or(one.ns);
        rank(self).total_cmp(&rank(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the range from the least to the largest of a few values is called no interval, and nothing follows from it.
    #[test]
    fn few_values_have_no_interval() {
        let four = Interval::of(&[1.0, 2.0, 4.0, 5.0], 1);
        assert_eq!(four, Interval { ns: 3.0, low_ns: None, high_ns: None });
        assert!(!four.excludes_zero() && Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0], 1).is_above_zero());
    }
}
