//! The command as its users have it. Its build takes minutes where nothing is built yet, so it comes before every deadline.

use crate::command::Run;
use crate::workspace;

/// Steps that need it.
const STEPS: &[&str] = &["tutorial", "smoke"];

/// Builds it beside the first steps, which build too, if a later one needs it: optimising all of it at once leaves one
/// processor idle for minutes. [`build`] waits for this, as cargo's lock makes it, and says what went wrong.
pub(crate) fn build_ahead(mut steps: impl Iterator<Item = &'static str>) {
    if steps.any(|step| STEPS.contains(&step)) {
        let _told_later = cargo_build().all_output_to(&workspace::target("xtask").join("release.txt"));
    }
}

/// Builds it, with the deadline that builds have.
pub(crate) fn build() -> Result<(), String> {
    cargo_build().status()
}

fn cargo_build() -> Run {
    Run::cargo(&["build", "--release", "--package", "punctual-lab", "--quiet"])
}

/// Builds it; the deadline of what is returned covers no building.
pub(crate) fn command() -> Result<Run, String> {
    build()?;
    Ok(Run::cargo(&["run", "--release", "--package", "punctual-lab", "--quiet", "--"]))
}
