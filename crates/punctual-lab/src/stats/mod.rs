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
pub use interval::{Interval, median};
pub use random::Floats;
pub use ratio::{MedianRatio, Ratio};
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
