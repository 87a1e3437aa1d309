//! Miri over the crate with the unsafe code, where a nightly toolchain has it.

use std::time::Duration;

use crate::command::{Run, how, tail};
use crate::step::Outcome;
use crate::workspace;

/// Miri is some hundred times slower than the machine.
const DEADLINE: Duration = Duration::from_secs(3_600);

/// Modules whose tests can run without a kernel, which Miri does not have: memory, and what is built on it. Counters have tests of loom
/// alone.
const MODULES: &[&str] = &["ring::tests", "ring::words", "doorbell::tests", "block::", "handles::tests"];

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
    Outcome::of(checked(tests))
}

fn checked(tests: Run) -> Result<(), String> {
    let log = workspace::target("miri").join("tests.txt");
    let (ended, output) = tests.all_output_to(&log)?;
    if ended != Some(0) {
        say!("{}", tail(&output, 60));
        return Err(format!("the tests {}: {}", how(ended, DEADLINE), log.display()));
    }
    say!("{}", output.lines().rev().find(|line| line.starts_with("test result:")).unwrap_or("no result"));
    all_ran(&output)
}

/// Each module had a test that ran. To a module that has another name by now no test belongs, and none fails.
fn all_ran(output: &str) -> Result<(), String> {
    let passed: Vec<&str> =
        output.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).collect();
    match MODULES.iter().find(|module| !passed.iter().any(|line| line.contains(**module))) {
        Some(module) => Err(format!("no test of {module} ran")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a module of which nothing ran is a failure, also where tests of all others passed.
    #[test]
    fn a_module_without_a_test_is_a_failure() {
        let tests = |modules: &[&str]| -> String {
            modules.iter().map(|module| format!("test {module}::some ... ok\n")).collect()
        };
        assert_eq!(all_ran(&tests(MODULES)), Ok(()));
        assert!(all_ran("running 0 tests\n\ntest result: ok. 0 passed\n").unwrap_err().contains(MODULES[0]));
        for (place, module) in MODULES.iter().enumerate() {
            let others: Vec<&str> = [&MODULES[..place], &MODULES[place + 1..]].concat();
            let output = format!("{}test {module}::other ... ignored\n", tests(&others));
            assert!(all_ran(&output).unwrap_err().contains(module), "{module}");
        }
    }
}
