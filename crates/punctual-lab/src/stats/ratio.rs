//! Ratio of two durations: of pairs that were measured one right after the other. So an effect of the machine that lasts longer than
//! a pair is in both.

use serde::{Deserialize, Serialize};

use super::student::two_sided;
use super::{Squares, mean};

/// The interval holds the truth 19 times of 20.
const ALPHA: f64 = 0.05;

/// A ratio over pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// Where it lies, 19 times of 20 (Student, of the logarithms); `None` of one pair.
    pub interval: Option<[f64; 2]>,
    /// Pairs.
    pub openings: usize,
}

impl Ratio {
    /// From the ratio of each pair; `None` without any.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let ln: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let (middle, squares) = (mean(&ln), Squares::of(&ln));
        let half = two_sided(ALPHA, squares.freedom) * squares.deviation() / (ln.len() as f64).sqrt();
        let interval = (squares.freedom > 0).then(|| [(middle - half).exp(), (middle + half).exp()]);
        (!ln.is_empty()).then(|| Self { ratio: middle.exp(), interval, openings: ln.len() })
    }
}

/// Ratios below which quartiles are ends, not quarters.
const RATIOS_MIN: usize = 5;

/// A ratio over pairs of which single ones may be far off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MedianRatio {
    /// The median of the pairs' ratios.
    #[serde(rename = "ratio")]
    pub median: f64,
    /// Their quartiles: half of them lie between. None of fewer than five.
    #[serde(rename = "ratio_quartiles", default)]
    pub quartiles: Option<[f64; 2]>,
}

impl MedianRatio {
    /// Of durations in the order of the pairs, to three digits behind the point. `None` where no pair has both.
    pub fn of(own: &[Option<u64>], other: &[Option<u64>]) -> Option<Self> {
        let ratio =
            |(own, other): (&Option<u64>, &Option<u64>)| Some((*own)? as f64 / (*other)?.max(1) as f64);
        let mut ratios: Vec<f64> = own.iter().zip(other).filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let quartile = |share: usize| {
            let ratio = ratios.get(ratios.len() * share / 4)?;
            Some((ratio * 1000.0).round() / 1000.0)
        };
        let outer = quartile(1).zip(quartile(3)).filter(|_| ratios.len() >= RATIOS_MIN);
        Some(Self { median: quartile(2)?, quartiles: outer.map(|(low, high)| [low, high]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is three times as slow in the second turn changes no ratio; a pair without a duration is none.
    #[test]
    fn durations_are_compared_turn_by_turn() {
        let (own, bare) =
            ([Some(110), Some(360), None, Some(90)], [Some(100), Some(300), Some(7), Some(100)]);
        assert_eq!(MedianRatio::of(&own, &bare), Some(MedianRatio { median: 1.1, quartiles: None }));
        assert_eq!(MedianRatio::of(&own, &[]), None);
    }

    /// Goal: the ends of a few ratios are not told as what half of them lie in.
    #[test]
    fn few_ratios_have_no_quartiles() {
        let of = |own: &[u64]| {
            let own: Vec<Option<u64>> = own.iter().copied().map(Some).collect();
            MedianRatio::of(&own, &vec![Some(1_000); own.len()])
        };
        assert_eq!(of(&[1_200, 900, 1_100]), Some(MedianRatio { median: 1.1, quartiles: None }));
        let of_five = Some(MedianRatio { median: 1.1, quartiles: Some([1.0, 1.2]) });
        assert_eq!(of(&[900, 1_300, 1_100, 1_000, 1_200]), of_five);
    }

    #[test]
    fn an_interval_is_over_pairs() {
        let ratio = Ratio::of(&[1.0, 2.0, 4.0]).expect("three");
        assert!((ratio.ratio - 2.0).abs() < 1e-9, "{ratio:?}");
        let [low, high] = ratio.interval.expect("of several");
        assert!(low < 1.0 && high > 4.0, "{ratio:?}");
        assert_eq!(Ratio::of(&[3.0]).and_then(|one| one.interval), None);
        assert_eq!(Ratio::of(&[]), None);
    }
}
