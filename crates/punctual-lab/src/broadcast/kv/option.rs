//! Settings of a store.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Sizes of a value: it has a number, an instant and bytes of its sender's own.
pub const VALUE_SIZE_MIN: usize = 24;
/// The largest.
pub const VALUE_SIZE_MAX: usize = 32_000;

/// Way of answering gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// Where the get stands in the one order, as puts are
    Linearizable,
    /// From the member's own copy, at once: it may be stale
    Local,
}

/// The settings that are asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvSettings {
    /// Ways of answering gets, in turn.
    pub reads: Vec<Reads>,
    /// Of a hundred operations, so many are puts.
    pub puts_percent: u32,
    /// Keys, each as likely as the others.
    pub keys: u64,
    /// Clients of the whole group, where they are not raised.
    pub clients: Option<usize>,
    /// Time for which each number of clients is watched.
    pub step: Duration,
}

/// The part of it that a process is told. The size of a value is that of a message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::broadcast) struct KvPlan {
    /// Way of answering gets.
    pub(in crate::broadcast) reads: Reads,
    /// Of a hundred operations, so many are puts.
    pub(in crate::broadcast) puts_percent: u32,
    /// Keys.
    pub(in crate::broadcast) keys: u64,
    /// Clients of the whole group, until the folder says how many.
    pub(in crate::broadcast) clients: usize,
}
