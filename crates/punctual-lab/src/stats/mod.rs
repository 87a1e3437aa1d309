//! Figures from samples: exact ones for results, histograms for plots.

pub(crate) mod bootstrap;
mod distribution;
mod histogram;
mod stages;

pub use bootstrap::Xorshift;
pub use distribution::{BEYOND_MIN, Distribution, Figure, Quantile};
pub use histogram::{Bin, bins};
pub use stages::{StageShare, UNEXPLAINED, stage_shares};
