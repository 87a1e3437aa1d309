//! The arrows of the design: the crates and modules that may name one another.

use std::path::Path;

use super::Findings;
use super::source::{Source, find, is_word};

/// Crates, and those they must not name. Tests too: a test that crosses a wall is in the wrong crate.
const STRANGERS: &[(&str, &[&str])] = &[
    (
        "crates/punctual-proto",
        &["punctual_machine", "punctual", "punctual_lab", "punctual_lab_machine", "punctual_c"],
    ),
    (
        "crates/punctual-machine",
        &["punctual_proto", "punctual", "punctual_lab", "punctual_lab_machine", "punctual_c"],
    ),
    ("crates/punctual-lab-machine", &["punctual_proto", "punctual", "punctual_lab", "punctual_c"]),
    ("crates/punctual", &["punctual_lab", "punctual_c"]),
    ("crates/punctual-c", &["punctual_lab", "punctual_lab_machine"]),
];

/// Modules of `punctual` that never name each other: the node puts them together.
const SIBLINGS: &[&str] = &["engine", "wake", "runtime"];

/// Names that would make a decision depend on the real world.
const REAL_WORLD: &[&str] = &[
    "std::time",
    "SystemTime",
    "Instant::now",
    "clock_gettime",
    "_rdtsc",
    "__rdtscp",
    "std::thread",
    "std::net",
];

/// Names that `punctual`'s root re-exports from a sibling: `crate::Wake` is `crate::wake` by another name.
#[derive(Debug, Default)]
pub(super) struct Exports {
    /// Name and sibling.
    names: Vec<(String, &'static str)>,
}

impl Exports {
    pub(super) fn of_library(text: &str) -> Self {
        let source = Source::of("lib.rs".as_ref(), text);
        let mut names = Vec::new();
        for &sibling in SIBLINGS {
            let opening = format!("pub use {sibling}::");
            for at in find(&source.code, &opening) {
                let rest = &source.code[at + opening.len()..];
                let list = &rest[..rest.find(';').unwrap_or(rest.len())];
                let words = list.split(|character| !is_word(character)).filter(|word| !word.is_empty());
                names.extend(words.map(|word| (word.to_owned(), sibling)));
            }
        }
        Self { names }
    }

    /// The sibling whose name this is, at the root of the crate.
    fn sibling(&self, name: &str) -> Option<&'static str> {
        let module = SIBLINGS.iter().copied().find(|sibling| *sibling == name);
        module.or_else(|| self.names.iter().find(|(export, _)| export == name).map(|(_, sibling)| *sibling))
    }
}

/// The crates that a file at this path must not name.
pub(super) fn strangers(path: &Path) -> &'static [&'static str] {
    STRANGERS.iter().find(|(folder, _)| path.starts_with(folder)).map_or(&[], |(_, strangers)| strangers)
}

pub(super) fn check(source: &Source<'_>, exports: &Exports, findings: &mut Findings<'_>) {
    for stranger in strangers(source.path) {
        for line in source.lines_with(stranger) {
            findings.add(line, format!("a wall: this crate does not know {stranger}"));
        }
    }
    if source.path.starts_with("crates/punctual-proto/src") {
        for word in REAL_WORLD {
            for line in source.lines_with(word) {
                findings.add(line, format!("`{word}` in punctual-proto: time is an argument there"));
            }
        }
    }
    check_siblings(source, exports, findings);
}

fn check_siblings(source: &Source<'_>, exports: &Exports, findings: &mut Findings<'_>) {
    let Ok(inside) = source.path.strip_prefix("crates/punctual/src") else { return };
    let Some(first) = inside.components().next() else { return };
    let own = first.as_os_str().to_string_lossy();
    let Some(own) = SIBLINGS.iter().find(|sibling| own.trim_end_matches(".rs") == **sibling) else { return };
    for (line, name) in roots(source) {
        match exports.sibling(&name) {
            Some(other) if other != *own => {
                findings.add(line, format!("{own} does not know {other}: the node puts them together"));
            }
            _ => {}
        }
    }
}

/// The first names of all paths from the crate's root or from a parent, with their lines.
fn roots(source: &Source<'_>) -> Vec<(usize, String)> {
    let places = ["crate::", "super::"]
        .into_iter()
        .flat_map(|opening| find(&source.code, opening).map(move |at| (at, at + opening.len())));
    places
        .flat_map(|(at, start)| names(source, start).into_iter().map(move |name| (source.line(at), name)))
        .collect()
}

/// The names that a path goes on with: those of its list, if there is one.
pub(super) fn names(source: &Source<'_>, start: usize) -> Vec<String> {
    if source.code[start..].starts_with('{') {
        top_level(source.inside(start))
    } else {
        vec![first_word(&source.code[start..])]
    }
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|&character| is_word(character)).collect()
}

/// The first words of a list, not of the lists inside it.
fn top_level(list: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let is_boundary = |character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && character == ','
    };
    list.split(is_boundary).map(first_word).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let path = Path::new(path);
        let exports = Exports::of_library("pub use wake::{Wake, WakeError};\npub use engine::SendError;\n");
        let mut findings = Findings::of(path);
        check(&Source::of(path, text), &exports, &mut findings);
        findings.found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn crates_do_not_name_strangers() {
        assert_eq!(
            lines("crates/punctual-proto/src/a.rs", "use punctual_machine::a;\n// punctual_machine\n"),
            [1]
        );
        assert_eq!(lines("crates/punctual-machine/tests/a.rs", "\nuse punctual_proto::a;\n"), [2]);
        assert_eq!(
            lines("crates/punctual/src/node/a.rs", "use punctual_proto::a;\nuse punctual_lab::b;\n"),
            [2]
        );
        assert_eq!(lines("crates/punctual-lab/src/a.rs", "use punctual::{Node, engine, wake};\n"), [0; 0]);
    }

    #[test]
    fn decisions_do_not_see_the_real_world() {
        assert_eq!(
            lines("crates/punctual-proto/src/a.rs", "use std::time::Instant;\nfn a(now: Instant) {}\n"),
            [1]
        );
    }

    #[test]
    fn siblings_stay_strangers() {
        let engine = |text| lines("crates/punctual/src/engine/wire/mod.rs", text);
        assert_eq!(engine("use crate::wake::Wake;\nuse crate::engine::Engine;\n"), [1]);
        assert_eq!(engine("use super::super::wake;\n"), [1]);
        assert_eq!(engine("use crate::{\n    ledger::Ledger,\n    wake::{spin, Spin},\n};\n"), [1]);
        assert_eq!(engine("use crate::{ledger::{wake}, trace};\n"), [0; 0]);
        assert_eq!(engine("use crate::Wake;\nuse crate::SendError;\n"), [1], "by another name");
        assert_eq!(lines("crates/punctual/src/wake.rs", "use crate::engine;\n"), [1]);
        assert_eq!(lines("crates/punctual/src/runtime/mod.rs", "use crate::wake::Wake;\n"), [1]);
        assert_eq!(lines("crates/punctual/src/node/mod.rs", "use crate::{engine, wake};\n"), [0; 0]);
    }
}
