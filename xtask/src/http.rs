//! hyper and tonic on classes: the project `examples/http`, whose dependencies reach nothing of ours.

use std::time::Duration;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

const MANIFEST: &str = "examples/http/Cargo.toml";

/// A hundred crates are built.
const DEADLINE: Duration = Duration::from_secs(1_200);

pub(crate) fn run() -> Outcome {
    let cargo = |arguments: &[&str]| {
        let run = Run::cargo(arguments).args(&["--locked", "--quiet", "--manifest-path", MANIFEST]);
        run.env("CARGO_TARGET_DIR", workspace::target("http")).within(DEADLINE)
    };
    let lints = cargo(&["clippy", "--all-targets"]).env("RUSTFLAGS", "-D warnings").status();
    Outcome::of(lints.and_then(|()| cargo(&["test"]).env("RUSTFLAGS", "-D warnings").status()))
}
