//! What a run says of members that were killed or stopped: gaps, returns, and promises that did not hold.

use super::trial::DisruptedTrial;
use crate::broadcast::overview::mega;
use crate::report::section::{Cell, Column, Section, Table, Tone, numbers};
use crate::summary::Figures;
use crate::units::{count, dash, fixed};

/// All trials, a row each.
pub(in crate::broadcast) fn sections(trials: &[DisruptedTrial]) -> Vec<Section> {
    if trials.is_empty() {
        return Vec::new();
    }
    let mut sections = vec![gaps(trials), load(trials)];
    let broken: Vec<&String> = trials.iter().flat_map(|trial| &trial.violations).collect();
    if !broken.is_empty() {
        let mut section = Section::new("Promises that did not hold");
        for sentence in broken {
            section = section.words(sentence);
        }
        sections.push(section);
    }
    sections
}

fn keys() -> Vec<Column> {
    vec![
        Column::name("engine"),
        Column::name("what"),
        Column::number("members"),
        Column::number("loss/flips %"),
    ]
}

fn key(trial: &DisruptedTrial) -> [Cell; 4] {
    [
        trial.engine.name().into(),
        trial.disruption.plural().into(),
        trial.members.to_string().into(),
        trial.faults.to_string().into(),
    ]
}

/// Milliseconds.
fn millis(ns: u64) -> String {
    fixed(ns as f64 / 1e6, 1)
}

/// Least, p50, p90 and most: a dash where the sample is too small.
fn spread(figures: &Figures) -> [Cell; 4] {
    let text = |ns: Option<u64>| ns.map_or_else(dash, millis);
    let [min, p50, p90] = [figures.min, figures.p50, figures.p90].map(|ns| text(ns).into());
    [min, p50, p90, Cell::toned(text(figures.max), Tone::Strong)]
}

fn gaps(trials: &[DisruptedTrial]) -> Section {
    let mut columns = keys();
    columns.push(Column::number("count"));
    for over in ["gap", "gap at return", "rejoin"] {
        columns.extend(["min", "p50", "p90", "max"].map(|head| Column::number(head).over(over)));
    }
    let mut table = Table::new(columns).keyed(4);
    for trial in trials {
        let mut row: Vec<Cell> = key(trial).into();
        row.push(count(trial.events.len() as u64).into());
        for figures in [&trial.gaps, &trial.return_gaps, &trial.rejoins] {
            row.extend(spread(figures));
        }
        table.row(row);
    }
    let suspicion = trials.iter().map(|trial| trial.suspect_after_ns).max().unwrap_or(0);
    let suspicion = fixed(suspicion as f64 / 1e6, 0);
    let about = format!("ms; all members broadcast; suspected after {suspicion} ms of silence");
    let note = "Gap: the longest time in which another member delivered nothing, between a kill or stop and the return; of each \
                other member. Gap at return: the same, from the return until all deliver in one view. Rejoin: from the start of \
                the new process, or the end of the stop, until the new life delivered. –: fewer than ten samples lie beyond.";
    Section::new("How long a group stands still when a member goes and comes")
        .about(about)
        .table(table.without_empty())
        .note(note)
}

fn load(trials: &[DisruptedTrial]) -> Section {
    let mut columns = keys();
    columns.extend(numbers(["views", "lives", "expelled", "seconds", "messages", "MB/s", "violations"]));
    let mut table = Table::new(columns).keyed(4);
    for trial in trials {
        let mut row: Vec<Cell> = key(trial).into();
        row.extend([trial.views, trial.lives, trial.expelled].map(|number| Cell::from(count(number))));
        row.push(fixed(trial.duration_ns as f64 / 1e9, 1).into());
        row.extend([count(trial.messages).into(), mega(trial.speed()).into()]);
        row.push(Cell::broken(trial.violation_count));
        table.row(row);
    }
    let note = "Checked over all lives: survivors delivered one sequence; each other life a piece of it that begins with its first \
                view; what a survivor broadcast stands in it once, as it was. Views: that began meanwhile. Expelled: lives that \
                found that the others had gone on. MB/s: of the sequence, over the whole time.";
    Section::new("What was delivered meanwhile").table(table).note(note)
}
