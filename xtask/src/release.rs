//! The command as its users have it. Its build takes minutes where nothing is built yet, so it comes before every deadline.

use crate::command::Run;

/// Builds it, with the deadline that builds have.
pub(crate) fn build() -> Result<(), String> {
    Run::cargo(&["build", "--release", "--package", "punctual-lab", "--quiet"]).status()
}

/// Builds it; the deadline of what is returned covers no building.
pub(crate) fn command() -> Result<Run, String> {
    build()?;
    Ok(Run::cargo(&["run", "--release", "--package", "punctual-lab", "--quiet", "--"]))
}
