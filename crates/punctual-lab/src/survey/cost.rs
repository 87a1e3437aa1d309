//! Cost of the library: its median against the bare mechanism's, opening by opening.
//!
//! Where a mechanism's memory lies moves a bare slot from 0.29 to 0.44 µs. So one opening is one sample: both are opened anew
//! in every trial, one right after the other, and the interval is over openings.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::plan::{BESIDE_FLOORS, Manner, SurveyCell, SurveyRoute};
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

/// Steady medians of the openings of every cell that has a floor or is one, by trial.
#[derive(Debug, Default)]
pub(super) struct Openings {
    medians: HashMap<CellId, BTreeMap<u32, f64>>,
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
            if let Some(ns) = steady.median_ns().filter(|&ns| ns > 0) {
                medians.insert(trial.trial, ns as f64);
            }
        }
    }

    /// Every route that was measured beside its floor.
    pub(super) fn costs(&self) -> Vec<LibraryCost> {
        BESIDE_FLOORS.into_iter().filter_map(|pair| self.cost(pair)).collect()
    }

    fn cost(&self, pair: (SurveyRoute, SurveyRoute, u64)) -> Option<LibraryCost> {
        let [ours, floor] = cells(pair);
        let (of_ours, of_floor) = (self.medians.get(&ours)?, self.medians.get(&floor)?);
        let ratios: Vec<f64> =
            of_ours.iter().filter_map(|(trial, ns)| Some(ns / of_floor.get(trial)?)).collect();
        LibraryCost::of((&ours.name, &floor.name, pair.2), &ratios)
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
}
