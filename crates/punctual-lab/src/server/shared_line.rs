//! Activity of threads that polled one line behind one lock, beside the original's counters.

use super::experiment::{ServerOverall, ServerTrial};
use super::host::PollerCounts;
use super::published::{DURATION_S, LINE_COUNTS, LineCounts};
use crate::report::section::{Cell, Column, Section, Table, Tone};
use crate::units::{count, dash, fixed, micros};

/// One row for each trial: all pollers together, and the handler, which is the last.
pub(super) fn section(all: &ServerOverall) -> Option<Section> {
    let trials = all.trials.iter().filter(|trial| !trial.served.pollers.is_empty());
    let mut table = Table::new(columns()).keyed(1);
    let mut is_empty = true;
    for trial in trials {
        is_empty = false;
        table.row(row(trial));
    }
    if is_empty {
        return None;
    }
    table.separate();
    for counts in &LINE_COUNTS {
        table.row(published(counts));
    }
    let about =
        "by trial; all pollers together, and the handler, which waits for sockets; as published in 5 s";
    let note = "Of the original its scheduler's yields stand in place of empty looks. A wake puts a task into the line; it takes long where the holder of the lock, or \
                the next in line for it, has no processor.";
    Some(Section::new("What pollers of one line did").about(about).table(table.without_empty()).note(note))
}

fn columns() -> Vec<Column> {
    let mut columns = vec![Column::name("model")];
    columns.extend(
        ["empty looks/s", "wakes/s", "a wake", "waits for the lock", "taken off/s"].map(Column::number),
    );
    columns.extend(["handler's CPU", "mean"].map(Column::number));
    columns
}

fn sum(of: &[PollerCounts], count: impl Fn(&PollerCounts) -> u64) -> u64 {
    of.iter().map(count).sum()
}

fn row(trial: &ServerTrial) -> [Cell; 8] {
    let all = &trial.served.pollers[..];
    let (handler, pollers) = all.split_last().expect("there is a handler");
    let ns = trial.served_ns() as f64;
    let each_second = |number: u64| count((number as f64 * 1e9 / ns).round() as u64);
    let wakes = sum(all, |counts| counts.wakes);
    let waited = sum(pollers, |counts| counts.lock_wait_ns) as f64 / ns / pollers.len().max(1) as f64;
    [
        trial.setup.words().into(),
        each_second(sum(pollers, |counts| counts.empty_looks)).into(),
        each_second(wakes).into(),
        Cell::toned(micros(sum(all, |counts| counts.wake_ns) as f64 / wakes.max(1) as f64), Tone::Strong),
        format!("{} %", fixed(100.0 * waited, 1)).into(),
        each_second(sum(all, |counts| counts.switches_involuntary)).into(),
        fixed(handler.ran_ns as f64 / ns, 2).into(),
        trial.mean_of_all_ns().map_or_else(dash, |ns| micros(ns as f64)).into(),
    ]
}

fn published(counts: &LineCounts) -> [Cell; 8] {
    let each_second = |number: u64| count((number as f64 / DURATION_S).round() as u64);
    [
        format!("published, w {}", counts.pollers).into(),
        each_second(counts.yields).into(),
        each_second(counts.wakes).into(),
        count(counts.wake_us).into(),
        String::new().into(),
        String::new().into(),
        fixed(counts.handler_us as f64 / 1e6 / DURATION_S, 2).into(),
        count(counts.mean_us).into(),
    ]
}
