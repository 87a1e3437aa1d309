//! Figures from samples: exact ones for results, histograms for plots.

mod chance;
mod distribution;
mod histogram;
mod interval;
mod random;
mod ratio;
mod spread;
mod stages;
pub mod student;

pub use chance::{ERROR, chances, sign_test};
pub use distribution::{BEYOND_MIN, Distribution, Figure, Quantile};
pub use histogram::{Bin, bins};
pub use interval::Interval;
pub use random::Floats;
pub use ratio::{MedianRatio, Never, Ratio, TrialMedian};
pub(crate) use spread::{Squares, mean};
pub use stages::{StageShare, UNEXPLAINED, stage_shares, stages_over_total};

/// The middle one; of an even number the upper of both.
pub(crate) fn upper_median(values: &mut [u64]) -> Option<u64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// The middle one; of an even number the lower of both.
pub(crate) fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// The middle of the values, or the mean of the two middle ones; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}
