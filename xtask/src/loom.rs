//! The model checker over ring, doorbell, inbox, workers that wake each other, parker and counters, and the proof that its tests can fail.
//!
//! Orderings, fences and looks have names (`punctual_machine::mutant`). One test program is built; it runs as it is, and once
//! without each of them, when some test must fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::command::{Run, how, tail, two_at_a_time};
use crate::step::Outcome;
use crate::tidy::source::Source;
use crate::workspace;

/// Number of times that the checker may take the CPU from a thread that could go on. Without a bound a test of three threads takes
/// hours. This number is enough to notice any ordering that is taken away.
pub(crate) const SHORT: &str = "3";

/// Once more than is needed, at three times the time.
pub(crate) const LONG: &str = "4";

/// The tests take some ten seconds; without something that ends a loop they must not spin forever.
const DEADLINE: Duration = Duration::from_secs(300);

/// Where the checker sees atomics.
const CHECKED: &str = "crates/punctual-machine/src";

/// Part of the name of each test that the checker runs.
const EVERY_TEST: &str = "loom";

/// Macros that give a name to something that can be taken away.
const NAMING: &[&str] = &["ordering!(", "fence!(", "without!("];

/// Exit code of a test program of which a test failed.
const TEST_FAILED: i32 = 101;

/// Checks everything with so many preemptions, and what is taken away with [`SHORT`].
pub(crate) fn run(preemptions: &str) -> Outcome {
    Outcome::of(check(preemptions))
}

fn check(preemptions: &str) -> Result<(), String> {
    let names = all_names()?;
    let program = build()?;
    let (ended, output) = tests(&program, EVERY_TEST, None, preemptions)?;
    let summary = result_line(&output).unwrap_or("no tests ran");
    say!("as it is: {summary}");
    if ended != Some(0) || summary.contains(" 0 passed") || !summary.contains("ok.") {
        say!("{}", tail(&output, 40));
        return Err(format!(
            "the tests: {}, {}",
            how(ended, DEADLINE),
            failed_test(&output).unwrap_or(summary)
        ));
    }
    let names: Vec<(String, String)> = names.into_iter().collect();
    let ended = two_at_a_time(&names, |(name, module)| must_fail(&program, name, module));
    let survivors: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    say!("{} taken away, {} noticed", names.len(), names.len() - survivors.len());
    if survivors.is_empty() { Ok(()) } else { Err(survivors.join("; ")) }
}

/// Without this a test must fail. Those of its own module come first, since most names are noticed there.
fn must_fail(program: &Path, name: &str, module: &str) -> Result<(), String> {
    let mut last = None;
    for filter in [format!("{module}::"), EVERY_TEST.to_owned()] {
        let (ended, output) = tests(program, &filter, Some(name), SHORT)?;
        match failed_test(&output) {
            Some(test) if ended == Some(TEST_FAILED) => {
                say!("without {name}: {test} fails");
                return Ok(());
            }
            _ => last = ended,
        }
    }
    Err(format!("no test needs {name}: {}", how(last, DEADLINE)))
}

/// Every name, which stands once, and its module.
fn all_names() -> Result<BTreeMap<String, String>, String> {
    let mut names = BTreeMap::new();
    for path in workspace::files().iter().filter(|path| path.starts_with(CHECKED)) {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(workspace::root().join(path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let module = module_of(path).ok_or_else(|| format!("{} has no module", path.display()))?;
        for name in names_in(path, &text) {
            if names.insert(name.clone(), module.clone()).is_some() {
                return Err(format!("{}: {name} stands twice", path.display()));
            }
        }
    }
    if names.is_empty() {
        return Err(format!("{CHECKED} has none of {NAMING:?}"));
    }
    Ok(names)
}

/// The top module that a file of the checked folder belongs to.
fn module_of(path: &Path) -> Option<String> {
    let within = path.strip_prefix(CHECKED).ok()?;
    Some(within.iter().next()?.to_str()?.trim_end_matches(".rs").to_owned())
}

fn names_in(path: &Path, text: &str) -> Vec<String> {
    let source = Source::of(path, text);
    NAMING.iter().flat_map(|naming| source.literals(naming)).map(str::to_owned).collect()
}

/// Runs the tests whose names contain this, or those up to the first that fails without what has this name.
fn tests(
    program: &Path,
    filter: &str,
    without: Option<&str>,
    preemptions: &str,
) -> Result<(Option<i32>, String), String> {
    let log = workspace::target("loom").join(format!("{}.txt", without.unwrap_or("tests")));
    let bound = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| preemptions.into());
    // One test at a time: its name then stands before its output. Besides, loom exchanges the hook of panics, which belongs to the
    // process.
    let mut run = Run::new(program).args(&[filter, "--nocapture", "--test-threads", "1"]);
    if let Some(name) = without {
        run = run.env("PUNCTUAL_WITHOUT", name);
    }
    run.env("LOOM_MAX_PREEMPTIONS", bound).env("RUST_BACKTRACE", "0").within(DEADLINE).all_output_to(&log)
}

/// The test program.
fn build() -> Result<PathBuf, String> {
    let folder = workspace::target("loom");
    let (ended, output) = Run::cargo(&["test", "--package", "punctual-machine", "--lib", "--release"])
        .args(&["--no-run", "--quiet", "--message-format", "json-render-diagnostics", "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", "--cfg loom")
        // The checker computes for minutes, however little the rest of CI is optimised.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .output_to(&folder.join("build.json"))?;
    if ended != Some(0) {
        return Err("the tests do not compile".into());
    }
    executable(&output).ok_or_else(|| "cargo names no test program".into())
}

/// The test program, as cargo's messages name it.
fn executable(messages: &str) -> Option<PathBuf> {
    let of_line = |line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    };
    messages.lines().rev().find_map(of_line)
}

fn result_line(output: &str) -> Option<&str> {
    output.lines().rev().find(|line| line.starts_with("test result:"))
}

/// The test that panicked: the last one that began before.
fn failed_test(output: &str) -> Option<&str> {
    let (before, _) = output.split_once(" panicked at ")?;
    let line = before.lines().rev().find(|line| line.starts_with("test "))?;
    line.strip_prefix("test ")?.split_once(" ...").map(|(name, _)| name)
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
    fn a_file_belongs_to_its_top_module() {
        let module = |path: &str| module_of(&Path::new(CHECKED).join(path));
        assert_eq!(module("doorbell.rs").as_deref(), Some("doorbell"));
        assert_eq!(module("ring/reader.rs").as_deref(), Some("ring"));
        assert_eq!(module_of(Path::new("crates/punctual/src/lib.rs")), None);
    }

    #[test]
    fn the_last_result_counts() {
        assert_eq!(
            result_line("test a ... ok\ntest result: ok. 1 passed"),
            Some("test result: ok. 1 passed")
        );
        assert_eq!(result_line("error: could not compile"), None);
    }

    #[test]
    fn the_first_test_that_panics_is_named() {
        let output = "running 3 tests\ntest a::b ... ok\ntest c::d ... \nthread 'main' (12) panicked at a.rs:1:2:\ntorn\n";
        assert_eq!(failed_test(output), Some("c::d"));
        assert_eq!(failed_test("test a ... ok\n"), None);
    }

    #[test]
    fn names_are_found_where_something_can_be_taken_away() {
        let text = "// ordering!(\"not\", Acquire)\nx.load(ordering!(\"a\", Acquire));\n\
                    x.swap(1, ordering!(\n\"b\",\nAcquire,\n\"c\", Release));\nfence!(\"d\", SeqCst);\n\
                    macro_rules! a { () => { without!($name) } }\nif !without!(\"e\") && f(\"g\") {}";
        assert_eq!(names_in(Path::new("a.rs"), text), ["a", "b", "c", "d", "e"]);
    }
}
