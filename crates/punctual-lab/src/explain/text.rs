//! Text of an explanation, as sections: each stall once, and one message in full.

use super::account::Account;
use super::evidence::TrialEvidence;
use super::finding::{Explained, LateStage, PartTime, late_stage};
use super::naming::part_words;
use super::trace::Trace;
use crate::report::section::{Cell, Column, Item, Section, Table};
use crate::sample::{ABSENT_NS, CellId, Load, Samples};
use crate::units::{count, micros};

/// The stalls of one trial, or of one receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceExplained {
    /// Which, in words.
    pub place: String,
    /// In any order.
    pub found: Vec<Explained>,
}

/// Parts and causes below this share are not shown.
const SHARE_MIN: f64 = 0.02;

/// All stalls, worst first; `shown_max` of them one by one.
pub fn sections(places: &[PlaceExplained], shown_max: usize) -> Vec<Section> {
    let mut all: Vec<(&str, &Explained)> =
        places.iter().flat_map(|one| one.found.iter().map(|found| (one.place.as_str(), found))).collect();
    all.sort_by_key(|(_, one)| std::cmp::Reverse(one.stall.longest_ns));
    let section = Section::new("What was late");
    if all.is_empty() {
        return vec![section.note("No message was late enough to be a stall.")];
    }
    let messages: u64 = all.iter().map(|(_, one)| one.stall.messages + one.elsewhere).sum();
    let items = all.iter().take(shown_max).map(|&(place, one)| item(place, one)).collect();
    let number = count(all.len() as u64);
    let mut list = section
        .note(format!("{} late messages are {number} stalls; the longest first.", count(messages)))
        .items(items);
    if all.len() > shown_max {
        let more = count((all.len() - shown_max) as u64);
        list = list.note(format!("… and {more} shorter ones (--all)."));
    }
    vec![causes(&all), list]
}

/// The unknown facts, if there are any.
pub fn not_known(notes: &[String]) -> Option<Section> {
    let section = Section::new("What is not known");
    (!notes.is_empty()).then(|| notes.iter().fold(section, |section, note| section.note(note.as_str())))
}

/// Time that each cause took.
fn causes(all: &[(&str, &Explained)]) -> Section {
    let mut sums: Vec<(String, u64, u64)> = Vec::new();
    let mut add = |words: String, ns: u64| match sums.iter_mut().find(|(other, ..)| *other == words) {
        Some((_, stalls, sum)) => (*stalls, *sum) = (*stalls + 1, *sum + ns),
        None => sums.push((words, 1, ns)),
    };
    let mut behind = 0;
    for (_, one) in all {
        if one.behind.is_some() {
            behind += 1;
            continue;
        }
        let role = one.owner.as_deref().or(one.role.as_deref()).unwrap_or("nobody's");
        one.causes.iter().for_each(|cause| add(format!("{role}: {}", cause.name), cause.ns));
        if one.unexplained_ns > 0 {
            add("unexplained".to_owned(), one.unexplained_ns);
        }
    }
    sums.sort_by_key(|(words, _, ns)| (std::cmp::Reverse(*ns), words.clone()));
    let whole: u64 = sums.iter().map(|(.., ns)| ns).sum();
    let mut table = Table::new(vec![
        Column::prose("cause"),
        Column::number("in stalls"),
        Column::number("took, µs"),
        Column::number("share"),
    ]);
    for (words, stalls, ns) in sums {
        let share = format!("{:.0} %", 100.0 * ns as f64 / whole.max(1) as f64);
        table.row([words.into(), count(stalls).into(), micros(ns as f64).into(), Cell::from(share)]);
    }
    let section = Section::new("Why").table(table);
    match behind {
        0 => section,
        _ => section.note(format!("{} stalls only waited behind an earlier one.", count(behind))),
    }
}

fn item(place: &str, one: &Explained) -> Item {
    let (longest, excess) = (micros(one.stall.longest_ns as f64), micros(one.excess_ns as f64));
    let more = match one.stall.messages {
        1 => String::new(),
        messages => format!(", {} messages", count(messages)),
    };
    let elsewhere = match one.elsewhere {
        0 => String::new(),
        messages => format!(", and {} of other places", count(messages)),
    };
    let mut item = Item::new(format!(
        "{:.6} s, {place}, message {}{more}{elsewhere}: {longest} µs, {excess} more than usual",
        one.instant_ns as f64 / 1e9,
        count(one.stall.first_index),
    ));
    let owner = one.owner.as_ref().map_or_else(String::new, |owner| format!(": {owner}"));
    let side = one.side.map_or_else(String::new, |side| format!(" ({side}{owner})"));
    if let Some(stage) = &one.stage {
        let parts = parts_words(&one.parts);
        let excess = micros(one.stage_excess_ns as f64);
        let also = one.also.iter().map(|other| format!(", {} {} µs", other.part, micros(other.ns as f64)));
        let also: String = also.collect();
        item.lines.push(format!(
            "{stage}{side}, {excess} µs too long{also}{}{parts}",
            if parts.is_empty() { "" } else { ": " }
        ));
    }
    item.lines.push(cause_words(one));
    let fix = fix_of(one);
    let helps = one.would_help.as_ref().map(|what| format!("more certain with: {what}"));
    item.then = match (fix, helps) {
        (Some(fix), Some(helps)) => Some(format!("{fix}; {helps}")),
        (fix, helps) => fix.or(helps),
    };
    item
}

/// Remedy to try against its largest cause.
pub(super) fn fix_of(one: &Explained) -> Option<String> {
    let largest = one.causes.first().filter(|cause| one.behind.is_none() && cause.share >= SHARE_MIN);
    largest.map(|cause| format!("try: {}", cause.fix))
}

/// Parts of a thread's time, without the negligible ones.
pub(super) fn parts_words(parts: &[PartTime]) -> String {
    let whole: u64 = parts.iter().map(|part| part.ns).sum();
    let is_shown = |part: &&PartTime| part.ns as f64 >= SHARE_MIN * whole as f64;
    let shown =
        parts.iter().filter(is_shown).map(|part| format!("{} {} µs", part.part, micros(part.ns as f64)));
    shown.collect::<Vec<_>>().join(", ")
}

/// The causes with their shares and evidence.
pub(super) fn cause_words(one: &Explained) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mut words: Vec<String> = Vec::new();
    if let Some(behind) = one.behind {
        words.push(format!("waited its turn behind message {}", count(behind)));
    }
    for cause in one.causes.iter().filter(|cause| cause.share >= SHARE_MIN) {
        let evidence =
            if cause.evidence.is_empty() { String::new() } else { format!(" ({})", cause.evidence) };
        words.push(format!("{} {}{evidence}", percent(cause.share), cause.name));
    }
    let share = one.unexplained_ns as f64 / one.excess_ns.max(1) as f64;
    if share >= SHARE_MIN {
        words.push(format!("{} unexplained", percent(share)));
    }
    words.join("; ")
}

/// The messages of this number in full, the longest first: of several senders each numbers for itself. Of more than `shown_max` the
/// rest is counted.
pub fn messages(
    place: (&CellId, u32),
    samples: &Samples,
    number: u64,
    evidence: Option<&TrialEvidence>,
    shown_max: usize,
) -> Vec<Section> {
    let mut rows: Vec<usize> = (0..samples.len()).filter(|&row| samples.index[row] == number).collect();
    rows.sort_by_key(|&row| std::cmp::Reverse(samples.total_ns[row]));
    let left_out = rows.len().saturating_sub(shown_max);
    rows.truncate(shown_max);
    let mut all: Vec<Section> =
        rows.into_iter().flat_map(|row| message(place, samples, row, evidence)).collect();
    if left_out > 0 {
        let note =
            format!("{} more of other senders have this number: --all shows them.", count(left_out as u64));
        let last = all.pop().map(|last| last.note(note));
        all.extend(last);
    }
    all
}

/// One message in full.
fn message(
    (cell, trial): (&CellId, u32),
    samples: &Samples,
    row: usize,
    evidence: Option<&TrialEvidence>,
) -> Vec<Section> {
    let sender = samples.sender.get(row).map(|sender| format!(", sender {}", count(*sender)));
    let title = format!(
        "Message {} of {}, trial {trial}{}",
        count(samples.index[row]),
        cell.name,
        sender.unwrap_or_default()
    );
    let total = micros(samples.total_ns[row] as f64);
    let at = samples.start_ns(row, cell.load) as f64 / 1e9;
    let stages = Section::new(title)
        .note(format!("It began {at:.6} s after the start of the run and took {total} µs."))
        .table(stages(samples, row, evidence));
    let mut sections = vec![stages];
    if let Some(late) = late_stage(samples, row, cell.load, evidence) {
        sections.push(slowest(samples, row, cell.load, &late));
    }
    sections
}

fn stages(samples: &Samples, row: usize, evidence: Option<&TrialEvidence>) -> Table {
    let mut table = Table::new(vec![
        Column::name("stage"),
        Column::name("whose"),
        Column::number("µs"),
        Column::name(""),
    ]);
    let total = samples.total_ns[row].max(1);
    for stage in samples.stages.iter().filter(|stage| stage.ns[row] != ABSENT_NS) {
        let ns = stage.ns[row];
        let owner = evidence.and_then(|evidence| evidence.owner(&stage.name));
        let whose = owner.map_or_else(String::new, |owner| owner.side.to_string());
        table.row([Cell::from(&stage.name), whose.into(), micros(ns as f64).into(), bar(ns, total).into()]);
    }
    table
}

/// As long as its share of the whole, of thirty.
pub(super) fn bar(ns: u64, whole_ns: u64) -> String {
    let length = (30.0 * ns as f64 / whole_ns as f64).round();
    "█".repeat((length as usize).min(30))
}

fn slowest(samples: &Samples, row: usize, load: Load, late: &LateStage<'_>) -> Section {
    let stage = &samples.stages[late.place].name;
    let role = late.thread.map_or("no thread that is known", |thread| &thread.role);
    let section = Section::new(format!("{stage}, the slowest stage: {role}"));
    let Some((dump, account)) = &late.traced else {
        return section.note("No trace of the kernel covers it.");
    };
    section.table(pieces(account, &dump.trace, samples.start_ns(row, load)))
}

/// An account piece by piece; instants are from the beginning of the message.
pub(super) fn pieces(account: &Account, trace: &Trace, start_ns: u64) -> Table {
    let mut table = Table::new(vec![
        Column::number("at, µs"),
        Column::number("µs"),
        Column::name(""),
        Column::prose("its thread"),
    ]);
    for piece in &account.pieces {
        let ns = piece.ns();
        table.row([
            micros(piece.from_ns.saturating_sub(start_ns) as f64).into(),
            micros(ns as f64).into(),
            bar(ns, account.total_ns().max(1)).into(),
            Cell::from(part_words(piece.part, trace)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::finding::tests::samples;
    use crate::report::text::{Screen, page};

    /// Goal: of several senders that number alike every message of the number is shown, the longest first, with its sender.
    #[test]
    fn each_sender_has_a_message_of_the_number() {
        let mut samples = samples(4_000_000);
        samples.index[0] = 10;
        samples.sender = vec![3; samples.len()];
        samples.sender[0] = 5;
        let said = |shown_max| {
            let cell = CellId::new("a.b", "c");
            page(&messages((&cell, 0), &samples, 10, None, shown_max), Screen::default())
        };
        let both = said(2);
        let [late, other] = [", sender 3", ", sender 5"].map(|words| both.find(words));
        assert!(late.is_some() && late < other, "{both}");
        let one = said(1);
        assert!(!one.contains("sender 5") && one.contains("1 more of other senders"), "{one}");
    }
}
