//! Figures from samples: exact ones for results, histograms for plots.

mod distribution;
mod histogram;
mod random;
mod ratio;
mod spread;
mod stages;
pub mod student;

pub use distribution::{BEYOND_MIN, Distribution, Figure, Quantile};
pub use histogram::{Bin, bins};
pub use random::Floats;
pub use ratio::Ratio;
pub(crate) use spread::{Squares, mean};
pub use stages::{StageShare, UNEXPLAINED, stage_shares, stages_over_total};
