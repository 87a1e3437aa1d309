//! Miri over the crate with the unsafe code, where a nightly toolchain has it.

use std::time::Duration;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

/// Miri is some hundred times slower than the machine.
const DEADLINE: Duration = Duration::from_secs(3_600);

/// What can run without a kernel that Miri does not have: memory, and what is built on it.
const MODULES: &[&str] = &["ring", "doorbell", "counter"];

pub(crate) fn run() -> Outcome {
    let log = workspace::target("miri").join("version.txt");
    let found = Run::new("cargo").args(&["+nightly", "miri", "--version"]).all_output_to(&log);
    if !matches!(found, Ok((Some(0), _))) {
        return Outcome::Skipped("no Miri here: `rustup +nightly component add miri rust-src`".into());
    }
    let tests = Run::new("cargo")
        .args(&["+nightly", "miri", "test", "--package", "punctual-machine", "--lib", "--target-dir"])
        .arg(workspace::target("miri"))
        .arg("--")
        .args(MODULES)
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .within(DEADLINE);
    Outcome::of(tests.status())
}
