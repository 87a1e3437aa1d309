//! The published tables, and how often ours are below them.

use serde::{Deserialize, Serialize};

use super::experiment::RunReport;
use super::figures::Row;

/// A published row, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Whose messages.
    pub row: &'static str,
    /// Which table.
    pub table: &'static str,
    /// The least.
    pub min: u64,
    /// By the rule of the tables.
    pub mean: f64,
    /// The most.
    pub max: u64,
}

/// Both tables.
pub const PUBLISHED: [Published; 4] = [
    Published { row: "socket", table: "first", min: 13, mean: 390.0, max: 71_273 },
    Published { row: "sharedmem", table: "first", min: 1, mean: 207.0, max: 68_452 },
    Published { row: "socket", table: "last", min: 16, mean: 211.93, max: 721 },
    Published { row: "sharedmem", table: "last", min: 1, mean: 1.53, max: 58 },
];

/// The published sample of asynchronous reception by plain sockets, µs: 1,506 deltas.
pub const PUBLISHED_ASYNC: [(&str, u64); 4] = [("p50", 22), ("p90", 118), ("p99", 224), ("max", 3_248)];

/// How our runs stand to the last table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Whose messages.
    pub row: String,
    /// Runs that have the row.
    pub runs: usize,
    /// Runs whose mean is below the published one.
    pub mean_below: usize,
    /// Runs whose max is.
    pub max_below: usize,
}

/// The rows of one name, run by run.
pub fn rows<'a>(runs: &'a [RunReport], name: &str) -> Vec<&'a Row> {
    runs.iter()
        .filter_map(|run| run.figures.rows.iter().find(|row| row.name == name && row.count > 0))
        .collect()
}

/// How all rows that were published stand.
pub fn standings(runs: &[RunReport]) -> Vec<Standing> {
    let last = PUBLISHED.iter().filter(|published| published.table == "last");
    let standing = |published: &Published| {
        let rows = rows(runs, published.row);
        (!rows.is_empty()).then(|| Standing {
            row: published.row.to_owned(),
            runs: rows.len(),
            mean_below: rows.iter().filter(|row| row.mean_us < published.mean).count(),
            max_below: rows.iter().filter(|row| row.max_us < published.max).count(),
        })
    };
    last.filter_map(standing).collect()
}
