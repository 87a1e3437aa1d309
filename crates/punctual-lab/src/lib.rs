//! The laboratory: plans, loads, experiments, the store, statistics, reports.
//!
//! The mistake this wall makes impossible: a heavy dependency in a user's build.
//!
//! An error that is a `String` is in words for people: it says what is missing, and what to do.
#![forbid(unsafe_code)]
// They panic where nobody can read the output: commands print by `command::print`, and speak by `terminal::say`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod broadcast;
pub mod causes;
pub mod cli;
pub mod command;
pub mod compare;
pub mod distinct;
pub mod doubt;
pub mod endpoint;
pub mod error;
pub mod experiment;
pub mod explain;
pub mod facts;
pub mod file;
pub mod groups;
pub mod load;
pub mod oneway;
pub mod peel;
pub mod recording;
pub mod report;
pub mod response;
pub mod run;

pub mod sample;
pub mod scheduling;
pub mod server;
pub mod soak;
pub mod stall;
pub mod stats;
pub mod store;
pub mod summary;
mod surroundings;
pub mod survey;
pub mod terminal;
pub mod units;
pub mod vehicles;
pub mod verify;
pub mod wakeup;

/// The examples of the how-tos, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/howto.md")]
struct HowTo;

/// The examples of the pages by language, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
#[doc = include_str!("../../../docs/python.md")]
struct Languages;
