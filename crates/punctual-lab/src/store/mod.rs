//! A run directory: what was planned, every sample, and the summary (`docs/store.md`).
//!
//! ```text
//! run.json       written first: what is measured, where, with what
//! samples/       one Parquet file per trial, durable before the next trial begins
//! summary.json   written last; absent if the run was cut short
//! ```

mod check;
mod decode;
mod encode;
mod error;
mod run;
mod write;

pub use error::StoreError;
pub use run::{Run, Trial};
pub use write::Store;

pub use crate::summary::Header;

pub(crate) const HEADER_FILE: &str = "run.json";
pub(crate) const SUMMARY_FILE: &str = "summary.json";
pub(crate) const SAMPLES_DIR: &str = "samples";
/// What a file is called until it is complete.
pub(crate) const PARTIAL: &str = "partial";
