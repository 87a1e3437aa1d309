//! The map in `ARCHITECTURE.md` against the tree, in both directions: every package, and every module at the top of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Findings, Violation, read};

const MAP: &str = "ARCHITECTURE.md";

/// The heading of the table of packages.
const PACKAGES: &str = "Code map";

/// Files of a package's sources that are no modules.
const ROOTS: &[&str] = &["lib.rs", "main.rs", "bin/"];

pub(super) fn check(files: &[PathBuf]) -> Vec<Violation> {
    compare(&read(Path::new(MAP)), files)
}

/// A heading of the map, and the names in the first column of its tables, each with its line.
#[derive(Debug, Default)]
struct Part<'a> {
    line: usize,
    names: Vec<(usize, &'a str)>,
}

fn compare(text: &str, files: &[PathBuf]) -> Vec<Violation> {
    let mut findings = Findings::of(Path::new(MAP));
    let parts = parts(text);
    let packages = packages(files);
    let names: Vec<String> = packages.iter().map(|package| package.display().to_string()).collect();
    let there = |name: &str| files.iter().any(|path| path.starts_with(name));
    differences(&parts, PACKAGES, &names.into_iter().collect(), there, &mut findings);
    for package in packages {
        let modules = modules(&package.join("src"), files);
        let heading = package.join("src").display().to_string();
        if !modules.is_empty() {
            differences(&parts, &heading, &modules, |name| modules.contains(name), &mut findings);
        }
    }
    findings.found
}

/// Finds names that should stand under a heading and do not, and names that stand there and do not exist.
fn differences(
    parts: &BTreeMap<&str, Part<'_>>,
    heading: &str,
    wanted: &BTreeSet<String>,
    there: impl Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    let Some(part) = parts.get(heading) else {
        findings.add(1, format!("the map has no heading `{heading}`"));
        return;
    };
    for name in wanted.iter().filter(|name| part.names.iter().all(|(_, listed)| listed != name)) {
        findings.add(part.line, format!("the map does not have {name} of {heading}"));
    }
    for (place, (line, name)) in part.names.iter().enumerate() {
        if part.names[..place].iter().any(|(_, earlier)| earlier == name) {
            findings.add(*line, format!("the map has {name} of {heading} twice"));
        }
    }
    for (line, name) in part.names.iter().filter(|(_, name)| !there(name)) {
        findings.add(*line, format!("the map has {name}, and {heading} has not"));
    }
}

/// The headings of a page, without their marks.
fn parts(text: &str) -> BTreeMap<&str, Part<'_>> {
    let mut parts = BTreeMap::new();
    let mut heading = "";
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            heading = line.trim_matches(['#', ' ', '`']);
            parts.insert(heading, Part { line: index + 1, ..Part::default() });
        } else if let Some(row) = line.strip_prefix("| ")
            && let Some(part) = parts.get_mut(heading)
        {
            let cell = row.split(" | ").next().unwrap_or_default();
            part.names.extend(cell.split('`').skip(1).step_by(2).map(|name| (index + 1, name)));
        }
    }
    parts
}

/// Folders with a manifest, but the workspace itself.
fn packages(files: &[PathBuf]) -> Vec<&Path> {
    let manifests = files.iter().filter(|path| path.ends_with("Cargo.toml"));
    manifests.filter_map(|path| path.parent()).filter(|folder| *folder != Path::new("")).collect()
}

/// The modules at the top of a package's sources: folders as `name/`, files without a folder as `name.rs`.
fn modules(source: &Path, files: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in files.iter().filter_map(|path| path.strip_prefix(source).ok()) {
        let Some(first) = path.components().next() else { continue };
        let name = first.as_os_str().to_string_lossy();
        let is_folder = path.components().count() > 1;
        found.insert(if is_folder { format!("{name}/") } else { name.into_owned() });
    }
    let folders = found.clone();
    found.retain(|name| {
        let with_folder = name.strip_suffix(".rs").is_some_and(|stem| folders.contains(&format!("{stem}/")));
        !with_folder && !ROOTS.contains(&name.as_str())
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &[&str] = &[
        "Cargo.toml",
        "docs/a.md",
        "crates/ring/Cargo.toml",
        "crates/ring/src/lib.rs",
        "crates/ring/src/reader.rs",
        "crates/ring/src/writer/mod.rs",
        "crates/ring/src/layout.rs",
        "crates/ring/src/layout/header.rs",
        "fuzz/Cargo.toml",
        "fuzz/src/bin/a.rs",
    ];

    const PAGE: &str = "# A\n## Code map\n| crate | is |\n|---|---|\n| `crates/ring` | `x/` |\n| `fuzz`, `docs` | |\n\
                        ### `crates/ring/src`\n| `reader.rs`, `writer/` | `no/` |\n| `layout/` | |\n## B\n| `c` | |\n";

    fn found(page: &str, tree: &[&str]) -> Vec<(usize, String)> {
        let files: Vec<PathBuf> = tree.iter().map(PathBuf::from).collect();
        compare(page, &files).into_iter().map(|violation| (violation.line, violation.reason)).collect()
    }

    #[test]
    fn a_true_map_is_let_through() {
        assert_eq!(found(PAGE, TREE), []);
    }

    /// Goal: neither the tree nor the map changes alone. Method: each is changed, in every kind of entry.
    #[test]
    fn a_planted_difference_is_found() {
        let with = |path| [TREE, &[path]].concat();
        let one = |found: Vec<(usize, String)>, line: usize, word: &str| {
            assert!(
                matches!(&found[..], [(at, reason)] if *at == line && reason.contains(word)),
                "{found:?}"
            );
        };
        one(found(PAGE, &with("crates/ring/src/park/mod.rs")), 7, "park/");
        one(found(PAGE, &with("crates/ring/src/park.rs")), 7, "park.rs");
        one(found(PAGE, &with("crates/bus/Cargo.toml")), 2, "crates/bus");
        one(found(&PAGE.replace("`layout/`", "`layout/`, `gone/`"), TREE), 9, "gone/");
        one(found(&PAGE.replace("`layout/`", "`layout/`, `writer/`"), TREE), 9, "twice");
        one(found(&PAGE.replace("`docs`", "`gone`"), TREE), 6, "gone");
        one(found(&PAGE.replace("### `crates/ring/src`", "### Ring"), TREE), 1, "crates/ring/src");
        assert_eq!(
            found(&PAGE.replace("`layout/`", "`layout.rs`"), TREE).len(),
            2,
            "a module with a folder is one"
        );
    }
}
