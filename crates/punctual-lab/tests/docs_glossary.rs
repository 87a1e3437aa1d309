//! The glossary explains what the command prints: each name is looked for there, as it is printed.

mod glossary;

use std::collections::BTreeSet;
use std::time::Duration;

use glossary::explained;
use punctual::{Ledger, Stage, Wake};

#[test]
fn every_stage_counter_and_way_of_waiting_is_explained() {
    let explained = explained();
    let stages = Stage::ALL.map(Stage::name);
    let counters = Ledger::default().entries().map(|(name, _)| name);
    let ways = Wake::ALL.map(Wake::name);
    for name in stages.into_iter().chain(counters).chain(ways) {
        assert!(explained.contains(name), "docs/glossary.md does not explain {name}");
    }
}

/// Goal: the output of an experiment that stores nothing is explained; for each of the others, its own test checks that.
#[test]
fn the_headings_of_groups_are_explained() {
    let sections = punctual_lab::groups::GroupsOutcome::default().sections(Duration::from_millis(10));
    assert!(sections.len() > 1, "{sections:?}");
    assert_eq!(glossary::unexplained(&sections), BTreeSet::new());
}

/// Goal: so are words of what no run of a test shows; those of the experiments are looked for where one ran.
#[test]
fn the_words_of_the_tables_are_explained() {
    let explained = explained();
    for word in ["stall", "open load", "closed load", "floor", "doubt", "msg/s", "verdict", "b / a"] {
        assert!(explained.contains(word), "docs/glossary.md does not explain {word}");
    }
}
