//! Stalls of several places that are one.
use super::*;
use crate::explain::naming::NamedCause;
use crate::stall::Stall;

fn found(owner: &str, during: (u64, u64), side: Side, cause: &str) -> Explained {
    let ns = during.1 - during.0;
    let share = if cause.is_empty() { 0.0 } else { 1.0 };
    let named = NamedCause {
        name: Cause::named(cause),
        ns,
        share,
        evidence: String::new(),
        fix: String::new(),
        verify: String::new(),
    };
    let stall = Stall { release_ns: during.1, first_index: 0, messages: 2, longest_ns: ns };
    Explained {
        side: Some(side),
        role: Some(side.to_string()),
        owner: Some(owner.to_owned()),
        during: Some(during),
        causes: vec![named],
        ..Explained::of_stall(stall, during.0, ns)
    }
}

fn trial(found: Vec<Explained>) -> TrialExplained {
    let told = PlaceExplained { place: String::new(), found };
    TrialExplained { cell: CellId::new("socket", "callback"), trial: 0, told, lost: None, began_ns: None }
}

/// Goal: a process that stands still is told of once, where its own messages waited, with all that waited elsewhere; other
/// processes and other times stay.
#[test]
fn who_stands_still_is_told_of_once() {
    let mut trials = [
        trial(vec![found("vehicle-1", (100, 190), Side::Sender, "stopped")]),
        trial(vec![
            found("vehicle-1", (110, 200), Side::Receiver, "stopped"),
            found("vehicle-1", (500, 600), Side::Receiver, "busy"),
        ]),
        trial(vec![
            found("vehicle-1", (180, 250), Side::Sender, ""),
            found("vehicle-2", (100, 190), Side::Receiver, "stopped"),
        ]),
    ];
    each_once(&mut trials);
    let left: Vec<(&str, u64, u64)> = trials
        .iter()
        .flat_map(|one| &one.told.found)
        .map(|one| (one.owner.as_deref().unwrap_or(""), one.instant_ns, one.elsewhere))
        .collect();
    assert_eq!(left, [("vehicle-1", 110, 4), ("vehicle-1", 500, 0), ("vehicle-2", 100, 0)]);
}
