//! A run's report about members that were killed or stopped: gaps, returns, and promises that did not hold.

use super::trial::DisruptedTrial;
use crate::broadcast::overview::mega;
use crate::report::section::{Cell, Section, TableOf};
use crate::summary::Figures;
use crate::units::{count, dash, fixed};

/// All trials, a row each.
pub(in crate::broadcast) fn sections(trials: &[DisruptedTrial]) -> Vec<Section> {
    if trials.is_empty() {
        return Vec::new();
    }
    vec![gaps(trials), load(trials)]
}

/// A row for each trial, with the columns that say which it is.
fn table(trials: &[DisruptedTrial]) -> TableOf<&DisruptedTrial> {
    TableOf::new(trials)
        .name("engine", |trial| trial.engine.name())
        .name("what", |trial| trial.disruption.plural())
        .number("members", |trial| trial.members.to_string())
        .number("loss/flips %", |trial| trial.faults.to_string())
}

/// Milliseconds.
fn millis(ns: u64) -> String {
    fixed(ns as f64 / 1e6, 1)
}

/// With least, p50, p90 and most of some figures: a dash where the sample is too small.
fn spread<'a>(
    table: TableOf<&'a DisruptedTrial>,
    over: &str,
    of: fn(&DisruptedTrial) -> &Figures,
) -> TableOf<&'a DisruptedTrial> {
    let text = |ns: Option<u64>| ns.map_or_else(dash, millis);
    let table = table.over(over).number("min", |trial| text(of(trial).min));
    let table = table.number("p50", |trial| text(of(trial).p50)).number("p90", |trial| text(of(trial).p90));
    table.number("max", |trial| Cell::strong(text(of(trial).max)))
}

fn gaps(trials: &[DisruptedTrial]) -> Section {
    let table = table(trials).number("count", |trial| count(trial.events.len() as u64));
    let table = spread(table, "gap", |trial| &trial.gaps);
    let table = spread(table, "gap at return", |trial| &trial.return_gaps);
    let table = spread(table, "rejoin", |trial| &trial.rejoins);
    let suspicion = trials.iter().map(|trial| trial.suspect_after_ns).max().unwrap_or(0);
    let suspicion = fixed(suspicion as f64 / 1e6, 0);
    let about = format!("ms; all members broadcast; suspected after {suspicion} ms of silence");
    let note = "Gap: the longest time in which another member delivered nothing, between a kill or stop and the return; of each \
                other member. Gap at return: the same, from the return until all deliver in one view. Rejoin: from the start of \
                the new process, or the end of the stop, until the new life delivered. –: fewer than ten samples lie beyond.";
    Section::new("How long a group stands still when a member goes and comes")
        .about(about)
        .table(table.keyed(4).without_empty())
        .note(note)
}

fn load(trials: &[DisruptedTrial]) -> Section {
    let table = table(trials)
        .number("views", |trial| count(trial.views))
        .number("lives", |trial| count(trial.lives))
        .number("expelled", |trial| count(trial.expelled))
        .number("seconds", |trial| fixed(trial.duration_ns as f64 / 1e9, 1))
        .number("messages", |trial| count(trial.messages))
        .number("MB/s", |trial| mega(trial.speed()))
        .number("violations", |trial| Cell::broken(trial.violation_count))
        .keyed(4);
    let note = "Checked over all lives: survivors delivered one sequence; each other life a piece of it that begins with its first \
                view; each message of a survivor stands in it once, as it was. Views: that began meanwhile. Expelled: lives \
                that found that the others had gone on. MB/s: of the sequence, over the whole time.";
    Section::new("What was delivered meanwhile").table(table).note(note)
}
