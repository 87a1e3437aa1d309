//! Archives that users depend on: each library crate builds from its archive alone.

use std::fs;
use std::path::Path;

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

/// In the order in which they would be published.
const CRATES: &[&str] = &["punctual-proto", "punctual-machine", "punctual"];

/// Files that every archive has beside its sources.
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

/// The archives are built together, each with its siblings' archives in their places.
///
/// Cargo's own check unpacks them below its home once per version. A later run, or another clone, then builds against
/// siblings from before.
fn package() -> Result<(), String> {
    Run::cargo(&["fetch", "--locked", "--quiet"]).status()?;
    let mut cargo = Run::cargo(&["package", "--offline", "--allow-dirty", "--no-verify", "--quiet"]);
    for name in CRATES {
        cargo = cargo.args(&["--package", name]);
    }
    cargo.status()?;
    let folder = workspace::target("package").join("unpacked");
    let failed = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    CRATES.iter().try_for_each(|name| unpack(name, &folder))?;
    fs::write(folder.join("Cargo.toml"), manifest()).map_err(failed)?;
    fs::copy(workspace::root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    let build = Run::cargo(&["build", "--workspace", "--offline", "--quiet", "--target-dir"])
        .arg(workspace::target(""))
        .within_folder(&folder);
    settled(build).status()?;
    say!("{} build from their archives", CRATES.join(", "));
    Ok(())
}

/// Takes one archive apart, with the files' times of now: cargo tells by them what has changed.
fn unpack(name: &str, folder: &Path) -> Result<(), String> {
    let archive = folder.with_file_name(format!("{}.crate", versioned(name)));
    Run::new("tar")
        .args(&["--extract", "--gzip", "--touch", "--file"])
        .arg(archive)
        .within_folder(folder)
        .status()?;
    match FILES.iter().find(|file| !folder.join(versioned(name)).join(file).is_file()) {
        None => Ok(()),
        Some(missing) => Err(format!("the archive of {name} lacks {missing}")),
    }
}

/// A workspace of the archives.
fn manifest() -> String {
    let members: Vec<String> = CRATES.iter().map(|name| format!("{:?}", versioned(name))).collect();
    let mut text =
        format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n", members.join(", "));
    for name in CRATES {
        text.push_str(&format!("{name} = {{ path = {:?} }}\n", versioned(name)));
    }
    text
}

fn versioned(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}
