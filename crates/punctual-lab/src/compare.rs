//! A against B: a ratio with an interval per quantile, for the max and for stalls.
//!
//! A difference is claimed only if the interval excludes equality *and* the ratio is large enough to matter.
//! The interval is the bootstrap's standard error times Student's t, corrected for the six measures that are
//! looked at: with five trials a bare percentile interval would be wrong one time in four.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::doubt::{Cause, Doubt};
use crate::sample::{CellId, Load, Samples};
use crate::stats::Quantile;
use crate::store::{Run, StoreError};

mod side;

use side::{Pair, Side};

/// Fewer pairs give an interval, and a doubt.
pub const TRIALS_MIN: usize = 5;

/// How the trials of both sides were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A B A B …: trial k of one side goes with trial k of the other.
    Interleaved,
    /// One side after the other: a drift of the machine between them is added to the interval.
    Separate,
}

/// What is looked at.
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
    /// The geometric mean of the maxima of the trials.
    Max,
    /// Standstills per minute.
    StallsPerMinute,
}

impl Aspect {
    /// In the order of tables.
    pub const ALL: [Self; 6] =
        [Self::P50, Self::P90, Self::P99, Self::P999, Self::Max, Self::StallsPerMinute];

    /// As a person reads it.
    #[must_use]
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
    /// Which.
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
    /// Messages of A that never came.
    pub lost_a: u64,
    /// Messages of B that never came.
    pub lost_b: u64,
    /// All of it in one sentence.
    pub sentence: String,
    /// What may be wrong with it.
    pub doubts: Vec<Doubt>,
}

impl Comparison {
    /// Some aspect differs.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.measures.iter().any(|m| m.difference != Difference::None)
    }
}

/// What a comparison needs to know besides the samples.
#[derive(Clone, Debug)]
pub struct Options {
    /// How both sides were taken.
    pub order: Order,
    /// Of both sides.
    pub load: Load,
    /// Messages of smaller index are not compared.
    pub warmup: u64,
    /// Repeats the verdict.
    pub seed: u64,
    /// Differences of fewer nanoseconds are none: ten clock steps.
    pub resolution_ns: u64,
    /// How often the trials are drawn again.
    pub resamples: usize,
}

impl Options {
    /// Interleaved, with 2,000 resamples and a resolution of 10 ns.
    #[must_use]
    pub fn new(load: Load, warmup: u64) -> Self {
        Self { order: Order::Interleaved, load, warmup, seed: 1, resolution_ns: 10, resamples: 2000 }
    }
}

/// Compares the steady states.
#[must_use]
pub fn compare(subject: &str, a: &[Samples], b: &[Samples], options: &Options) -> Comparison {
    let rule = side::common_rule(a, b, options.warmup);
    let pair = Pair { a: Side::new(a, rule, options), b: Side::new(b, rule, options) };
    let measures = pair.measures(options);
    let mut doubts: Vec<Doubt> = Vec::new();
    let trials = pair.a.trials().min(pair.b.trials());
    if trials < TRIALS_MIN {
        let subject = subject.to_owned();
        doubts.push(Cause::FewTrials { subject, trials, trials_min: TRIALS_MIN }.into());
    }
    let (count_a, count_b) = (pair.a.messages(), pair.b.messages());
    if count_a.abs_diff(count_b) * 10 > count_a.max(count_b) {
        let subject = subject.to_owned();
        doubts.push(Cause::UnequalCounts { subject, a: count_a, b: count_b }.into());
    }
    if options.order == Order::Separate {
        doubts.push(Cause::NotInterleaved.into());
    }
    let (lost_a, lost_b) = (pair.a.infinite, pair.b.infinite);
    let sentence = sentence(&measures, trials, [lost_a, lost_b]);
    Comparison { measures, lost_a, lost_b, sentence, doubts }
}

/// One cell of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellComparison {
    /// Which.
    pub cell: CellId,
    /// The verdict on it.
    pub comparison: Comparison,
}

/// Two runs taken at different times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// The cells that both runs have, in the order of the first.
    pub cells: Vec<CellComparison>,
    /// What concerns all of them.
    pub doubts: Vec<Doubt>,
}

/// Compares what both runs measured. They were not interleaved, and the result says so.
///
/// # Errors
/// A file of samples can no longer be read.
pub fn compare_runs(a: &Run, b: &Run) -> Result<RunComparison, StoreError> {
    let (cells_a, cells_b) = (a.cells(), b.cells());
    let mut doubts: Vec<Doubt> = vec![Cause::NotInterleaved.into()];
    let warmup = a.header.warmup.max(b.header.warmup);
    let steps = a.header.clock.step_ns.max(b.header.clock.step_ns);
    let mut cells = Vec::new();
    for cell in cells_a.iter().filter(|cell| cells_b.contains(cell)) {
        let options = Options {
            order: Order::Separate,
            seed: a.header.seed,
            resolution_ns: 10 * steps.max(1),
            ..Options::new(cell.load, warmup)
        };
        let mut comparison = compare(&cell.name, &a.load(cell)?, &b.load(cell)?, &options);
        comparison.doubts.retain(|doubt| !doubts.contains(doubt));
        cells.push(CellComparison { cell: cell.clone(), comparison });
    }
    let count = cells_a.len() + cells_b.len() - 2 * cells.len();
    if count > 0 {
        doubts.push(Cause::Unmatched { count }.into());
    }
    let (host_a, host_b) = (&a.header.host, &b.header.host);
    for (what, one, other) in [
        ("processor", &host_a.cpu, &host_b.cpu),
        ("kernel", &host_a.kernel, &host_b.kernel),
        ("scheduler", &host_a.scheduler, &host_b.scheduler),
    ] {
        if one != other {
            doubts.push(Cause::HostsDiffer { what: format!("{what} {one} against {other}") }.into());
        }
    }
    Ok(RunComparison { cells, doubts })
}

fn sentence(measures: &[Measure], trials: usize, lost: [u64; 2]) -> String {
    let of = |difference| {
        measures.iter().filter(move |m| m.difference == difference).map(phrase).collect::<Vec<_>>()
    };
    let (faster, slower) = (of(Difference::Faster), of(Difference::Slower));
    let mut text = match (faster.is_empty(), slower.is_empty()) {
        (true, true) if trials < 2 => {
            "Cannot say: a verdict needs at least two trials of each side".to_owned()
        }
        (true, true) => match seen(measures) {
            Some(percent) => format!("No difference; a change of p50 by {percent:.0} % would have been seen"),
            None => "No difference that these samples can show".to_owned(),
        },
        (false, true) => format!("B is faster: {}", faster.join(", ")),
        (true, false) => format!("B is slower: {}", slower.join(", ")),
        (false, false) => format!("B is faster: {}; but slower: {}", faster.join(", "), slower.join(", ")),
    };
    if lost != [0, 0] {
        let _ = write!(text, "; A lost {}, B lost {}", lost[0], lost[1]);
    }
    text + "."
}

fn phrase(measure: &Measure) -> String {
    let name = measure.aspect.as_str();
    match (measure.aspect, measure.ratio) {
        (Aspect::StallsPerMinute, _) => {
            format!("{name} {:.1} → {:.1}", measure.a.unwrap_or(0.0), measure.b.unwrap_or(0.0))
        }
        (_, None) => format!("{name} infinite on one side: messages are lost"),
        (_, Some(ratio)) if ratio >= 2.0 => format!("{name} ×{ratio:.1}"),
        (_, Some(ratio)) => format!("{name} {:+.0} %", (ratio - 1.0) * 100.0),
    }
}

/// The change of the median, in percent, that the interval would not have hidden.
fn seen(measures: &[Measure]) -> Option<f64> {
    let p50 = measures.iter().find(|m| m.aspect == Aspect::P50)?;
    let width = (p50.high? / p50.ratio?).max(p50.aspect.ratio_min());
    (width < 10.0).then(|| ((width - 1.0) * 100.0).ceil())
}
