//! Output of the survey: one line per route and way of waiting, understood at once.

use super::plan::Manner;
use crate::distinct::distinct;
use crate::report::parts::{self, WORDS, tail_cells, tail_columns};
use crate::report::section::{Cell, Column, Section, Table, TableOf, numbers};
use crate::sample::{CellId, Kind, Load};
use crate::summary::{CellResult, Summary};
use crate::units::{count, dash, micros};

/// The whole answer of `punctual survey`: the table, the advice, what was skipped, the doubts.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections = vec![routes(&summary.results)];
    sections.extend(beside_neighbours(&summary.results));
    sections.extend(summary.recommendation.iter().map(parts::advice));
    sections.extend(parts::rest(summary));
    sections
}

/// Results of the same beside a neighbour that computes.
fn beside_neighbours(results: &[CellResult]) -> Option<Section> {
    let table = TableOf::new(results.iter().filter(|result| result.cell.neighbour))
        .name("route", |row| &row.cell.name)
        .number("count", |row| count(row.figures.count))
        .number("mean", |row| row.figures.mean.map_or_else(dash, micros));
    let table = tail_columns(table, &["p50", "p90", "p99", "max"], |row| Some(*row)).keyed(1);
    let about = "gap of 100 µs, a busy neighbour on each CPU, µs";
    Section::new("The same beside busy neighbours").about(about).table(table).with_rows()
}

/// Round trips at each idle gap, then what else was measured of the same route.
fn routes(results: &[CellResult]) -> Section {
    let mut columns = vec![Column::name("route")];
    for (gap, late) in [("gap 0", "p99"), ("gap 100 µs", "p99"), ("gap 1 ms", "p90")] {
        columns.extend(numbers(["p50", late]).into_iter().map(|column| column.over(gap)));
    }
    columns.extend([
        Column::number("at 1 ms").over("CPU/msg"),
        Column::number("p50").over("one way"),
        Column::number("p50").over("1 KiB"),
    ]);
    let mut table = Table::new(columns);
    let is_usual = |cell: &CellId| !cell.neighbour && !cell.wake.ends_with(Manner::Plain.suffix());
    let usual = results.iter().map(|result| &result.cell).filter(|cell| is_usual(cell));
    let names = distinct(usual.map(|cell| (cell.engine.as_str(), cell.name.as_str())));
    let mut engine = "";
    for (of, name) in names {
        if engine != of {
            table.separate();
        }
        engine = of;
        table.row(row(results, name));
    }
    Section::new("Round trips of 64 bytes")
        .about("closed load, by the idle gap before each message, µs")
        .table(table.without_empty())
        .note(WORDS)
        .note(
            "–: not measured, or too few messages for it (a longer --duration helps). CPU: of the responder.",
        )
}

fn row(results: &[CellResult], name: &str) -> Vec<Cell> {
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
    let mut cells = vec![Cell::from(name)];
    for gap_us in [0, 100, 1000] {
        let [p50, p90, p99, ..] = find(Kind::RoundTrip, gap_us, 64).map_or_else(unknown, tail_cells);
        // A message a millisecond: a minute for all routes leaves too few of each for a p99.
        cells.extend([p50, if gap_us == 1000 { p90 } else { p99 }]);
    }
    let cpu = find(Kind::RoundTrip, 1000, 64).and_then(|result| result.cpu_ns_per_message);
    let [one_way, ..] = find(Kind::OneWay, 0, 64).map_or_else(unknown, tail_cells);
    let [large, ..] = find(Kind::RoundTrip, 0, 1024).map_or_else(unknown, tail_cells);
    cells.extend([cpu.map_or_else(dash, micros).into(), one_way, large]);
    cells
}

fn unknown() -> [Cell; 5] {
    std::array::from_fn(|_| dash().into())
}
