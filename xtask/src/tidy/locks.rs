//! Lock files of the workspaces apart: each knows what our crates are and depend on, or a build with `--locked` could not start.

use std::path::{Path, PathBuf};

use super::{Findings, Violation, manifests, read};

/// Every lock file but that of the main workspace, which cargo itself keeps.
pub(super) fn check(files: &[PathBuf]) -> Vec<Violation> {
    let manifests = Manifests::of(files);
    let apart = |path: &&PathBuf| path.ends_with("Cargo.lock") && path.components().count() > 1;
    files.iter().filter(apart).flat_map(|path| of_lock(path, &read(path), &manifests)).collect()
}

/// All manifests here, with their folders.
struct Manifests(Vec<(PathBuf, String)>);

impl Manifests {
    fn of(files: &[PathBuf]) -> Self {
        let manifests = files.iter().filter(|path| path.ends_with("Cargo.toml"));
        let folder = |path: &PathBuf| path.parent().unwrap_or(Path::new("")).to_owned();
        Self(manifests.map(|path| (folder(path), read(path))).collect())
    }

    /// Folder and manifest of a package of ours.
    fn package(&self, name: &str) -> Option<(&Path, &str)> {
        let is_it = |text: &str| {
            manifests::entry(text, "package", "name").and_then(|entry| manifests::quoted(entry, "name"))
                == Some(name)
        };
        let found = self.0.iter().find(|(_, text)| is_it(text));
        found.map(|(folder, text)| (folder.as_path(), text.as_str()))
    }

    /// Entry in the manifest of the main workspace.
    fn shared(&self, table: &str, key: &str) -> Option<&str> {
        let (_, root) = self.0.iter().find(|(folder, _)| folder.as_os_str().is_empty())?;
        manifests::entry(root, table, key)
    }

    /// The version of a package of ours.
    fn version<'a>(&'a self, manifest: &'a str) -> Option<&'a str> {
        let own = manifests::entry(manifest, "package", "version")?;
        let entry = if is_shared(own) { self.shared("workspace.package", "version")? } else { own };
        manifests::quoted(entry, "version")
    }

    /// Versions of a package that a manifest's entry asks for.
    fn requirement<'a>(&'a self, package: &str, entry: &'a str) -> Option<&'a str> {
        let entry = if is_shared(entry) { self.shared("workspace.dependencies", package)? } else { entry };
        manifests::quoted(entry, "version").or_else(|| manifests::quoted(entry, package))
    }
}

/// True if the main workspace says it.
fn is_shared(entry: &str) -> bool {
    entry.replace(' ', "").contains("workspace=true")
}

/// One package of a lock file.
struct Locked<'a> {
    line: usize,
    name: &'a str,
    version: &'a str,
    is_ours: bool,
    /// A version stands behind a name of which there are several.
    dependencies: Vec<&'a str>,
}

fn packages(lock: &str) -> Vec<Locked<'_>> {
    let mut line = 1;
    let mut found = Vec::new();
    for block in lock.split("[[package]]\n") {
        let value = |key: &str| manifests::quoted(block.lines().find(|line| line.starts_with(key))?, key);
        let (_, listed) = block.split_once("dependencies = [\n").unwrap_or_default();
        let listed = listed.lines().take_while(|line| *line != "]");
        if let (Some(name), Some(version)) = (value("name"), value("version")) {
            let dependencies = listed.map(|line| line.trim_matches(['"', ',', ' '])).collect();
            found.push(Locked { line, name, version, is_ours: value("source").is_none(), dependencies });
        }
        line += block.lines().count() + 1;
    }
    found
}

fn of_lock(path: &Path, lock: &str, manifests: &Manifests) -> Vec<Violation> {
    let mut findings = Findings::of(path);
    let folder = path.parent().unwrap_or(Path::new(""));
    let remedy = format!("cargo update --workspace --manifest-path {}/Cargo.toml", folder.display());
    let packages = packages(lock);
    for package in packages.iter().filter(|package| package.is_ours) {
        for fault in faults(package, folder, &packages, manifests) {
            findings.add(package.line, format!("{} {fault}: {remedy}", package.name));
        }
    }
    findings.found
}

/// Faults of a lock file about a package of ours.
fn faults(
    package: &Locked<'_>,
    folder: &Path,
    packages: &[Locked<'_>],
    manifests: &Manifests,
) -> Vec<String> {
    let Some((own, manifest)) = manifests.package(package.name) else {
        return vec!["is no package here".to_owned()];
    };
    let mut faults = Vec::new();
    if let Some(version) = manifests.version(manifest).filter(|version| *version != package.version) {
        faults.push(format!("has the version {version}"));
    }
    for (needed, entry) in manifests::needed(manifest, own == folder) {
        let locked = package.dependencies.iter().find(|locked| locked.split(' ').next() == Some(needed));
        let Some(locked) = locked else {
            faults.push(format!("depends on {needed} too"));
            continue;
        };
        let of_name =
            || packages.iter().find(|package| package.name == needed).map(|package| package.version);
        let version = locked.split(' ').nth(1).or_else(of_name).unwrap_or_default();
        if let Some(wanted) = manifests.requirement(needed, entry).filter(|wanted| !allows(wanted, version)) {
            faults.push(format!("depends on {needed} {wanted}, not {version}"));
        }
    }
    faults
}

/// True if a requirement such as `1.2`, which also takes what is compatible, takes a version. Others are not judged.
fn allows(requirement: &str, version: &str) -> bool {
    let numbers = |text: &str| text.split('.').map(str::parse).collect::<Result<Vec<u64>, _>>();
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let (Ok(wanted), Ok(version)) = (numbers(requirement), numbers(release)) else { return true };
    // Up to the first number that is not zero nothing may differ.
    let fixed = wanted.iter().position(|&number| number > 0).map_or(wanted.len(), |first| first + 1);
    version.len() >= wanted.len() && version[..fixed] == wanted[..fixed] && version >= wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"elsewhere\"\n\n\
        [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n \"b 2.0.0\",\n]\n";

    /// Findings where the package has these lines of a manifest, and stands in this folder.
    fn found_in(folder: &str, rest: &str) -> Vec<String> {
        let root =
            "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\na = { version = \"1\" }\n";
        let ours = format!("[package]\nname = \"ours\"\nversion.workspace = true\n{rest}");
        let manifests = Manifests(vec![("".into(), root.to_owned()), (folder.into(), ours)]);
        let all = of_lock(Path::new("apart/Cargo.lock"), LOCK, &manifests);
        all.iter().map(ToString::to_string).collect()
    }

    fn found(rest: &str) -> Vec<String> {
        found_in("crates/ours", rest)
    }

    fn behind(what: &str) -> [String; 1] {
        [format!(
            "apart/Cargo.lock:9: ours {what}: cargo update --workspace --manifest-path apart/Cargo.toml"
        )]
    }

    const SAME: &str = "[dependencies]\na.workspace = true\n# a word\nb = \"2\"\nd = { version = \"1\", optional = true }\n\n[dev-dependencies]\nc = \"1\"\n";

    /// Goal: crates that a crate of ours needs to be built are in every lock file; those that only its tests need are not asked for.
    #[test]
    fn a_lock_file_that_is_behind_is_found() {
        assert_eq!(found(SAME), [""; 0]);
        let more = found("[dependencies]\na = \"1\"\n[target.'cfg(unix)'.dependencies]\nc = \"1\"\n");
        assert_eq!(more, behind("depends on c too"));
    }

    /// Goal: of a workspace's own package everything is asked for, what its tests need, too.
    #[test]
    fn a_workspaces_own_package_is_looked_at() {
        let found = found_in("apart", SAME);
        assert_eq!(found, [behind("depends on d too"), behind("depends on c too")].concat());
    }

    /// Goal: a lock file of another version of ours, or of what ours depends on, is found.
    #[test]
    fn versions_are_looked_at() {
        let other = "[dependencies]\na = { version = \"1.1\", features = [] }\nb = \"2.0\"\n";
        assert_eq!(found(other), behind("depends on a 1.1, not 1.0.0"));
        let newer = LOCK.replace("version = \"0.1.0\"", "version = \"0.2.0\"");
        let manifest = "[package]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let manifests = Manifests(vec![("apart".into(), manifest.to_owned())]);
        let found = of_lock(Path::new("apart/Cargo.lock"), &newer, &manifests);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            behind("has the version 0.1.0")
        );
    }

    #[test]
    fn a_requirement_takes_what_is_compatible() {
        for (requirement, version) in [
            ("1", "1.9.0"),
            ("1.2", "1.2.0"),
            ("0.9.20", "0.9.24"),
            ("0", "0.3.1"),
            (">=1, <3", "2.0.0"),
            ("1", "1.0.0+a.b"),
        ] {
            assert!(allows(requirement, version), "{requirement} {version}");
        }
        for (requirement, version) in
            [("1", "2.0.0"), ("1.2", "1.1.9"), ("0.9.20", "0.9.19"), ("0.9", "0.10.0"), ("0.0", "0.1.0")]
        {
            assert!(!allows(requirement, version), "{requirement} {version}");
        }
    }
}
