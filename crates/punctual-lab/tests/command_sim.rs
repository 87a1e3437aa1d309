//! `punctual sim`: its findings, their display, and success only if all is as documented.

mod common;

use common::{Place, words};
use punctual_proto::sim::MODELS;
use serde_json::Value;

#[test]
fn every_protocol_ends_as_documented_and_is_in_the_document() {
    let place = Place::new();
    let ended = place.punctual("sim wakeup --json").with(0);
    let all: Value = serde_json::from_str(&ended.out).expect("JSON");
    let variants = all["variants"].as_array().expect("a list");
    let document = include_str!("../../../docs/wakeup.md");
    for race in ["A1", "K2", "K3", "K4", "E1", "M1", "M2", "U1", "U2", "U3", "H1", "H2"] {
        let of_race = |v: &&Value| v["race"] == race && v["found"].is_string();
        let found = variants.iter().find(of_race).unwrap_or_else(|| panic!("{race} is not found"));
        assert!(document.contains(found["name"].as_str().expect("a name")), "{race} is not documented");
        assert!(!found["steps"].as_array().expect("steps").is_empty(), "{race}");
    }
    assert!(variants.iter().all(|variant| variant["as_expected"] == true));
}

#[test]
fn a_trace_leads_to_a_sleeping_receiver() {
    let place = Place::new();
    let ended = place.punctual("sim wakeup --variant epoll-event").with(0);
    let last: Vec<&str> = ended.out.lines().rev().take(2).collect();
    assert!(last[0].contains("PIR 0b1") && last[0].contains("asleep"), "{}", ended.out);
    assert!(words(&ended.out).contains("nobody is notified"), "{}", ended.out);
    let safe = place.punctual("sim wakeup --variant epoll-event-recheck").with(0);
    assert!(words(&safe.out).contains("Nothing is lost in any order"), "{}", safe.out);
}

#[test]
fn a_protocol_that_nobody_knows_is_refused() {
    let place = Place::new();
    let ended = place.punctual("sim wakeup --variant rfc-v7").with(2);
    assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1));
    assert!(ended.err.contains("rfc-v7") && ended.err.contains("rfc-v1-timeout"), "{}", ended.err);
}

#[test]
fn every_model_has_a_command_and_a_row_in_the_document() {
    let place = Place::new();
    let document = include_str!("../../../docs/simulation.md");
    for model in MODELS {
        let ended = place.punctual(&format!("sim {} --seeds 5..8", model.name())).with(0);
        assert!(ended.out.contains("3 seeds") && ended.out.contains("all hold"), "{}", ended.out);
        assert!(document.contains(&format!("| `{}` |", model.name())), "{} is not documented", model.name());
    }
}

/// Goal: the table that the document prints is the one that the command computes.
#[test]
fn the_policies_are_as_the_document_says() {
    let said = Place::new().punctual("sim server").with(0).out;
    let document = include_str!("../../../docs/simulation.md");
    for (row, policy, first, last) in [
        ("strict", "strict", "1,565", " 16 "),
        ("nearest deadline", "deadline", "1,557", " 128 "),
        ("floors of 2 %", "floors 2 %", "1,565", " 153 "),
    ] {
        let line = said.lines().find(|line| line.starts_with(policy)).unwrap_or_else(|| panic!("{said}"));
        let shown = document.lines().find(|line| line.starts_with(&format!("| {row} |"))).expect("a row");
        assert!(line.contains(first) && line.contains(last), "{line}");
        assert!(shown.contains(first) && shown.contains(last), "{shown}");
    }
}

#[test]
fn a_plan_is_run_and_shown() {
    let place = Place::new();
    std::fs::write(place.path("plan"), "seed 4\n58ms..1s 0->1 cut\n57ms node 1 pause 1ms\n").expect("room");
    let ended = place.punctual("sim stream --replay plan").with(0);
    assert!(ended.out.contains(" (lost)") && ended.out.contains("pause 1ms"), "{}", ended.out);
    assert!(ended.out.ends_with("Every check held.\n"), "{}", ended.out);
}

#[test]
fn a_wrong_plan_or_range_of_seeds_is_refused_in_one_line() {
    let place = Place::new();
    std::fs::write(place.path("plan"), "seed 4\nmessage 7 lose\n").expect("room");
    for (arguments, said) in [
        ("--replay plan", "line 2: \"message 7 lose\""),
        ("--replay nowhere", "nowhere"),
        ("--seeds 5..5", "0..1000"),
    ] {
        let ended = place.punctual(&format!("sim stream {arguments}")).with(2);
        assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1));
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}
