//! Fixes of a slow start: the mistake with the fix beside the mistake without it, in starts that alternate.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::analysis::{FaultFound, Growth, SIGNALS_FIGURE, grown, times};
use super::layer::InjectedFault;
use super::startup::StartUp;
use crate::scheduling::Urgency;
use crate::stats::Interval;

/// Fix for a mistake, in the process that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum StartFix {
    /// Nodes are opened, keys read and a message is sent through all of it before the process is ready
    Prime,
    /// No descriptor raises SIGIO
    SigioOff,
    /// The process starts in the real-time class, fifo:50
    Class,
    /// The process starts with the nice value -20
    Nice,
}

impl StartFix {
    /// Urgency of the process, before its first instruction too.
    pub(super) fn urgency(self) -> Urgency {
        match self {
            Self::Class => Urgency::Fifo(50),
            Self::Nice => Urgency::Nice(-20),
            Self::Prime | Self::SigioOff => Urgency::Other,
        }
    }
}

/// A fix, and what it did about a mistake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixTried {
    /// The fix.
    pub fix: StartFix,
    /// Against this.
    pub culprit: InjectedFault,
    /// Where the mistake shows, without the fix and with it: below zero the fix takes away.
    #[serde(flatten)]
    pub growth: Growth,
    /// The mistake was found, and the interval lies below zero.
    pub is_improved: bool,
    /// Of the figures that grew for certain with the fix, the one that did by most.
    pub worse: Option<(String, Interval)>,
}

/// Compares starts that make a mistake with others, in turn, in which the fix is as well. `None` of too few pairs.
pub fn judge(
    fix: StartFix,
    found: &FaultFound,
    without: &[StartUp],
    with: &[StartUp],
    seed: u64,
) -> Option<FixTried> {
    if without.len().min(with.len()) < Interval::VALUES_MIN {
        return None;
    }
    let figure = times().find(|figure| figure.0 == found.growth.figure).unwrap_or(&SIGNALS_FIGURE);
    let growth = Growth::of(figure, without, with, seed);
    let is_improved = found.found && growth.adds.is_below_zero();
    let worse = grown(without, with, seed).map(|one| (one.figure, one.adds));
    Some(FixTried { fix, culprit: found.culprit, growth, is_improved, worse })
}

#[cfg(test)]
mod tests {
    use punctual_proto::sim::Rng;

    use super::*;
    use crate::peel::analysis::GROWN_MIN;

    fn starts(of: impl Fn(u64) -> StartUp) -> Vec<StartUp> {
        (0..8).map(of).collect()
    }

    fn look_for(culprit: InjectedFault, without: &[StartUp], with: &[StartUp]) -> FaultFound {
        crate::peel::analysis::look_for(culprit, without, with, 1).expect("eight pairs")
    }

    fn judge(fix: StartFix, found: &FaultFound, without: &[StartUp], with: &[StartUp]) -> FixTried {
        assert_eq!(super::judge(fix, found, &without[..4], with, 1), None, "four pairs have no verdict");
        super::judge(fix, found, without, with, 1).expect("eight pairs")
    }

    /// Goal: of many figures one seems to grow; where all are by chance what they are, that is said in five of a hundred at most.
    #[test]
    fn chance_makes_nothing_worse() {
        for pairs in [5, 8, 20] {
            let worse = (0..1000).filter(|&seed| {
                let mut rng = Rng::at(&[pairs, seed]);
                let mut starts = || -> Vec<StartUp> {
                    let mut ns = || 1_000_000 + rng.below(100_000);
                    let start = |_| StartUp {
                        clock_ns: ns(),
                        node_ns: ns(),
                        ready_ns: 20_000_000 + ns(),
                        node_on_path_ns: ns(),
                        first_ns: 5_000_000 + ns(),
                        ..StartUp::default()
                    };
                    (0..pairs).map(start).collect()
                };
                grown(&starts(), &starts(), seed).is_some()
            });
            let worse = worse.count();
            assert!(worse <= 50, "{worse} of 1000, of {pairs} pairs");
        }
    }

    /// Goal: as many starts as are said to be needed tell what takes longer, and one fewer never do.
    #[test]
    fn a_growth_needs_as_many_starts_as_are_said() {
        let of = |ready_ns| vec![StartUp { ready_ns, ..StartUp::default() }; GROWN_MIN];
        let (without, with) = (of(20_000_000), of(30_000_000));
        assert!(grown(&without, &with, 1).is_some());
        assert!(grown(&without[1..], &with[1..], 1).is_none());
    }

    /// Goal: a fix that takes the mistake's own time away is an improvement, and what it costs elsewhere is said; one that changes
    /// nothing is none, nor is one of a mistake that did not show.
    #[test]
    fn a_fix_is_judged_where_the_mistake_shows() {
        let start = |n: u64| StartUp { clock_ns: 7_000_000 + n, ready_ns: 20_000_000, ..StartUp::default() };
        let clean = starts(start);
        let lazy = starts(|n| StartUp { node_on_path_ns: 900_000 - n, first_ns: 950_000, ..start(n) });
        let primed = starts(|n| StartUp { node_ns: 910_000 + n, ready_ns: 21_000_000, ..start(n) });
        let found = look_for(InjectedFault::PoolsInConstructor, &clean, &lazy);
        let fixed = judge(StartFix::Prime, &found, &lazy, &primed);
        assert!(
            fixed.is_improved && fixed.growth.without > 890_000.0 && fixed.growth.with < 1.0,
            "{fixed:?}"
        );
        assert!(fixed.worse.as_ref().is_some_and(|(figure, _)| figure.contains("before ready")), "{fixed:?}");
        let idle = judge(StartFix::Nice, &found, &lazy, &lazy);
        assert!(!idle.is_improved && idle.worse.is_none(), "{idle:?}");
        let unseen = look_for(InjectedFault::PoolsInConstructor, &clean, &clean);
        assert!(!judge(StartFix::Prime, &unseen, &lazy, &primed).is_improved);
        let interrupted = starts(|n| StartUp { signals_per_mille: 900 + n, ..start(n) });
        let found = look_for(InjectedFault::SigioAtStart, &clean, &interrupted);
        let fixed = judge(StartFix::SigioOff, &found, &interrupted, &clean);
        assert!(fixed.is_improved && fixed.growth.with < 1.0, "{fixed:?}");
    }
}
