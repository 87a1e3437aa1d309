//! Ratio of two durations: of pairs that were measured one right after the other.

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

#[cfg(test)]
mod tests {
    use super::*;

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
