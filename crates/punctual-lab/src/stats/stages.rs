//! Division of the time of a cell into stages.

use serde::{Deserialize, Serialize};

use crate::sample::{ABSENT_NS, Outcome, Phase, Samples};

/// The name of what no stamp accounts for.
pub const UNEXPLAINED: &str = "unexplained";

/// One stage of a cell's steady state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageShare {
    /// As in the store, or [`UNEXPLAINED`].
    pub name: String,
    /// Answered messages that carry the stage.
    pub count: u64,
    /// Its median. Negative only for `unexplained`, when stamps overlap.
    pub median_ns: i64,
    /// Its part of the total time of all stamped messages. The shares add up to 1.
    pub share: f64,
}

/// The stages in the order of the store, then what is unexplained; empty if nothing was stamped.
pub fn stage_shares(trials: &[Samples], warmup: u64) -> Vec<StageShare> {
    let mut columns: Vec<(String, Vec<i64>)> = Vec::new();
    let mut unexplained = Vec::new();
    let mut total_ns = 0f64;
    for samples in trials {
        for row in samples.rows(Phase::Steady, warmup) {
            if samples.outcome[row] != Outcome::Answered {
                continue;
            }
            let Some(rest) = samples.unexplained_ns(row) else { continue };
            unexplained.push(rest);
            total_ns += samples.total_ns[row] as f64;
            for stage in samples.stages.iter().filter(|s| s.ns[row] != ABSENT_NS) {
                column(&mut columns, &stage.name).push(i64::try_from(stage.ns[row]).unwrap_or(i64::MAX));
            }
        }
    }
    if unexplained.is_empty() {
        return Vec::new();
    }
    columns.push((UNEXPLAINED.to_owned(), unexplained));
    columns.into_iter().map(|(name, ns)| share(name, ns, total_ns)).collect()
}

/// Intervals of two clocks are rounded by both: so much is no contradiction, nanoseconds.
const ROUNDING_NS: i64 = 20;

/// Answered messages of every phase whose stages together take longer than they did: some instants contradict each other.
pub fn stages_over_total(trials: &[Samples]) -> u64 {
    let is_over = |samples: &Samples, row: usize| {
        samples.outcome[row] == Outcome::Answered
            && samples.unexplained_ns(row).is_some_and(|rest| rest < -ROUNDING_NS)
    };
    trials.iter().map(|samples| (0..samples.len()).filter(|&row| is_over(samples, row)).count() as u64).sum()
}

fn column<'a>(columns: &'a mut Vec<(String, Vec<i64>)>, name: &str) -> &'a mut Vec<i64> {
    let place = columns.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
        columns.push((name.to_owned(), Vec::new()));
        columns.len() - 1
    });
    &mut columns[place].1
}

fn share(name: String, mut ns: Vec<i64>, total_ns: f64) -> StageShare {
    ns.sort_unstable();
    let sum: f64 = ns.iter().map(|&n| n as f64).sum();
    StageShare {
        name,
        count: ns.len() as u64,
        median_ns: ns[(ns.len() - 1) / 2],
        share: if total_ns > 0.0 { sum / total_ns } else { 0.0 },
    }
}
