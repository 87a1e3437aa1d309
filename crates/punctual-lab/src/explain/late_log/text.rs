//! A log of late messages, as sections.

use super::{LateRecord, LateStageRecord, Log, Untimed};
use crate::explain::finding::Explained;
use crate::explain::text::{self, PlaceExplained, bar, not_known, pieces};
use crate::explain::trace_file::TraceFile;
use crate::report::section::{Cell, Column, Section, Table};
use crate::units::{count, micros};
use punctual::late::RECORDS_PER_SECOND_MAX;

/// Numbers of messages that a note names.
const LONGER_SHOWN: usize = 10;

/// All stalls, worst first, `shown_max` of them one by one; and what there is to note.
pub fn sections(log: &Log, found: &[Explained], shown_max: usize, notes: &[String]) -> Vec<Section> {
    let receiver =
        |one: &Explained| log.records.get(one.stall.first_index as usize).map(|late| &late.receiver);
    let mut places: Vec<PlaceExplained> = Vec::new();
    for one in found {
        let place = receiver(one).cloned().unwrap_or_default();
        match places.iter_mut().find(|other| other.place == place) {
            Some(other) => other.found.push(one.clone()),
            None => places.push(PlaceExplained { place, found: vec![one.clone()] }),
        }
    }
    let mut sections = text::sections(&places, shown_max);
    if found.is_empty() && log.untimed.is_some() {
        sections = vec![Section::new("What was late").note("No message whose time is known.")];
    }
    sections.extend(not_known(notes));
    sections
}

/// Messages left out are counted in the record after them: for those behind the last record there is none.
fn ends_in_a_flood(log: &Log) -> bool {
    let last = log.records.iter().rev().map(|record| record.span().1);
    let of_second: Vec<u64> = last.take(RECORDS_PER_SECOND_MAX as usize).collect();
    let span_ns = of_second.iter().max().zip(of_second.iter().min()).map(|(last, first)| last - first);
    of_second.len() == RECORDS_PER_SECOND_MAX as usize && span_ns.is_some_and(|ns| ns < 1_000_000_000)
}

/// The missing messages, in words.
pub fn left_out(log: &Log) -> Vec<String> {
    let (skipped, unwritten) = log.records.last().map_or((0, 0), |last| (last.skipped, last.unwritten));
    let mut notes: Vec<String> = untimed(log).into_iter().chain(longer(log)).collect();
    if skipped > 0 {
        notes.push(format!("{} late messages were left out: there were too many.", count(skipped)));
    }
    if unwritten > 0 {
        notes.push(format!("{} late messages could not be written; the disk may be full.", count(unwritten)));
    }
    if log.is_full {
        notes.push(
            "It is as large as it may be: messages that were late since then are not in it.".to_owned(),
        );
    } else if ends_in_a_flood(log) {
        let most = RECORDS_PER_SECOND_MAX;
        notes.push(format!(
            "Its last {most} fell into one second, of which no more are written. More may have been left out."
        ));
    }
    if log.is_cut {
        notes.push("Its last line has no end: the program ended while it was written.".to_owned());
    }
    notes
}

/// Messages that took longer than their stamps can tell, in words.
fn longer(log: &Log) -> Option<String> {
    let longer: Vec<String> =
        log.records.iter().filter(|record| record.at_least).map(|record| record.number.to_string()).collect();
    let (number, shown) = (longer.len(), longer.iter().take(LONGER_SHOWN).cloned().collect::<Vec<_>>());
    let more = if number > LONGER_SHOWN { ", …" } else { "" };
    (number > 0).then(|| {
        format!(
            "{} messages took as long as shown at least ({}{more}): they were due too long before they were sent.",
            count(number as u64),
            shown.join(", ")
        )
    })
}

/// Messages of which nobody knows whether they were late, in words.
fn untimed(log: &Log) -> Option<String> {
    let Untimed { receiver, source } = log.untimed.as_ref()?;
    let number = log.records.last().map_or(0, |last| last.untimed);
    let number = if number == 0 { String::new() } else { format!(", {} at least", count(number)) };
    Some(format!(
        "Messages came whose time nobody knows{number}: {receiver} had one of {source}. None of them can count as late. Their stamps \
         are of another clock than the receiver's, and no kernel said when they came, or its clock was set. Over UDP it does with DatagramOptions::timestamps \
         (docs/measuring.md). A program without /proc knows no clock but its own."
    ))
}

/// One message in full: its stages, and what the thread of its receiver went through around it.
pub fn message(record: &LateRecord, traces: &[TraceFile]) -> Vec<Section> {
    let LateRecord { number, receiver, source, sequence, total_ns, at_least, .. } = record;
    let at_least = if *at_least { "at least " } else { "" };
    let (total, usual) = (micros(*total_ns as f64), micros(record.usual_ns as f64));
    let title = format!("Message {} of {receiver}", count(*number));
    let of = format!("It is message {} of {source}.", count((*sequence).into()));
    let stages = Section::new(title)
        .note(format!("{of} It took {at_least}{total} µs, of which {usual} µs are usual."))
        .table(stages(record));
    let mut sections = vec![stages];
    let own = |stage: &&LateStageRecord| record.owner(&stage.stage).1;
    if let Some(stage) = record.worst().filter(own)
        && let Some((trace, account)) = record.account(traces, stage)
    {
        let title = format!("{}, the slowest stage: the thread of {receiver}", stage.stage);
        sections.push(Section::new(title).table(pieces(&account, trace, record.span().0)));
    }
    if record.windows.is_empty() {
        sections.push(Section::new("Nothing is known of its receiver's thread by itself."));
    } else {
        let title = format!("What the thread of {receiver} went through");
        sections.push(Section::new(title).table(windows(record)));
    }
    sections
}

fn stages(record: &LateRecord) -> Table {
    let mut table = Table::new(vec![
        Column::name("stage"),
        Column::name("whose"),
        Column::number("µs"),
        Column::number("usual, µs"),
        Column::name(""),
    ]);
    for stage in &record.stages {
        let ns = stage.to_ns - stage.from_ns;
        table.row([
            Cell::from(&stage.stage),
            record.owner(&stage.stage).0.to_string().into(),
            micros(ns as f64).into(),
            micros(stage.usual_ns as f64).into(),
            bar(ns, record.total_ns.max(1)).into(),
        ]);
    }
    table
}

/// A row for each window; instants are from the message's beginning.
fn windows(record: &LateRecord) -> Table {
    let heads = ["from, µs", "to, µs", "ran, µs", "ready, µs", "stolen, µs", "throttled, µs", "frozen, µs"];
    let mut columns: Vec<Column> = heads.map(Column::number).into();
    columns.push(Column::number("faults"));
    columns.push(Column::prose("continued"));
    let mut table = Table::new(columns);
    let begin_ns = record.span().0 as f64;
    // A column in which nothing happened is left out.
    let if_any = |number: u64| if number == 0 { String::new() } else { count(number) };
    for window in &record.windows {
        let evidence = &window.evidence;
        let faults = u64::from(evidence.faults_minor) + u64::from(evidence.faults_major);
        let continued = evidence
            .continued_age_us
            .map_or_else(String::new, |age_us| format!("{} µs before its end", count(age_us.into())));
        table.row([
            micros(window.from_ns as f64 - begin_ns).into(),
            micros(window.to_ns as f64 - begin_ns).into(),
            count(evidence.cpu_us.into()).into(),
            if_any(evidence.wait_us.into()).into(),
            if_any(evidence.stolen_us.into()).into(),
            if_any(evidence.throttled_us.into()).into(),
            if_any(evidence.frozen_us.into()).into(),
            if_any(faults).into(),
            continued.into(),
        ]);
    }
    table.without_empty()
}
