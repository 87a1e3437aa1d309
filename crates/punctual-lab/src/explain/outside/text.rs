//! Text about threads seen from outside, as sections.

use super::{Answer, Lateness, ThreadTime};
use crate::explain::text::{cause_words, fix_of, not_known, parts_words};
use crate::report::section::{Cell, Column, Item, Section, Table};
use crate::units::{count, micros};

/// Threads that are shown, those with most lateness first, if not all are asked for.
const THREADS_SHOWN_MAX: usize = 20;

/// Notes on what is not known.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Why less is known than was asked for.
    pub short: Option<String>,
    /// Others.
    pub others: Vec<String>,
}

impl Notes {
    /// All of them.
    pub fn all(&self) -> Vec<&String> {
        self.short.iter().chain(&self.others).collect()
    }
}

/// Sums of each thread, what was late, and waits that may be idle; `shown_max` of each list.
pub fn sections(answer: &Answer, notes: &Notes, shown_max: usize) -> Vec<Section> {
    let (silent, others): (Vec<&ThreadTime>, Vec<&ThreadTime>) =
        answer.threads.iter().partition(|time| time.all_the_time.is_some());
    let mut sections = vec![threads(answer, &others, notes, shown_max)];
    sections.extend(without_event(&silent, shown_max));
    let (idle, late): (Vec<&Lateness>, Vec<&Lateness>) =
        answer.late.iter().partition(|late| late.may_be_idle);
    let section = Section::new("What was late");
    sections.push(if late.is_empty() {
        section.note(nothing_late(!silent.is_empty()))
    } else {
        list(section, &late, shown_max)
    });
    if !idle.is_empty() {
        let section = Section::new("Waits for other threads").note(
            "Late if it wanted a lock or an answer, idle if there was nothing to do: the kernel does not tell.",
        );
        sections.push(list(section, &idle, shown_max));
    }
    sections.extend(not_known(&notes.others));
    sections
}

fn nothing_late(has_silent: bool) -> &'static str {
    if has_silent {
        "No thread with events was kept from running, or waited for what it needed, for so long. Those without may have waited."
    } else {
        "No thread was kept from running, or waited for what it needed, for so long."
    }
}

/// Threads that did nothing that a trace has: one that hangs or is stopped is among them.
fn without_event(silent: &[&ThreadTime], shown_max: usize) -> Option<Section> {
    let mut table = Table::new(vec![Column::name("thread"), Column::name("all the time")]);
    for time in silent.iter().take(shown_max.max(THREADS_SHOWN_MAX)) {
        let state = time.all_the_time.as_deref().unwrap_or_default();
        table.row([Cell::from(name(time)), state.into()]);
    }
    let section = Section::new("Threads without an event")
        .note("The trace does not tell for what they waited, or who stopped them.")
        .table(table);
    (!silent.is_empty()).then(|| with_rest(section, silent.len(), shown_max))
}

fn with_rest(section: Section, threads: usize, shown_max: usize) -> Section {
    match threads.saturating_sub(shown_max.max(THREADS_SHOWN_MAX)) {
        0 => section,
        1 => section.note("… and 1 thread more (--all)."),
        more => section.note(format!("… and {} threads more (--all).", count(more as u64))),
    }
}

fn name(time: &ThreadTime) -> String {
    format!("{} ({})", time.name, time.thread)
}

fn list(section: Section, late: &[&Lateness], shown_max: usize) -> Section {
    let section = section.items(late.iter().take(shown_max).map(|one| item(one)).collect());
    match late.len().checked_sub(shown_max) {
        None | Some(0) => section,
        Some(more) => section.note(format!("… and {} shorter ones (--all).", count(more as u64))),
    }
}

fn item(late: &Lateness) -> Item {
    let one = &late.explained;
    let who = one.role.as_deref().unwrap_or_default();
    let stage = one.stage.as_deref().unwrap_or_default();
    let call = late.call.as_ref().map_or_else(String::new, |call| format!(" in {call}"));
    let (at, long) = (one.instant_ns as f64 / 1e9, micros(one.stall.longest_ns as f64));
    let mut item = Item::new(format!("{at:.6} s, {who}: {long} µs {stage}{call}"));
    item.lines.push(parts_words(&one.parts));
    item.lines.push(cause_words(one));
    item.then = fix_of(one);
    item
}

fn threads(answer: &Answer, threads: &[&ThreadTime], notes: &Notes, shown_max: usize) -> Section {
    let heads = ["ran, ms", "kept, ms", "waited, ms", "perhaps idle, ms", "idle, ms", "late"];
    let mut columns = vec![Column::name("thread")];
    columns.extend(heads.map(Column::number));
    columns.push(Column::prose("by cause, ms"));
    let mut table = Table::new(columns);
    let ms = |ns: u64| Cell::from(format!("{:.1}", ns as f64 / 1e6));
    for time in threads.iter().take(shown_max.max(THREADS_SHOWN_MAX)) {
        table.row([
            Cell::from(name(time)),
            ms(time.ran_ns),
            ms(time.kept_ns),
            ms(time.waited_ns),
            ms(time.perhaps_idle_ns),
            ms(time.idle_ns),
            count(time.late).into(),
            causes(time).into(),
        ]);
    }
    let seconds = answer.known_ns as f64 / 1e9;
    let section = Section::new("Threads").note(format!("Of {seconds:.3} s everything is known."));
    let section = notes.short.iter().fold(section, |section, why| section.note(why.as_str()));
    with_rest(if threads.is_empty() { section } else { section.table(table) }, threads.len(), shown_max)
}

fn causes(time: &ThreadTime) -> String {
    let one = |(cause, ns): (&str, u64)| format!("{cause} {:.1}", ns as f64 / 1e6);
    time.causes.iter().map(|sum| one((sum.cause.name(), sum.ns))).collect::<Vec<_>>().join(", ")
}
