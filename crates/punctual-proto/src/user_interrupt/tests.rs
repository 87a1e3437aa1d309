//! Every race is found where its fix is missing, and nowhere else.

use super::hardware::Vector;
use super::world::{Level, World};
use super::*;
use crate::sim::{Exploration, explore};

/// No variant has a tenth of these: more is a mistake in the model.
const STATES_MAX: usize = 200_000;

fn explored(name: &str) -> (&'static Variant, Exploration<Variant>) {
    let variant = Variant::named(name).unwrap();
    (variant, explore(variant, STATES_MAX).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn end_of(name: &str) -> World {
    let (_, explored) = explored(name);
    explored.found.unwrap().path.pop().unwrap().1
}

#[test]
fn every_variant_ends_as_expected() {
    for variant in VARIANTS {
        let (_, explored) = explored(variant.name);
        let ending = explored.found.map(|found| found.fault);
        let as_expected = match variant.expected {
            Expected::Safe => ending.is_none(),
            Expected::Loses => matches!(ending, Some(Ending::Lost | Ending::Stuck)),
            Expected::OnlyTheTimeout => ending == Some(Ending::OnlyTheTimeout),
            Expected::Faults => ending == Some(Ending::Faulted),
        };
        assert!(as_expected, "{}: expected {:?}, found {ending:?}", variant.name, variant.expected);
        assert!(explored.states > 10, "{}: {} states are no exploration", variant.name, explored.states);
    }
}

#[test]
fn every_race_has_a_variant_that_shows_it() {
    use Race::{A1, E1, H1, H2, K2, K3, K4, M1, M2, U1, U2, U3};
    for race in [A1, K2, K3, K4, E1, M1, M2, U1, U2, U3, H1, H2] {
        let shown = VARIANTS.iter().any(|v| v.race == Some(race) && v.expected == Expected::Loses);
        assert!(shown, "{race}");
    }
    let mut names: std::vec::Vec<_> = VARIANTS.iter().map(|v| v.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), VARIANTS.len());
}

/// Goal: a mistake is shown beside its repair, under the same two messages.
#[test]
fn every_racy_variant_has_a_repaired_one() {
    for variant in VARIANTS {
        let repaired = variant.repaired.map(|name| Variant::named(name).expect(name));
        assert_eq!(repaired.is_some(), variant.expected != Expected::Safe, "{}", variant.name);
        assert_eq!(variant.messages.len(), 2, "{}", variant.name);
        if let Some(repaired) = repaired {
            assert_eq!(repaired.expected, Expected::Safe, "{}", variant.name);
            assert_eq!(repaired.messages, variant.messages, "{}", variant.name);
        }
    }
}

/// Goal: the race that is found is the one that the variant is named for, not some other one.
#[test]
fn each_race_leaves_its_own_mark() {
    let a1 = end_of("wait-unmasked");
    assert!(a1.noticed == 1 || a1.upid.pir == 0, "the handler has run: {a1:?}");
    let k2 = end_of("wait-sleeping-late");
    assert!(k2.upid.sn && k2.upid.pir != 0 && !k2.receiver.listed, "woken too early: {k2:?}");
    for name in ["wait-uirr-ignored", "wait-uirr-first"] {
        let k3 = end_of(name);
        assert!(k3.upid.pir == 0 && k3.receiver.saved.1 != 0, "{name}: pending, not posted: {k3:?}");
    }
    let k4 = end_of("wait-unfenced");
    assert!(k4.upid.nv == Vector::Kernel && k4.receiver.listed, "the old vector was sent: {k4:?}");
    let e1 = end_of("epoll-event");
    assert!(!e1.upid.on && e1.upid.pir == 1 && e1.receiver.sleeping, "ON cleared, bit left: {e1:?}");
    let m1 = end_of("emulator-table");
    assert!(!m1.faulted && !m1.cpus[m1.sender.cpu].has_table);
    let u3 = end_of("emulator-senduipi");
    assert!(u3.upid.pir != 0 && u3.noticed != 3, "posted, and nobody was notified: {u3:?}");
    let m2 = end_of("receiver-moves-without-uif");
    assert!(m2.receiver.cpu != 0 && m2.receiver.level == Level::User && !m2.cpus[m2.receiver.cpu].uif);
}

#[test]
fn the_trace_says_what_happens() {
    let (variant, explored) = explored("epoll-event");
    let lines = trace::lines(variant, &explored.found.unwrap());
    let all: std::vec::Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
    assert!(
        all.contains(&"SENDUIPI for message 2: posted; ON is set already: nobody is notified"),
        "{all:#?}"
    );
    assert!(lines.last().unwrap().state.contains("asleep"), "{:?}", lines.last());
}

/// Goal: the time limit does hide what it is said to hide: with it nothing is lost, only late.
#[test]
fn a_time_limit_turns_lost_into_late() {
    let (_, with) = explored("rfc-v1-timeout");
    assert_eq!(with.found.map(|found| found.fault), Some(Ending::OnlyTheTimeout));
    let (_, without) = explored("rfc-v1");
    assert_eq!(without.found.map(|found| found.fault), Some(Ending::Lost));
}
