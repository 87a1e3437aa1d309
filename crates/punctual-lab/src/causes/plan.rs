//! What is injected when: each row as often as the others, in an order, at instants and for times that follow from a seed.

use std::fmt;

use punctual_machine::cpu::allowed;
use punctual_proto::sim::Rng;

use crate::explain::cause::Definition;
use crate::explain::injection::{How, Injection};

/// The roles of both sides of a run.
pub(super) const ROLES: [&str; 2] = ["client", "responder"];

/// One thing that is injected: what, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What must be named.
    pub cause: &'static Definition,
    /// How it is made.
    pub injection: &'static Injection,
    /// 0 the client, 1 the responder; `None` is both at once.
    pub side: Option<usize>,
}

impl Row {
    /// Every injection, to each side.
    pub fn all() -> Vec<Self> {
        let sides = |how: &How| match how {
            How::OutsideBoth(_) => vec![None],
            How::Inside(_) | How::Outside(_) => vec![Some(0), Some(1)],
        };
        let rows = Injection::all().flat_map(|(cause, injection)| {
            sides(&injection.how).into_iter().map(move |side| Self { cause, injection, side })
        });
        rows.collect()
    }

    /// `hog@client`.
    pub fn name(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Some(side) => write!(f, "{}@{}", self.injection.name, ROLES[side]),
            None => f.write_str(self.injection.name),
        }
    }
}

/// One injection of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) row: Row,
    /// Time without any before it.
    pub(super) rest_ns: u64,
    pub(super) lasts_ns: u64,
}

/// Nothing is injected for so long before each: a stretch of a run in which nothing was made.
const REST_NS: (u64, u64) = (50_000_000, 130_000_000);

/// How long one lasts: shorter than a scheduler's turn, to several.
const LASTS_NS: (u64, u64) = (4_000_000, 40_000_000);

/// All injections in the order in which they are made.
pub(super) fn draw(rng: &mut Rng, rows: &[Row], each: usize) -> Vec<Planned> {
    let mut all: Vec<Row> = rows.iter().flat_map(|&row| std::iter::repeat_n(row, each)).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut between = |(low, high): (u64, u64)| low + rng.below(high - low + 1);
    all.into_iter()
        .map(|row| Planned { row, rest_ns: between(REST_NS), lasts_ns: between(LASTS_NS) })
        .collect()
}

/// The CPUs of both sides, if they differ.
pub(super) fn cpus() -> Option<[usize; 2]> {
    match allowed()[..] {
        [first, .., last] => Some([first, last]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a seed is a plan, and each row is in it as often as every other.
    #[test]
    fn a_plan_follows_from_its_seed() {
        let rows = Row::all();
        let plan = |seed| draw(&mut Rng::at(&[seed]), &rows, 3);
        let shown = |seed| format!("{:?}", plan(seed));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
        for row in &rows {
            let times = plan(7).iter().filter(|planned| planned.row.name() == row.name()).count();
            assert_eq!(times, 3, "{row}");
        }
        let (from, to) = LASTS_NS;
        assert!(plan(7).iter().all(|planned| (from..=to).contains(&planned.lasts_ns)));
    }
}
