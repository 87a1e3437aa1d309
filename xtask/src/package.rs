//! What users depend on: each library crate builds from its archive alone.

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

/// In the order in which they would be published.
const CRATES: &[&str] = &["punctual-proto", "punctual-machine", "punctual"];

/// What every archive has beside its sources.
const FILES: &[&str] = &["LICENSE-MIT", "LICENSE-APACHE", "README.md"];

/// The workspace's own settings of debug builds.
const SETTINGS: &[(&str, &str)] =
    &[("CARGO_PROFILE_DEV_OPT_LEVEL", "1"), ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")];

/// With the workspace's settings, or the caller's, so that what they have built serves here too.
pub(crate) fn settled(run: Run) -> Run {
    let is_ours = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
    SETTINGS.iter().filter(is_ours).fold(run, |run, (name, value)| run.env(name, value))
}

pub(crate) fn run() -> Outcome {
    Outcome::of(package())
}

/// Cargo unpacks each archive and builds it, with its siblings' archives as a registry.
fn package() -> Result<(), String> {
    Run::cargo(&["fetch", "--locked", "--quiet"]).status()?;
    let mut cargo = Run::cargo(&["package", "--offline", "--allow-dirty", "--quiet"]);
    for name in CRATES {
        cargo = cargo.args(&["--package", name]);
    }
    settled(cargo).status()?;
    let folder = workspace::target("package");
    for name in CRATES {
        let unpacked = folder.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
        if let Some(missing) = FILES.iter().find(|file| !unpacked.join(file).is_file()) {
            return Err(format!("the archive of {name} lacks {missing}"));
        }
    }
    println!("{} build from their archives", CRATES.join(", "));
    Ok(())
}
