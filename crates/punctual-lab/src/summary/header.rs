//! Facts of a run that are known before its first sample: the head of `run.json`, and of the summary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::now_utc;

/// `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`Header::SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// Name of the experiment.
    pub experiment: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// Repeats all random choices.
    pub seed: u64,
    /// Messages with a smaller index are warm-up.
    pub warmup: u64,
    /// Where.
    pub host: Host,
    /// With what.
    pub clock: Clock,
    /// The planned measurements, as the experiment writes them.
    #[serde(default)]
    pub plan: serde_json::Value,
}

impl Header {
    /// The value of `schema`.
    pub const SCHEMA: &str = "punctual.run.v1";

    /// Of a run that starts now, without seed, warm-up, facts and plan.
    pub fn new(experiment: &str) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: experiment.to_owned(),
            started: now_utc(),
            ..Self::default()
        }
    }
}

/// Facts that make numbers comparable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Model name of the processor.
    pub cpu: String,
    /// Processors this process may use.
    pub cpus: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// A hypervisor was seen.
    pub r#virtual: bool,
    /// One-minute load average before the run.
    pub load_before: f64,
    /// Scheduling class of the measuring threads.
    pub scheduler: String,
    /// Other known facts: pinning, governor, memory, ….
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Cost and resolution of the instrument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The least difference between two readings.
    pub step_ns: u64,
    /// Cost of one stamp.
    pub stamp_ns: f64,
    /// Cost of one recorded message.
    pub record_ns: f64,
    /// Kind of clock, and other known facts about it.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl Clock {
    /// Ten steps: less than that it does not tell apart. A file that was edited may hold any number.
    pub fn resolution_ns(&self) -> u64 {
        self.step_ns.saturating_mul(10)
    }
}
