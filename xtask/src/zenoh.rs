//! A bus over Zenoh's routers: the workspace `bridges/zenoh`, whose dependencies reach nothing of ours.

use std::time::Duration;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

const MANIFEST: &str = "bridges/zenoh/Cargo.toml";

/// Four hundred crates are built, twice.
const DEADLINE: Duration = Duration::from_secs(3_600);

pub(crate) fn run() -> Outcome {
    let cargo = |arguments: &[&str]| {
        let run = Run::cargo(arguments).args(&["--locked", "--quiet", "--manifest-path", MANIFEST]);
        run.env("CARGO_TARGET_DIR", workspace::target("zenoh")).within(DEADLINE)
    };
    let lints =
        cargo(&["clippy", "--all-targets", "--all-features"]).env("RUSTFLAGS", "-D warnings").status();
    Outcome::of(
        lints.and_then(|()| cargo(&["test", "--all-features"]).env("RUSTFLAGS", "-D warnings").status()),
    )
}
