//! `punctual explain RUN`: its report on a run, on one message, on less evidence, and on evidence that is damaged.

mod common;

use std::fs;
use std::time::Duration;

use common::{
    Place, STOPPED_RUNS_MAX, Stop, alone, assert_findings_sum, children, has_thread, is_stop_named, punctual,
    result,
};
use serde_json::Value;

/// A run of a second, with evidence.
fn run(place: &Place, more: &str) {
    let arguments = "run response --quiet --rounds 1 --duration 1s --out run";
    // On a busy machine a trip may be lost, which ends it with 1.
    let ended = place.punctual(&format!("{arguments} {more}"));
    assert!(fs::metadata(place.path("run/summary.json")).is_ok(), "{}", ended.err);
}

fn explained(place: &Place, more: &str) -> Value {
    place.json(&format!("explain run --json {more}"))
}

/// Goal: each finding accounts for its whole excess, and text, message and JSON come from the store alone.
#[test]
fn a_run_is_explained_from_its_store() {
    let place = Place::alone();
    run(&place, "--trace");
    let said = explained(&place, "");
    assert_eq!(said["schema"], "punctual.explain.v1");
    assert_findings_sum(&said);
    let text = place.punctual("explain run").with(0).out;
    assert_eq!(place.punctual("explain run").with(0).out, text);
    assert!(text.contains("by the rule of each trial"), "{text}");
    let first = place.punctual("explain run --message 0").with(0).out;
    assert!(first.contains("Message 0") && first.contains("request"), "{first}");
    let error = place.punctual("explain run --message 99999999").with(2).err;
    assert!(error.contains("--message 99999999"), "{error}");
    for option in ["--trace", "--threshold"] {
        let error = place.punctual(&format!("explain run {option} 1ms")).with(2).err;
        assert!(error.contains(option) && error.contains("not with a run"), "{error}");
    }
    let less = explained(&place, "--tier 0");
    let parts = |finding: &Value| finding["parts"].as_array().map_or(0, Vec::len);
    assert!(less["findings"].as_array().expect("a list").iter().all(|finding| parts(finding) == 0));
}

/// Goal: a run's report on its late trips and that of another process from the store are equal to the letter. A responder that stood
/// still is named, also where its clock is another one. Method: it is stopped; with and without the kernel's trace, on one clock and on
/// two.
#[test]
fn a_run_and_its_store_say_the_same() {
    let _turn = alone();
    for more in ["--trace", "--clocks-apart", ""] {
        let is_named = (0..STOPPED_RUNS_MAX).any(|_| says_the_same(more));
        assert!(is_named, "{more:?}: none of {STOPPED_RUNS_MAX} stops was named");
    }
}

/// Returns true if the stop of the responder is named; both reports name it, or neither does.
fn says_the_same(more: &str) -> bool {
    let place = Place::new();
    let arguments = "run response --quiet --rounds 1 --rate 500 --count 2000 --timeout 10s --out run";
    let mut started = place.start(punctual(&format!("{arguments} {more}")));
    let run = started.id();
    started.has("a client", || has_thread(run, "client"));
    std::thread::sleep(Duration::from_millis(500));
    let responder = children(run).pop().unwrap_or_default();
    let lasts = Duration::from_millis(600);
    let stop = Stop::make(&responder, lasts);
    let ended = started.end();
    let summary =
        fs::read_to_string(place.path("run/summary.json")).unwrap_or_else(|_| panic!("{}", ended.err));
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    if !stop.is_some_and(|stop| stop.leaves(Duration::ZERO, &summary, Duration::from_secs(4))) {
        eprintln!("once more: the run was over before its responder was continued");
        return false;
    }
    let mut said = explained(&place, "")["findings"].as_array().expect("a list").clone();
    said.sort_by_key(|found| std::cmp::Reverse(found["stall"]["longest_ns"].as_u64()));
    for found in said.iter_mut().filter_map(Value::as_object_mut) {
        assert_eq!(found.remove("name"), Some("blocking/round_trip".into()));
        found.remove("place");
    }
    let result = result(&summary, "blocking/round_trip");
    let told = result["findings"].as_array().expect("a list");
    assert!(!told.is_empty() && told.len() == said.len().min(50), "{} and {}", told.len(), said.len());
    for (told, said) in told.iter().zip(&said) {
        assert_eq!(told.to_string(), said.to_string(), "{more:?}");
    }
    is_stop_named(result, "responder", lasts)
}

/// Goal: evidence that is damaged, or gone, costs certainty and not the explanation.
#[test]
fn damaged_evidence_is_said() {
    let place = Place::alone();
    run(&place, "");
    let file = fs::read_dir(place.path("run/evidence")).expect("a directory").next();
    let file = file.expect("a file").expect("an entry").path();
    let text = fs::read_to_string(&file).expect("text");
    fs::write(&file, text.replace("responder", "respondes")).expect("room");
    let said = explained(&place, "");
    assert!(said["notes"][0].as_str().is_some_and(|note| note.contains("check value")), "{said:#}");
    assert!(place.punctual("explain run").with(0).out.contains("check value"));
    fs::remove_file(&file).expect("ours");
    assert_eq!(explained(&place, "")["notes"], serde_json::json!([]));
}

/// Goal: samples that are gone are said first, by every command that shows the run: they are no sign that all is well.
#[test]
fn missing_samples_are_said() {
    let place = Place::alone();
    run(&place, "");
    let samples = place.path("run/samples");
    let expected = fs::read_dir(&samples).expect("a directory").count();
    let first = fs::read_dir(&samples).expect("a directory").map(|entry| entry.expect("an entry").path());
    fs::remove_file(first.min().expect("a file")).expect("ours");
    for missing in [1, expected] {
        let what = format!("{missing} of {expected} files of samples");
        let said = place.punctual("explain run").with(0).out;
        let (at, late) = (said.find(&what), said.find("What was late"));
        assert!(at.is_some_and(|at| late.is_none_or(|late| at < late)), "{said}");
        assert!(place.punctual("report run --text").with(0).out.contains(&what));
        assert!(place.punctual("report run").with(0).err.contains(&what));
        let _later = fs::remove_dir_all(&samples);
    }
}

/// Goal: the drawing is written for Perfetto's viewer, small enough to be opened, and what cannot be drawn is said.
#[test]
fn a_run_is_drawn_for_perfetto() {
    let place = Place::alone();
    run(&place, "--trace");
    let said = place.punctual("explain run --perfetto late.json").with(0).out;
    assert!(said.contains("late.json") && said.contains("ui.perfetto.dev"), "{said}");
    let text = fs::read_to_string(place.path("late.json")).expect("it is written");
    let drawing: Value = serde_json::from_str(&text).expect("JSON");
    let events = drawing["traceEvents"].as_array().expect("a list");
    assert!(events.iter().any(|event| event["name"] == "process_name"), "{text}");
    let findings = explained(&place, "")["findings"].as_array().expect("a list").len();
    let is_late = |event: &&Value| event["ph"] == "X" && event["args"]["message"].is_u64();
    assert_eq!(events.iter().filter(is_late).count(), findings);
    assert_eq!(place.punctual("explain run --perfetto -").with(0).out, text);
    let error = place.punctual("explain run --perfetto nowhere/late.json").with(3).err;
    assert!(error.contains("nowhere/late.json"), "{error}");
    fs::write(place.path("late.jsonl"), "").expect("room");
    let error = place.punctual("explain late.jsonl --perfetto late.json").with(2).err;
    assert!(error.contains("--perfetto"), "{error}");
}
