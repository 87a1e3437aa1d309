//! Words that a terminal shows stand in docs/glossary.md: they are taken from the sections themselves.

use std::collections::BTreeSet;
use std::path::Path;

use punctual_lab::report::section::{Block, Column, ColumnKind, Output, Section, Table};
use punctual_lab::store::Run;

// Every suite uses a part of this file.
const _: () = {
    let _ = (explained, explains, unexplained);
};

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");
/// Behind a number, or behind a heading's comma.
const UNITS: [&str; 11] = ["ns", "µs", "ms", "s", "m", "%", "ppm", "B", "KiB", "min", "x"];

/// Names in the first column of the page's tables.
pub(crate) fn explained() -> BTreeSet<String> {
    let first = |line: &'static str| line.strip_prefix("| ")?.split_once(" |").map(|(first, _)| first);
    let words = GLOSSARY.lines().filter_map(first).flat_map(|cell| cell.split(", "));
    words.map(|word| word.trim_matches('`').to_lowercase()).collect()
}

/// Fails unless the page explains what a terminal shows of a run.
#[track_caller]
pub(crate) fn explains(run: &Path) {
    let summary = Run::open(run).expect("a run").summary.expect("finished");
    let missing = unexplained(&punctual_lab::experiment::sections(&summary));
    assert!(missing.is_empty(), "docs/glossary.md does not explain {missing:?}");
}

/// Headings of columns and names of rows that the page does not explain.
pub(crate) fn unexplained(sections: &[Section]) -> BTreeSet<String> {
    let explained = explained();
    let shown = sections.iter().filter(|section| section.medium != Output::Page);
    let tables = shown.flat_map(|section| &section.blocks).filter_map(|block| match block {
        Block::Table(table) => Some(table),
        _ => None,
    });
    tables.flat_map(words).filter(|word| !is_explained(word, &explained)).collect()
}

/// Each heading, and each name in the first column; the names of vehicles are their users'.
fn words(table: &Table) -> Vec<String> {
    let heads = table.columns.iter().flat_map(|column| [column.over.clone(), column.head.clone()]);
    let mut words: Vec<String> = heads.collect();
    let is_named = |column: &&Column| column.kind != ColumnKind::Number && column.head != "vehicle";
    if table.columns.first().filter(is_named).is_some() {
        words.extend(table.rows.iter().filter_map(|row| row.first()).map(|cell| cell.text.clone()));
    }
    words
}

/// As it stands, or each of the names that it is made of: "adds (interval)", "keys, on its way", "shared/spin+busy", "spin~trace".
fn is_explained(words: &str, explained: &BTreeSet<String>) -> bool {
    let is_known = |one: &str| one.is_empty() || explained.contains(one);
    let words = words.to_lowercase();
    let words = words.split_once(": ").map_or(words.as_str(), |(name, _what)| name);
    let mut names = words.split([',', '(', ')']).map(without_figures);
    is_known(words)
        || names.all(|name| is_known(&name) || name.split(['/', '+', '~']).all(|part| is_known(part.trim())))
}

/// "gap 100 µs" and "key, ms" name a gap and a key.
fn without_figures(word: &str) -> String {
    let is_figure = |one: &str| {
        let one = one.trim_end_matches([',', ':']);
        UNITS.map(str::to_lowercase).iter().any(|unit| unit == one)
            || one.starts_with(|first: char| first.is_ascii_digit())
    };
    let mut words: Vec<&str> = word.split_whitespace().collect();
    while words.last().is_some_and(|last| is_figure(last)) {
        words.pop();
    }
    words.join(" ").trim_end_matches(',').to_owned()
}
