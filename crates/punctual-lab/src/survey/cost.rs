//! Cost of the library: its median against the bare mechanism's, opening by opening.
//!
//! Where a mechanism's memory lies moves a bare slot from 0.29 to 0.44 µs. So one opening is one sample: both are opened anew
//! in every trial, one right after the other, and the interval is over openings.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::plan::{BESIDE_FLOORS, Manner, SurveyCell, SurveyRoute};
use crate::doubt::Cause;
use crate::sample::{CellId, Kind, Phase};
use crate::stats::{Distribution, Ratio};
use crate::store::CellRead;

/// A ratio that is known to this has two decimals; others have one.
const WIDTH_FINE: f64 = 0.1;

/// One route against its floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LibraryCost {
    /// The route, without stamps.
    pub name: String,
    /// The bare mechanism.
    pub floor: String,
    /// Idle gap of both.
    pub gap_us: u64,
    /// Geometric mean of the openings' ratios.
    pub ratio: f64,
    /// Where it lies, 19 times of 20; `None` of one opening.
    pub interval: Option<[f64; 2]>,
    /// Number of times that both were opened.
    pub openings: usize,
}

impl LibraryCost {
    /// From the ratio of each opening; `None` without any.
    pub(super) fn of((name, floor, gap_us): (&str, &str, u64), ratios: &[f64]) -> Option<Self> {
        let Ratio { ratio, interval, openings } = Ratio::of(ratios)?;
        let (name, floor) = (name.to_owned(), floor.to_owned());
        Some(Self { name, floor, gap_us, ratio, interval, openings })
    }
}

/// "shared/spin 1.6 × floor/slot (1.3 to 2.0, 5 openings)".
impl fmt::Display for LibraryCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, floor, ratio, openings, .. } = self;
        match self.interval {
            Some([low, high]) => {
                let digits = if high - low <= WIDTH_FINE { 2 } else { 1 };
                write!(
                    f,
                    "{name} {ratio:.digits$} × {floor} ({low:.digits$} to {high:.digits$}, {openings} openings)"
                )
            }
            None => write!(f, "{name} {ratio:.1} × {floor} (one opening, so no interval)"),
        }
    }
}

/// Steady medians of the openings of every cell that has a floor or is one, by trial; none where half of the messages never came.
#[derive(Debug, Default)]
pub(super) struct Openings {
    medians: HashMap<CellId, BTreeMap<u32, Option<f64>>>,
}

impl Openings {
    /// Takes the medians of a cell that is in memory.
    pub(super) fn add(&mut self, read: CellRead<'_>) {
        if !BESIDE_FLOORS.iter().any(|&pair| cells(pair).contains(read.cell)) {
            return;
        }
        let medians = self.medians.entry(read.cell.clone()).or_default();
        for (trial, samples) in read.trials.iter().zip(read.samples) {
            let steady =
                Distribution::of(std::slice::from_ref(samples), Phase::Steady, read.run.header.warmup);
            // A trial without a steady message has measured nothing, and zero has no ratio.
            if steady.count() > 0 && steady.median_ns() != Some(0) {
                medians.insert(trial.trial, steady.median_ns().map(|ns| ns as f64));
            }
        }
    }

    /// Every route that was measured beside its floor, and why others have no ratio.
    pub(super) fn costs(&self) -> (Vec<LibraryCost>, Vec<Cause>) {
        let (mut costs, mut infinite) = (Vec::new(), Vec::new());
        for pair in BESIDE_FLOORS {
            match self.cost(pair) {
                Ok(cost) => costs.extend(cost),
                Err(cause) => infinite.push(cause),
            }
        }
        (costs, infinite)
    }

    /// An opening in which half of the messages never came is the worst one: without it the others would be too good.
    fn cost(&self, pair: (SurveyRoute, SurveyRoute, u64)) -> Result<Option<LibraryCost>, Cause> {
        let [ours, floor] = cells(pair);
        let (Some(of_ours), Some(of_floor)) = (self.medians.get(&ours), self.medians.get(&floor)) else {
            return Ok(None);
        };
        let pairs: Vec<_> =
            of_ours.iter().filter_map(|(trial, ns)| Some((ns, of_floor.get(trial)?))).collect();
        let ratios: Vec<f64> =
            pairs.iter().filter_map(|(ours, floor)| Some((**ours)? / (**floor)?)).collect();
        if ratios.len() < pairs.len() {
            let openings = pairs.len() - ratios.len();
            return Err(Cause::NoRatio { subject: ours.name, floor: floor.name, openings });
        }
        Ok(LibraryCost::of((&ours.name, &floor.name, pair.2), &ratios))
    }
}

/// The cell of ours, and that of its floor.
fn cells((ours, floor, gap_us): (SurveyRoute, SurveyRoute, u64)) -> [CellId; 2] {
    let id = |route, manner| SurveyCell::closed(route, gap_us, manner).id(Kind::RoundTrip);
    [id(ours, Manner::Plain), id(floor, Manner::Usual)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Outcome, Samples};
    use crate::store::{Header, Store};

    /// Goal: the interval is over openings. Method: five openings that lie far apart, as they were seen.
    #[test]
    fn openings_that_differ_make_a_wide_interval() {
        let pair = ("shared/spin+plain", "floor/slot", 0);
        let wide = LibraryCost::of(pair, &[1.22, 2.58, 1.57, 1.11, 1.9]).unwrap();
        let [low, high] = wide.interval.unwrap();
        assert!(low < 1.2 && high > 2.0 && wide.openings == 5, "{wide:?}");
        assert!(wide.to_string().starts_with("shared/spin+plain 1.6 × floor/slot (1."), "{wide}");
        let narrow = LibraryCost::of(pair, &[1.11, 1.12, 1.1, 1.11, 1.11]).unwrap();
        assert_eq!(narrow.to_string(), "shared/spin+plain 1.11 × floor/slot (1.10 to 1.12, 5 openings)");
        let one = LibraryCost::of(pair, &[1.1]).unwrap();
        assert!(one.interval.is_none() && one.to_string().contains("no interval"), "{one}");
        assert_eq!(LibraryCost::of(pair, &[]), None);
    }

    /// Goal: an opening of which half of the messages never came is not left out as if it had not been: there is no ratio then, and a
    /// doubt says why. Method: of three openings of a route and its floor one loses most of its messages, on either side or none.
    #[test]
    fn an_infinite_opening_leaves_no_ratio() {
        let pair = BESIDE_FLOORS[0];
        let [ours, floor] = cells(pair);
        for (lossy, expected) in [(None, true), (Some(&ours), false), (Some(&floor), false)] {
            let folder = tempfile::tempdir().expect("room");
            let mut store =
                Store::import(Some(&folder.path().join("run")), &Header::new("survey")).expect("room");
            for trial in 0..3 {
                for (cell, ns) in [(&ours, 300), (&floor, 200)] {
                    let mut samples = Samples::default();
                    for index in 1..40 {
                        let is_lost = lossy == Some(cell) && trial == 1 && index > 10;
                        let outcome = if is_lost { Outcome::Lost } else { Outcome::Answered };
                        samples.push(index, index * 1_000, index * 1_000, ns, outcome);
                    }
                    store.append(cell, trial, &samples).expect("room");
                }
            }
            let mut openings = Openings::default();
            let add = |read: CellRead<'_>| {
                openings.add(read);
                Ok(())
            };
            store.summary_with(add).expect("readable");
            let (costs, doubts) = openings.costs();
            assert_eq!((costs.len(), doubts.len()), if expected { (1, 0) } else { (0, 1) }, "{lossy:?}");
            assert!(costs.iter().all(|cost| cost.openings == 3 && (cost.ratio - 1.5).abs() < 1e-9));
            let said =
                "shared/spin+plain: half of the messages never came in 1 opening of it or of floor/slot";
            assert!(doubts.iter().all(|doubt| doubt.to_string().starts_with(said)), "{doubts:?}");
        }
    }
}
