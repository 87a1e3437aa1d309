//! The laboratory's floors: knowledge stands below the modules that show it, no experiment names another, no import leads back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::{Source, find};
use super::{Violation, read, walls};

const LABORATORY: &str = "crates/punctual-lab/src";

/// Modules that hold knowledge, regardless of the modules that show it.
const KNOWN: &[&str] = &["sample", "store", "summary", "stall", "doubt", "stats"];

const EXPERIMENTS: &[&str] = &[
    "survey",
    "wakeup",
    "soak",
    "response",
    "oneway",
    "peel",
    "vehicles",
    "groups",
    "server",
    "causes",
    "broadcast",
];

/// Those who choose among the experiments.
const CHOOSERS: &[&str] = &["experiment", "command"];

/// One module at the top of the laboratory names another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    own: String,
    other: String,
    path: PathBuf,
    line: usize,
}

impl Import {
    fn violation(&self, reason: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line: self.line, reason: reason.into() }
    }
}

pub(super) fn check(files: &[PathBuf]) -> Vec<Violation> {
    let sources: Vec<(&Path, String)> = files
        .iter()
        .filter(|path| path.starts_with(LABORATORY) && path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| (path.as_path(), read(path)))
        .collect();
    compare(&sources)
}

fn compare(sources: &[(&Path, String)]) -> Vec<Violation> {
    let modules: BTreeSet<String> = sources.iter().filter_map(|(path, _)| Some(place(path)?.0)).collect();
    let imports: Vec<Import> =
        sources.iter().flat_map(|(path, text)| imports(&Source::of(path, text), &modules)).collect();
    let broken =
        imports.iter().filter_map(|import| Some(import.violation(broken(&import.own, &import.other)?)));
    let unlisted = sources.iter().filter_map(|(path, text)| unlisted(&Source::of(path, text)));
    unlisted.chain(broken).chain(circle(&imports)).collect()
}

/// An experiment that the list leaves out: no rule would hold for it.
fn unlisted(source: &Source<'_>) -> Option<Violation> {
    let (own, _) = place(source.path)?;
    let line = source.lines_with("Experiment for").into_iter().find(|&line| !source.is_test(line))?;
    let is_listed = own == "run" || EXPERIMENTS.contains(&&*own);
    let reason = format!("{own} has an experiment: it belongs into EXPERIMENTS (xtask/src/tidy/floors.rs)");
    (!is_listed).then(|| Violation { path: source.path.to_owned(), line, reason })
}

/// The rule that one module breaks by naming the other.
fn broken(own: &str, other: &str) -> Option<String> {
    let is_one = |name: &str, of: &[&str]| of.contains(&name);
    if other == "cli" {
        return Some("cli dispatches: nobody imports it".to_owned());
    }
    if is_one(own, EXPERIMENTS) && is_one(other, EXPERIMENTS) {
        return Some(format!("{own} does not know {other}: a thing that both use stands beside them"));
    }
    let above_known = is_one(other, CHOOSERS) || is_one(other, EXPERIMENTS);
    if is_one(own, KNOWN) && (other == "report" || above_known) || own == "report" && above_known {
        return Some(format!("{own} does not know {other}, which stands above it"));
    }
    None
}

/// The module at the top that a file belongs to, and how many parents away the crate's root is. The root has no place.
fn place(path: &Path) -> Option<(String, usize)> {
    let inside = path.strip_prefix(LABORATORY).ok()?.with_extension("");
    let mut names: Vec<String> =
        inside.components().map(|name| name.as_os_str().to_string_lossy().into_owned()).collect();
    names.pop_if(|name| name == "mod");
    match &names[..] {
        [only] if only == "lib" || only == "main" => None,
        _ => Some((names.first()?.clone(), names.len())),
    }
}

fn imports(source: &Source<'_>, modules: &BTreeSet<String>) -> Vec<Import> {
    let Some((own, depth)) = place(source.path) else { return Vec::new() };
    let from_root = find(&source.code, "crate::").map(|at| (at, at + "crate::".len()));
    // `super::super::` leads to the root of the crate from a file two folders below it; from a module of tests, one more.
    let from_parents = find(&source.code, "super::").filter_map(|at| {
        let levels = depth + usize::from(source.is_test(source.line(at)));
        let path = "super::".repeat(levels);
        let is_first = !source.code[..at].ends_with("super::");
        (is_first && source.code[at..].starts_with(&path)).then(|| (at, at + path.len()))
    });
    let places: Vec<(usize, usize)> = from_root.chain(from_parents).collect();
    let named = places.into_iter().flat_map(|(at, start)| {
        walls::names(source, start).into_iter().map(move |name| (source.line(at), name))
    });
    named
        .filter(|(_, name)| modules.contains(name) && *name != own)
        .map(|(line, other)| Import { own: own.clone(), other, path: source.path.to_owned(), line })
        .collect()
}

/// An import of the first circle, if there is one.
fn circle(imports: &[Import]) -> Option<Violation> {
    // A module that imports nothing is in no circle, nor is a module that imports only such. The remaining modules have one.
    let mut left: BTreeMap<&str, Vec<&Import>> = BTreeMap::new();
    for import in imports {
        left.entry(&import.own).or_default().push(import);
    }
    loop {
        let names: BTreeSet<&str> = left.keys().copied().collect();
        left.values_mut().for_each(|of_one| of_one.retain(|import| names.contains(import.other.as_str())));
        left.retain(|_, of_one| !of_one.is_empty());
        if left.len() == names.len() {
            break;
        }
    }
    let mut way: Vec<&Import> = vec![left.values().next()?[0]];
    loop {
        let next = left[way[way.len() - 1].other.as_str()][0];
        if let Some(start) = way.iter().position(|import| import.own == next.own) {
            let circle = &way[start..];
            let names: Vec<&str> = circle.iter().map(|import| import.own.as_str()).collect();
            let last = circle[circle.len() - 1];
            return Some(last.violation(format!(
                "imports lead back: {} → {}",
                names.join(" → "),
                last.other
            )));
        }
        way.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and reasons of what is found in these files of the laboratory.
    fn found(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| Path::new(LABORATORY).join(name)).collect();
        let sources: Vec<(&Path, String)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_path(), (*text).to_owned())).collect();
        compare(&sources).into_iter().map(|violation| (violation.line, violation.reason)).collect()
    }

    #[track_caller]
    fn one(files: &[(&str, &str)], line: usize, words: &str) {
        let found = found(files);
        assert!(matches!(&found[..], [(at, reason)] if *at == line && reason.contains(words)), "{found:?}");
    }

    const REPORT: (&str, &str) = ("report/mod.rs", "use crate::summary::Summary;\n");
    const SUMMARY: (&str, &str) = ("summary.rs", "use crate::{doubt::Doubt, units};\n");
    const DOUBT: (&str, &str) = ("doubt.rs", "");
    const UNITS: (&str, &str) = ("units.rs", "// crate::report\n");
    const PEEL: (&str, &str) = ("peel/mod.rs", "use crate::report::text;\nmod layer;\n");
    const LIB: (&str, &str) = ("lib.rs", "pub mod report;\nuse crate::cli;\n");
    const HOUSE: [(&str, &str); 6] = [REPORT, SUMMARY, DOUBT, UNITS, PEEL, LIB];

    #[test]
    fn a_house_in_order_is_let_through() {
        assert_eq!(found(&HOUSE), []);
    }

    #[test]
    fn knowledge_does_not_know_how_it_is_shown() {
        one(
            &[SUMMARY, UNITS, ("peel.rs", ""), ("doubt.rs", "\nuse crate::peel::A;")],
            2,
            "peel, which stands above",
        );
        one(
            &[SUMMARY, ("report/late.rs", "use super::super::{summary, survey};"), ("survey.rs", "")],
            1,
            "survey",
        );
    }

    #[test]
    fn an_experiment_does_not_know_another() {
        let with = |text| [&HOUSE[..], &[("vehicles/road.rs", text)]].concat();
        one(&with("use crate::units;\nuse crate::{peel::layer, report};"), 2, "vehicles does not know peel");
        one(&with("fn a() { super::super::peel::b() }"), 1, "vehicles does not know peel");
        one(&with("mod tests {}\n#[cfg(test)]\nmod tests { use super::super::super::peel; }"), 3, "peel");
        assert_eq!(found(&with("use super::peel;\nuse crate::vehicles::peel;")), [], "modules of its own");
    }

    #[test]
    fn an_experiment_that_is_not_listed_is_found() {
        let text = "struct A;\nimpl Experiment for A {}\n";
        one(&[("rally/experiment.rs", text)], 2, "rally has an experiment");
        assert_eq!(found(&[("wakeup/mod.rs", text), ("run/experiment.rs", text)]), []);
    }

    #[test]
    fn nobody_imports_cli() {
        one(
            &[("cli.rs", ""), UNITS, ("file.rs", "use crate::units;\nuse crate::cli::A;")],
            2,
            "nobody imports",
        );
    }

    /// Goal: a circle is found however long it is. Method: one is planted, of two modules and of three.
    #[test]
    fn a_planted_circle_is_found() {
        let back =
            |text| [&HOUSE[..], &[("file.rs", text), ("units/number.rs", "use crate::file::A;")]].concat();
        one(&back("use crate::units;"), 1, "file → units → file");
        one(&back("use crate::summary;"), 1, "file → summary → units → file");
    }
}
