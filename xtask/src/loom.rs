//! The model checker over ring and doorbell, and the proof that its tests can fail.
//!
//! The tests are built as `cargo test --release --lib` would, by `cargo rustc`: the flag of a mutant
//! then reaches our crate only, and loom is built once.

use std::path::PathBuf;
use std::time::Duration;

use crate::command::{Run, how, tail};
use crate::json::Json;
use crate::step::Outcome;
use crate::workspace;

/// Each takes one fence, or one second look, away. Some test must notice.
const MUTANTS: &[&str] = &[
    "bell_sender_fence",
    "bell_sleeper_fence",
    "upid_recheck",
    "ring_reader_fence",
    "ring_writer_fence",
    "ring_join_fence",
    "bias_barrier",
];

/// How often the checker may take the CPU from a thread that could go on. Without a bound a test of three
/// threads takes hours; every mutant is caught at this one.
const PREEMPTIONS_MAX: &str = "4";

/// The tests take some ten seconds; a mutant that spins forever must not.
const DEADLINE: Duration = Duration::from_secs(300);

pub(crate) fn run() -> Outcome {
    Outcome::of(check())
}

fn check() -> Result<(), String> {
    let (ended, output) = tests(None)?;
    let summary = result_line(&output).unwrap_or("no tests ran");
    println!("as it is: {summary}");
    if ended != Some(0) || summary.contains(" 0 passed") || !summary.contains("ok.") {
        return Err(format!("the tests: {}\n{}", how(ended, DEADLINE), tail(&output, 40)));
    }
    let survivors: Vec<_> = MUTANTS.iter().filter_map(|name| mutant(name).err()).collect();
    if survivors.is_empty() { Ok(()) } else { Err(survivors.join("; ")) }
}

/// A mutant must fail its tests: neither survive them nor fail to compile.
fn mutant(name: &str) -> Result<(), String> {
    let (ended, output) = tests(Some(name))?;
    let summary = result_line(&output).unwrap_or("no result");
    println!("without {name}: {summary}");
    if summary.contains("FAILED") {
        return Ok(());
    }
    Err(format!("mutant {name} was not caught: {summary}, {}", how(ended, DEADLINE)))
}

/// Builds and runs the tests.
fn tests(mutant: Option<&str>) -> Result<(Option<i32>, String), String> {
    let program = build(mutant)?;
    let log = workspace::target("loom").join(format!("{}.txt", mutant.unwrap_or("tests")));
    let bound = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| PREEMPTIONS_MAX.into());
    Run::new(program).arg("loom").env("LOOM_MAX_PREEMPTIONS", bound).within(DEADLINE).all_output_to(&log)
}

/// The test program.
fn build(mutant: Option<&str>) -> Result<PathBuf, String> {
    let folder = workspace::target("loom");
    let mut cargo = Run::cargo(&["rustc", "--package", "punctual-machine", "--lib", "--profile", "bench"])
        .args(&["--quiet", "--message-format", "json-render-diagnostics", "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", "--cfg loom");
    if let Some(name) = mutant {
        cargo = cargo.args(&["--", "--cfg", &format!("mutant=\"{name}\"")]);
    }
    let (ended, output) = cargo.output_to(&folder.join("build.json"))?;
    if ended != Some(0) {
        return Err(format!("the tests ({}) do not compile", mutant.unwrap_or("as they are")));
    }
    executable(&output).ok_or_else(|| "cargo names no test program".into())
}

/// The test program, as cargo's messages name it.
fn executable(messages: &str) -> Option<PathBuf> {
    let of_line = |line| Json::parse(line).ok()?.get("executable")?.text().map(PathBuf::from);
    messages.lines().rev().find_map(of_line)
}

fn result_line(output: &str) -> Option<&str> {
    output.lines().rev().find(|line| line.starts_with("test result:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_the_messages() {
        let messages =
            "{\"reason\":\"a\",\"executable\":null}\n{\"executable\":\"/t/x-1\"}\n{\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/x-1")));
        assert_eq!(executable("{\"executable\":null}"), None);
    }

    #[test]
    fn the_last_result_counts() {
        assert_eq!(
            result_line("test a ... ok\ntest result: ok. 1 passed"),
            Some("test result: ok. 1 passed")
        );
        assert_eq!(result_line("error: could not compile"), None);
    }
}
