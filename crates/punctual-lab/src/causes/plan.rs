//! The plan of injections: each row as often as the others, in an order, at instants and for times that follow from a seed.

use std::fmt;

use punctual_proto::sim::Rng;

use super::victim::{Condition, InjectedExperiment, Victim};
use crate::explain::cause::Definition;
use crate::explain::injection::{How, Injection, Mishap, Needs};

/// One thing that is injected, and its target.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The cause that must be named.
    pub cause: &'static Definition,
    /// The way to make it.
    pub injection: &'static Injection,
    /// In a run of which experiment.
    pub experiment: InjectedExperiment,
    /// 0 or 1 of its sides; `None` is both at once.
    pub side: Option<usize>,
}

impl Row {
    /// Every injection, to each side, of these experiments. Causes that a thread makes itself are made where threads follow a plan.
    pub fn all(experiments: &[InjectedExperiment]) -> Vec<Self> {
        let sides = |how: &How, experiment: InjectedExperiment| match how {
            How::OutsideBoth(_) => vec![None],
            How::Outside(_) => vec![Some(0), Some(1)],
            How::Inside(_) if experiment == InjectedExperiment::Response => vec![Some(0), Some(1)],
            How::OutsideUrgent(_) if experiment == InjectedExperiment::Response => vec![Some(1)],
            How::Inside(_) | How::OutsideUrgent(_) | How::AtStart => Vec::new(),
        };
        let of = |experiment: InjectedExperiment| {
            Injection::all().flat_map(move |(cause, injection)| {
                let sides = sides(&injection.how, experiment);
                sides.into_iter().map(move |side| Self { cause, injection, experiment, side })
            })
        };
        experiments.iter().flat_map(|&experiment| of(experiment)).collect()
    }

    /// In which run it can be made.
    pub(super) fn victim(&self) -> Victim {
        let condition = match self.injection.how {
            How::Inside(_) if self.injection.needs == Needs::MemoryLimit => Condition::Member,
            How::Inside(_) | How::Outside(_) | How::AtStart => Condition::Ordinary,
            How::OutsideBoth(_) => Condition::Member,
            How::OutsideUrgent(_) => Condition::Urgent,
        };
        Victim { experiment: self.experiment, condition }
    }

    /// Bounds of the duration of one.
    fn lasts_ns(&self) -> (u64, u64) {
        if self.victim().condition == Condition::Urgent { LIMIT_NS } else { LASTS_NS }
    }

    /// `hog@client`, `hog@survey client`.
    pub fn name(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, sides) = (self.injection.name, self.experiment.sides());
        let of = match self.experiment {
            InjectedExperiment::Response => "",
            InjectedExperiment::Survey => "survey",
            InjectedExperiment::Vehicles => "vehicles",
            InjectedExperiment::Server => "server",
            InjectedExperiment::Broadcast => "broadcast",
        };
        match (self.experiment, self.side) {
            (InjectedExperiment::Response, None) => f.write_str(name),
            (
                InjectedExperiment::Response | InjectedExperiment::Vehicles | InjectedExperiment::Broadcast,
                Some(side),
            ) => {
                write!(f, "{name}@{}", sides[side])
            }
            (_, Some(side)) => write!(f, "{name}@{of} {}", sides[side]),
            (_, None) => write!(f, "{name}@{of}"),
        }
    }
}

/// One injection of a plan, or two at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) row: Row,
    /// Made with it, of the same side, for a third of its time.
    pub(super) with: Option<Row>,
    /// Time without any before it.
    pub(super) rest_ns: u64,
    pub(super) lasts_ns: u64,
}

/// An injection at instants.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) planned: Planned,
    /// Of `row`, and of `with`.
    pub(super) mishaps: Vec<Mishap>,
    pub(super) until_ns: u64,
}

/// Nothing is injected for so long before each: a stretch of a run in which nothing was made.
const REST_NS: (u64, u64) = (50_000_000, 130_000_000);

/// Duration of one: from less than a scheduler's turn to several.
const LASTS_NS: (u64, u64) = (4_000_000, 40_000_000);

/// A second and more: until the kernel's limit has been reached once.
const LIMIT_NS: (u64, u64) = (1_300_000_000, 1_500_000_000);

/// The longer of two at once, so long that the shorter is no shorter than any.
const LONGER_NS: (u64, u64) = (12_000_000, 36_000_000);

/// Injections, each so often, in the order in which they are made.
pub(super) fn draw(rng: &mut Rng, wanted: &[(Row, usize)]) -> Vec<Planned> {
    let mut all: Vec<Row> = wanted.iter().flat_map(|&(row, times)| std::iter::repeat_n(row, times)).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mut between = |(low, high): (u64, u64)| low + rng.below(high - low + 1);
    all.into_iter()
        .map(|row| Planned { row, with: None, rest_ns: between(REST_NS), lasts_ns: between(row.lasts_ns()) })
        .collect()
}

/// So many of two at once.
pub(super) fn draw_pairs(rng: &mut Rng, rows: &[Row], count: usize) -> Vec<Planned> {
    let pairs: Vec<(Row, Row)> = rows
        .iter()
        .flat_map(|&longer| rows.iter().map(move |&shorter| (longer, shorter)))
        .filter(|(longer, shorter)| are_possible_at_once(longer, shorter))
        .collect();
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut below = |size: u64| rng.below(size);
    let mut one = || {
        let (row, with) = pairs[below(pairs.len() as u64) as usize];
        let mut between = |(low, high): (u64, u64)| low + below(high - low + 1);
        Planned { row, with: Some(with), rest_ns: between(REST_NS), lasts_ns: between(LONGER_NS) }
    };
    (0..count).map(|_| one()).collect()
}

/// Of two causes, to one side: a thread makes one after the other within one message. A cause from outside falls into a time in which
/// the thread computes, because a sleeping thread is not kept from sleeping.
fn are_possible_at_once(one: &Row, other: &Row) -> bool {
    let is_inside = |row: &Row| matches!(row.injection.how, How::Inside(_));
    let computes = |row: &Row| ["compute", "first-touch"].contains(&row.injection.name);
    let fit = match (is_inside(one), is_inside(other)) {
        (true, true) => true,
        (true, false) => computes(one),
        (false, true) => computes(other),
        (false, false) => false,
    };
    let is_ordinary = |row: &&Row| {
        row.victim() == Victim { experiment: InjectedExperiment::Response, condition: Condition::Ordinary }
    };
    let fit = fit && [one, other].iter().all(is_ordinary);
    fit && one.side.is_some() && one.side == other.side && one.cause.name != other.cause.name
}

impl Planned {
    /// At this instant.
    pub(super) fn at(self, at_ns: u64) -> Timed {
        let mishap = |row: &Row, from_ns: u64, lasts_ns: u64| Mishap {
            injection: row.injection.name.to_owned(),
            side: row.side.unwrap_or(0),
            at_ns: from_ns,
            until_ns: from_ns + lasts_ns,
        };
        let Some(with) = &self.with else {
            let mishaps = vec![mishap(&self.row, at_ns, self.lasts_ns)];
            return Timed { planned: self, mishaps, until_ns: at_ns + self.lasts_ns };
        };
        let (short_ns, both_ns) = (self.lasts_ns / 3, self.lasts_ns + self.lasts_ns / 3);
        let is_inside = |row: &Row| matches!(row.injection.how, How::Inside(_));
        // A thread that makes one goes on to the other: both are due at once, and the one that ends first is made first.
        let mishaps = match (is_inside(&self.row), is_inside(with)) {
            (false, _) => {
                vec![mishap(&self.row, at_ns + short_ns / 2, self.lasts_ns), mishap(with, at_ns, both_ns)]
            }
            (true, false) => {
                vec![mishap(&self.row, at_ns, both_ns), mishap(with, at_ns + short_ns, short_ns)]
            }
            (true, true) => vec![mishap(&self.row, at_ns, both_ns), mishap(with, at_ns, short_ns)],
        };
        Timed { planned: self, mishaps, until_ns: at_ns + both_ns }
    }
}

/// A part of a plan at instants, and when it is over.
pub(super) fn timed(part: &[Planned], begin_ns: u64) -> (Vec<Timed>, u64) {
    let mut at_ns = begin_ns;
    let one = |planned: &Planned| {
        let timed = planned.at(at_ns + planned.rest_ns);
        at_ns = timed.until_ns;
        timed
    };
    let all = part.iter().map(one).collect();
    (all, at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a seed is a plan, and each row is in it as often as every other.
    #[test]
    fn a_plan_follows_from_its_seed() {
        let rows = Row::all(&InjectedExperiment::ALL);
        let wanted: Vec<(Row, usize)> = rows.iter().map(|&row| (row, 3)).collect();
        let plan = |seed| draw(&mut Rng::at(&[seed]), &wanted);
        let shown = |seed| format!("{:?}", plan(seed));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
        for row in &rows {
            let times = plan(7).iter().filter(|planned| planned.row.name() == row.name()).count();
            assert_eq!(times, 3, "{row}");
        }
        let pairs = |seed| draw_pairs(&mut Rng::at(&[seed]), &rows, 50);
        assert_eq!(format!("{:?}", pairs(7)), format!("{:?}", pairs(7)));
        let lasts = |planned: &Planned| {
            let (from, to) = planned.row.lasts_ns();
            (from..=to).contains(&planned.lasts_ns)
        };
        assert!(plan(7).iter().all(lasts));
    }

    /// Goal: two at once are of one side and two causes, and the one lasts three times as long within a message.
    #[test]
    fn two_at_once_are_of_one_message() {
        const MS: u64 = 1_000_000;
        let rows = Row::all(&InjectedExperiment::ALL);
        let pairs = draw_pairs(&mut Rng::at(&[3]), &rows, 200);
        assert_eq!(pairs.len(), 200);
        for planned in pairs {
            let with = planned.with.expect("a pair");
            assert_eq!(planned.row.side, with.side);
            assert_ne!(planned.row.cause.name, with.cause.name);
            assert!([planned.row, with].iter().any(|row| matches!(row.injection.how, How::Inside(_))));
            let planned = Planned { lasts_ns: 12 * MS, ..planned };
            let Timed { mishaps, until_ns, .. } = planned.at(100 * MS);
            assert_eq!(until_ns, 116 * MS);
            assert!(mishaps.iter().all(|mishap| mishap.at_ns >= 100 * MS && mishap.until_ns <= until_ns));
            // A thread that computes all the while is kept from it for the time of the other.
            let [longer_ns, shorter_ns] = [0, 1].map(|place| mishaps[place].until_ns - mishaps[place].at_ns);
            let is_one = |ns| [(16, 4), (12, 16)].contains(&(longer_ns / MS, ns));
            assert!(is_one(shorter_ns / MS), "{mishaps:?}");
        }
        let quotas: Vec<Row> = rows.into_iter().filter(|row| row.side.is_none()).collect();
        assert!(draw_pairs(&mut Rng::at(&[3]), &quotas, 9).is_empty());
    }
}
