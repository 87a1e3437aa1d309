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

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

pub use error::StoreError;
pub use run::{Run, Trial};
pub use write::Store;

use crate::summary::{Clock, Host};

/// The value of `schema` in `run.json`.
pub const SCHEMA: &str = "punctual.run.v1";

pub(crate) const HEADER_FILE: &str = "run.json";
pub(crate) const SUMMARY_FILE: &str = "summary.json";
pub(crate) const SAMPLES_DIR: &str = "samples";
/// What a file is called until it is complete.
pub(crate) const PARTIAL: &str = "partial";

/// Now: UTC to the second, such as `2026-11-21T07:55:01Z`. A host whose clock lies before 1970 is in 1970.
#[must_use]
pub fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now().max(SystemTime::UNIX_EPOCH)).to_string()
}

/// `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// Which experiment.
    pub experiment: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// Repeats whatever was random.
    pub seed: u64,
    /// Messages with a smaller index are warm-up.
    pub warmup: u64,
    /// Where.
    pub host: Host,
    /// With what.
    pub clock: Clock,
    /// What was going to be measured, as the experiment writes it.
    #[serde(default)]
    pub plan: serde_json::Value,
}

impl Header {
    /// Of a run that starts now, without seed, warm-up, facts and plan.
    #[must_use]
    pub fn new(experiment: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: experiment.to_owned(),
            started: date(),
            seed: 0,
            warmup: 0,
            host: Host::default(),
            clock: Clock::default(),
            plan: serde_json::Value::Null,
        }
    }
}
