//! Text about threads seen from outside, as sections.

use super::{Answer, Lateness, ThreadTime};
use crate::explain::text::{cause_words, fix_of, not_known, parts_words};
use crate::report::section::{Cell, Column, Item, Section, Table};
use crate::units::{count, micros};

/// Threads that are shown, those with most lateness first, if not all are asked for.
const THREADS_SHOWN_MAX: usize = 20;

/// Sums of each thread, what was late, and waits that may be idle; `shown_max` of each list.
pub fn sections(answer: &Answer, notes: &[String], shown_max: usize) -> Vec<Section> {
    let mut sections = vec![threads(answer, shown_max)];
    let (idle, late): (Vec<&Lateness>, Vec<&Lateness>) =
        answer.late.iter().partition(|late| late.may_be_idle);
    let section = Section::new("What was late");
    sections.push(if late.is_empty() {
        section.note("No thread was kept from running, or waited for what it needed, for so long.")
    } else {
        list(section, &late, shown_max)
    });
    if !idle.is_empty() {
        let section = Section::new("Waits for other threads").note(
            "Late if it wanted a lock or an answer, idle if there was nothing to do: the kernel does not tell.",
        );
        sections.push(list(section, &idle, shown_max));
    }
    sections.extend(not_known(notes));
    sections
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

fn threads(answer: &Answer, shown_max: usize) -> Section {
    let heads = ["ran, ms", "kept, ms", "waited, ms", "perhaps idle, ms", "idle, ms", "late"];
    let mut columns = vec![Column::name("thread")];
    columns.extend(heads.map(Column::number));
    columns.push(Column::prose("by cause, ms"));
    let mut table = Table::new(columns);
    let ms = |ns: u64| Cell::from(format!("{:.1}", ns as f64 / 1e6));
    for time in answer.threads.iter().take(shown_max.max(THREADS_SHOWN_MAX)) {
        table.row([
            Cell::from(format!("{} ({})", time.name, time.thread)),
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
    let section =
        Section::new("Threads").note(format!("Of {seconds:.3} s everything is known.")).table(table);
    match answer.threads.len().checked_sub(shown_max.max(THREADS_SHOWN_MAX)) {
        None | Some(0) => section,
        Some(more) => section.note(format!("… and {} threads more (--all).", count(more as u64))),
    }
}

fn causes(time: &ThreadTime) -> String {
    let one = |(cause, ns): (&str, u64)| format!("{cause} {:.1}", ns as f64 / 1e6);
    time.causes.iter().map(|sum| one((sum.cause.name(), sum.ns))).collect::<Vec<_>>().join(", ")
}
