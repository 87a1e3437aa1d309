//! `punctual run peel`, as scripts and people call it. Nothing here asserts how long something takes: mistakes are found by
//! counted events, and by comparison with starts of the same run that do not make them.

mod common;
mod glossary;

use common::{Ended, Place, alone, children, has_namespaces, is_sent, punctual, result, summary_of, text};
use punctual_lab::stats::sign_test;
use serde_json::Value;

/// Five rounds and starts: fewer have no verdict.
fn peel(place: &Place, more: &str) -> Ended {
    taken(place, &format!("--rounds 5 --starts 5 {more}"))
}

fn taken(place: &Place, more: &str) -> Ended {
    // Trials end by their count; the duration is for a machine that is busy elsewhere.
    let ended = place.punctual(&format!("run peel --json - --out run --count 300 --duration 10m {more}"));
    if ended.code == Some(3) && ended.err.contains("two processors") {
        punctual_machine::skipped!("{}", ended.err);
        return ended;
    }
    ended.with(0)
}

const LAYERS: [&str; 6] = ["bare", "engine", "node", "sealed", "communicator", "asynchronous"];

/// Goal: every layer is measured in every round, over every medium, and what the layers add makes up what they come to.
#[test]
fn every_layer_is_peeled() {
    let _turn = alone();
    for engine in ["shared", "datagram", "packet"] {
        if engine == "packet" && !has_namespaces() {
            continue;
        }
        let place = Place::new();
        let ended = peel(&place, &format!("--engine {engine}"));
        if ended.code == Some(3) {
            return;
        }
        let summary = summary_of(&ended.out);
        for layer in LAYERS.iter().chain(&["whole"]) {
            let result = result(&summary, &format!("{engine}/{layer}"));
            assert_eq!((&result["trials"], &result["lost"]), (&5.into(), &0.into()), "{result:#}");
            assert!(result["count"].as_u64() > Some(100), "{result:#}");
            // Taken with what else happened during its trials.
            assert!(result["cpu_ns_per_message"].as_f64() > Some(0.0), "{result:#}");
        }
        let costs = summary["peel"]["peeled"]["costs"].as_array().expect("costs");
        assert_eq!(costs.iter().map(|cost| &cost["layer"]).collect::<Vec<_>>(), LAYERS);
        for cost in costs {
            let [low, at, high] =
                ["low_ns", "ns", "high_ns"].map(|name| cost["adds"][name].as_f64().expect("a number"));
            assert!(low <= at && at <= high, "{cost:#}");
        }
        glossary::explains(&place.path("run"));
        let page = text(&place.path("run/report.html"));
        assert!(page.contains("Layer by layer") && page.contains("Paid once"));
    }
}

fn found<'a>(summary: &'a Value, culprit: &str) -> &'a Value {
    let all = summary["peel"]["found"].as_array().expect("a list");
    let found = all.iter().find(|found| found["culprit"] == culprit);
    found.unwrap_or_else(|| panic!("no {culprit} in {all:#?}"))
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {value:#}"))
}

/// Starts that make a mistake.
fn starts_with<'a>(summary: &'a Value, culprit: &str) -> &'a [Value] {
    let all = summary["peel"]["starts_with"].as_array().expect("a list");
    let with = all.iter().find(|pair| pair[0] == culprit).expect("its starts");
    with[1].as_array().expect("starts")
}

/// The parts of a start are no more than it, and those on the way of the first message no more than that.
fn assert_parts_fit(start: &Value) {
    for (whole, parts) in [
        ("ready_ns", &["process_ns", "clock_ns", "keys_ns", "node_ns"][..]),
        ("first_ns", &["node_on_path_ns", "keys_on_path_ns"]),
    ] {
        let sum: f64 = parts.iter().map(|part| number(start, part)).sum();
        assert!(sum <= number(start, whole), "{whole}: {start:#}");
    }
}

/// Goal: each mistake shows in its own layer, by its ratio to starts of the same run that do not make it.
#[test]
fn each_mistake_shows_where_it_belongs() {
    let place = Place::alone();
    let with = "pools-in-constructor,cold-crypto";
    let ended = peel(&place, &format!("--engine datagram --with {with}"));
    if ended.code == Some(3) {
        return;
    }
    let summary = summary_of(&ended.out);
    let places = ["node_on_path_ns", "keys_on_path_ns"];
    for (culprit, [own, figure]) in
        [("pools-in-constructor", places), ("cold-crypto", [places[1], places[0]])]
    {
        // It shows there and not in the other's place.
        for start in starts_with(&summary, culprit) {
            assert_eq!((number(start, figure), number(start, "lost")), (0.0, 0.0), "{culprit}: {start:#}");
            assert!(number(start, own) > 0.0, "{culprit}: {start:#}");
            assert_parts_fit(start);
        }
        // The cause is that of the figure, regardless of the mistake that was made.
        let found = found(&summary, culprit);
        let named = match found["figure"].as_str().expect("a figure") {
            "node and communicator, on its way" => "construction",
            "keys, on its way" => "first_use",
            "clock" => "calibration",
            "node and communicator, before ready" => "construction",
            "waited for a processor until ready" => "run_queue",
            _ => "unexplained",
        };
        assert_eq!(found["cause"], named, "{found:#}");
        for start in summary["peel"]["starts"].as_array().expect("starts") {
            assert_eq!(number(start, own), 0.0, "nothing is made on the way: {start:#}");
            assert_parts_fit(start);
            for step in ["process_ns", "clock_ns", "keys_ns", "node_ns"] {
                assert!(number(start, step) > 0.0, "{step}: {start:#}");
            }
        }
    }
    // The parts of a start are named; the first message is the library's own, stage by stage.
    let parts = summary["peel"]["until_ready"].as_array().expect("parts");
    let cause = |name: &str| parts.iter().find(|part| part["name"] == name).map(|part| part["cause"].clone());
    assert_eq!(cause("clock"), Some("calibration".into()));
    assert_eq!(cause("node and communicator, before ready"), Some("construction".into()));
    assert_eq!(cause("process to main"), Some("unexplained".into()));
    assert_eq!(parts.len(), 5, "{parts:#?}");
    let ranks: Vec<f64> = parts.iter().map(|part| number(&part["takes"], "low_ns")).collect();
    assert!(ranks.is_sorted_by(|a, b| a >= b), "{ranks:?}");
    let stages = summary["peel"]["starts"][0]["first_stages_ns"].as_array().expect("stages");
    assert!(stages.iter().any(|stage| stage.as_u64() > Some(0)), "{stages:?}");
}

/// Goal: a crowd of starting processes makes each of them wait for a processor. Method: a neighbour of the machine hides it in some
/// pairs of starts; pairs are made until those with a longer wait are more than chance makes them.
#[test]
fn a_crowd_shows_where_it_belongs() {
    let _turn = alone();
    let mut added_ns = Vec::new();
    for _ in 0..10 {
        let ended = peel(&Place::new(), "--engine datagram --with crowd-at-start");
        if ended.code == Some(3) {
            return;
        }
        let summary = summary_of(&ended.out);
        let waited = |start: &Value| number(start, "queued_ns");
        let calm = summary["peel"]["starts"].as_array().expect("starts");
        let pairs = starts_with(&summary, "crowd-at-start").iter().zip(calm);
        added_ns.extend(pairs.map(|(crowded, calm)| waited(crowded) - waited(calm)));
        let of = |is_one: fn(f64) -> bool| added_ns.iter().filter(|&&ns| is_one(ns)).count();
        if sign_test(of(|ns| ns > 0.0), of(|ns| ns < 0.0)) <= 0.01 {
            return;
        }
    }
    panic!("a crowd added to the wait for a processor: {added_ns:?} ns");
}

/// Goal: O_ASYNC from the start is seen by what it does: an interruption for nearly every frame, at both ends.
#[test]
fn interruptions_are_counted_per_frame() {
    let place = Place::alone();
    let ended = peel(&place, "--engine datagram --with sigio-at-start");
    if ended.code == Some(3) {
        return;
    }
    let summary = summary_of(&ended.out);
    let interrupted = &summary["peel"]["interrupted"];
    assert_eq!(number(interrupted, "without_per_frame"), 0.0, "{interrupted:#}");
    assert!(number(interrupted, "with_per_frame") > 0.3, "{interrupted:#}");
    let sigio = found(&summary, "sigio-at-start");
    assert_eq!((number(sigio, "without"), &sigio["found"]), (0.0, &true.into()), "{sigio:#}");
}

/// Goal: the results of three starts are shown, and nobody calls them an interval or takes a verdict from them.
#[test]
fn few_starts_have_no_verdict() {
    let place = Place::alone();
    let ended = taken(&place, "--rounds 4 --starts 3 --engine datagram --with cold-crypto --fix prime");
    if ended.code == Some(3) {
        return;
    }
    let summary = summary_of(&ended.out);
    let peel = &summary["peel"];
    assert_eq!((&peel["found"], &peel["fixes"]), (&Value::Array(Vec::new()), &Value::Null), "{peel:#}");
    let cost = &peel["peeled"]["costs"][0];
    assert!(cost["adds"]["low_ns"].is_null() && number(&cost["adds"], "ns") > 0.0, "{cost:#}");
    let doubts = summary["doubts"].to_string();
    for what in ["layers: taken 4 times", "starts: taken 3 times", "starts with a mistake: taken 3 times"] {
        assert!(doubts.contains(what), "no {what} in {doubts}");
    }
}

/// Goal: a fix that this user may not try is refused before anything is measured.
#[test]
fn a_fix_without_privilege_is_refused_at_once() {
    let _turn = alone();
    let place = Place::world_writable();
    let arguments = "run peel --engine shared --with crowd-at-start --fix class --out run";
    let Some(command) = common::unprivileged(arguments) else { return };
    let ended = place.start(command).end().with(3);
    if ended.err.contains("two processors") {
        return punctual_machine::skipped!("{}", ended.err);
    }
    assert!(ended.err.contains("CAP_SYS_NICE") && !place.path("run").exists(), "{}", ended.err);
}

/// Goal: a start that fails is told with its reason, and takes the layers not with it. Only a process that ends by a fault of its own
/// breaks a promise. Method: each of its processes gets a signal.
#[test]
fn a_start_that_fails_leaves_the_rest() {
    let _turn = alone();
    if let Some(ended) = starts_that_end_by("-KILL", 0) {
        assert!(!ended.err.contains("signal"), "{}", ended.err);
        let ended = starts_that_end_by("-SEGV", 1).expect("there were two processors before");
        assert!(ended.err.contains("a process of this run ended by signal 11"), "{}", ended.err);
    }
}

/// A run that ends with that code, as each start gets the signal; `None` if the machine cannot do it.
fn starts_that_end_by(signal: &str, code: i32) -> Option<common::Ended> {
    let place = Place::new();
    let arguments = "run peel --engine shared --rounds 2 --starts 1000 --count 200 --duration 10m --out run";
    let mut started = place.start(common::punctual(arguments));
    let (parent, samples) = (started.id(), place.path("run/samples"));
    let are_layers_made = || std::fs::read_dir(&samples).is_ok_and(|files| files.count() == 2 * 7);
    if started.ends_before(are_layers_made) {
        let ended = started.end().with(3);
        assert!(ended.err.contains("two processors"), "{}", ended.err);
        punctual_machine::skipped!("{}", ended.err);
        return None;
    }
    let is_start = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0start\0"))
    };
    while !started.has_ended() {
        for pid in common::children(parent).iter().filter(|pid| is_start(pid)) {
            let _gone = common::is_sent(signal, pid);
        }
    }
    let ended = started.end().with(code);
    assert!(ended.out.contains("Layer by layer"), "{}", ended.out);
    let summary = place.summary("run/summary.json");
    let what = summary["skipped"][0]["what"].as_str().unwrap_or_default();
    assert!(what.starts_with("starts of fresh processes"), "{:#}", summary["skipped"]);
    Some(ended)
}

/// Goal: a mistake that memory cannot make is named as skipped, and the rest is done.
#[test]
fn memory_raises_no_signals() {
    let place = Place::alone();
    let ended = peel(&place, "--engine shared --with sigio-at-start");
    if ended.code == Some(3) {
        return;
    }
    let summary = summary_of(&ended.out);
    assert_eq!(summary["skipped"][0]["what"], "sigio-at-start", "{summary:#}");
}

/// Goal: one line that names the option, the value and the range.
#[test]
fn misuse_is_told_in_a_line() {
    let place = Place::new();
    for (arguments, word) in [
        ("--with telepathy", "telepathy"),
        ("--rounds 1", "--rounds"),
        ("--count 10", "--count 10: from 100"),
        ("--engine datagram --wake futex", "--wake futex"),
        ("--engine shared --wake spin", "--wake spin"),
        ("--gap 1ms", "--gap"),
    ] {
        let ended = place.punctual(&format!("run peel {arguments}")).with(2);
        assert!(ended.err.contains(word) && ended.err.trim().lines().count() == 1, "{}", ended.err);
    }
}

/// Goal: an end of the responder amid a run takes nothing away of the rounds that were whole before.
#[test]
fn whole_rounds_stand_without_a_responder() {
    let place = Place::alone();
    let arguments = "run peel --engine datagram --rounds 100 --starts 2 --count 2000 --duration 10m --quiet";
    let mut started = place.start(punctual(&format!("{arguments} --out run")));
    let samples = place.path("run/samples");
    let stored = || std::fs::read_dir(&samples).map_or(0, Iterator::count);
    if started.ends_before(|| stored() > 2 * LAYERS.len() + 2) {
        let ended = started.end().with(3);
        assert!(ended.err.contains("two processors"), "{}", ended.err);
        return punctual_machine::skipped!("{}", ended.err);
    }
    children(started.id()).iter().for_each(|child| assert!(is_sent("-KILL", child), "{child}"));
    started.end();
    let summary = place.summary("run/summary.json");
    let skipped = summary["skipped"].as_array().expect("a list");
    let is_said =
        |one: &Value| one["what"].as_str().is_some_and(|what| what.starts_with("layers, from round"));
    assert!(skipped.iter().any(is_said), "{skipped:#?}");
    assert!(result(&summary, "datagram/whole")["trials"].as_u64() >= Some(1), "{summary:#}");
}
