//! The glossary explains what the command prints: each name is looked for there, as it is printed.

use punctual::{Ledger, Stage, Wake};

const GLOSSARY: &str = include_str!("../../../docs/glossary.md");

/// Names in the first column of the page's tables.
fn explained() -> Vec<&'static str> {
    let first = |line: &'static str| line.strip_prefix("| ")?.split_once(" |").map(|(first, _)| first);
    GLOSSARY
        .lines()
        .filter_map(first)
        .flat_map(|cell| cell.split(", "))
        .map(|word| word.trim_matches('`'))
        .collect()
}

#[test]
fn every_stage_counter_and_way_of_waiting_is_explained() {
    let explained = explained();
    let stages = Stage::ALL.map(Stage::name);
    let counters = Ledger::default().entries().map(|(name, _)| name);
    let ways = Wake::ALL.map(Wake::name);
    for name in stages.into_iter().chain(counters).chain(ways) {
        assert!(explained.contains(&name), "docs/glossary.md does not explain {name}");
    }
}

/// Goal: what stands in the tables and headings of a survey is explained.
#[test]
fn the_words_of_the_tables_are_explained() {
    let explained = explained();
    for word in [
        "route",
        "gap",
        "p50",
        "p99",
        "CPU/msg",
        "one way",
        "stall",
        "open load",
        "closed load",
        "floor",
        "doubt",
    ] {
        assert!(explained.contains(&word), "docs/glossary.md does not explain {word}");
    }
}
