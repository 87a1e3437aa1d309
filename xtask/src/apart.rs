//! Lints of projects with a workspace of their own that no other step lints: a change of the library must not break them unnoticed.

use std::time::Duration;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

/// Each with its features that need nothing but crates, and what the compiler is told. Of the library, targets drive some parts that
/// exist for them alone.
const PROJECTS: &[(&str, &str, &str)] = &[
    ("peers", "server", "-D warnings"),
    ("fuzz", "", "-D warnings --cfg fuzzing"),
    ("examples/late", "", "-D warnings"),
];

/// Some hundred crates are built.
const DEADLINE: Duration = Duration::from_secs(1_200);

pub(crate) fn run() -> Outcome {
    let linted = PROJECTS.iter().map(|(folder, features, flags)| {
        let manifest = format!("{folder}/Cargo.toml");
        let lints =
            Run::cargo(&["clippy", "--all-targets", "--locked", "--quiet", "--manifest-path", &manifest]);
        let lints = lints.args(&["--features", features]).env("RUSTFLAGS", flags);
        lints.env("CARGO_TARGET_DIR", workspace::target("apart")).within(DEADLINE).status()
    });
    // All of them, regardless of the outcome of each.
    Outcome::of(linted.fold(Ok(()), Result::and))
}
