//! Lock files of the workspaces apart: each knows what our crates depend on, or a build with `--locked` could not start.

use std::path::{Path, PathBuf};

use super::{Findings, Violation, manifests, read};

/// Every lock file but that of the main workspace, which cargo itself keeps.
pub(super) fn check(files: &[PathBuf]) -> Vec<Violation> {
    let apart = |path: &&PathBuf| path.ends_with("Cargo.lock") && path.components().count() > 1;
    files.iter().filter(apart).flat_map(|path| of_lock(path, &read(path), &manifest_of)).collect()
}

/// The manifest of a crate of ours.
fn manifest_of(package: &str) -> String {
    read(&Path::new("crates").join(package).join("Cargo.toml"))
}

fn of_lock(path: &Path, lock: &str, manifest_of: &dyn Fn(&str) -> String) -> Vec<Violation> {
    let mut findings = Findings::of(path);
    let mut line = 1;
    for block in lock.split("[[package]]\n") {
        check_package(block, line, manifest_of, &mut findings);
        line += block.lines().count() + 1;
    }
    findings.found
}

/// One package of a lock file, which begins behind this line.
fn check_package(
    block: &str,
    line: usize,
    manifest_of: &dyn Fn(&str) -> String,
    findings: &mut Findings<'_>,
) {
    let quoted = |text: &str| text.trim_matches(['"', ',', ' ']).to_owned();
    let value = |key: &str| block.lines().find_map(|line| line.strip_prefix(key)).map(quoted);
    let (Some(name), None) = (value("name = "), value("source = ")) else { return };
    let (_, listed) = block.split_once("dependencies = [\n").unwrap_or_default();
    // A version stands behind a name of which there are several.
    let known: Vec<String> = listed
        .lines()
        .take_while(|line| *line != "]")
        .filter_map(|line| quoted(line).split(' ').next().map(str::to_owned))
        .collect();
    let manifest = manifest_of(&name);
    let missing: Vec<&str> =
        manifests::built_with(&manifest).filter(|package| !known.iter().any(|one| one == package)).collect();
    if !missing.is_empty() {
        let (missing, folder) = (missing.join(", "), findings.path.parent().unwrap_or(Path::new("")));
        let remedy = format!("cargo update --workspace --manifest-path {}/Cargo.toml", folder.display());
        findings.add(line, format!("{name} depends on {missing} too: {remedy}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"elsewhere\"\n\n\
        [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n \"b 2.0.0\",\n]\n";

    fn found(manifest: &str) -> Vec<String> {
        let of = |package: &str| if package == "ours" { manifest.to_owned() } else { String::new() };
        let all = of_lock(Path::new("apart/Cargo.lock"), LOCK, &of);
        all.iter().map(ToString::to_string).collect()
    }

    /// Goal: what a crate of ours needs to be built is in every lock file; what only its tests need is not asked for.
    #[test]
    fn a_lock_file_that_is_behind_is_found() {
        assert_eq!(
            found(
                "[dependencies]\na.workspace = true\n# a word\nb = \"2\"\nd = { version = \"1\", optional = true }\n\n[dev-dependencies]\nc = \"1\"\n"
            ),
            [""; 0]
        );
        let behind = found("[dependencies]\na = \"1\"\n[target.'cfg(unix)'.dependencies]\nc = \"1\"\n");
        let expected = "apart/Cargo.lock:9: ours depends on c too: cargo update --workspace --manifest-path apart/Cargo.toml";
        assert_eq!(behind, [expected]);
    }
}
