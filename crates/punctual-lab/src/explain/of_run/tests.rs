//! Stalls of several places that are one.
use punctual_machine::fault_cost::FAULT_NS_MIN;

use super::*;
use crate::explain::evidence::EvidenceDump;
use crate::explain::finding::tests::{dump, evidence, samples};
use crate::explain::naming::NamedCause;
use crate::sample::{Load, Outcome, Samples};
use crate::stall::Stall;
use crate::store::{Header, Store};
use crate::summary::CellResult;

fn found(owner: &str, during: (u64, u64), side: Side, cause: &str) -> Explained {
    let ns = during.1 - during.0;
    let share = if cause.is_empty() { 0.0 } else { 1.0 };
    let named = NamedCause { name: Cause::named(cause), ns, share, ..NamedCause::default() };
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

/// Goal: without the trace that is stored, because nobody asked for it, the reason is that.
#[test]
fn a_trace_that_is_not_asked_for_is_said() {
    let kept = TrialEvidence { dumps: vec![dump()], ..evidence() };
    let helps = |tier| {
        let kept = at_tier(kept.clone(), tier);
        explain(&samples(4_010_000), Load::Closed, Some(&kept)).remove(0).would_help
    };
    assert_eq!(helps(1), None);
    assert_eq!(helps(0).as_deref(), Some("more certain with a trace of the kernel: --tier 0 was asked for"));
    let off = TrialEvidence { recording: Recording::Off, ..evidence() };
    assert_eq!(at_tier(off.clone(), 0), off, "a trace that was not recorded is not withheld");
}

/// Goal: a process that stands still is told of once, where its own messages waited, with all that waited elsewhere; other
/// processes and other times stay.
#[test]
fn a_process_that_stands_still_is_told_of_once() {
    let mut trials = [
        trial(vec![found("vehicle-1", (100, 190), Side::Sender, "stopped")]),
        trial(vec![
            found("vehicle-1", (110, 200), Side::Receiver, "stopped"),
            found("vehicle-1", (500, 600), Side::Receiver, "busy"),
        ]),
        trial(vec![
            found("vehicle-1", (150, 250), Side::Sender, ""),
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

/// Goal: stalls that have little in common are two, and so are those that only a third one has in common with both.
#[test]
fn stalls_that_touch_are_not_one() {
    let left = |spans: &[(u64, u64)]| {
        let one = |&span: &(u64, u64)| trial(vec![found("vehicle-1", span, Side::Receiver, "busy")]);
        let mut trials: Vec<TrialExplained> = spans.iter().map(one).collect();
        each_once(&mut trials);
        let told =
            |one: &TrialExplained| one.told.found.iter().map(|one| (one.instant_ns, one.elsewhere)).collect();
        trials.iter().flat_map(|one| -> Vec<(u64, u64)> { told(one) }).collect::<Vec<_>>()
    };
    assert_eq!(left(&[(100, 200), (199, 300)]), [(100, 0), (199, 0)], "a nanosecond");
    assert_eq!(left(&[(100, 200), (150, 251)]), [(150, 2)], "half");
    // The second goes with the first, which is the longest; the third only touches that.
    assert_eq!(left(&[(100, 300), (240, 340), (290, 380)]), [(100, 2), (290, 0)]);
    assert_eq!(
        left(&[(100, 100), (100, 200), (200, 200)]),
        [(100, 0), (100, 0), (200, 0)],
        "nothing in common"
    );
}

/// Goal: the messages of the last member of a group are told by its members, also where the only round's evidence is damaged. Messages
/// that a member tells of count regardless of any damage. The damage is noted.
#[test]
fn a_group_is_told_by_its_members() {
    let place = tempfile::tempdir().expect("room");
    let out = place.path().join("run");
    let mut store = Store::import(Some(&out), &Header::new("broadcast")).expect("room");
    let mut samples = Samples::default();
    samples.push(0, 0, 0, 5, Outcome::Answered);
    for (wake, is_part) in [("ab/n2/0-0", true), ("ab/n2/0-0/member-0", false), ("ab/n2/0-0/member-1", false)]
    {
        let cell = CellId { kind: Kind::OneWay, ..CellId::new("shared", wake) };
        let path = store.append(&cell, 0, &samples).expect("room");
        let (recording, fault_ns) = (Recording::Off, FAULT_NS_MIN);
        let evidence = TrialEvidence { recording, fault_ns, is_part, ..TrialEvidence::default() };
        store.append_evidence(&path, &evidence).expect("room");
    }
    let told = || {
        let mut notes = Vec::new();
        let told = explain_run(&Run::open(&out).expect("a run"), 1, &mut notes).expect("readable");
        (told.into_iter().map(|one| one.cell.wake).collect::<Vec<_>>(), notes.len())
    };
    let members = ["ab/n2/0-0/member-0", "ab/n2/0-0/member-1"].map(str::to_owned).to_vec();
    assert_eq!(told(), (members.clone(), 0));
    for (damaged, file) in (1..).zip(std::fs::read_dir(out.join("evidence")).expect("it is there")) {
        std::fs::write(file.expect("it is there").path(), "damaged").expect("room");
        assert_eq!(told(), (members.clone(), damaged));
    }
}

/// Goal: evidence that no recorder writes is damage that is noted, even where its check value is right, and the run is explained
/// without it. Method: as a foreign file may have it.
#[test]
fn evidence_that_cannot_be_is_damaged() {
    let place = tempfile::tempdir().expect("room");
    let changes: [fn(&mut EvidenceDump); 4] = [
        |dump| dump.trace.cpus[0].events.reverse(),
        |dump| dump.trace.cpus[0].gaps.push((12_000_000, 11_000_000)),
        |dump| dump.trace.cpus.extend_from_within(..),
        |dump| dump.span = (dump.span.1, dump.span.0),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let out = place.path().join(format!("run-{number}"));
        let mut store = Store::import(Some(&out), &Header::new("response")).expect("room");
        let path = store.append(&CellId::new("a", "b"), 0, &samples(4_010_000)).expect("room");
        let mut kept = TrialEvidence { dumps: vec![dump()], ..evidence() };
        change(&mut kept.dumps[0]);
        store.append_evidence(&path, &kept).expect("room");
        let mut notes = Vec::new();
        let told = explain_run(&Run::open(&out).expect("a run"), 1, &mut notes).expect("readable");
        assert_eq!((told.len(), told[0].told.found.len(), notes.len()), (1, 1, 1), "{number}: {notes:?}");
        assert!(told[0].told.found[0].parts.is_empty(), "{number}: {told:?}");
    }
}

/// Goal: the findings of a summary are those of the finished run, and no file of samples is decoded for them alone. Method: trials of
/// two cells in turns; the samples are gone as soon as they were shown.
#[test]
fn findings_need_no_second_look() {
    let place = tempfile::tempdir().expect("room");
    let out = place.path().join("run");
    let mut store = Store::import(Some(&out), &Header::new("response")).expect("room");
    for trial in 0..2 {
        for wake in ["b", "c"] {
            let late_ns = 4_010_000 + 1_000 * u64::from(trial);
            let path = store.append(&CellId::new("a", wake), trial, &samples(late_ns)).expect("room");
            store.append_evidence(&path, &evidence()).expect("room");
        }
    }
    let expected = explain_run(&Run::open(&out).expect("a run"), 1, &mut Vec::new()).expect("readable");
    let (summary, told) = explained_summary(&store, |read| {
        read.trials.iter().for_each(|trial| std::fs::remove_file(&trial.path).expect("it is there"));
    })
    .expect("readable");
    assert_eq!(told, expected);
    assert_eq!(told.iter().map(|one| one.trial).collect::<Vec<_>>(), [0, 0, 1, 1]);
    let has_some = |result: &CellResult| result.more.get("findings").is_some_and(Value::is_array);
    assert!(summary.results.iter().all(has_some), "{summary:?}");
}
