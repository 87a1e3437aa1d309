//! A run's report about stores: operations a second, the time that each took, and the verdicts on their histories.

use super::trial::{KvStep, KvTrial};
use crate::report::parts::three_cells;
use crate::report::section::{Cell, Column, Section, Table, Tone, numbers};
use crate::sample::Kind;
use crate::summary::Summary;
use crate::units::{OptionName, count, dash, fixed};

/// All trials.
pub(in crate::broadcast) fn sections(trials: &[KvTrial], summary: &Summary) -> Vec<Section> {
    if trials.is_empty() {
        return Vec::new();
    }
    let mut sections = vec![rates(trials, summary), every_second(trials), histories(trials)];
    let broken: Vec<&String> = trials.iter().flat_map(|trial| &trial.violations).collect();
    if !broken.is_empty() {
        let section = Section::new("Promises of the store that did not hold");
        sections.push(broken.into_iter().fold(section, Section::words));
    }
    sections
}

fn keys() -> Vec<Column> {
    let names = ["engine", "reads", "what"].map(Column::name);
    [names.to_vec(), numbers(["members", "loss/flips %"])].concat()
}

fn key(trial: &KvTrial) -> [Cell; 5] {
    let what = trial.disruption.map_or_else(dash, |of| format!("{} {}", trial.disruptions, of.plural()));
    [
        trial.engine.name().into(),
        trial.reads.name().into(),
        what.into(),
        trial.members.to_string().into(),
        trial.faults.to_string().into(),
    ]
}

/// p50, p99 and max of one kind of operation.
fn latencies(summary: &Summary, trial: &KvTrial, step: &KvStep, op: &str) -> [Cell; 3] {
    let name = format!("{}/{}", trial.engine.name(), trial.wake_of(step, op));
    let of = summary.results.iter().find(|row| row.cell.kind == Kind::RoundTrip && row.cell.name == name);
    three_cells(of)
}

fn rates(trials: &[KvTrial], summary: &Summary) -> Section {
    let mut columns = keys();
    columns.extend(numbers(["clients", "op/s"]));
    for over in ["put", "get"] {
        columns.extend(["p50", "p99", "max"].map(|head| Column::number(head).over(over)));
    }
    let mut table = Table::new(columns).keyed(5);
    for trial in trials {
        for step in &trial.steps {
            let is_best = trial.best() == Some(step);
            let tone = if is_best { Tone::Strong } else { Tone::Plain };
            let mut row: Vec<Cell> = key(trial).into();
            row.push(count(step.clients as u64).into());
            row.push(Cell::toned(count(step.rate().round() as u64), tone));
            row.extend(["put", "get"].iter().flat_map(|op| latencies(summary, trial, step, op)));
            table.row(row);
        }
        table.separate();
    }
    let first = &trials[0];
    let about = format!(
        "values of {} B, {} keys, {} % puts; closed load",
        count(first.value as u64),
        count(first.keys),
        first.puts_percent
    );
    let note = "Clients: of the whole group, doubled until twice in a row less than 5 % more is done; they live in their members' \
                processes. A put is answered once its own member applied it, and a linearizable get at its place in the same order. A \
                local get is answered from the member's copy at once. Latency: µs, from the question to the answer; runs pooled.";
    Section::new("How many operations a store does").about(about).table(table.without_empty()).note(note)
}

fn every_second(trials: &[KvTrial]) -> Section {
    let mut columns = keys();
    columns.push(Column::prose("op in each second"));
    let mut table = Table::new(columns).keyed(5);
    for trial in trials {
        let mut row: Vec<Cell> = key(trial).into();
        let seconds: Vec<String> = trial.seconds.iter().map(|&operations| count(operations)).collect();
        row.push(seconds.join("  ").into());
        table.row(row);
    }
    let note = "Whole seconds since all members were in one view; the clients are more and more, unless members are killed or stopped.";
    Section::new("Operations every second").table(table.without_empty()).note(note)
}

fn histories(trials: &[KvTrial]) -> Section {
    let mut columns = keys();
    columns.extend(numbers(["checked op", "keys", "maybe", "undecided", "stale", "stale %", "oldest, ms"]));
    columns.extend(numbers(["views", "expelled", "violations"]));
    let mut table = Table::new(columns).keyed(5);
    for trial in trials {
        let mut row: Vec<Cell> = key(trial).into();
        row.extend(
            [trial.checked_operations, trial.checked_keys, trial.maybe]
                .map(|number| Cell::from(count(number))),
        );
        row.push(Cell::broken(trial.undecided));
        row.extend(stale(trial));
        row.extend([trial.views, trial.expelled].map(|number| Cell::from(count(number))));
        row.push(Cell::broken(trial.violation_count));
        table.row(row);
    }
    let note = "Each key's history was searched for an order in which every operation lies between its question and its answer, and \
                each linearizable get answers the put before it, as do all copies in the end; local gets of a member only go forwards. Maybe: puts that were under way when their process was killed or \
                their member expelled. Stale: local gets whose value had been overwritten, and the client that did it knew; oldest: for \
                how long. 0: none was seen.";
    Section::new("What the histories say").table(table.without_empty()).note(note)
}

/// Number of local gets that were stale, and for how long.
fn stale(trial: &KvTrial) -> [Cell; 3] {
    if trial.local_gets == 0 {
        return [dash(), dash(), dash()].map(Cell::from);
    }
    let share = 100.0 * trial.stale as f64 / trial.local_gets as f64;
    [count(trial.stale).into(), fixed(share, 2).into(), fixed(trial.stale_ns_max as f64 / 1e6, 2).into()]
}
