//! Late messages, and why: the longest stalls of all cells, each with its stage and its cause as far as they are known.

use serde::Deserialize;

use super::cells::PageCell;
use super::section::{Cell, Column, Section, Table, Tone};
use crate::stall::{Stall, stalls_words};
use crate::units::{count, dash, micros};

/// Stalls listed; all are counted.
const STALLS_MAX: usize = 20;

/// One stall, as far as it is explained.
#[derive(Debug)]
pub(super) struct Late<'a> {
    pub(super) cell: &'a PageCell,
    pub(super) trial: u32,
    pub(super) stall: Stall,
    /// The stage that took longest, and how long, ns.
    pub(super) stage: Option<(String, u64)>,
    /// Why, or what is known instead.
    pub(super) cause: String,
    pub(super) is_explained: bool,
}

/// Output of an experiment that explains stalls, besides its results.
#[derive(Deserialize)]
struct Finding {
    stall: Stall,
    /// Number of the trial in which it was measured; earlier summaries do not say.
    trial: Option<u32>,
    side: serde_json::Value,
    stage: String,
    stage_excess_ns: u64,
    cause: String,
    /// It waited its turn behind the stall of this message.
    #[serde(default)]
    behind: Option<u64>,
}

/// The longest first.
pub(super) fn longest(cells: &[PageCell]) -> Vec<Late<'_>> {
    let mut all: Vec<Late<'_>> = Vec::new();
    for cell in cells {
        let findings = findings(cell);
        for found in &cell.stalls {
            let is_of_trial = |finding: &&Finding| finding.trial.is_none_or(|trial| trial == found.trial);
            let of_trial: Vec<&Finding> = findings.iter().filter(is_of_trial).collect();
            all.push(match found.stall.find_among(&of_trial, |finding| finding.stall) {
                Some(finding) => explained(cell, found, finding),
                None => unexplained(cell, found),
            });
        }
    }
    all.sort_by_key(|late| std::cmp::Reverse(late.stall.longest_ns));
    all
}

fn findings(cell: &PageCell) -> Vec<Finding> {
    let all =
        cell.result.more.get("findings").and_then(|value| value.as_array()).cloned().unwrap_or_default();
    all.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect()
}

fn explained<'a>(cell: &'a PageCell, found: &super::cells::Unexplained, finding: &Finding) -> Late<'a> {
    let side = finding.side.as_str().unwrap_or_default().replace('_', " ");
    let why = match finding.behind {
        Some(behind) => format!("waited its turn behind message {}", count(behind)),
        None => finding.cause.replace('_', " "),
    };
    Late {
        cell,
        trial: found.trial,
        stall: found.stall,
        stage: Some((finding.stage.clone(), finding.stage_excess_ns)),
        cause: format!("{side}: {why}"),
        is_explained: true,
    }
}

fn unexplained<'a>(cell: &'a PageCell, found: &super::cells::Unexplained) -> Late<'a> {
    let cause = if found.doubts.is_empty() {
        "not known here: nothing was kept that explains it".to_owned()
    } else {
        // A doubt names its trial first.
        let seen: Vec<&str> =
            found.doubts.iter().map(|doubt| doubt.rsplit(": ").next().unwrap_or(doubt)).collect();
        format!("not certain; in its trial {}", seen.join("; "))
    };
    Late {
        cell,
        trial: found.trial,
        stall: found.stall,
        stage: found.stage.clone(),
        cause,
        is_explained: false,
    }
}

/// The list.
pub(super) fn section(all: &[Late<'_>]) -> Section {
    let section = Section::new("Stalls");
    if all.is_empty() {
        return section.note("No message that came was late enough to be one.");
    }
    let messages: u64 = all.iter().map(|late| late.stall.messages).sum();
    let mut columns =
        vec![Column::name("route"), Column::number("longest, µs"), Column::name("longest stage")];
    columns.extend([Column::number("of it, µs"), Column::prose("cause"), Column::number("messages")]);
    columns.extend([Column::prose("conditions"), Column::number("gap"), Column::number("trial")]);
    columns.extend([Column::number("released at, s"), Column::number("first message")]);
    let mut table = Table::new(columns);
    for late in all.iter().take(STALLS_MAX) {
        let (id, stall) = (late.cell.id(), late.stall);
        let (stage, of_it) = late
            .stage
            .as_ref()
            .map_or(("no stamps".to_owned(), dash()), |(name, ns)| (name.clone(), micros(*ns as f64)));
        let tone = if late.is_explained { Tone::Plain } else { Tone::Faint };
        table.row([
            Cell::from(&id.name),
            Cell::toned(micros(stall.longest_ns as f64), Tone::Strong),
            stage.into(),
            of_it.into(),
            Cell::toned(&late.cause, tone),
            count(stall.messages).into(),
            Cell::toned(id.conditions(), Tone::Faint),
            id.gap().into(),
            late.trial.to_string().into(),
            format!("{:.6}", stall.release_ns as f64 / 1e9).into(),
            count(stall.first_index).into(),
        ]);
    }
    let section = section
        .note(format!(
            "Messages released at the same instant waited for the same thing. {} Those of the \
             warm-up are among them; the tables count the steady state alone.",
            stalls_words(messages, all.len() as u64)
        ))
        .table(table);
    match all.len().saturating_sub(STALLS_MAX) {
        0 => section,
        more => section.note(format!("… and {} shorter ones.", count(more as u64))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::cells::Unexplained;
    use crate::sample::CellId;
    use crate::summary::CellResult;

    /// Goal: the page says of a stall what the text says: it waited behind another, or why it was late, in its own trial.
    #[test]
    fn a_page_says_what_the_text_says() {
        let stall = Stall { release_ns: 4_010, first_index: 10, messages: 1, longest_ns: 4_000 };
        let finding = |trial: u32, cause: &str, behind: Option<u64>| {
            json!({
                "stall": stall, "trial": trial, "side": "responder", "stage": "responder", "stage_excess_ns": 3_000,
                "cause": cause, "behind": behind,
            })
        };
        let mut result = CellResult::of(&CellId::new("socket", "spin"), &[], 0);
        let findings =
            [finding(0, "run_queue", None), finding(1, "busy", Some(7)), finding(2, "steal", None)];
        result.more.insert("findings".to_owned(), json!(findings));
        // The rule of a cell takes more messages together than that of one trial.
        let by_cell = Stall { release_ns: 4_100, first_index: 10, messages: 5, longest_ns: 4_090 };
        let stall_of = |trial| if trial == 0 { by_cell } else { stall };
        let found = |trial| Unexplained { trial, stall: stall_of(trial), stage: None, doubts: Vec::new() };
        let later = Stall { release_ns: 90_000, ..by_cell };
        let other = Unexplained { stall: Stall { longest_ns: 5_000, ..later }, ..found(0) };
        let stalls = vec![found(0), found(1), found(2), found(3), other];
        let cell = PageCell { result, colour: 0, bins: vec![], ladder: vec![], start: vec![], stalls };
        let cells = [cell];
        let all = longest(&cells);
        let of_first = all.iter().find(|one| one.trial == 0 && one.is_explained).expect("it is explained");
        assert_eq!(of_first.stall, by_cell, "its own figures");
        let mut said: Vec<(u32, String)> = all.into_iter().map(|one| (one.trial, one.cause)).collect();
        said.sort();
        let causes: Vec<&str> = said.iter().map(|(_, cause)| cause.as_str()).collect();
        let [later, first, second, third, other] = causes[..] else { panic!("{said:?}") };
        assert_eq!((first, second), ("responder: run queue", "responder: waited its turn behind message 7"));
        assert_eq!(third, "responder: steal");
        assert!([later, other].iter().all(|one| one.starts_with("not known here")), "{said:?}");
    }
}
