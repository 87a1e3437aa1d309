//! Text of an explanation, as sections: each stall once, and one message in full.

use super::account::Account;
use super::evidence::TrialEvidence;
use super::finding::{Explained, LateStage, PartTime, late_stage};
use super::naming::part_words;
use super::trace::Trace;
use crate::report::section::{Cell, Column, Item, Section, Table};
use crate::sample::{ABSENT_NS, CellId, Load, Samples};
use crate::stall::stalls_words;
use crate::units::{count, micros, plural};

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

/// Of a run of which no trial can be read.
pub fn nothing_read() -> Section {
    Section::new("What was late").note("There are no samples that can be read: what was late is not known.")
}

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
    let mut list = section.note(stalls_words(messages, all.len() as u64)).items(items);
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
        _ => section.note(format!("{} only waited behind an earlier one.", plural(behind, "stall"))),
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
    item.then = match (fix, &one.would_help) {
        (Some(fix), Some(helps)) => Some(format!("{fix}; {helps}")),
        (fix, helps) => fix.or(helps.clone()),
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

/// The messages of one number in all trials, the longest first: of several senders each numbers for itself.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that are shown: the time of each, and its sections.
    shown: Vec<(u64, Vec<Section>)>,
    /// Shorter ones.
    left_out: u64,
}

impl Found {
    /// Those of a trial too. The longest `shown_max` of all stay, and the rest is counted.
    pub fn add(
        &mut self,
        place: (&CellId, u32),
        samples: &Samples,
        number: u64,
        evidence: Option<&TrialEvidence>,
        shown_max: usize,
    ) {
        let mut rows: Vec<usize> = (0..samples.len()).filter(|&row| samples.index[row] == number).collect();
        rows.sort_by_key(|&row| std::cmp::Reverse(samples.total_ns[row]));
        self.left_out += rows.len().saturating_sub(shown_max) as u64;
        rows.truncate(shown_max);
        let one = |row| (samples.total_ns[row], message(place, samples, row, evidence));
        self.shown.extend(rows.into_iter().map(one));
        self.shown.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        self.left_out += self.shown.len().saturating_sub(shown_max) as u64;
        self.shown.truncate(shown_max);
    }

    /// All that are shown, and how many are not.
    pub fn sections(self) -> Vec<Section> {
        let mut all: Vec<Section> = self.shown.into_iter().flat_map(|(_, sections)| sections).collect();
        if self.left_out > 0 {
            let note = format!("{} more of this number: --all shows them.", count(self.left_out));
            let last = all.pop().map(|last| last.note(note));
            all.extend(last);
        }
        all
    }
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
        "Message {} of {cell}, trial {trial}{}",
        count(samples.index[row]),
        sender.unwrap_or_default()
    );
    let total = micros(samples.total_ns[row] as f64);
    let at = samples.start_ns(row, cell.load) as f64 / 1e9;
    let section = Section::new(title)
        .note(format!("It began {at:.6} s after the start of the run and took {total} µs."));
    let table = stages(samples, row, evidence);
    let mut sections = vec![if table.rows.is_empty() {
        section.note("It carries no stamps: its stages are not known.")
    } else {
        section.table(table)
    }];
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

    /// Goal: of several trials the longest message comes first, the limit is that of all, and cells of one name are told apart. A
    /// message without stamps says so.
    #[test]
    fn messages_of_all_trials_are_in_one_order() {
        let (mut short, mut long) = (samples(4_000_000), samples(4_000_000));
        for (samples, ns) in [(&mut short, 1_000_000), (&mut long, 9_000_000)] {
            samples.total_ns[10] = ns;
            samples.stages.clear();
        }
        let closed = CellId::new("a.b", "c");
        let open = CellId { load: Load::Open, ..closed.clone() };
        let said = |shown_max| {
            let mut found = Found::default();
            found.add((&closed, 0), &short, 10, None, shown_max);
            found.add((&open, 0), &long, 10, None, shown_max);
            page(&found.sections(), Screen { width: 200, ..Screen::default() })
        };
        let both = said(2);
        let [first, second] = ["open load", "closed load"].map(|words| both.find(words));
        assert!(first.is_some() && first < second, "{both}");
        assert!(both.contains("carries no stamps"), "{both}");
        assert!(!said(1).contains("closed load") && said(1).contains("1 more of this number"), "{}", said(1));
    }

    /// Goal: of several senders that number alike every message of the number is shown, the longest first, with its sender.
    #[test]
    fn each_sender_has_a_message_of_the_number() {
        let mut samples = samples(4_000_000);
        samples.index[0] = 10;
        samples.sender = vec![3; samples.len()];
        samples.sender[0] = 5;
        let said = |shown_max| {
            let cell = CellId::new("a.b", "c");
            let mut found = Found::default();
            found.add((&cell, 0), &samples, 10, None, shown_max);
            page(&found.sections(), Screen::default())
        };
        let both = said(2);
        let [late, other] = [", sender 3", ", sender 5"].map(|words| both.find(words));
        assert!(late.is_some() && late < other, "{both}");
        let one = said(1);
        assert!(!one.contains("sender 5") && one.contains("1 more of this number"), "{one}");
    }
}
