//! The rules of `STYLE.md` that no compiler checks. One file per kind of thing that is looked at.

mod documents;
mod floors;
mod locks;
mod manifests;
mod map;
mod rules;
mod sentences;
pub(crate) mod source;
mod walls;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::step::Outcome;
use crate::workspace;
use source::Source;

/// A broken rule: where, and why that matters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    path: PathBuf,
    line: usize,
    reason: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.reason)
    }
}

/// Collects the violations of one file.
#[derive(Debug)]
struct Findings<'a> {
    path: &'a Path,
    found: Vec<Violation>,
}

impl<'a> Findings<'a> {
    fn of(path: &'a Path) -> Self {
        Self { path, found: Vec::new() }
    }

    fn add(&mut self, line: usize, reason: impl Into<String>) {
        self.found.push(Violation { path: self.path.to_owned(), line, reason: reason.into() });
    }
}

pub(crate) fn run() -> Outcome {
    let mut found = Vec::new();
    let exports = walls::Exports::of_library(&read(Path::new("crates/punctual/src/lib.rs")));
    let files = workspace::files();
    for path in &files {
        found.extend(check(path, &read(path), &exports));
    }
    found.extend(map::check(&files));
    found.extend(floors::check(&files));
    found.extend(locks::check(&files));
    for violation in &found {
        say!("{violation}");
    }
    say!("{} files", files.len());
    if found.is_empty() { Outcome::Passed } else { Outcome::Failed(format!("{} violations", found.len())) }
}

/// The text of a file; of one that is not text, as much as is.
fn read(path: &Path) -> String {
    let bytes = std::fs::read(workspace::root().join(path)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn check(path: &Path, text: &str, exports: &walls::Exports) -> Vec<Violation> {
    let mut findings = Findings::of(path);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => {
            let source = Source::of(path, text);
            rules::check(&source, &mut findings);
            sentences::check(&source, &mut findings);
            walls::check(&source, exports, &mut findings);
        }
        Some("md") => {
            documents::check(path, text, &mut findings);
            // Pages of runs are what was printed then.
            if !path.starts_with("results") {
                sentences::check_document(text, &mut findings);
            }
        }
        Some("toml") if path.ends_with("Cargo.toml") => manifests::check(path, text, &mut findings),
        _ => {}
    }
    findings.found
}
