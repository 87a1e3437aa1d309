//! Rules for every `Cargo.toml`: lints are inherited, walls stand in the dependencies too.

use std::path::Path;

use super::source::find;
use super::{Findings, walls};

/// Folders of the main workspace that are packages.
const MEMBERS: &[&str] = &["crates", "xtask"];

pub(super) fn check(path: &Path, text: &str, findings: &mut Findings<'_>) {
    let is_member = MEMBERS.iter().any(|member| path.starts_with(member));
    if is_member && !inherits_lints(text) {
        findings.add(1, "the lints of the workspace are not inherited: [lints] workspace = true");
    }
    for (line, table, entry) in lines(text) {
        if table == "workspace" && entry.starts_with("members") && entry.contains("target") {
            findings.add(line, "a member below target/, which a clone does not have: cargo new added it");
        }
    }
    for stranger in walls::strangers(path) {
        for (line, package) in dependencies(text) {
            if package.replace('-', "_") == *stranger {
                findings.add(line, format!("a wall: no dependency on {package} here"));
            }
        }
    }
}

/// Lines of a manifest with the table that they stand in, from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut table = "";
    text.lines().enumerate().map(move |(index, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']);
        }
        (index + 1, table, line)
    })
}

fn inherits_lints(text: &str) -> bool {
    lines(text).any(|(_, table, line)| table == "lints" && line.replace(' ', "") == "workspace=true")
}

/// Packages by their keys, each with what is said of it: those without which a crate is never built, and all where it is a
/// workspace's own, for that is tested.
pub(super) fn needed(text: &str, is_own: bool) -> impl Iterator<Item = (&str, &str)> {
    let is_needed = move |table: &str, entry: &str| {
        is_own || (!table.contains("dev-dependencies") && !entry.contains("optional"))
    };
    dependencies_in(text, is_needed).map(|(_, package, entry)| (package, entry))
}

/// Entry of a table for a key, which may be the first part of one: `version.workspace = true`.
pub(super) fn entry<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let mut in_table = lines(text).filter(|(_, of, _)| *of == table);
    in_table.find_map(|(.., line)| (key_of(line)? == key).then_some(line))
}

/// Text in quotes behind a key: `version = "1"`, also within `a = { version = "1" }`.
pub(super) fn quoted<'a>(entry: &'a str, key: &str) -> Option<&'a str> {
    let mut behind = find(entry, key).map(|at| entry[at + key.len()..].trim_start());
    behind.find_map(|rest| rest.strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next())
}

/// The packages that a manifest names, by their keys.
fn dependencies(text: &str) -> impl Iterator<Item = (usize, &str)> {
    dependencies_in(text, |_, _| true).map(|(line, package, _)| (line, package))
}

fn dependencies_in(
    text: &str,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> impl Iterator<Item = (usize, &str, &str)> {
    let entries = lines(text).filter(|(.., entry)| !entry.is_empty() && !entry.starts_with('#'));
    let wanted = entries.filter(move |(_, table, entry)| is_wanted(table, entry));
    wanted.filter_map(|(line, table, entry)| {
        let is_list = table.ends_with("dependencies");
        let one = table.rsplit_once("dependencies.").map(|(_, package)| package);
        let listed = key_of(entry).filter(|_| is_list);
        listed.or(one.filter(|_| entry.starts_with('['))).map(|package| (line, package, entry))
    })
}

/// The key of a line, up to its first point.
fn key_of(line: &str) -> Option<&str> {
    let is_entry = line.contains('=') && !line.starts_with(['[', '#']);
    line.split(['=', '.']).next().filter(|_| is_entry).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Findings::of(Path::new(path));
        check(Path::new(path), text, &mut findings);
        findings.found.into_iter().map(|violation| violation.line).collect()
    }

    const LINTS: &str = "[lints]\nworkspace = true\n";

    #[test]
    fn lints_are_inherited() {
        assert_eq!(lines("crates/a/Cargo.toml", "[package]\n"), [1]);
        assert_eq!(lines("crates/a/Cargo.toml", LINTS), [0; 0]);
        assert_eq!(lines("fuzz/Cargo.toml", "[package]\n"), [0; 0], "a workspace of its own");
    }

    #[test]
    fn no_member_lies_below_target() {
        assert_eq!(lines("Cargo.toml", "[workspace]\nmembers = [\"crates/*\", \"target/a\"]\n"), [2]);
        assert_eq!(
            lines("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\nexclude = [\"target\"]\n"),
            [0; 0]
        );
    }

    #[test]
    fn dependencies_respect_the_walls() {
        let proto = |text: &str| lines("crates/punctual-proto/Cargo.toml", &format!("{LINTS}{text}"));
        assert_eq!(proto("[dependencies]\npunctual-machine.workspace = true\n"), [4]);
        assert_eq!(proto("[dev-dependencies.punctual-machine]\npath = \"../a\"\n"), [3]);
        assert_eq!(proto("[dependencies]\nlibc = \"0.2\" # unlike punctual-machine\n"), [0; 0]);
        let library =
            format!("{LINTS}[dependencies]\npunctual-proto = {{ workspace = true }}\npunctual-lab = \"0\"\n");
        assert_eq!(lines("crates/punctual/Cargo.toml", &library), [5]);
    }
}
