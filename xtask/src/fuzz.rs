//! Fuzzing on the stable toolchain: every file in `fuzz/src/bin` is a target.
//!
//! New inputs go to the target directory; `fuzz/corpus` holds the seeds and is only read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{Run, how, tail, two_at_a_time};
use crate::step::Outcome;
use crate::workspace;

/// Flags that cargo-fuzz would pass: coverage counters, a table of their places, and the operands of comparisons.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Limits of one input: size, time and memory. A hang is a finding like a crash, and so is memory beyond the limit. A leak below it
/// is none: to see one takes a sanitizer, and the stable compiler has none.
const LIMITS: &[&str] = &["-max_len=1000", "-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"];

/// Beyond the time asked for: starting up, reading the corpus, and one input at its limit.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn run(time: Duration, only: &[String]) -> Outcome {
    let log = workspace::target("fuzz").join("compiler.txt");
    if !matches!(Run::new("c++").arg("--version").all_output_to(&log), Ok((Some(0), _))) {
        return Outcome::Skipped("no C++ compiler for libFuzzer here: install g++ or clang".into());
    }
    Outcome::of(run_all(time, only))
}

fn run_all(time: Duration, only: &[String]) -> Result<(), String> {
    let targets = targets(only)?;
    let folder = build()?;
    let ended = two_at_a_time(&targets, |target| fuzz(&folder, target, time));
    let mut failures = Vec::new();
    for found in ended.into_iter().filter_map(Result::err) {
        let target = found.target.clone();
        // A hang that is none cut its time short.
        let again = || fuzz(&folder, &target, time).err().map(|again| again.words);
        failures.extend(confirmed(&folder, found).or_else(again));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// The names of the targets, or those of them that are asked for.
fn targets(only: &[String]) -> Result<Vec<String>, String> {
    let is_target = |path: &PathBuf| path.starts_with("fuzz/src/bin");
    let name = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let all: Vec<String> = workspace::files().into_iter().filter(is_target).filter_map(name).collect();
    match only.iter().find(|name| !all.contains(name)) {
        Some(unknown) => Err(format!("no target {unknown} among {}", all.join(", "))),
        None if only.is_empty() => Ok(all),
        None => Ok(only.to_vec()),
    }
}

/// Builds all targets; returns the folder of the programs.
fn build() -> Result<PathBuf, String> {
    let folder = workspace::target("fuzz");
    let host = host(&folder)?;
    Run::cargo(&["build", "--release", "--bins", "--quiet", "--manifest-path", "fuzz/Cargo.toml"])
        // Named, so that the flags do not reach build scripts.
        .args(&["--target", &host, "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", FLAGS)
        .status()?;
    Ok(folder.join(host).join("release"))
}

/// The target triple of this machine.
fn host(folder: &Path) -> Result<String, String> {
    let (_, output) = Run::new("rustc").arg("-vV").all_output_to(&folder.join("rustc.txt"))?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc names no host".into())
}

/// A fault of a target.
#[derive(Debug)]
struct Finding {
    target: String,
    words: String,
    /// The input that took longer than its limit, if that is it.
    hang: Option<PathBuf>,
}

/// In words, unless it is one of a machine that was busy: a hang hangs again, once nothing else of ours runs.
fn confirmed(programs: &Path, Finding { target, words, hang }: Finding) -> Option<String> {
    let Some(hang) = hang else { return Some(words) };
    let log = workspace::target("fuzz").join(format!("{target}-again.txt"));
    let again = Run::new(programs.join(&target)).args(LIMITS).arg(&hang).within(GRACE);
    match again.all_output_to(&log) {
        Ok((Some(0), _)) => {
            say!("{target}: no hang by itself, fuzzed again: {}", hang.display());
            let _kept_where_it_cannot_be_removed = std::fs::remove_file(hang);
            None
        }
        Ok((_, output)) => {
            say!("{}", tail(&output, 40));
            Some(words)
        }
        Err(error) => Some(format!("{words}; {error}")),
    }
}

fn fuzz(programs: &Path, target: &str, time: Duration) -> Result<(), Finding> {
    let failed = |words: String| Finding { target: target.to_owned(), words, hang: None };
    let found = workspace::target("fuzz").join("corpus").join(target);
    let artifacts = workspace::target("fuzz").join("artifacts").join(target);
    for folder in [&found, &artifacts] {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    }
    let mut run = Run::new(programs.join(target))
        .args(LIMITS)
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&found);
    let seeds = workspace::root().join("fuzz/corpus").join(target);
    if seeds.is_dir() {
        run = run.arg(seeds);
    }
    let deadline = time + GRACE;
    let log = workspace::target("fuzz").join(format!("{target}.txt"));
    let (ended, output) = run.within(deadline).all_output_to(&log).map_err(failed)?;
    say!("{target}: {}", done(&output));
    if ended == Some(0) && has_run(&output) {
        return Ok(());
    }
    say!("{}", tail(&output, 40));
    let without = if has_run(&output) { "" } else { " without an input" };
    let words = format!("{target} {}{without}, artifacts in {}", how(ended, deadline), artifacts.display());
    Err(Finding { hang: hang(&output), ..failed(words) })
}

/// The input that libFuzzer says took longer than its limit.
fn hang(output: &str) -> Option<PathBuf> {
    let file = output.lines().rev().find_map(|line| line.split_once("Test unit written to "))?.1;
    let path = PathBuf::from(file.trim());
    path.file_name()?.to_str()?.starts_with("timeout-").then_some(path)
}

/// True if libFuzzer gave the target an input. A program that ends well without one shows nothing.
fn has_run(output: &str) -> bool {
    let runs = |line: &str| line.strip_prefix("Done ")?.split_whitespace().next()?.parse().ok();
    output.lines().rev().find_map(runs).is_some_and(|runs: u64| runs > 0)
}

/// libFuzzer's account of the work it did.
fn done(output: &str) -> String {
    let executed = output.lines().rev().find(|line| line.starts_with("Done "));
    let covered = output.lines().rev().find_map(|line| line.split_once("cov: "));
    let covered = covered.and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("?");
    format!("{}, {covered} edges covered", executed.unwrap_or("did not finish"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_done_is_told() {
        let output =
            "#2\tINITED cov: 28 ft: 29\n#9\tDONE   cov: 31 ft: 40 corp: 2\nDone 9 runs in 1 second(s)\n";
        assert_eq!(done(output), "Done 9 runs in 1 second(s), 31 edges covered");
        assert_eq!(done(""), "did not finish, ? edges covered");
    }

    /// Goal: an input that took too long is told from one that crashed.
    #[test]
    fn a_hang_is_told_from_a_crash() {
        let written = |name: &str| {
            format!(
                "==7== ERROR: libFuzzer\nartifact_prefix='a/'; Test unit written to a/{name}\nBase64: AA==\n"
            )
        };
        assert_eq!(hang(&written("timeout-da39")), Some(PathBuf::from("a/timeout-da39")));
        assert_eq!(hang(&written("crash-da39")), None);
        assert_eq!(hang("Done 9 runs in 1 second(s)\n"), None);
    }

    /// Goal: a hang is one only if it hangs again. Method: programs that end well, or not, stand for the target.
    #[test]
    fn a_hang_that_does_not_repeat_is_none() {
        let input = workspace::target("xtask").join("timeout-none");
        for (program, expected) in [("true", None), ("false", Some("hangs".to_owned()))] {
            std::fs::create_dir_all(workspace::target("xtask")).unwrap();
            std::fs::write(&input, "").unwrap();
            let found =
                Finding { target: program.to_owned(), words: "hangs".to_owned(), hang: Some(input.clone()) };
            assert_eq!(confirmed(Path::new("/bin"), found), expected);
            assert_eq!(input.exists(), expected.is_some(), "{program}");
        }
        let crash = Finding { target: "true".to_owned(), words: "crashes".to_owned(), hang: None };
        assert_eq!(confirmed(Path::new("/bin"), crash), Some("crashes".to_owned()));
    }

    /// Goal: a target that ends well without an input is no target that passed.
    #[test]
    fn a_target_without_an_input_has_not_run() {
        assert!(has_run("#9\tDONE   cov: 31\nDone 9 runs in 1 second(s)\n"));
        for output in ["", "INFO: Seed: 1\n", "Done 0 runs in 1 second(s)\n"] {
            assert!(!has_run(output), "{output:?}");
        }
    }

    #[test]
    fn targets_are_the_files() {
        assert!(targets(&[]).unwrap().contains(&"frame".to_owned()));
        assert!(targets(&["nonsense".to_owned()]).unwrap_err().contains("frame"));
    }
}
