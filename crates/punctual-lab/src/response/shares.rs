//! Lateness in sums: stalls by side, stage and cause.

use serde::{Deserialize, Serialize};

use crate::explain::cause::Cause;
use crate::explain::finding::Explained;
use crate::explain::of_run::TrialExplained;
use crate::explain::stage::Side;

/// Number of times that a cause met a side and a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The side whose time it was.
    pub side: Side,
    /// In which stage.
    pub stage: String,
    /// Why.
    pub cause: Cause,
    /// Stalls; trips that waited behind one are part of it.
    pub stalls: u64,
    /// Round trips in them.
    pub trips: u64,
    /// Their longest trips' excess, together: of trips that waited behind one another the time would count twice.
    pub excess_ns: u64,
}

/// The stall whose causes are those of this one: that behind which it waited, or it itself.
pub(super) fn first_of<'a>(found: &'a [Explained], one: &'a Explained) -> &'a Explained {
    let ahead = one.behind.and_then(|index| found.iter().find(|ahead| ahead.stall.first_index == index));
    ahead.unwrap_or(one)
}

/// Stalls of trials by side, stage and cause, those with the most time first.
pub(super) fn shares<'a>(trials: impl IntoIterator<Item = &'a TrialExplained>) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for trial in trials {
        let found = &trial.told.found;
        // A stall that waited behind another is added to that one, whichever is longer.
        let (behind, first): (Vec<_>, Vec<_>) = found.iter().partition(|one| one.behind.is_some());
        for one in first.into_iter().chain(behind) {
            add(&mut shares, one, first_of(found, one));
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.excess_ns));
    shares
}

/// Adds a stall; of a message without stamps nothing is known.
fn add(shares: &mut Vec<Share>, one: &Explained, first: &Explained) {
    let (Some(side), Some(stage)) = (first.side, &first.stage) else { return };
    let cause = first.cause();
    let is_it = |share: &Share| (share.side, &share.stage, share.cause) == (side, stage, cause);
    let place = shares.iter().position(is_it).unwrap_or_else(|| {
        shares.push(Share { side, stage: stage.clone(), cause, stalls: 0, trips: 0, excess_ns: 0 });
        shares.len() - 1
    });
    let share = &mut shares[place];
    share.trips += one.stall.messages;
    if one.behind.is_none() {
        share.stalls += 1;
        share.excess_ns += one.excess_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::naming::NamedCause;
    use crate::explain::text::PlaceExplained;
    use crate::sample::CellId;
    use crate::stall::Stall;

    fn found(first_index: u64, stage: &str, cause: &str, behind: Option<u64>) -> Explained {
        let excess_ns = 900_000;
        let stall = Stall { release_ns: 0, first_index, messages: 1, longest_ns: excess_ns };
        let named =
            NamedCause { name: Cause::named(cause), ns: excess_ns, share: 1.0, ..NamedCause::default() };
        Explained {
            stage: Some(stage.to_owned()),
            side: Some(Side::Responder),
            causes: vec![named],
            behind,
            ..Explained::of_stall(stall, 0, excess_ns)
        }
    }

    fn trial(found: Vec<Explained>) -> TrialExplained {
        let told = PlaceExplained { place: String::new(), found };
        TrialExplained {
            cell: CellId::new("blocking", "round_trip"),
            trial: 0,
            told,
            lost: None,
            began_ns: None,
        }
    }

    /// Goal: trips that queued behind a stall are part of it, regardless of their own stage, and trips that came after it are not.
    #[test]
    fn a_backlog_is_part_of_its_stall() {
        let stage = "request.woken";
        let one = trial(vec![
            found(1, "request.read", "busy", Some(0)),
            found(0, stage, "stopped", None),
            found(2, stage, "busy", Some(0)),
            found(3, stage, "busy", None),
        ]);
        // A trip of that number was late in another trial, for another reason.
        let other = trial(vec![found(0, stage, "busy", None), found(1, stage, "busy", Some(0))]);
        let of = |shares: &[Share]| -> Vec<(Cause, u64, u64, u64)> {
            shares.iter().map(|share| (share.cause, share.stalls, share.trips, share.excess_ns)).collect()
        };
        let expected = [(Cause::named("busy"), 2, 3, 1_800_000), (Cause::named("stopped"), 1, 3, 900_000)];
        assert_eq!(of(&shares([&one, &other])), expected);
    }

    #[test]
    fn without_a_stage_nothing_is_shared_out() {
        let unknown = Explained { stage: None, ..found(0, "", "busy", None) };
        assert_eq!(shares([&trial(vec![unknown])]), []);
    }
}
