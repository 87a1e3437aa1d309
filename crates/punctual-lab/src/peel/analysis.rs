//! What each layer costs, with an interval; how much of the whole path the layers explain; where each mistake shows.

use serde::{Deserialize, Serialize};

use super::layer::{Culprit, Layer};
use super::startup::StartUp;
use crate::stats::Xorshift;

/// Resamples of an interval.
const RESAMPLES: usize = 2_000;
/// Of the resamples that an interval holds, in parts of a thousand left out at each side.
const OUTSIDE: usize = 25;

/// A difference with its interval, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median of the rounds' differences.
    pub ns: f64,
    /// Below it lie 2.5 % of the resamples.
    pub low_ns: f64,
    /// Above it lie 2.5 %.
    pub high_ns: f64,
}

impl Interval {
    /// Of values that were taken round by round: the bootstrap draws rounds (Efron 1979, percentile method).
    #[must_use]
    pub fn of(values: &[f64], seed: u64) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mut random = Xorshift::new(seed);
        let mut resampled: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                median(&mut values.iter().map(|_| values[random.below(values.len())]).collect::<Vec<_>>())
            })
            .collect();
        resampled.sort_unstable_by(f64::total_cmp);
        let at = |thousandth: usize| resampled[(RESAMPLES * thousandth / 1000).min(RESAMPLES - 1)];
        Self { ns: median(&mut values.to_vec()), low_ns: at(OUTSIDE), high_ns: at(1000 - OUTSIDE) }
    }

    /// Whether it is told from nothing.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low_ns > 0.0 || self.high_ns < 0.0
    }
}

/// The middle of the values, or the mean of the two middle ones.
#[must_use]
pub fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// What a layer adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Which.
    pub layer: Layer,
    /// Median round trip up to and with it, ns.
    pub through_ns: f64,
    /// What it adds to the layer below; the lowest is itself.
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
    /// How much of the whole the found layers explain: what they miss, or claim too much, is taken off.
    pub attributed: f64,
}

/// Medians of one layer, round by round, ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    /// Which.
    pub layer: Layer,
    /// In the order of the rounds; all layers have the same rounds.
    pub medians_ns: Vec<f64>,
}

/// Peels: each layer against the one below it, in the same round.
#[must_use]
pub fn peel(rounds: &[Rounds], seed: u64) -> Peeled {
    let mut costs = Vec::new();
    let layers: Vec<&Rounds> = rounds.iter().filter(|rounds| rounds.layer != Layer::Whole).collect();
    for (place, rounds) in layers.iter().enumerate() {
        let differences: Vec<f64> = match place.checked_sub(1) {
            Some(below) => rounds
                .medians_ns
                .iter()
                .zip(&layers[below].medians_ns)
                .map(|(with, without)| with - without)
                .collect(),
            None => rounds.medians_ns.clone(),
        };
        let adds = Interval::of(&differences, seed.wrapping_add(place as u64));
        let through_ns = median(&mut rounds.medians_ns.clone());
        costs.push(Cost { layer: rounds.layer, through_ns, adds, found: adds.excludes_zero() });
    }
    let whole = rounds.iter().find(|rounds| rounds.layer == Layer::Whole);
    let whole_ns = whole.map_or(0.0, |rounds| median(&mut rounds.medians_ns.clone()));
    let found_ns = costs.iter().filter(|cost| cost.found).map(|cost| cost.adds.ns).sum::<f64>();
    let attributed = if whole_ns > 0.0 { 1.0 - ((whole_ns - found_ns) / whole_ns).abs() } else { 0.0 };
    Peeled { costs, whole_ns, found_ns, attributed: attributed.max(0.0) }
}

/// A figure of a start, by name.
type Figure = (&'static str, fn(&StartUp) -> f64);

/// The rows of the start-up table, ns but for the last.
pub const FIGURES: [Figure; 11] = [
    ("process to main", |s| s.process_ns as f64),
    ("clock", |s| s.clock_ns as f64),
    ("pool construction, before ready", |s| s.pools_ns as f64),
    ("node and communicator", |s| s.node_ns as f64),
    ("keys and first tag, before ready", |s| s.tag_ns as f64),
    ("ready", |s| s.ready_ns as f64),
    ("waited for a processor until ready", |s| s.queued_ns as f64),
    ("first message", |s| s.first_ns as f64),
    ("pool construction, on its way", |s| s.pools_on_path_ns as f64),
    ("keys and tag, on its way", |s| s.tag_on_path_ns as f64),
    ("later messages", |s| s.later_ns as f64),
];

/// Interruptions per thousand frames: the row in which O_ASYNC shows.
pub const SIGNALS: &str = "interruptions per 1,000 frames";

/// The layer in which a mistake shows, as a figure of a start.
#[must_use]
pub fn own_figure(culprit: Culprit) -> (&'static str, fn(&StartUp) -> f64) {
    match culprit {
        Culprit::SigioAtStart => (SIGNALS, |s| s.signals_per_mille as f64),
        Culprit::PoolsInConstructor => ("pool construction, on its way", |s| s.pools_on_path_ns as f64),
        Culprit::ColdCrypto => ("keys and tag, on its way", |s| s.tag_on_path_ns as f64),
        Culprit::CrowdAtStart => ("waited for a processor until ready", |s| s.queued_ns as f64),
    }
}

/// A mistake, and whether it was found where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Which.
    pub culprit: Culprit,
    /// In which figure it shows.
    pub figure: String,
    /// Medians of that figure without it and with it.
    pub without: f64,
    /// With it.
    pub with: f64,
    /// Difference, pair by pair, with its interval.
    pub adds: Interval,
    /// The interval lies above zero.
    pub found: bool,
}

/// Looks for a mistake: starts with it and without, in turn.
#[must_use]
pub fn look_for(culprit: Culprit, without: &[StartUp], with: &[StartUp], seed: u64) -> Found {
    let (figure, of) = own_figure(culprit);
    let (clean, culpable): (Vec<f64>, Vec<f64>) =
        (without.iter().map(of).collect(), with.iter().map(of).collect());
    let differences: Vec<f64> = culpable.iter().zip(&clean).map(|(with, without)| with - without).collect();
    let adds = Interval::of(&differences, seed);
    Found {
        culprit,
        figure: figure.to_owned(),
        without: median(&mut clean.clone()),
        with: median(&mut culpable.clone()),
        adds,
        found: adds.low_ns > 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(layer: Layer, at: f64) -> Rounds {
        let noise = [3.0, -4.0, 0.0, 7.0, -6.0, 1.0, -2.0, 5.0, -5.0, 2.0];
        // What all layers of a round have in common: the machine was slower then.
        let drift = (0..10).map(|round| f64::from(round) * 50.0);
        Rounds {
            layer,
            medians_ns: noise.iter().zip(drift).map(|(noise, drift)| at + noise + drift).collect(),
        }
    }

    /// Goal: each layer's part is found in spite of a drift that is larger than the parts; what is nothing is not claimed.
    #[test]
    fn parts_are_found_and_nothing_is_not() {
        let all = [
            rounds(Layer::Bare, 1000.0),
            rounds(Layer::Engine, 1300.0),
            Rounds {
                layer: Layer::Node,
                medians_ns: [1, -1, 1, -1, 1, -1, 1, -1, 1, -1]
                    .iter()
                    .zip(rounds(Layer::Engine, 1300.0).medians_ns)
                    .map(|(&noise, at)| at + f64::from(noise) * 20.0)
                    .collect(),
            },
            rounds(Layer::Communicator, 1500.0),
            rounds(Layer::Whole, 1500.0),
        ];
        let peeled = peel(&all, 1);
        let found: Vec<bool> = peeled.costs.iter().map(|cost| cost.found).collect();
        assert_eq!(found, [true, true, false, true], "{peeled:#?}");
        assert!((peeled.costs[1].adds.ns - 300.0).abs() < 1.0, "{peeled:#?}");
        assert!(peeled.attributed > 0.95 && peeled.attributed <= 1.0, "{peeled:#?}");
    }

    #[test]
    fn what_the_layers_do_not_explain_is_not_attributed() {
        let all = [rounds(Layer::Bare, 1000.0), rounds(Layer::Whole, 4000.0)];
        assert!(peel(&all, 1).attributed < 0.4);
    }

    #[test]
    fn a_mistake_is_found_in_its_own_figure() {
        let clean: Vec<StartUp> =
            (0..8).map(|n| StartUp { tag_on_path_ns: 200 + n, ..StartUp::default() }).collect();
        let cold: Vec<StartUp> =
            (0..8).map(|n| StartUp { tag_on_path_ns: 90_000 - n, ..StartUp::default() }).collect();
        assert!(look_for(Culprit::ColdCrypto, &clean, &cold, 1).found);
        assert!(!look_for(Culprit::ColdCrypto, &clean, &clean, 1).found);
        assert!(!look_for(Culprit::PoolsInConstructor, &clean, &cold, 1).found);
    }
}
