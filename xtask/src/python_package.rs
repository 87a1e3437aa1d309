//! The Python package: its wheel is built and tested by the tools that are there; nothing is downloaded but crates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::c_library;
use crate::command::{Run, how, tail};
use crate::step::Outcome;
use crate::workspace;

const MANIFEST: &str = "bindings/python/Cargo.toml";

/// Some twenty crates are built.
const DEADLINE: Duration = Duration::from_secs(1_200);

/// Programs, by what they are asked, and how each is had.
const TOOLS: &[(&[&str], &str)] = &[
    (&["python3", "--version"], "apt-get install python3"),
    (&["maturin", "--version"], "pip install maturin"),
    (&["python3", "-m", "pytest", "--version"], "pip install pytest"),
    (&["python3", "-m", "pip", "--version"], "apt-get install python3-pip"),
];

pub(crate) fn run() -> Outcome {
    let folder = workspace::target("python");
    for (asked, remedy) in TOOLS {
        let found = Run::new(asked[0]).args(&asked[1..]).all_output_to(&folder.join("tools.txt"));
        if !matches!(found, Ok((Some(0), _))) {
            return Outcome::Skipped(format!("no {} here: `{remedy}`", asked[..asked.len() - 1].join(" ")));
        }
    }
    match built_and_tested(&folder) {
        Ok(skips) if skips.is_empty() => Outcome::Passed,
        Ok(skips) => Outcome::Partly(skips),
        Err(error) => Outcome::Failed(error),
    }
}

/// Returns what was skipped, and why.
fn built_and_tested(folder: &Path) -> Result<String, String> {
    let build = folder.join("build");
    let lints = Run::cargo(&["clippy", "--locked", "--quiet", "--release", "--manifest-path", MANIFEST]);
    lints.args(&["--", "-D", "warnings"]).env("CARGO_TARGET_DIR", &build).within(DEADLINE).status()?;
    let (wheels, site) = (folder.join("wheels"), folder.join("site"));
    for old in [&wheels, &site] {
        if old.exists() {
            std::fs::remove_dir_all(old).map_err(|error| format!("{}: {error}", old.display()))?;
        }
    }
    let maturin =
        Run::new("maturin").args(&["build", "--locked", "--release", "--quiet", "--manifest-path", MANIFEST]);
    maturin.arg("--out").arg(&wheels).env("CARGO_TARGET_DIR", &build).within(DEADLINE).status()?;
    let pip = Run::new("python3").args(&["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]);
    pip.arg("--target").arg(&site).arg(the_wheel(&wheels)?).status()?;
    let tests = Run::new("python3").args(&[
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "bindings/python/tests",
    ]);
    // Of the examples in C what the step `c` builds, of this source: without its tools, two tests say that they are skipped.
    let examples = workspace::target("c");
    let mut tests = tests.env("PYTHONPATH", &site).env("PYTHONDONTWRITEBYTECODE", "1").within(DEADLINE);
    if c_library::lacking(&examples).is_none() {
        c_library::build_examples(&examples)?;
        tests =
            tests.env("PUNCTUAL_C_EXAMPLES", &examples).env("LD_LIBRARY_PATH", examples.join("prefix/lib"));
    }
    let (ended, output) = tests.all_output_to(&folder.join("tests.txt"))?;
    say!("{}", tail(&output, if ended == Some(0) { 6 } else { 60 }));
    if ended != Some(0) {
        return Err(format!("the tests {}", how(ended, DEADLINE)));
    }
    let languages = Run::cargo(&["test", "--quiet", "--package", "punctual-c", "--test", "languages"]);
    languages.env("PUNCTUAL_PYTHON", "python3").env("PYTHONPATH", &site).within(DEADLINE).status()?;
    Ok(skips(&output))
}

/// Of what pytest says with `-rs`: `SKIPPED [2] folder/test.py:31: could not import 'pandas'`.
fn skips(output: &str) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("SKIPPED [")) {
        let (count, rest) = line.split_once("] ").unwrap_or(("1", line));
        let reason = rest.split_once(": ").map_or(rest, |(_, reason)| reason);
        *counts.entry(reason).or_default() += count.parse().unwrap_or(1);
    }
    if counts.is_empty() {
        return String::new();
    }
    let reasons: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} × {reason}")).collect();
    format!("{} tests: {}", counts.values().sum::<u32>(), reasons.join("; "))
}

fn the_wheel(folder: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut wheels = paths.filter(|path| path.extension().is_some_and(|ending| ending == "whl"));
    wheels.next().ok_or_else(|| format!("no wheel in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a step of which half could not run does not look like one that passed.
    #[test]
    fn skips_are_counted() {
        let output = "..ss\nSKIPPED [2] tests/test_runs.py:31: could not import 'pandas'\n\
            SKIPPED [1] tests/test_runs.py:50: could not import 'pandas'\nSKIPPED [1] tests/a.py:9: no examples in C: none\n2 passed, 4 skipped in 1s\n";
        assert_eq!(skips(output), "4 tests: 3 × could not import 'pandas'; 1 × no examples in C: none");
        assert_eq!(skips("4 passed in 1s\n"), "");
    }
}
