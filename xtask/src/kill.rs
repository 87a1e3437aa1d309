//! Processes that are killed: at every labelled store of the shared-memory protocol, and at random instants.
//!
//! The library is built with its labels (`--cfg labelled_stores`) in a target directory of its own.

use std::time::Duration;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

/// How much of it to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Kills at random instants.
    pub(crate) random: u32,
    /// Passings of each label to die at, besides the first and the last.
    pub(crate) passings: u32,
}

/// What CI can spare, and what a night can.
pub(crate) const SHORT: Extent = Extent { random: 60, passings: 0 };
pub(crate) const LONG: Extent = Extent { random: 1_000, passings: 8 };

/// Building, and some fifty victims a second.
const DEADLINE: Duration = Duration::from_secs(1_200);

pub(crate) fn run(extent: Extent) -> Outcome {
    let tests = Run::cargo(&["test", "--quiet", "--package", "punctual", "--test", "kills", "--target-dir"])
        .arg(workspace::target("kill"))
        .args(&["--", "--nocapture"])
        .env("RUSTFLAGS", "--cfg labelled_stores")
        .env("PUNCTUAL_COUNTERS", format!("/dev/shm/punctual-kills-counters.{}", std::process::id()))
        .env("PUNCTUAL_KILLS", extent.random.to_string())
        .env("PUNCTUAL_PASSINGS", extent.passings.to_string())
        .within(DEADLINE);
    Outcome::of(tests.status())
}
