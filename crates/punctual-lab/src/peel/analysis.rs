//! Cost of each layer, with an interval; share of the whole path that the layers explain; place where each mistake shows.

use punctual::Stage;
use serde::{Deserialize, Serialize};

use super::layer::{InjectedFault, Layer};
use super::startup::StartUp;
use crate::explain::cause::Cause;
use crate::explain::start::StartStep;
use crate::stats::{ERROR, Interval, median, sign_test};
use crate::units::OptionName;

/// Pairs below which nothing grows for certain among all times: the sign test of seven that all grew is above a time's part of the error.
pub const GROWN_MIN: usize = 8;

/// The cost that a layer adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The layer.
    pub layer: Layer,
    /// Median round trip up to and with it, ns.
    pub through_ns: f64,
    /// Time that it adds to the layer below; for the lowest layer, its own time.
    pub adds: Interval,
    /// Its interval excludes zero, so it counts as found.
    pub found: bool,
}

/// The layers against the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peeled {
    /// From below.
    pub costs: Vec<Cost>,
    /// Median round trip of the whole path, measured apart, ns.
    pub whole_ns: f64,
    /// Sum of the found layers, ns.
    pub found_ns: f64,
    /// Share of the whole that the found layers explain: a shortfall or an excess is subtracted.
    pub attributed: f64,
}

/// Peels: each layer against the one below it, in the same round. Medians are nanoseconds, round by round; all have the same rounds.
/// Layers come from below. Without a round there is no layer to tell of.
pub fn peel(layers: &[(Layer, Vec<f64>)], whole_ns: &[f64], seed: u64) -> Peeled {
    if whole_ns.is_empty() {
        return Peeled::default();
    }
    let nothing = vec![0.0; whole_ns.len()];
    let (mut costs, mut below) = (Vec::new(), &nothing);
    for (place, (layer, medians_ns)) in layers.iter().enumerate() {
        let differences: Vec<f64> =
            medians_ns.iter().zip(below).map(|(with, without)| with - without).collect();
        let adds = Interval::of(&differences, seed.wrapping_add(place as u64));
        let through_ns = median(medians_ns);
        costs.push(Cost { layer: *layer, through_ns, adds, found: adds.excludes_zero() });
        below = medians_ns;
    }
    let whole_ns = median(whole_ns);
    let found_ns = costs.iter().filter(|cost| cost.found).map(|cost| cost.adds.ns).sum::<f64>();
    let attributed = if whole_ns > 0.0 { 1.0 - ((whole_ns - found_ns) / whole_ns).abs() } else { 0.0 };
    Peeled { costs, whole_ns, found_ns, attributed: attributed.max(0.0) }
}

/// A figure of a start, by name; and which step it is, if it is one.
pub type Figure = (&'static str, Option<StartStep>, fn(&StartUp) -> f64);

/// The rows of the start-up table: times, ns, and a count.
pub const FIGURES: [Figure; 11] = [
    PROCESS,
    CLOCK,
    KEYS,
    NODE,
    ("ready", None, |s| s.ready_ns as f64),
    QUEUED,
    ("first message", None, |s| s.first_ns as f64),
    NODE_ON_PATH,
    KEYS_ON_PATH,
    ("later messages", None, |s| s.later_ns as f64),
    SIGNALS_FIGURE,
];

const PROCESS: Figure = ("process to main", None, |s| s.process_ns as f64);
const CLOCK: Figure = ("clock", Some(StartStep::Clock), |s| s.clock_ns as f64);
const KEYS: Figure = ("keys, before ready", Some(StartStep::Keys), |s| s.keys_ns as f64);
const NODE: Figure = ("node and communicator, before ready", Some(StartStep::Node), |s| s.node_ns as f64);
const QUEUED: Figure =
    ("waited for a processor until ready", Some(StartStep::Queued), |s| s.queued_ns as f64);
const NODE_ON_PATH: Figure =
    ("node and communicator, on its way", Some(StartStep::NodeOnPath), |s| s.node_on_path_ns as f64);
const KEYS_ON_PATH: Figure = ("keys, on its way", Some(StartStep::KeysOnPath), |s| s.keys_on_path_ns as f64);

/// Parts of a start until ready: none is in another, and together they are all of it.
const UNTIL_READY: [Figure; 5] = [
    PROCESS,
    CLOCK,
    KEYS,
    NODE,
    ("the rest until ready", None, |s| {
        s.ready_ns.saturating_sub(s.process_ns + s.clock_ns + s.keys_ns + s.node_ns) as f64
    }),
];

/// Parts of the way of the first message.
const FIRST: [Figure; 3] = [
    NODE_ON_PATH,
    KEYS_ON_PATH,
    ("the first message itself", None, |s| {
        s.first_ns.saturating_sub(s.node_on_path_ns + s.keys_on_path_ns) as f64
    }),
];

/// The row in which O_ASYNC shows.
pub const SIGNALS: &str = "interruptions per 1,000 frames";
pub(super) const SIGNALS_FIGURE: Figure = (SIGNALS, Some(StartStep::Signals), |s| s.signals_per_mille as f64);

/// A part of a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the part.
    pub name: String,
    /// Cause of this time; unexplained where it is no step that a cause has.
    #[serde(default = "unexplained")]
    pub cause: Cause,
    /// Its median over the starts, with its interval.
    pub takes: Interval,
    /// Its part of the whole's median.
    pub part: f64,
}

fn unexplained() -> Cause {
    Cause::UNEXPLAINED
}

/// Cause to which the time of a figure belongs.
fn cause_of((_, step, _): &Figure) -> Cause {
    step.map_or(Cause::UNEXPLAINED, Cause::of_step)
}

/// A value of each start.
pub(super) fn values(starts: &[StartUp], of: impl Fn(&StartUp) -> f64) -> Vec<f64> {
    starts.iter().map(of).collect()
}

/// Parts of a whole, each with its name, its cause and its value in each start; the longest for certain first. Without a
/// start there is none.
fn ranked<'a>(
    parts: impl Iterator<Item = (&'a str, Cause, Vec<f64>)>,
    whole_ns: &[f64],
    seed: u64,
) -> Vec<Part> {
    if whole_ns.is_empty() {
        return Vec::new();
    }
    let whole_ns = median(whole_ns).max(1.0);
    let part = |(name, cause, values): (&str, Cause, Vec<f64>)| {
        let takes = Interval::of(&values, seed);
        Part { name: name.to_owned(), cause, takes, part: takes.ns / whole_ns }
    };
    let mut ranked: Vec<Part> = parts.map(part).collect();
    ranked.sort_by(|a, b| b.takes.compare(&a.takes));
    ranked
}

/// Parts of starts until ready, the longest for certain first.
pub fn until_ready(starts: &[StartUp], seed: u64) -> Vec<Part> {
    let parts = UNTIL_READY.iter().map(|figure| (figure.0, cause_of(figure), values(starts, figure.2)));
    ranked(parts, &values(starts, |start| start.ready_ns as f64), seed)
}

/// Extra time of the first message compared with later ones, stage by stage, the most for certain first.
pub fn first_message(starts: &[StartUp], seed: u64) -> Vec<Part> {
    let known = |start: &&StartUp| !start.first_stages_ns.is_empty();
    let more = |(place, stage): (usize, Stage)| {
        let of = |start: &StartUp| {
            let at = |all: &[u64]| all.get(place).map_or(0.0, |&ns| ns as f64);
            at(&start.first_stages_ns) - at(&start.later_stages_ns)
        };
        (stage.name(), Cause::UNEXPLAINED, starts.iter().filter(known).map(of).collect())
    };
    let whole_ns = values(starts, |start| start.first_ns as f64 - start.later_ns as f64);
    let mut ranked = ranked(Stage::ALL.into_iter().enumerate().map(more), &whole_ns, seed);
    ranked.retain(|part| part.takes.is_above_zero());
    ranked
}

/// A figure in two kinds of starts, taken in turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Name of the figure.
    pub figure: String,
    /// Its median without the mistake or the fix that the kinds differ in.
    pub without: f64,
    /// With it.
    pub with: f64,
    /// Difference, pair by pair, with its interval.
    pub adds: Interval,
}

impl Growth {
    pub(super) fn of(figure: &Figure, without: &[StartUp], with: &[StartUp], seed: u64) -> Self {
        let (before, after) = (values(without, figure.2), values(with, figure.2));
        let adds = Interval::of(&differences(figure, without, with), seed);
        let figure = figure.0.to_owned();
        Self { figure, without: median(&before), with: median(&after), adds }
    }
}

/// A mistake, and whether it was found where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultFound {
    /// The fault.
    pub culprit: InjectedFault,
    /// The figure that grew by most for certain, of all: it is looked for without knowing what was done.
    #[serde(flatten)]
    pub growth: Growth,
    /// Cause to which that time belongs.
    #[serde(default = "unexplained")]
    pub cause: Cause,
    /// The fix to try.
    #[serde(default)]
    pub fix: String,
    /// The interval lies above zero, and the cause is the one that this mistake makes.
    pub found: bool,
}

/// Pair by pair.
fn differences(figure: &Figure, without: &[StartUp], with: &[StartUp]) -> Vec<f64> {
    with.iter().zip(without).map(|(with, without)| figure.2(with) - figure.2(without)).collect()
}

/// All times in which a mistake may show.
pub(super) fn times() -> impl Iterator<Item = &'static Figure> {
    UNTIL_READY.iter().chain(&FIRST).chain([&QUEUED])
}

/// Of all times in which a mistake may show, the one that grew by most, if any did for certain. The largest of many lies above zero by
/// chance more often than one alone does. So each is held to its part of the error (Bonferroni); [`GROWN_MIN`] pairs can be certain.
pub(super) fn grown(without: &[StartUp], with: &[StartUp], seed: u64) -> Option<Growth> {
    let is_certain = |figure: &&Figure| {
        let differences = differences(figure, without, with);
        let above = differences.iter().filter(|&&one| one > 0.0).count();
        let below = differences.iter().filter(|&&one| one < 0.0).count();
        sign_test(above, below) <= ERROR / times().count() as f64
    };
    let certain = times().filter(is_certain).map(|figure| Growth::of(figure, without, with, seed));
    certain.max_by(|a, b| a.adds.compare(&b.adds))
}

/// Looks for the figure that grew by most: starts with a mistake and without, in turn. The kind of mistake decides only whether it
/// belongs to that figure. `None` of fewer than [`Interval::VALUES_MIN`] pairs, which say nothing for certain.
pub fn look_for(
    culprit: InjectedFault,
    without: &[StartUp],
    with: &[StartUp],
    seed: u64,
) -> Option<FaultFound> {
    if without.len().min(with.len()) < Interval::VALUES_MIN {
        return None;
    }
    // A figure that is in no start grew by nothing for certain. That is more than is certain of any figure that a neighbour spoilt.
    let occurs = |figure: &&Figure| without.iter().chain(with).any(|start| figure.2(start) > 0.0);
    let compared = |figure| (figure, Growth::of(figure, without, with, seed));
    let all: Vec<(&Figure, Growth)> = times().filter(occurs).map(compared).collect();
    let longest = |is_one: fn(&(&Figure, Growth)) -> bool| {
        all.iter().filter(|one| is_one(one)).max_by(|(_, a), (_, b)| a.adds.compare(&b.adds))
    };
    // A figure that was in no start before and is in all now is the one, regardless of other growth: the noise of longer times hides it
    // otherwise. Of these signals come first: a count has no place among times.
    let signals = compared(&SIGNALS_FIGURE);
    let fresh = Some(&signals).filter(|one| is_new(one)).or_else(|| longest(is_new));
    let (figure, growth) = fresh.or_else(|| longest(|_| true)).unwrap_or(&signals);
    let cause = cause_of(figure);
    let found = growth.adds.is_above_zero() && cause == Cause::made_by(&culprit.name());
    Some(FaultFound { culprit, growth: growth.clone(), cause, fix: cause.fix().to_owned(), found })
}

/// A step that was nothing before, and is something for certain.
fn is_new((figure, growth): &(&Figure, Growth)) -> bool {
    figure.1.is_some() && growth.without == 0.0 && growth.adds.is_above_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(at: f64) -> Vec<f64> {
        let noise = [3.0, -4.0, 0.0, 7.0, -6.0, 1.0, -2.0, 5.0, -5.0, 2.0];
        // Drift that all layers of a round have in common: the machine was slower then.
        let drift = (0..10).map(|round| f64::from(round) * 50.0);
        noise.iter().zip(drift).map(|(noise, drift)| at + noise + drift).collect()
    }

    /// Goal: each layer's part is found in spite of a drift that is larger than the parts; a part that is nothing is not claimed.
    #[test]
    fn parts_are_found_and_nothing_is_not() {
        let noise = [1, -1, 1, -1, 1, -1, 1, -1, 1, -1].iter().map(|&noise| f64::from(noise) * 20.0);
        let layers = [
            (Layer::Bare, rounds(1000.0)),
            (Layer::Engine, rounds(1300.0)),
            (Layer::Node, noise.zip(rounds(1300.0)).map(|(noise, at)| at + noise).collect()),
            (Layer::Communicator, rounds(1500.0)),
        ];
        let peeled = peel(&layers, &rounds(1500.0), 1);
        let found: Vec<bool> = peeled.costs.iter().map(|cost| cost.found).collect();
        assert_eq!(found, [true, true, false, true], "{peeled:#?}");
        assert!((peeled.costs[1].adds.ns - 300.0).abs() < 1.0, "{peeled:#?}");
        assert!(peeled.attributed > 0.95 && peeled.attributed <= 1.0, "{peeled:#?}");
    }

    /// Goal: nothing follows from a few rounds or starts.
    #[test]
    fn nothing_follows_from_few_values() {
        let few = [1000.0; 4];
        let peeled = peel(&[(Layer::Bare, few.to_vec())], &few, 1);
        assert!(!peeled.costs[0].found && (peeled.costs[0].adds.ns - 1000.0).abs() < 1e-9, "{peeled:#?}");
        let clean: Vec<StartUp> = starts(|_| StartUp::default()).into_iter().take(4).collect();
        let cold = starts(|_| StartUp { keys_on_path_ns: 90_000, ..StartUp::default() });
        assert_eq!(look_for(InjectedFault::ColdCrypto, &clean, &cold, 1), None);
    }

    #[test]
    fn time_that_no_layer_explains_is_not_attributed() {
        assert!(peel(&[(Layer::Bare, rounds(1000.0))], &rounds(4000.0), 1).attributed < 0.4);
    }

    /// Goal: where Ctrl-C came before the first round was whole, or before the first start, no figure is made up.
    #[test]
    fn of_nothing_nothing_is_told() {
        assert_eq!(peel(&[(Layer::Bare, Vec::new())], &[], 1), Peeled::default());
        assert_eq!(until_ready(&[], 1), []);
        assert_eq!(first_message(&[], 1), []);
    }

    fn starts(of: impl Fn(u64) -> StartUp) -> Vec<StartUp> {
        (0..8).map(of).collect()
    }

    fn looked_for(culprit: InjectedFault, without: &[StartUp], with: &[StartUp]) -> FaultFound {
        look_for(culprit, without, with, 1).expect("eight pairs")
    }

    /// Goal: the figure that grew is found among all figures, regardless of the mistake that is said to have been made.
    #[test]
    fn a_mistake_is_found_where_it_shows() {
        let start = |n: u64| StartUp { clock_ns: 7_000_000 + n, ready_ns: 20_000_000, ..StartUp::default() };
        let clean = starts(start);
        let cold = starts(|n| StartUp { keys_on_path_ns: 90_000 - n, first_ns: 130_000, ..start(n) });
        let found = looked_for(InjectedFault::ColdCrypto, &clean, &cold);
        assert!(found.found && found.growth.figure == KEYS_ON_PATH.0, "{found:?}");
        assert_eq!(found.cause, Cause::named("first_use"));
        assert!(!looked_for(InjectedFault::ColdCrypto, &clean, &clean).found);
        let mistaken = looked_for(InjectedFault::PoolsInConstructor, &clean, &cold);
        assert!(!mistaken.found && mistaken.growth.figure == KEYS_ON_PATH.0, "{mistaken:?}");
        // Its noise does not hide a step that was not there before, and does not make one up.
        let noise = |n: u64| StartUp { first_ns: 5_000_000 + n, ..start(n) };
        let hidden = starts(|n| StartUp { keys_on_path_ns: 20_000 + n, ..noise(n) });
        let found = looked_for(InjectedFault::ColdCrypto, &clean, &hidden);
        assert!(found.found && found.growth.figure == KEYS_ON_PATH.0, "{found:?}");
        let quick = starts(|n| StartUp { first_ns: 9, ..start(n) });
        let slower = looked_for(InjectedFault::ColdCrypto, &quick, &starts(noise));
        assert!(!slower.found && slower.growth.figure == FIRST[2].0, "{slower:?}");
        let interrupted = starts(|n| StartUp { signals_per_mille: 900 + n, ..start(n) });
        assert!(looked_for(InjectedFault::SigioAtStart, &clean, &interrupted).found);
    }

    /// Goal: a figure that is in no start is not named, however much a neighbour spoils the others. Method: in three pairs of eight the
    /// starts without the mistake wait longer, so that every figure may have shrunk.
    #[test]
    fn a_figure_that_is_in_no_start_is_not_named() {
        let waits = |n: u64, is_crowded: bool| StartUp {
            clock_ns: 7_000_000 + (n + u64::from(is_crowded)) % 2,
            ready_ns: 20_000_000,
            queued_ns: if is_crowded == (n < 3) { 1_000 } else { 9_000_000 },
            ..StartUp::default()
        };
        let (calm, crowded) = (starts(|n| waits(n, false)), starts(|n| waits(n, true)));
        let found = looked_for(InjectedFault::CrowdAtStart, &calm, &crowded);
        assert!(!found.found && found.growth.without > 0.0 && found.growth.with > 0.0, "{found:?}");
    }

    /// Goal: the parts of a start are ranked by the time that they surely take, and add up.
    #[test]
    fn a_start_is_ranked_by_what_it_takes() {
        let all = starts(|n| StartUp {
            process_ns: 1_000_000 + n,
            clock_ns: 7_700_000 + n,
            node_ns: 10_900_000 - n,
            ready_ns: 20_100_000,
            first_ns: 90_000,
            later_ns: 20_000,
            first_stages_ns: vec![0, 0, 100, 5_000, 0, 60_000 + n, 0, 0, 100],
            later_stages_ns: vec![0, 0, 90, 5_000, 0, 9_000, 0, 0, 90],
            ..StartUp::default()
        });
        let ranked = until_ready(&all, 1);
        assert_eq!([&ranked[0].name, &ranked[1].name], [NODE.0, CLOCK.0], "{ranked:#?}");
        assert_eq!([0, 1].map(|place| ranked[place].cause.name()), ["construction", "calibration"]);
        let sum: f64 = ranked.iter().map(|part| part.part).sum();
        assert!((sum - 1.0).abs() < 0.01 && ranked[0].part + ranked[1].part > 0.9, "{ranked:#?}");
        assert_eq!(first_message(&all, 1)[0].name, "woken");
    }
}
