//! Output of `punctual run oneway`.

use crate::report::parts::{self, tail_cells};
use crate::report::section::{Cell, Column, Section, Table, numbers};
use crate::summary::{CellResult, Summary};
use crate::units::{count, micros_or_dash};

/// Both directions with their bounds, the round trip, and whether the truth was inside.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut columns = vec![Column::name("")];
    columns.extend(numbers(["count", "lost", "min", "p50", "p99", "max"]));
    columns.extend(numbers(["p50", "max"]).into_iter().map(|column| column.over("± bound")));
    let mut table = Table::new(columns);
    for name in ["there", "back", "round_trip"] {
        let Some(result) = find(summary, name) else { continue };
        table.row(row(name, result, find(summary, &format!("{name}_bound"))));
    }
    let section = Section::new("One way, each by itself, µs; half a round trip is neither").table(table);
    let section = truth(summary).into_iter().fold(section, Section::words);
    [section].into_iter().chain(parts::rest(summary)).collect()
}

fn find<'a>(summary: &'a Summary, wake: &str) -> Option<&'a CellResult> {
    summary.results.iter().find(|result| result.cell.wake == wake)
}

fn row(name: &str, result: &CellResult, bound: Option<&CellResult>) -> Vec<Cell> {
    let [p50, _, p99, _, max] = tail_cells(result);
    let mut cells = vec![name.replace('_', " ").into(), count(result.figures.count).into()];
    cells.extend([Cell::broken(result.lost), micros_or_dash(result.figures.min).into(), p50, p99, max]);
    cells.extend(match bound {
        Some(bound) => [bound.figures.p50, bound.figures.max].map(|ns| Cell::from(micros_or_dash(ns))),
        None => [Cell::default(), Cell::default()],
    });
    cells
}

fn truth(summary: &Summary) -> Vec<String> {
    let Some(more) = summary.more.get("oneway") else { return Vec::new() };
    let number = |field: &str| more.get(field).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let (checked, held, unknown) = (number("checked"), number("held"), number("unknown"));
    let mut lines = Vec::new();
    if checked > 0 {
        lines.push(format!(
            "Both ends read one clock here, and did not use it: the truth lies within the bound {} times of {}.",
            count(held),
            count(checked)
        ));
    }
    if unknown > 0 {
        lines.push(format!(
            "{} ways are not known, as a clock was not, or as they cannot be: they are in no figure of one way.",
            count(unknown)
        ));
    }
    let (below, outside) = (number("below_zero"), number("outside"));
    if below > 0 {
        lines.push(format!(
            "{} ways were found below zero, which an error of the clocks can do: they count as 0 in the figures of one way.",
            count(below)
        ));
    }
    if outside > 0 {
        lines.push(format!(
            "The truth lies outside of the bound {} times for certain: report it as a bug.",
            count(outside)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Header;

    /// Goal: a reader of a figure learns that some ways in it were set to zero, and that a bound was wrong.
    #[test]
    fn ways_below_zero_are_told() {
        let mut summary = Summary::new(&Header::new("oneway"));
        summary.more.insert("oneway".to_owned(), json!({ "below_zero": 4711, "outside": 12 }));
        let lines = truth(&summary);
        assert!(
            lines.len() == 2 && lines[0].contains("4,711 ways") && lines[1].contains("12 times"),
            "{lines:?}"
        );
        summary.more.insert("oneway".to_owned(), json!({ "below_zero": 0, "outside": 0 }));
        assert_eq!(truth(&summary), Vec::<String>::new());
    }
}
