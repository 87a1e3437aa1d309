//! What `punctual run oneway` says on a terminal.

use std::fmt::Write as _;

use crate::summary::{CellResult, Summary};
use crate::table::{self, Style, grouped, micros, tail_texts};

/// Both directions with their bounds, the round trip, and whether the truth was inside.
#[must_use]
pub fn overview(summary: &Summary, style: Style) -> String {
    let mut text =
        format!("{}\n", style.heading("One way, each by itself, µs; half a round trip is neither"));
    let head = format!(
        "{:<12}{:>9}{:>6}{:>9}{:>9}{:>9}{:>9}{:>13}{:>9}",
        "", "count", "lost", "min", "p50", "p99", "max", "± bound p50", "max"
    );
    let _infallible = writeln!(text, "{}", style.faint(&head));
    for name in ["there", "back", "round_trip"] {
        let Some(result) = find(summary, name) else { continue };
        let bound = find(summary, &format!("{name}_bound"));
        let _infallible = writeln!(text, "{}", line(name, result, bound));
    }
    text.push('\n');
    text += &truth(summary);
    text + &table::doubts(&summary.doubts, style)
}

fn find<'a>(summary: &'a Summary, wake: &str) -> Option<&'a CellResult> {
    summary.results.iter().find(|result| result.cell.wake == wake)
}

fn line(name: &str, result: &CellResult, bound: Option<&CellResult>) -> String {
    let [p50, _, p99, _, max] = tail_texts(result);
    let shown = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| micros(ns as f64));
    let (count, min) =
        (grouped(i64::try_from(result.figures.count).unwrap_or(i64::MAX)), shown(result.figures.min));
    let bounds = bound
        .map_or([String::new(), String::new()], |bound| [shown(bound.figures.p50), shown(bound.figures.max)]);
    format!(
        "{:<12}{count:>9}{:>6}{min:>9}{p50:>9}{p99:>9}{max:>9}{:>13}{:>9}",
        name.replace('_', " "),
        result.lost,
        bounds[0],
        bounds[1]
    )
}

fn truth(summary: &Summary) -> String {
    let Some(more) = summary.more.get("oneway") else { return String::new() };
    let number = |field: &str| more.get(field).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let (checked, held, unknown) = (number("checked"), number("held"), number("unknown"));
    let mut text = String::new();
    if checked > 0 {
        let _infallible = writeln!(
            text,
            "Both ends read one clock here, and did not use it: the truth lies within the bound {held} times of {checked}."
        );
    }
    if unknown > 0 {
        let _infallible = writeln!(
            text,
            "{unknown} ways are not known, as a clock was not: they are in no figure of one way."
        );
    }
    text
}
