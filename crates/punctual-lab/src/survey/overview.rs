//! The survey's table for a terminal: one line per route and way of waiting, understood at once.

use std::fmt::Write as _;

use super::plan::Manner;
use crate::sample::{CellId, Kind, Load};
use crate::summary::{CellResult, Recommendation, Summary};
use crate::table::{self, Style, micros};

/// The whole answer of `punctual survey`: the table, the advice, what was skipped, the doubts.
pub fn overview(summary: &Summary, style: Style) -> String {
    let mut text = routes(&summary.results, style) + &beside_neighbours(&summary.results, style);
    if let Some(recommendation) = &summary.recommendation {
        text += &advice(recommendation, style);
    }
    text += &table::skipped(&summary.skipped, style);
    text + &table::doubts(&summary.doubts, style)
}

/// What becomes of the same beside somebody who computes.
fn beside_neighbours(results: &[CellResult], style: Style) -> String {
    let rows: Vec<&CellResult> = results.iter().filter(|result| result.cell.neighbour).collect();
    if rows.is_empty() {
        return String::new();
    }
    let title = "The same with a gap of 100 µs, beside a busy neighbour on each CPU, µs";
    let mut text = format!("{}\n", style.heading(title));
    let head = format!(
        "{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "count", "mean", "p50", "p90", "p99", "max"
    );
    let _infallible = writeln!(text, "{}", style.faint(&head));
    for row in rows {
        let [p50, p90, p99, _, max] = table::tail_texts(row);
        let mean = row.figures.mean.map_or("–".to_owned(), micros);
        let count = row.figures.count;
        let name = &row.cell.name;
        let _infallible =
            writeln!(text, "{name:<24}{count:>10}{mean:>10}{p50:>10}{p90:>10}{p99:>10}{max:>10}");
    }
    text.push('\n');
    text
}

/// Round trips at each idle gap, then what else was measured of the same route.
fn routes(results: &[CellResult], style: Style) -> String {
    let mut text = format!(
        "{}\n",
        style.heading("Round trips of 64 bytes, closed load, by the idle gap before each message, µs")
    );
    let head = format!(
        "{:<18}{:>8}{:>8} {:>8}{:>8} {:>8}{:>8} {:>8} {:>8} {:>8}\n{:<18}{:>8}{:>8} {:>8}{:>8} {:>8}{:>8} {:>8} {:>8} {:>8}",
        "",
        "gap 0",
        "",
        "100 µs",
        "",
        "1 ms",
        "",
        "CPU/msg",
        "one way",
        "1 KiB",
        "",
        "p50",
        "p99",
        "p50",
        "p99",
        "p50",
        "p90",
        "at 1 ms",
        "p50",
        "p50"
    );
    let _infallible = writeln!(text, "{}", style.faint(&head));
    let mut names: Vec<(&str, &str)> = Vec::new();
    let is_usual = |cell: &CellId| !cell.neighbour && !cell.wake.ends_with(Manner::Plain.suffix());
    for result in results.iter().filter(|result| is_usual(&result.cell)) {
        let name = (result.cell.engine.as_str(), result.cell.name.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut engine = "";
    for (of, name) in names {
        if !engine.is_empty() && engine != of {
            text.push('\n');
        }
        engine = of;
        let _infallible = writeln!(text, "{}", line(results, name));
    }
    let _infallible = writeln!(
        text,
        "{}\n",
        style.faint(
            "–: not measured, or too few messages for it (a longer --duration helps). CPU: of the responder."
        )
    );
    text
}

fn line(results: &[CellResult], name: &str) -> String {
    let find = |kind: Kind, gap_us: u64, size: usize| {
        let is_it = |cell: &CellId| {
            cell.name == name
                && cell.kind == kind
                && cell.load == Load::Closed
                && cell.gap_us == gap_us
                && cell.size == size
        };
        results.iter().find(|result| is_it(&result.cell))
    };
    let mut text = format!("{name:<18}");
    for gap_us in [0, 100, 1000] {
        let [p50, p90, p99, ..] = find(Kind::RoundTrip, gap_us, 64).map_or_else(unknown, table::tail_texts);
        // A message a millisecond: a minute for all routes leaves too few of each for a p99.
        let late = if gap_us == 1000 { p90 } else { p99 };
        let _infallible = write!(text, "{p50:>8}{late:>8} ");
    }
    let cpu = find(Kind::RoundTrip, 1000, 64)
        .and_then(|result| result.cpu_ns_per_message)
        .map_or("–".to_owned(), micros);
    let [one_way, ..] = find(Kind::OneWay, 0, 64).map_or_else(unknown, table::tail_texts);
    let [large, ..] = find(Kind::RoundTrip, 0, 1024).map_or_else(unknown, table::tail_texts);
    let _infallible = write!(text, "{cpu:>8} {one_way:>8} {large:>8}");
    text
}

fn unknown() -> [String; 5] {
    std::array::from_fn(|_| "–".to_owned())
}

fn advice(recommendation: &Recommendation, style: Style) -> String {
    let mut text = format!("{}\n", style.heading("What to use on this machine"));
    for choice in &recommendation.choices {
        text += &table::wrapped(&choice.need, "  ", "  ");
        let first = format!("{}: {}", choice.name, choice.because);
        text += &table::wrapped(&first, "    → ", "      ");
    }
    text.push('\n');
    text
}
