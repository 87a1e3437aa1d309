//! Cells reduced to what is drawn of them: one cell's samples are in memory at a time.

use crate::distinct::distinct;
use crate::sample::{CellId, Load, Outcome, Phase, Samples};
use crate::stall::{Stall, StallRule, longest_stage, stalls_with_rows};
use crate::stats::{Bin, Distribution, Quantile, bins};
use crate::store::{Run, StoreError};
use crate::summary::{CellResult, Summary};

/// Classes c0 to c9 of the page.
const COLOURS: usize = 10;
/// Histogram bins in a decade of time.
const BINS_PER_DECADE: u32 = 24;
/// Buckets in a decade of message index.
const BUCKETS_PER_DECADE: f64 = 24.0;
/// Points of a percentile curve in each nine.
const POINTS_PER_NINE: u32 = 12;

/// One cell, ready to be drawn.
#[derive(Debug)]
pub(crate) struct PageCell {
    pub(crate) result: CellResult,
    /// Class of its colour: one per wake.
    pub(crate) colour: usize,
    pub(crate) bins: Vec<Bin>,
    /// (nines, ns): the number of nines of the percentile, as far as the sample supports it.
    pub(crate) ladder: Vec<(f64, f64)>,
    pub(crate) start: Vec<Bucket>,
    /// Every phase.
    pub(crate) stalls: Vec<Unexplained>,
}

/// One stall, with what its trial knows of it.
#[derive(Debug)]
pub(crate) struct Unexplained {
    pub(crate) trial: u32,
    pub(crate) stall: Stall,
    /// The longest stage of its longest message, ns.
    pub(crate) stage: Option<(String, u64)>,
    /// Doubts of the trial about itself.
    pub(crate) doubts: Vec<String>,
}

/// Messages of neighbouring index, over all trials. The extremes are kept, so no outlier is hidden.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) index: f64,
    pub(crate) min_ns: f64,
    pub(crate) median_ns: f64,
    pub(crate) max_ns: f64,
    pub(crate) lost: u64,
}

impl PageCell {
    pub(crate) fn id(&self) -> &CellId {
        &self.result.cell
    }

    /// Every time that a drawing of its distribution reaches, ns: also how old messages without an answer are.
    pub(crate) fn reached_ns(&self) -> impl Iterator<Item = f64> {
        let of = &self.result.figures;
        let figures = [of.min, of.p50, of.p90, of.p99, of.p999, of.max_answered, of.max];
        // Where a message was lost there is no max, and the last bin holds the oldest.
        let oldest = self.bins.last().map(|bin| bin.low_ns);
        figures.into_iter().flatten().map(|ns| ns.max(1) as f64).chain(oldest)
    }
}

/// All cells in the order of measurement.
pub(crate) fn load(run: &Run, summary: &Summary) -> Result<Vec<PageCell>, StoreError> {
    let ids = run.cells();
    let wakes = wakes(&ids);
    let mut cells = Vec::with_capacity(ids.len());
    for id in &ids {
        let trials = run.load(id)?;
        let numbers: Vec<u32> = run.trials_of(id).map(|t| t.trial).collect();
        let stored = summary.results.iter().find(|r| r.cell == *id).cloned();
        let result = stored.unwrap_or_else(|| CellResult::of(id, &trials, run.header.warmup));
        let colour = wakes.iter().position(|w| *w == id.wake).unwrap_or(0) % COLOURS;
        cells.push(reduce(result, colour, &trials, &numbers, run.header.warmup));
    }
    Ok(cells)
}

/// The same wake has the same colour everywhere. Floors come last: their wakes are theirs alone.
fn wakes(ids: &[CellId]) -> Vec<&str> {
    let (floors, routes): (Vec<_>, Vec<_>) = ids.iter().partition(|id| id.is_floor());
    distinct(routes.into_iter().chain(floors).map(|id| id.wake.as_str()))
}

fn reduce(result: CellResult, colour: usize, trials: &[Samples], numbers: &[u32], warmup: u64) -> PageCell {
    let steady = Distribution::of(trials, Phase::Steady, warmup);
    let rule = steady.median_ns().map(StallRule::for_median);
    let stalls = rule.map_or_else(Vec::new, |rule| all_stalls(trials, numbers, result.cell.load, rule));
    PageCell {
        result,
        colour,
        bins: bins(steady.finite_ns(), BINS_PER_DECADE),
        ladder: ladder(&steady),
        start: buckets(trials),
        stalls,
    }
}

fn all_stalls(trials: &[Samples], numbers: &[u32], load: Load, rule: StallRule) -> Vec<Unexplained> {
    let of_trial = |(samples, &trial): (&Samples, &u32)| {
        let doubts: Vec<String> = samples.facts.doubts.iter().map(|doubt| doubt.what.clone()).collect();
        let found = stalls_with_rows(samples, load, rule, |_| true).into_iter().map(|(stall, row)| {
            let (stage, doubts) = (longest_stage(samples, row), doubts.clone());
            Unexplained { trial, stall, stage, doubts }
        });
        found.collect::<Vec<_>>()
    };
    trials.iter().zip(numbers).flat_map(of_trial).collect()
}

fn ladder(steady: &Distribution) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for step in 0..=6 * POINTS_PER_NINE {
        let nines = f64::from(step) / f64::from(POINTS_PER_NINE);
        let beyond = (1e6 * 10f64.powf(-nines)).round() as u64;
        let figure = Quantile::per_million(1_000_000 - beyond).and_then(|q| steady.quantile(q).ns());
        if let Some(ns) = figure {
            points.push((nines, ns as f64));
        }
    }
    points
}

/// Of all phases: the start is what this is for.
fn buckets(trials: &[Samples]) -> Vec<Bucket> {
    let mut rows: Vec<(u64, u64, Outcome)> = trials
        .iter()
        .flat_map(|t| (0..t.len()).map(|row| (t.index[row], t.total_ns[row], t.outcome[row])))
        .collect();
    rows.sort_unstable_by_key(|&(index, ns, _)| (index, ns));
    let bucket = |index: u64| ((index as f64 + 1.0).log10() * BUCKETS_PER_DECADE).floor();
    rows.chunk_by(|one, other| bucket(one.0) == bucket(other.0)).map(reduce_bucket).collect()
}

fn reduce_bucket(rows: &[(u64, u64, Outcome)]) -> Bucket {
    let is_finite = |outcome| matches!(outcome, Outcome::Answered | Outcome::Unfinished);
    let mut ns: Vec<u64> = rows.iter().filter(|r| is_finite(r.2)).map(|r| r.1).collect();
    ns.sort_unstable();
    let at = |place: usize| ns.get(place).map_or(f64::NAN, |&n| n as f64);
    Bucket {
        index: f64::midpoint(rows[0].0 as f64, rows[rows.len() - 1].0 as f64),
        min_ns: at(0),
        median_ns: at(ns.len() / 2),
        max_ns: at(ns.len().saturating_sub(1)),
        lost: (rows.len() - ns.len()) as u64,
    }
}
