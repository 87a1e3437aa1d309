//! Ratio of two durations: of pairs that were measured one right after the other. So an effect of the machine that lasts longer than
//! a pair is in both.

use serde::{Deserialize, Serialize};

use super::student::two_sided;
use super::{Distribution, Squares, mean};

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

/// The median of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TrialMedian {
    /// Nanoseconds.
    Ns(u64),
    /// Half of the messages never came.
    Infinite(Never),
    /// There was no message. Files of earlier versions have it for an infinite one, too.
    Missing,
}

/// An instant that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Never {
    /// The word for it.
    Infinite,
}

impl TrialMedian {
    /// Of what one trial measured.
    pub fn of(trial: &Distribution) -> Self {
        match (trial.count(), trial.median_ns()) {
            (0, _) => Self::Missing,
            (_, None) => Self::Infinite(Never::Infinite),
            (_, Some(ns)) => Self::Ns(ns),
        }
    }

    fn ns(self) -> Option<f64> {
        match self {
            Self::Ns(ns) => Some(ns as f64),
            Self::Infinite(Never::Infinite) => Some(f64::INFINITY),
            Self::Missing => None,
        }
    }
}

/// Ratios below which quartiles are ends, not quarters.
const RATIOS_MIN: usize = 5;

/// A ratio over pairs of which single ones may be far off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MedianRatio {
    /// The median of the pairs' ratios; of an even number the geometric mean of both middle ones.
    #[serde(rename = "ratio")]
    pub median: f64,
    /// Their quartiles: half of them lie between. None of fewer than five.
    #[serde(rename = "ratio_quartiles", default)]
    pub quartiles: Option<[f64; 2]>,
}

impl MedianRatio {
    /// Of durations in the order of the pairs, to three digits behind the point. A pair of two infinite ones has no ratio. `None` where
    /// no pair has one, and where the median is infinite.
    pub fn of(own: &[TrialMedian], other: &[TrialMedian]) -> Option<Self> {
        let ratio = |(own, other): (&TrialMedian, &TrialMedian)| {
            let ratio = own.ns()? / other.ns()?.max(1.0);
            (!ratio.is_nan()).then_some(ratio)
        };
        let mut ratios: Vec<f64> = own.iter().zip(other).filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |place: usize| ratios.get(place).copied().filter(|ratio| ratio.is_finite());
        let rounded = |ratio: f64| (ratio * 1000.0).round() / 1000.0;
        let quartile = |share: usize| at(ratios.len() * share / 4).map(rounded);
        let outer = quartile(1).zip(quartile(3)).filter(|_| ratios.len() >= RATIOS_MIN);
        let (lower, upper) = (at(ratios.len().checked_sub(1)? / 2)?, at(ratios.len() / 2)?);
        // Seen from the other side it is the inverse.
        let median = rounded((lower * upper).sqrt());
        Some(Self { median, quartiles: outer.map(|(low, high)| [low, high]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use TrialMedian::{Infinite, Missing, Ns};

    const NEVER: TrialMedian = Infinite(Never::Infinite);

    /// A machine that is three times as slow in the second turn changes no ratio; a pair without a duration is none.
    #[test]
    fn durations_are_compared_turn_by_turn() {
        let (own, bare) = ([Ns(110), Ns(360), Missing, Ns(90)], [Ns(100), Ns(300), Ns(7), Ns(100)]);
        assert_eq!(MedianRatio::of(&own, &bare), Some(MedianRatio { median: 1.1, quartiles: None }));
        assert_eq!(MedianRatio::of(&own, &[]), None);
    }

    /// Goal: a trial that lost most of its messages is the worst one, not one that is missing.
    #[test]
    fn an_infinite_duration_is_the_largest() {
        let of = |own: &[TrialMedian], other: &[TrialMedian]| {
            MedianRatio::of(own, other).map(|ratio| ratio.median)
        };
        let ones = [Ns(100); 3];
        assert_eq!(of(&[Ns(100), Ns(120), Missing], &ones), Some(1.095));
        assert_eq!(of(&[Ns(100), Ns(120), NEVER], &ones), Some(1.2));
        assert_eq!(of(&[Ns(120), NEVER, NEVER], &ones), None);
        assert_eq!(of(&ones, &[Ns(100), NEVER, NEVER]), Some(0.0));
        assert_eq!(of(&[NEVER, Ns(130)], &[NEVER, Ns(100)]), Some(1.3));
        // One infinite middle ratio makes the median infinite.
        assert_eq!(of(&[Ns(120), NEVER], &ones), None);
        assert_eq!(of(&ones[..2], &[Ns(100), NEVER]), Some(0.0));
        let far = [Ns(100), Ns(110), Ns(120), NEVER, NEVER];
        let expected = MedianRatio { median: 1.2, quartiles: None };
        assert_eq!(MedianRatio::of(&far, &[Ns(100); 5]), Some(expected));
    }

    /// Goal: of an even number of pairs neither side is favoured: the ratio of the one is the inverse of the other's.
    #[test]
    fn two_middle_ratios_count_alike() {
        let (own, other) = ([Ns(100), Ns(400), Ns(50), Ns(900)], [Ns(100); 4]);
        let of = |own, other| MedianRatio::of(own, other).map(|ratio| ratio.median);
        assert_eq!((of(&own, &other), of(&other, &own)), (Some(2.0), Some(0.5)));
    }

    /// Goal: a stored median comes back as it was, and those of earlier versions are read.
    #[test]
    fn a_median_is_stored() {
        let medians = [Ns(7), NEVER, Missing];
        let text = serde_json::to_string(&medians).expect("no map");
        assert_eq!(text, r#"[7,"infinite",null]"#);
        assert_eq!(serde_json::from_str::<Vec<TrialMedian>>(&text).expect("as it was written"), medians);
    }

    /// Goal: the ends of a few ratios are not told as what half of them lie in.
    #[test]
    fn few_ratios_have_no_quartiles() {
        let of = |own: &[u64]| {
            let own: Vec<TrialMedian> = own.iter().copied().map(Ns).collect();
            MedianRatio::of(&own, &vec![Ns(1_000); own.len()])
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
