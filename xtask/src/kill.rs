//! Processes that are killed: at every labelled store of the shared-memory protocol, and at random instants.
//!
//! The library is built with its labels (`--cfg labelled_stores`) in a target directory of its own.

use std::path::PathBuf;
use std::time::Duration;

use crate::command::{Run, how};
use crate::step::Outcome;
use crate::workspace;

/// Extent of the kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Kills at random instants.
    pub(crate) random: u32,
    /// Passings of each label to die at, besides the first and the last.
    pub(crate) passings: u32,
}

/// The extent that CI has time for, and the extent that a night has time for.
pub(crate) const SHORT: Extent = Extent { random: 60, passings: 0 };
pub(crate) const LONG: Extent = Extent { random: 1_000, passings: 8 };

/// Some fifty victims a second; their programs are built before.
const DEADLINE: Duration = Duration::from_secs(1_200);

/// Faults planted in the protocol (`punctual_machine::label`), with which the tests must fail.
const FAULTS: &[&str] = &["claim_uncleared"];

/// Exit code of cargo after a test that failed.
const TEST_FAILED: i32 = 101;

pub(crate) fn run(extent: Extent) -> Outcome {
    let found = || FAULTS.iter().try_for_each(|fault| must_fail(fault));
    let outcome = Outcome::of(build().and_then(|()| tests(extent).status()).and_then(|()| found()));
    // Pages of victims that nobody cleared away.
    let _none = std::fs::remove_dir_all(counters());
    outcome
}

/// Where the victims' pages of counters are.
fn counters() -> PathBuf {
    PathBuf::from(format!("/dev/shm/punctual-kills-counters.{}", std::process::id()))
}

/// A check that passes with any fault shows nothing.
fn must_fail(fault: &str) -> Result<(), String> {
    let log = workspace::target("kill").join(format!("{fault}.txt"));
    let (ended, output) = tests(SHORT).env("PUNCTUAL_FAULT", fault).all_output_to(&log)?;
    if ended == Some(TEST_FAILED) && output.contains("FAILED: ") {
        say!("planted fault {fault}: noticed");
        return Ok(());
    }
    let (ended, log) = (how(ended, DEADLINE), log.display());
    Err(format!("the planted fault {fault} was not noticed by a test: they {ended}: {log}"))
}

fn build() -> Result<(), String> {
    test("kills").arg("--no-run").status()
}

/// A test program of the library with its labels. Not optimised, and without debug information: building takes longer than
/// what mostly waits does then.
pub(crate) fn test(program: &str) -> Run {
    Run::cargo(&["test", "--quiet", "--package", "punctual", "--test", program, "--target-dir"])
        .arg(workspace::target("kill"))
        .env("RUSTFLAGS", "--cfg labelled_stores")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
}

fn tests(extent: Extent) -> Run {
    test("kills")
        .args(&["--", "--nocapture"])
        .env("PUNCTUAL_COUNTERS", counters())
        .env("PUNCTUAL_KILLS", extent.random.to_string())
        .env("PUNCTUAL_PASSINGS", extent.passings.to_string())
        .within(DEADLINE)
}
