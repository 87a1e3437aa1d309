//! The laboratory: plans, loads, experiments, the store, statistics, reports.
//!
//! The mistake this wall makes impossible: a heavy dependency in a user's build.
#![forbid(unsafe_code)]

pub mod cli;
