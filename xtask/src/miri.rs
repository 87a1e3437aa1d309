//! Miri over the crate with the unsafe code, where a nightly toolchain has it.

use std::time::Duration;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

/// Miri is some hundred times slower than the machine.
const DEADLINE: Duration = Duration::from_secs(3_600);

/// What can run without a kernel that Miri does not have: memory, and what is built on it.
const MODULES: &[&str] =
    &["ring::tests", "ring::words", "doorbell::tests", "counter::", "block::", "handles::tests"];

/// Of all but the first two the method is many tries, which take hours here. loom tries everything on the same handshakes.
const SKIPPED: &[&str] = &[
    "--skip=uring",
    // It asks the C library to tell it of forks.
    "--skip=threads_are_told_apart",
    "--skip=a_hundred_thousand_rings_wake",
    "--skip=nothing_torn",
    "--skip=frames_come_out_in_order_and_whole_over_many_laps",
    "--skip=old_payload_that_looks_like_a_commit_is_not_one",
    "--skip=scribbles_are_corrupt_or_frames_never_a_panic",
];

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
        .args(SKIPPED)
        // rustix makes pointers of integers: those warnings are not about this code.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance")
        .within(DEADLINE);
    Outcome::of(tests.status())
}
