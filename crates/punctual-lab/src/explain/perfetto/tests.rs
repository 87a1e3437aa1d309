//! The drawing of a trial made by hand: the slices of each track, and their times.
use super::*;
use crate::explain::finding::explain;
use crate::explain::finding::tests::{dump, evidence, samples};

const MS: u64 = 1_000_000;

fn drawn_trial(evidence: &TrialEvidence) -> Value {
    let (samples, load) = (samples(4 * MS), Load::Closed);
    let found = explain(&samples, load, Some(evidence));
    let trial = DrawnTrial { name: "a".to_owned(), samples, load, evidence: Some(evidence.clone()), found };
    drawing(&[trial.clone(), trial])
}

/// Name and microseconds of each slice of a track.
fn slices(drawing: &Value, group: u64, track: u64) -> Vec<(String, f64, f64)> {
    let events = drawing["traceEvents"].as_array().expect("a list");
    let is_there = |event: &&Value| event["ph"] == "X" && event["pid"] == group && event["tid"] == track;
    let number = |value: &Value| value.as_f64().expect("a number");
    let one = |event: &Value| {
        let name = event["name"].as_str().expect("a name").to_owned();
        (name, number(&event["ts"]), number(&event["dur"]))
    };
    events.iter().filter(is_there).map(one).collect()
}

/// Goal: a late message has its stages below it, its thread what it went through, and its processor who had it; of two trials each
/// has tracks of its own.
#[test]
fn a_late_message_is_drawn() {
    let drawing = drawn_trial(&TrialEvidence { dumps: vec![dump()], ..evidence() });
    let own = |name: &str, at, lasts| (name.to_owned(), at, lasts);
    for group in [1, 4] {
        assert_eq!(
            slices(&drawing, group, 1),
            [
                own("message 10: run_queue", 10_000.0, 4010.0),
                own("request.woken", 10_000.0, 5.0),
                own("responder", 10_005.0, 4000.0),
                own("reply.woken", 14_005.0, 5.0),
            ]
        );
        let late = slices(&drawing, group + 1, 2);
        assert!(late.contains(&own("ready while thread 9 ran", 11_005.0, 3000.0)), "{late:?}");
        let cpu = slices(&drawing, group + 2, 1);
        assert!(cpu.contains(&own("thread 9", 11_005.0, 3000.0)), "{cpu:?}");
    }
}

/// Goal: a drawing is of the late messages. Events far from them are left out, and where two are near each other no time is drawn
/// twice.
#[test]
fn only_what_is_near_is_drawn_and_once() {
    let mut near = dump();
    near.span = (10 * MS, 11 * MS);
    let mut next = near.clone();
    next.span = (12 * MS, 13 * MS);
    let drawing = drawn_trial(&TrialEvidence { dumps: vec![next, near], ..evidence() });
    for (group, track) in [(2, 2), (3, 1)] {
        let mut all = slices(&drawing, group, track);
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        let end = all.iter().map(|(_, at, lasts)| at + lasts).fold(0.0, f64::max);
        assert!(all[0].1 >= 8_000.0 && end <= 15_000.0, "{all:?}");
        assert!(all.windows(2).all(|two| two[0].1 + two[0].2 <= two[1].1), "{all:?}");
    }
}

/// Goal: without a trace the messages are drawn alone, and without late messages nothing but names.
#[test]
fn less_evidence_draws_less() {
    let drawing = drawn_trial(&evidence());
    assert_eq!(slices(&drawing, 1, 1).len(), 4);
    assert!(slices(&drawing, 3, 1).is_empty());
    let name = "a".to_owned();
    let trial =
        DrawnTrial { name, samples: samples(10_000), load: Load::Closed, evidence: None, found: vec![] };
    let events = super::drawing(&[trial])["traceEvents"].as_array().expect("a list").clone();
    assert!(events.iter().all(|event| event["ph"] == "M"), "{events:?}");
}

/// Goal: of several senders that number alike the late message is drawn, not the first of its number.
#[test]
fn the_message_of_the_late_sender_is_drawn() {
    let mut samples = samples(4 * MS);
    // The first message is the late one's namesake, of another sender.
    samples.index[0] = 10;
    let found = explain(&samples, Load::Closed, None);
    let name = "a".to_owned();
    let trial = DrawnTrial { name, samples, load: Load::Closed, evidence: None, found };
    let drawn = slices(&drawing(&[trial]), 1, 1);
    assert_eq!(drawn[0], ("message 10: unexplained".to_owned(), 10_000.0, 4010.0));
}

/// Goal: numbers of a foreign file do not end the drawing, or the explanation.
#[test]
fn instants_beyond_the_end_of_time_are_drawn() {
    let mut samples = samples(4 * MS);
    (samples.sent_ns[10], samples.due_ns[10]) = (u64::MAX - 5, u64::MAX - 5);
    samples.stages[0].ns[10] = u64::MAX - 1;
    for load in [Load::Closed, Load::Open] {
        let kept = TrialEvidence { dumps: vec![dump()], ..evidence() };
        let found = explain(&samples, load, Some(&kept));
        let name = "a".to_owned();
        let trial = DrawnTrial { name, samples: samples.clone(), load, evidence: Some(kept), found };
        assert_eq!(slices(&drawing(&[trial]), 1, 1).len(), 4);
    }
}
