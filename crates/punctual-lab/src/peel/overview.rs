//! The experiment's tables for a terminal.

use std::fmt::Write as _;

use super::analysis::{Cost, FIGURES, Found, Interval, Part, SIGNALS, median};
use super::experiment::Overall;
use super::layer::Layer;
use super::startup::StartUp;
use crate::summary::Summary;
use crate::table::{self, Style, grouped, micros};

/// What the summary holds of it.
#[must_use]
pub fn overall(summary: &Summary) -> Option<Overall> {
    serde_json::from_value(summary.more.get("peel")?.clone()).ok()
}

/// The whole answer.
#[must_use]
pub fn overview(summary: &Summary, style: Style) -> String {
    let Some(all) = overall(summary) else { return String::new() };
    let mut text = layers(&all, style);
    text += &starts(&all, style);
    text += &ranked(&all, style);
    text += &found(&all, style);
    text += &table::skipped(&summary.skipped, style);
    text + &table::doubts(&summary.doubts, style)
}

/// "+0.31 (0.28 to 0.35)".
#[must_use]
pub fn interval(interval: &Interval) -> String {
    let Interval { ns, low_ns, high_ns } = *interval;
    format!("{} ({} to {})", micros(ns), micros(low_ns), micros(high_ns))
}

fn layers(all: &Overall, style: Style) -> String {
    let title = format!("A ping of 92 B over {}, layer by layer: round trip, µs", all.medium.name());
    let mut text = format!("{}\n", style.heading(&title));
    let head = format!("{:<14}{:>9}{:>26}{:>7}   what it adds", "through", "p50", "adds (interval)", "part");
    let _ = writeln!(text, "{}", style.faint(&head));
    for cost in &all.peeled.costs {
        let Cost { layer, through_ns, adds, found } = cost;
        let part = if *found { percent(adds.ns / all.peeled.whole_ns) } else { "≈ 0".to_owned() };
        let _ = writeln!(
            text,
            "{:<14}{:>9}{:>26}{part:>7}   {}",
            layer.name(),
            micros(*through_ns),
            interval(adds),
            layer.adds(all.medium)
        );
    }
    let whole = Layer::Whole;
    let _ = writeln!(
        text,
        "{:<14}{:>9}{:>33}   of it attributed to the layers whose interval excludes zero",
        whole.name(),
        micros(all.peeled.whole_ns),
        percent(all.peeled.attributed),
    );
    if let Some(interrupted) = &all.interrupted {
        let (with, without) = (interrupted.with_per_frame, interrupted.without_per_frame);
        let _ = writeln!(
            text,
            "with sigio-at-start, asynchronous reception: {with:.2} interruptions per frame (without: {without:.2}), adds {} µs",
            interval(&interrupted.adds)
        );
    }
    let note =
        format!("Differences are taken within each round, intervals over rounds; asleep: {}.", all.wake);
    let _ = writeln!(text, "{}\n", style.faint(&note));
    text
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn of_all(starts: &[StartUp], of: fn(&StartUp) -> f64) -> String {
    if starts.is_empty() {
        "–".to_owned()
    } else {
        micros(median(&mut starts.iter().map(of).collect::<Vec<_>>()))
    }
}

fn starts(all: &Overall, style: Style) -> String {
    if all.starts.is_empty() {
        return String::new();
    }
    let title = format!("Apart: what a fresh process pays once, medians of {} starts, µs", all.starts.len());
    let mut text = format!("{}\n", style.heading(&title));
    let mut head = format!("{:<38}{:>12}", "", "without");
    for (culprit, _) in &all.starts_with {
        let _ = write!(head, "{:>22}", culprit.name());
    }
    let _ = writeln!(text, "{}", style.faint(&head));
    for (name, of) in FIGURES {
        let mut line = format!("{name:<38}{:>12}", of_all(&all.starts, of));
        for (_, starts) in &all.starts_with {
            let _ = write!(line, "{:>22}", of_all(starts, of));
        }
        let _ = writeln!(text, "{line}");
    }
    let signals = |starts: &[StartUp]| {
        let counts = starts.iter().map(|start| start.signals_per_mille as f64);
        grouped(median(&mut counts.collect::<Vec<_>>()).round() as i64)
    };
    let mut line = format!("{SIGNALS:<38}{:>12}", signals(&all.starts));
    for (_, starts) in &all.starts_with {
        let _ = write!(line, "{:>22}", signals(starts));
    }
    let _ = writeln!(text, "{line}\n");
    text
}

/// What a start consists of, the longest first, and what its first message pays.
fn ranked(all: &Overall, style: Style) -> String {
    let mut text = String::new();
    for (title, parts) in [
        ("What a start consists of until it is ready, the longest first, µs", &all.until_ready),
        ("What the first message takes longer than later ones, by its own stages, µs", &all.first_message),
    ] {
        if parts.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}", style.heading(title));
        for Part { name, takes, part } in parts {
            let _ = writeln!(text, "  {name:<38}{:>34}{:>9}", interval(takes), percent(*part));
        }
        text.push('\n');
    }
    text
}

fn found(all: &Overall, style: Style) -> String {
    if all.found.is_empty() {
        return String::new();
    }
    let mut text = format!("{}\n", style.heading("The mistakes that were switched on"));
    for Found { culprit, figure, without, with, adds, found } in &all.found {
        let verdict = if *found { "found" } else { "NOT FOUND: most grew" };
        let is_count = figure == SIGNALS;
        let shown = |value: f64| {
            if is_count { grouped(value.round() as i64) } else { format!("{} µs", micros(value)) }
        };
        let adds = if is_count {
            format!("{} ({} to {})", shown(adds.ns), shown(adds.low_ns), shown(adds.high_ns))
        } else {
            format!("{} µs", interval(adds))
        };
        let _ = writeln!(
            text,
            "  {:<22}{verdict} in: {figure}: {} without, {} with; adds {adds}",
            culprit.name(),
            shown(*without),
            shown(*with)
        );
    }
    text.push('\n');
    text
}
