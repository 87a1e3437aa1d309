//! Does `compare` keep its promise here? Identical runs compared with each other in every form, and with scaled copies of
//! themselves, which are a true change of known size.

use punctual_proto::sim::Rng;

use super::value::{RunValue, slowest_ns};
use super::verdict::Sides;
use super::{Options, Order, PAIRS_MIN, RESOLUTION_NS_MIN, Trials, common_rule, enough_for, judge};
use crate::sample::CellId;
use crate::stats::Squares;
use crate::store::{Run, StoreError};

/// Trials of a run that scatter less are a narrow cell.
const NARROW_LN: f64 = 0.03;

/// Cells compared, and those that were called different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All.
    pub cells: u64,
    /// Called different.
    pub differ: u64,
    /// Those of `cells` whose trials lie close together.
    pub narrow: u64,
    /// Of these, called different.
    pub narrow_differ: u64,
}

impl Tally {
    fn note(&mut self, narrow: bool, differs: bool) {
        self.cells += 1;
        self.differ += u64::from(differs);
        self.narrow += u64::from(narrow);
        self.narrow_differ += u64::from(narrow && differs);
    }
}

/// Identical runs, reduced to what comparisons look at.
#[derive(Debug)]
pub struct Calibration {
    /// Per cell: its options, whether it is narrow, a value per run.
    cells: Vec<(Options, bool, Vec<RunValue>)>,
    runs: usize,
}

/// Runs that are compared with each other, by their number in time.
struct Draw {
    a: Vec<usize>,
    b: Vec<usize>,
    history: Vec<usize>,
    order: Order,
}

impl Calibration {
    /// Reads the runs, which are all of the same thing, in the order of their starts.
    pub fn of(runs: &[Run]) -> Result<Self, StoreError> {
        let everywhere = |cell: &CellId| runs.iter().all(|run| run.trials_of(cell).next().is_some());
        let warmup = runs.iter().map(|run| run.header.warmup).max().unwrap_or(0);
        let resolution_ns = runs.iter().map(|run| run.header.clock.resolution_ns()).max().unwrap_or(0);
        let resolution_ns = resolution_ns.max(RESOLUTION_NS_MIN);
        let mut cells = Vec::new();
        for cell in runs.first().map(Run::cells).unwrap_or_default().into_iter().filter(everywhere) {
            let options = Options { resolution_ns, ..Options::new(cell.load, warmup) };
            let trials = runs.iter().map(|run| run.load(&cell)).collect::<Result<Vec<_>, _>>()?;
            let rule = common_rule(trials.iter(), warmup);
            let slowest_ns = slowest_ns(trials.iter(), warmup);
            let value = |run: &Trials| RunValue::of(run, rule, slowest_ns, &options);
            let values: Vec<RunValue> = trials.iter().map(value).collect();
            let medians = values.iter().map(|value| value.values[0].trials.as_slice());
            let narrow = Squares::of_groups(medians).deviation() < NARROW_LN;
            cells.push((options, narrow, values));
        }
        Ok(Self { cells, runs: runs.len() })
    }

    /// Compares every cell so often, B being scaled by `factor`.
    fn tally(&self, draws: u64, factor: f64, mut draw: impl FnMut(&mut Rng) -> Draw) -> Tally {
        let mut random = Rng::new(1);
        let mut tally = Tally::default();
        for _ in 0..draws {
            let Draw { a, b, history, order } = draw(&mut random);
            for (options, narrow, values) in &self.cells {
                let b = b.iter().map(|&run| values[run].scaled(factor)).collect();
                let sides = Sides { a: taken(values, &a), b, history: taken(values, &history) };
                let comparison = judge("", &sides, &Options { order, ..options.clone() });
                tally.note(*narrow, comparison.differs());
            }
        }
        tally
    }

    /// Two runs, of which nothing else is known.
    pub fn two_runs(&self, draws: u64, factor: f64) -> Tally {
        let all: Vec<usize> = (0..self.runs).collect();
        self.tally(draws, factor, |random| {
            let drawn = shuffled(&all, random);
            let (a, b) = (vec![drawn[0]], vec![drawn[1]]);
            Draw { a, b, history: Vec::new(), order: Order::Separate }
        })
    }

    /// Two runs, beside all others as the host's history.
    pub fn two_runs_and_history(&self, draws: u64, factor: f64) -> Tally {
        let all: Vec<usize> = (0..self.runs).collect();
        self.tally(draws, factor, |random| {
            let drawn = shuffled(&all, random);
            let (a, b, history) = (vec![drawn[0]], vec![drawn[1]], drawn[2..].to_vec());
            Draw { a, b, history, order: Order::Separate }
        })
    }

    /// So many runs of each side, in any order.
    ///
    /// # Panics
    /// If there are not as many runs.
    pub fn sides_of(&self, runs: usize, draws: u64, factor: f64) -> Tally {
        let all: Vec<usize> = (0..self.runs).collect();
        self.tally(draws, factor, |random| {
            let drawn = shuffled(&all, random);
            let (a, b) = (drawn[..runs].to_vec(), drawn[runs..2 * runs].to_vec());
            Draw { a, b, history: Vec::new(), order: Order::Separate }
        })
    }

    /// So many pairs of neighbours in time, as if they had been played in turn; A of each pair is drawn.
    ///
    /// # Panics
    /// If there are not as many runs.
    pub fn in_turn(&self, pairs: usize, draws: u64, factor: f64) -> Tally {
        self.tally(draws, factor, |random| self.pairs(pairs, random))
    }

    /// As many pairs in turn as `compare --interleave` makes unasked, if so many are there.
    pub fn in_turn_as_wanted(&self, draws: u64, factor: f64) -> Tally {
        self.tally(draws, factor, |random| {
            let mut pairs = self.pairs(self.runs / 2, random);
            let (all, mut made) = (pairs.a.len(), 0);
            let mut wanted = PAIRS_MIN.min(all);
            while wanted > made {
                made = wanted;
                wanted = self.pairs_wanted(&pairs, made).min(all);
            }
            pairs.a.truncate(made);
            pairs.b.truncate(made);
            pairs
        })
    }

    fn pairs_wanted(&self, pairs: &Draw, made: usize) -> usize {
        let needed = self.cells.iter().filter_map(|(options, _, values)| {
            let [a, b] = [&pairs.a, &pairs.b].map(|side| taken(values, &side[..made]));
            let sides = Sides { a, b, history: Vec::new() };
            if sides.is_unresolved(options.resolution_ns) { None } else { sides.pairs_needed(options) }
        });
        enough_for(needed.collect())
    }

    /// So many pairs of neighbours in time.
    fn pairs(&self, count: usize, random: &mut Rng) -> Draw {
        let all: Vec<usize> = (0..self.runs / 2).collect();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for pair in &shuffled(&all, random)[..count] {
            let swapped = random.below(2) as usize;
            a.push(2 * pair + swapped);
            b.push(2 * pair + 1 - swapped);
        }
        Draw { a, b, history: Vec::new(), order: Order::Interleaved }
    }

    /// Runs in it.
    pub fn runs(&self) -> usize {
        self.runs
    }
}

fn taken(values: &[RunValue], which: &[usize]) -> Vec<RunValue> {
    which.iter().map(|&run| values[run].clone()).collect()
}

fn shuffled(all: &[usize], random: &mut Rng) -> Vec<usize> {
    let mut drawn = all.to_vec();
    for last in (1..drawn.len()).rev() {
        drawn.swap(last, random.below(last as u64 + 1) as usize);
    }
    drawn
}
