//! A against B: a ratio with an interval per quantile, for the max and for stalls.
//!
//! Each side is one run or several. A difference is claimed only if the interval excludes equality *and* the ratio is large
//! enough to matter. The interval comes from how far runs of the same thing lie apart: see `verdict`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::doubt::{Cause, Doubt};
use crate::file::resolved;
use crate::sample::{CellId, Load, Samples};
use crate::stall::StallRule;
use crate::stats::Quantile;
use crate::store::{Run, StoreError};

mod arrivals;
mod calibration;
mod history;
mod lacking;
mod sentence;
mod value;
mod verdict;

use arrivals::doubts_of_arrivals;
pub use calibration::{Calibration, Tally};
pub use history::history_of;
use lacking::lacking;
use sentence::sentence;
use value::{RunValue, slowest_ns};
pub use verdict::Basis;
use verdict::Sides;

/// Fewer pairs give an interval, and a doubt.
pub const PAIRS_MIN: usize = 5;

/// Most pairs that are made unasked: an hour of quick surveys.
const PAIRS_MOST: usize = 40;

/// Order in which the runs of both sides were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A B B A …: run k of one side goes with run k of the other.
    Interleaved,
    /// One side after the other: a drift of the machine lies between them.
    Separate,
}

/// An aspect that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// Half are later.
    P50,
    /// One in ten is later.
    P90,
    /// One in a hundred is later.
    P99,
    /// One in a thousand is later.
    P999,
    /// The geometric mean of the maxima of the trials; infinite if a message had no right answer.
    Max,
    /// Standstills per minute.
    StallsPerMinute,
}

impl Aspect {
    /// In the order of tables.
    pub const ALL: [Self; 6] =
        [Self::P50, Self::P90, Self::P99, Self::P999, Self::Max, Self::StallsPerMinute];

    /// As a person reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::StallsPerMinute => "stalls/min",
        }
    }

    /// As a table has it: a mean of maxima may lie below a quantile of all messages.
    pub fn in_table(self) -> &'static str {
        match self {
            Self::Max => "max (mean of trials)",
            other => other.as_str(),
        }
    }

    fn quantile(self) -> Option<Quantile> {
        match self {
            Self::P50 => Some(Quantile::P50),
            Self::P90 => Some(Quantile::P90),
            Self::P99 => Some(Quantile::P99),
            Self::P999 => Some(Quantile::P999),
            Self::Max | Self::StallsPerMinute => None,
        }
    }

    /// Smaller ratios than this are no difference, however certain. Extremes repeat less well.
    fn ratio_min(self) -> f64 {
        match self {
            Self::Max | Self::StallsPerMinute => 1.25,
            _ => 1.05,
        }
    }
}

/// B seen from A. For stalls, faster means fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// None that these samples show.
    None,
    /// B is better.
    Faster,
    /// B is worse.
    Slower,
}

/// One aspect of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The measured aspect.
    pub aspect: Aspect,
    /// Nanoseconds, or stalls per minute; `None` if infinite.
    pub a: Option<f64>,
    /// The same of B.
    pub b: Option<f64>,
    /// B / A; `None` if one of them is infinite.
    pub ratio: Option<f64>,
    /// Where the ratio lies, all aspects together, 19 times of 20. An upper end of `None` is infinite.
    pub low: f64,
    /// Its upper end.
    pub high: Option<f64>,
    /// The verdict.
    pub difference: Difference,
}

/// A verdict on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The aspects that both samples support.
    pub measures: Vec<Measure>,
    /// Messages of A that never came, in any phase, as all of these.
    pub lost_a: u64,
    /// Messages of B that never came.
    pub lost_b: u64,
    /// Messages of A that got a wrong answer.
    #[serde(default)]
    pub mismatched_a: u64,
    /// Messages of B that got a wrong answer.
    #[serde(default)]
    pub mismatched_b: u64,
    /// Messages of A that the other side refused.
    #[serde(default)]
    pub refused_a: u64,
    /// Messages of B that the other side refused.
    #[serde(default)]
    pub refused_b: u64,
    /// Messages of A that arrived once more.
    #[serde(default)]
    pub duplicated_a: u64,
    /// Messages of B that arrived once more.
    #[serde(default)]
    pub duplicated_b: u64,
    /// Messages of A that arrived after a younger one.
    #[serde(default)]
    pub reordered_a: u64,
    /// Messages of B that arrived after a younger one.
    #[serde(default)]
    pub reordered_b: u64,
    /// Basis of the intervals.
    pub basis: Basis,
    /// Pairs of runs in turn that would find 10 % more of the median in four of five cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs_needed: Option<usize>,
    /// 10 % more of the median is less than ten clock steps: no number of pairs finds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unresolved: bool,
    /// All of it in one sentence.
    pub sentence: String,
    /// Doubts about it.
    pub doubts: Vec<Doubt>,
}

impl Comparison {
    /// Some aspect differs.
    pub fn differs(&self) -> bool {
        self.measures.iter().any(|m| m.difference != Difference::None)
    }

    /// Messages of A and of B without a right answer, by the way in which they ended.
    pub fn unanswered(&self) -> [(&'static str, [u64; 2]); 3] {
        [
            ("lost", [self.lost_a, self.lost_b]),
            ("answered wrongly", [self.mismatched_a, self.mismatched_b]),
            ("refused", [self.refused_a, self.refused_b]),
        ]
    }
}

/// Ten steps of a clock that counts nanoseconds: no other resolves more.
const RESOLUTION_NS_MIN: u64 = 10;

/// Facts that a comparison needs besides the samples.
#[derive(Clone, Debug)]
pub struct Options {
    /// Order in which both sides were taken.
    pub order: Order,
    /// Of both sides.
    pub load: Load,
    /// Messages of smaller index are not compared.
    pub warmup: u64,
    /// Differences of fewer nanoseconds are none: ten clock steps.
    pub resolution_ns: u64,
}

impl Options {
    /// Interleaved, with a resolution of 10 ns.
    pub fn new(load: Load, warmup: u64) -> Self {
        Self { order: Order::Interleaved, load, warmup, resolution_ns: RESOLUTION_NS_MIN }
    }
}

/// The trials of one run; of what is opened anew each time, a trial may count as a run of its own.
pub type Trials = Vec<Samples>;

/// Compares the steady states of one cell. `history` are other runs of the same thing, which say how far runs lie apart.
pub fn compare(
    subject: &str,
    a: &[Trials],
    b: &[Trials],
    history: &[Trials],
    options: &Options,
) -> Comparison {
    let rule = common_rule(a.iter().chain(b), options.warmup);
    let slowest_ns = slowest_ns(a.iter().chain(b).chain(history), options.warmup);
    let of = |runs: &[Trials]| -> Vec<RunValue> {
        runs.iter().map(|trials| RunValue::of(trials, rule, slowest_ns, options)).collect()
    };
    let mut sides = Sides { a: of(a), b: of(b), history: of(history) };
    let silent = sides.leave_out_silent(options.order);
    let mut comparison = judge(subject, &sides, options);
    if !silent.is_empty() {
        let in_turn = options.order == Order::Interleaved;
        let doubt = Cause::SilentRuns { subject: subject.to_owned(), runs: silent, in_turn };
        comparison.doubts.push(doubt.into());
    }
    let alone = a.len().abs_diff(b.len());
    if options.order == Order::Interleaved && alone > 0 {
        let side = if a.len() > b.len() { "A" } else { "B" };
        comparison.doubts.push(Cause::Unpaired { subject: subject.to_owned(), side, runs: alone }.into());
    }
    comparison
}

/// One rule for all, by the slowest median, so that a shift of the body is not a thousand stalls.
fn common_rule<'a>(runs: impl Iterator<Item = &'a Trials>, warmup: u64) -> Option<StallRule> {
    runs.filter_map(|trials| StallRule::for_trials(trials, warmup)).max_by_key(|rule| rule.threshold_ns)
}

fn judge(subject: &str, sides: &Sides, options: &Options) -> Comparison {
    let measures = sides.measures(options);
    let basis = sides.basis(options.order);
    let subject = || subject.to_owned();
    let mut doubts: Vec<Doubt> = Vec::new();
    if let Basis::Pairs(pairs) = basis
        && pairs < PAIRS_MIN
    {
        doubts.push(Cause::FewPairs { subject: subject(), pairs, pairs_min: PAIRS_MIN }.into());
    }
    let per_run = |runs: &[RunValue]| runs.iter().map(|r| r.messages).sum::<u64>() / runs.len().max(1) as u64;
    let [a, b] = [&sides.a, &sides.b].map(|runs| per_run(runs));
    if a.abs_diff(b) * 10 > a.max(b) {
        doubts.push(Cause::UnequalCounts { subject: subject(), a, b }.into());
    }
    if options.order == Order::Separate {
        doubts.push(Cause::NotInterleaved.into());
    }
    if basis == Basis::Bound {
        doubts.push(Cause::DriftUnknown.into());
    }
    let count = |of: fn(&RunValue) -> u64| {
        [&sides.a, &sides.b].map(|runs| runs.iter().fold(0, |sum: u64, run| sum.saturating_add(of(run))))
    };
    let [lost_a, lost_b] = count(|run| run.lost);
    let [mismatched_a, mismatched_b] = count(|run| run.mismatched);
    let [refused_a, refused_b] = count(|run| run.refused);
    let [duplicated_a, duplicated_b] = count(|run| run.duplicated);
    let [reordered_a, reordered_b] = count(|run| run.reordered);
    let mut comparison = Comparison {
        lost_a,
        lost_b,
        mismatched_a,
        mismatched_b,
        refused_a,
        refused_b,
        duplicated_a,
        duplicated_b,
        reordered_a,
        reordered_b,
        basis,
        pairs_needed: sides.pairs_needed(options),
        is_unresolved: sides.is_unresolved(options.resolution_ns),
        sentence: String::new(),
        measures,
        doubts,
    };
    comparison.sentence = sentence(&comparison, options.resolution_ns);
    comparison
}

/// One cell of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellComparison {
    /// The cell.
    pub cell: CellId,
    /// The verdict on it.
    pub comparison: Comparison,
}

/// Two sides of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// Runs of A, of B, and others of the same host that say how far runs lie apart.
    pub runs: [usize; 3],
    /// Order in which they were taken.
    pub order: Order,
    /// The cells that all runs of both sides have, in the order of the first.
    pub cells: Vec<CellComparison>,
    /// Doubts that concern all of them.
    pub doubts: Vec<Doubt>,
}

impl RunComparison {
    /// Pairs of runs in turn that would find 10 % more of the median in four of five cases: in half of the cells, and in
    /// nine of ten of those where the clock does not hide it.
    pub fn pairs_needed(&self) -> Option<[usize; 2]> {
        half_and_nine_of_ten(self.resolved().filter_map(|one| one.pairs_needed).collect())
    }

    /// Cells in which the clock hides 10 % of the median: no number of pairs finds it.
    pub fn unresolved(&self) -> usize {
        self.cells.len() - self.resolved().count()
    }

    fn resolved(&self) -> impl Iterator<Item = &Comparison> {
        self.cells.iter().map(|cell| &cell.comparison).filter(|one| !one.is_unresolved)
    }

    /// Number of pairs to be made, as far as those that were made can tell: as many as find 10 % more of the median in nine cells of
    /// ten. It looks at how far pairs lie apart, never at which side is faster, so to stop there errs no more often. Cells in which the
    /// clock hides it want no pair: none would help them.
    pub fn pairs_wanted(&self) -> usize {
        enough_for(self.resolved().filter_map(|one| one.pairs_needed).collect())
    }

    /// Cells of which some aspect differs.
    pub fn differing(&self) -> usize {
        self.cells.iter().filter(|cell| cell.comparison.differs()).count()
    }
}

/// Number of pairs that suffices for half of the cells, and for nine of ten.
fn half_and_nine_of_ten(mut needed: Vec<usize>) -> Option<[usize; 2]> {
    needed.sort_unstable();
    let last = needed.len().checked_sub(1)?;
    Some([needed[last / 2], needed[(last * 9).div_ceil(10)]])
}

/// The pairs that suffice for nine cells of ten, within bounds; the fewest if no cell says how many it needs.
fn enough_for(needed: Vec<usize>) -> usize {
    half_and_nine_of_ten(needed).map_or(PAIRS_MIN, |[_, nine_of_ten]| nine_of_ten.min(PAIRS_MOST))
}

/// Order of the runs, as their starts say: taken in turn if both of a pair began before both of the next.
pub fn order_of(a: &[Run], b: &[Run]) -> Order {
    let started = |run: &Run| run.header.started.clone();
    let pairs: Vec<[String; 2]> = a.iter().zip(b).map(|(a, b)| [started(a), started(b)]).collect();
    let in_turn = pairs.windows(2).all(|two| two[0].iter().max() < two[1].iter().min());
    if a.len() == b.len() && a.len() > 1 && in_turn { Order::Interleaved } else { Order::Separate }
}

/// Compares what all runs of both sides measured. `history` is as [`history_of`] found it.
///
/// # Panics
/// If a side has no run.
pub fn compare_runs(
    a: &[Run],
    b: &[Run],
    history: &[Run],
    order: Order,
) -> Result<RunComparison, StoreError> {
    assert!(!a.is_empty() && !b.is_empty(), "a side without a run");
    let both = || a.iter().chain(b);
    let warmup = both().map(|run| run.header.warmup).max().unwrap_or(0);
    let resolution_ns = both().map(|run| run.header.clock.resolution_ns()).max().unwrap_or(0);
    let resolution_ns = resolution_ns.max(RESOLUTION_NS_MIN);
    let mut doubts: Vec<Doubt> = Vec::new();
    let everywhere = |cell: &CellId| both().all(|run| run.trials_of(cell).next().is_some());
    let mut cells = Vec::new();
    for cell in a[0].cells().into_iter().filter(everywhere) {
        let options = Options { order, resolution_ns, ..Options::new(cell.load, warmup) };
        let load = |runs: &[Run]| runs.iter().map(|run| run.load(&cell)).collect::<Result<Vec<_>, _>>();
        let comparison = compare(&cell.to_string(), &load(a)?, &load(b)?, &load(history)?, &options);
        // A cell without a difference is not shown, and these are no difference.
        doubts.extend(doubts_of_arrivals(&cell, &comparison));
        cells.push(CellComparison { cell, comparison });
    }
    // A doubt about every cell is stated once.
    for shared in [Cause::NotInterleaved, Cause::DriftUnknown].map(Doubt::from) {
        if cells.iter().any(|cell| cell.comparison.doubts.contains(&shared)) {
            cells.iter_mut().for_each(|cell| cell.comparison.doubts.retain(|doubt| *doubt != shared));
            doubts.push(shared);
        }
    }
    let mut all: Vec<CellId> = both().flat_map(Run::cells).collect();
    all.sort_unstable();
    all.dedup();
    let count = all.len() - cells.len();
    if count > 0 {
        doubts.push(Cause::Unmatched { count }.into());
    }
    doubts.extend(on_both_sides(a, b));
    doubts.extend(differing_hosts(&a[0], both().skip(1)));
    doubts.extend(lacking(&both().collect::<Vec<_>>()));
    Ok(RunComparison { runs: [a.len(), b.len(), history.len()], order, cells, doubts })
}

/// Runs that are compared with themselves.
fn on_both_sides(a: &[Run], b: &[Run]) -> Option<Doubt> {
    let of_b: Vec<PathBuf> = b.iter().map(|run| resolved(&run.path)).collect();
    let runs: Vec<String> = a
        .iter()
        .filter(|run| of_b.contains(&resolved(&run.path)))
        .map(|run| run.path.display().to_string())
        .collect();
    (!runs.is_empty()).then(|| Cause::OnBothSides { runs }.into())
}

/// Every run beside the first: those of its own side, too.
fn differing_hosts<'a>(a: &Run, others: impl Iterator<Item = &'a Run>) -> Vec<Doubt> {
    let facts = |run: &Run| {
        let host = &run.header.host;
        [
            ("processor", host.cpu.clone()),
            ("processors", host.cpus.to_string()),
            ("kernel", host.kernel.clone()),
        ]
    };
    let mut doubts: Vec<Doubt> = Vec::new();
    for other in others {
        for ((what, one), (_, other)) in facts(a).into_iter().zip(facts(other)) {
            let doubt = Cause::HostsDiffer { what: format!("{what} {one} against {other}") }.into();
            if one != other && !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    doubts
}
