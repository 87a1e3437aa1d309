//! A run directory: the plan, every sample, and the summary (`docs/store.md`).
//!
//! ```text
//! run.json       written first: what is measured, where, with what
//! samples/       one Parquet file per trial, durable before the next trial begins
//! evidence/      beside it, what explains its late messages, if its experiment keeps any
//! summary.json   written last; absent if the process was killed
//! ```

mod aside;
mod check;
mod checked;
mod decode;
mod encode;
mod error;
mod evidence;
mod run;
mod write;

pub use aside::{write_new, write_whole};
pub use checked::{checked_text, read_checked, write_text};
pub use error::StoreError;
pub use evidence::Recorded;
pub use run::{CellRead, Run, StoredTrial};
pub use write::{Store, vacant_folder};

pub use crate::summary::Header;

pub(crate) const HEADER_FILE: &str = "run.json";
pub(crate) const SUMMARY_FILE: &str = "summary.json";
pub(crate) const SAMPLES_DIR: &str = "samples";
pub(crate) const EVIDENCE_DIR: &str = "evidence";
/// Extension of a file until it is complete.
pub(crate) const PARTIAL: &str = "partial";
