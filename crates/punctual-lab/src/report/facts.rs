//! The words of the page: three questions and their answers above; host and clock below.

use std::fmt::Write as _;

use serde_json::Value;

use super::cells::PageCell;
use super::code::code_of;
use super::escape;
use super::html::code;
use super::late::Late;
use super::parts::WORDS;
use crate::facts::in_words;
use crate::sample::Kind;
use crate::summary::{Choice, Figures, Host, Summary};
use crate::units::{count, dash, micros};

/// Choices in full sight; the others are folded away.
const PICKS_SHOWN: usize = 4;
/// Routes and stalls of the first screen.
const FAST_SHOWN: usize = 5;
const LATE_SHOWN: usize = 3;

/// Cells that say how fast an experiment's subject is, where not all do.
#[derive(Clone, Copy, Debug)]
pub struct Headline {
    /// Part of their name behind the slash.
    pub wake: &'static str,
    /// Description of what they measure.
    pub words: &'static str,
}

/// The first screen: the speed, the recommended choices, and late messages with their causes.
pub(super) fn head(
    page: &mut String,
    summary: &Summary,
    cells: &[PageCell],
    late: &[Late<'_>],
    headline: Option<Headline>,
) {
    let _ = write!(
        page,
        "<header><p class=\"brow\">Punctual · {} · {} · {}</p>",
        escape(&summary.experiment),
        escape(&summary.started.replace('T', " ").replace('Z', " UTC")),
        escape(&host_in_words(&summary.host))
    );
    match &summary.recommendation {
        Some(recommendation) => {
            let _ = write!(page, "<h1>{}</h1>", escape(&recommendation.text));
        }
        None => {
            let _ = write!(page, "<h1>What the experiment “{}” measured</h1>", escape(&summary.experiment));
        }
    }
    page.push_str("<div class=\"asked\">");
    how_fast(page, cells, headline);
    late_messages(page, cells, late);
    page.push_str("</div>");
    if let Some(recommendation) = &summary.recommendation {
        picks(page, &recommendation.choices);
    }
    let _ = write!(page, "<p class=\"say\">{}</p></header>", escape(WORDS));
}

/// True if a cell says how fast its route is.
fn is_usual(cell: &PageCell, headline: Option<Headline>) -> bool {
    let id = cell.id();
    let is_meant = headline.is_none_or(|headline| headline.wake == id.wake);
    // "+plain" is without stamps, to be compared with a floor: no route that a program has.
    is_meant && !id.neighbour && !id.wake.contains('+')
}

/// The fastest route of each engine, by its median without idle gap.
fn fastest(cells: &[PageCell], headline: Option<Headline>) -> Vec<&PageCell> {
    let rank =
        |cell: &&PageCell| (cell.id().load, cell.id().gap_us, cell.id().size != 64, cell.result.figures.p50);
    let has_median = |cell: &&PageCell| is_usual(cell, headline) && cell.result.figures.p50.is_some();
    let mut sorted: Vec<&PageCell> = cells.iter().filter(has_median).collect();
    sorted.sort_by_key(rank);
    let round_trips: Vec<&PageCell> =
        sorted.iter().copied().filter(|cell| cell.id().kind == Kind::RoundTrip).collect();
    let mut shown: Vec<&PageCell> = Vec::new();
    for cell in if round_trips.is_empty() { sorted } else { round_trips } {
        if !shown.iter().any(|one| one.id().engine == cell.id().engine) {
            shown.push(cell);
        }
    }
    shown.sort_by_key(|cell| cell.result.figures.p50);
    shown
}

fn how_fast(page: &mut String, cells: &[PageCell], headline: Option<Headline>) {
    page.push_str("<div><h2>How fast is this machine?</h2>");
    let shown = fastest(cells, headline);
    if shown.is_empty() {
        let usual: Vec<&PageCell> = cells.iter().filter(|cell| is_usual(cell, headline)).collect();
        let why = if cells.is_empty() { NO_SAMPLES } else { why_no_median(&usual) };
        let _ = write!(page, "<p>{why}</p></div>");
        return;
    }
    page.push_str("<ul class=\"facts\">");
    for cell in shown.iter().take(FAST_SHOWN) {
        let figures = &cell.result.figures;
        let p50 = figures.p50.map_or_else(dash, |ns| micros(ns as f64));
        let p99 = figures.p99.map(|ns| format!("p99 {} µs", micros(ns as f64)));
        let words = headline.map_or_else(|| medium_words(&cell.id().engine), |headline| Some(headline.words));
        let beside: Vec<String> = words.map(str::to_owned).into_iter().chain(p99).collect();
        let _ = write!(
            page,
            "<li><b>{p50} µs</b> {} <span>{}</span></li>",
            escape(&cell.id().name),
            escape(&beside.join(", "))
        );
    }
    let of = shown[0].id();
    let _ = write!(
        page,
        "</ul><p class=\"say\">p50 of each: {}, gap {}.</p></div>",
        escape(&of.conditions()),
        of.gap()
    );
}

const NO_SAMPLES: &str = "There are no samples that can be read, so there is no figure.";

/// Why none of these cells has a median.
fn why_no_median(cells: &[&PageCell]) -> &'static str {
    let any = |is: fn(&Figures) -> bool| cells.iter().any(|cell| is(&cell.result.figures));
    if !any(|figures| figures.max_answered.is_some()) {
        "Nothing was answered after the warm-up, so there is no figure."
    } else if any(|figures| figures.infinite_from.as_deref() == Some("p50")) {
        "No route has a median: half of its messages never came, or they are too few."
    } else {
        "No route has a median: it needs twenty messages after the warm-up."
    }
}

/// Where a figure of this engine was taken, so that none is believed to be one between hosts.
fn medium_words(engine: &str) -> Option<&'static str> {
    Some(match engine {
        "floor" => "bare mechanism, no library",
        "loopback" => "inside one process",
        "shared" => "between processes, shared memory",
        "datagram" => "UDP, both ends on this host, no network card",
        "packet" => "Ethernet frames, both ends on this host (veth), no network card",
        _ => return None,
    })
}

/// Messages that were lost, or answered wrongly, are infinitely late; stalls have none of them.
fn never_came(cells: &[PageCell]) -> Option<String> {
    let is_part = |cell: &PageCell| cells.iter().any(|other| cell.result.cell.is_way_of(&other.result.cell));
    let wholes = cells.iter().filter(|cell| !is_part(cell)).map(|cell| &cell.result);
    let messages = wholes.fold(0_u64, |all, one| all.saturating_add(one.lost).saturating_add(one.mismatched));
    let were = if messages == 1 { "message was" } else { "messages were" };
    let words = "lost or answered wrongly, which is infinitely late: see the doubts.";
    (messages > 0).then(|| format!("{} {were} {words}", count(messages)))
}

fn late_messages(page: &mut String, cells: &[PageCell], late: &[Late<'_>]) {
    page.push_str("<div><h2>What was late, and why?</h2>");
    let never_came = never_came(cells);
    if late.is_empty() {
        let has_usual = cells.iter().any(|cell| cell.result.figures.max_answered.is_some());
        let none = match (&never_came, has_usual) {
            (_, false) => "No message came after the warm-up that others could be compared with.",
            (None, true) => "Nothing: no message was far later than the usual one.",
            (Some(_), true) => "Of those that came none was far later than the usual one.",
        };
        let never_came = never_came.map_or_else(String::new, |words| words + " ");
        let _ = write!(page, "<p>{never_came}{none}</p></div>");
        return;
    }
    page.push_str("<ul class=\"facts\">");
    for one in late.iter().take(LATE_SHOWN) {
        let stage = one.stage.as_ref().map_or("no stamps".to_owned(), |(name, ns)| {
            format!("{} µs of it in {name}", micros(*ns as f64))
        });
        let _ = write!(
            page,
            "<li><b>{} µs</b> {} <span>stage: {}; cause: {}</span></li>",
            micros(one.stall.longest_ns as f64),
            escape(&one.cell.id().name),
            escape(&stage),
            escape(&one.cause)
        );
    }
    let all = count(late.len() as u64);
    let _ = write!(
        page,
        "</ul><p class=\"say\">The longest of {all} stalls, those of the warm-up included; more of them stand below. {}</p></div>",
        never_came.unwrap_or_default()
    );
}

fn picks(page: &mut String, choices: &[Choice]) {
    let (first, others) = choices.split_at(choices.len().min(PICKS_SHOWN));
    page.push_str("<h2>What should I use?</h2><div class=\"picks\">");
    first.iter().for_each(|choice| pick(page, choice));
    page.push_str("</div>");
    if !others.is_empty() {
        page.push_str(
            "<details><summary>Other needs, and what the library costs</summary><div class=\"picks\">",
        );
        others.iter().for_each(|choice| pick(page, choice));
        page.push_str("</div></details>");
    }
}

fn pick(page: &mut String, choice: &Choice) {
    let (need, name, why) = (escape(&choice.need), escape(&choice.name), escape(&choice.because));
    let _ = write!(page, "<div><div class=\"need\">{need}</div><div class=\"name\">{name}</div>");
    code(page, code_of(&choice.name).as_deref());
    let _ = write!(page, "<div class=\"why\">{why}</div></div>");
}

/// Samples that were taken elsewhere say nothing of their host, and its page nothing of this one.
fn is_unknown(host: &Host) -> bool {
    host.cpus == 0
}

fn host_in_words(host: &Host) -> String {
    if is_unknown(host) {
        return "host unknown".to_owned();
    }
    let r#virtual = if host.r#virtual { ", virtual" } else { "" };
    format!("{} · {} CPUs{} · Linux {}", host.cpu, host.cpus, r#virtual, host.kernel)
}

pub(super) fn foot(page: &mut String, summary: &Summary) {
    if is_unknown(&summary.host) {
        page.push_str(
            "<section><h2>The host</h2><p class=\"say\">Not known, nor its clock: these samples say neither.</p></section>\n",
        );
    } else {
        page.push_str("<section class=\"two\"><div><h2>The host</h2>");
        list(page, &serde_json::to_value(&summary.host).unwrap_or_default());
        page.push_str("</div><div><h2>The clock</h2>");
        list(page, &serde_json::to_value(&summary.clock).unwrap_or_default());
        page.push_str("</div></section>\n");
    }
    let _ = write!(
        page,
        "<footer>Made from the stored samples; {} · seed {} · started {}. A lost message counts as infinitely late. \
         A quantile is shown only if ten samples lie beyond it.</footer>",
        escape(&summary.schema),
        summary.seed,
        escape(&summary.started)
    );
}

/// Facts as the summary names them.
fn list(page: &mut String, facts: &Value) {
    page.push_str("<dl>");
    for (name, value) in facts.as_object().into_iter().flatten() {
        let value = in_words(value);
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(&name.replace('_', " ")), escape(&value));
    }
    page.push_str("</dl>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CellId, Outcome, Samples};
    use crate::summary::CellResult;

    /// A cell whose steady messages ended so.
    fn cell(outcomes: &[(Outcome, u64)]) -> PageCell {
        let mut samples = Samples::default();
        for outcome in outcomes.iter().flat_map(|&(outcome, count)| (0..count).map(move |_| outcome)) {
            let index = samples.len() as u64 + 1;
            samples.push(index, index, index, 5_000, outcome);
        }
        let result = CellResult::of(&CellId::new("shared", "spin"), &[samples], 0);
        PageCell { result, colour: 0, bins: vec![], ladder: vec![], start: vec![], stalls: vec![] }
    }

    fn said(outcomes: &[(Outcome, u64)]) -> String {
        let (mut page, cells) = (String::new(), [cell(outcomes)]);
        how_fast(&mut page, &cells, None);
        late_messages(&mut page, &cells, &[]);
        page
    }

    /// Goal: the first screen does not say that nothing was late where messages never came, nor that nothing was answered where too few
    /// were.
    #[test]
    fn the_first_screen_denies_nothing() {
        let whole = said(&[(Outcome::Answered, 20)]);
        assert!(whole.contains("<b>5.00 µs</b>") && whole.contains("Nothing: no message was far"), "{whole}");
        let few = said(&[(Outcome::Answered, 19)]);
        assert!(
            few.contains("needs twenty messages") && few.contains("Nothing: no message was far"),
            "{few}"
        );
        let lossy = said(&[(Outcome::Answered, 50), (Outcome::Lost, 2), (Outcome::Mismatched, 1)]);
        assert!(
            lossy.contains("3 messages were lost or answered wrongly") && !lossy.contains("Nothing"),
            "{lossy}"
        );
        let halved = said(&[(Outcome::Answered, 20), (Outcome::Lost, 21)]);
        assert!(halved.contains("half of its messages never came"), "{halved}");
        let both = |kind| {
            let mut cell = cell(&[(Outcome::Answered, 50), (Outcome::Lost, 2)]);
            cell.result.cell.kind = kind;
            cell
        };
        let lost_once = never_came(&[both(Kind::RoundTrip), both(Kind::OneWay)]);
        assert!(
            lost_once.is_some_and(|text| text.starts_with("2 messages")),
            "its way is a part of its trip"
        );
        let named = |kind, wake: &str| {
            let mut cell = both(kind);
            let CellId { name, wake, .. } = CellId::new("shared", wake);
            (cell.result.cell.name, cell.result.cell.wake) = (name, wake);
            cell
        };
        let directions =
            [named(Kind::OneWay, "there"), named(Kind::OneWay, "back"), named(Kind::RoundTrip, "round_trip")];
        let lost_once = never_came(&directions).expect("something was");
        assert!(lost_once.starts_with("2 messages"), "both ways are parts of one trip: {lost_once}");
        let lost = said(&[(Outcome::Lost, 30)]);
        assert!(lost.contains("Nothing was answered") && lost.contains("No message came after"), "{lost}");
    }
}
