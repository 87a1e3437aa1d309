//! `punctual explain RUN` of vehicles: a process that stood still is named once, with its receiver, its stage and why.

mod common;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    Place, STOPPED_RUNS_MAX, Stop, all_ready, alone, assert_findings_sum, assert_no_other_cause, children,
    findings, is_root, punctual,
};
use serde_json::Value;

/// From the barrier on values travel for 3 s.
const RUN: &str =
    "run vehicles --engine shared --mode callback --vehicles 4 --runs 1 --period 20ms --messages 150 --quiet";

const STOP: Duration = Duration::from_millis(100);

/// Runs vehicles, the second of which is stopped, if one is.
fn run(place: &Place, stops: bool, more: &str) -> Value {
    loop {
        let mut started = place.start(punctual(&format!("{RUN} --out run {more}")));
        let parent = started.id();
        started.has("vehicles that are ready", || all_ready(parent));
        let ready = Instant::now();
        std::thread::sleep(Duration::from_millis(1_800));
        let stopped = children(parent).into_iter().nth(1).unwrap_or_default();
        let is_told = !stops || Stop::make(&stopped, STOP).is_some();
        let by = ready.elapsed();
        let ended = started.end();
        // A test that was held up for so long that the run may have been over tries again.
        if is_told && by < Duration::from_millis(3_300) {
            assert!(place.path("run/summary.json").exists(), "{}", ended.err);
            return place.json("explain run --json");
        }
        eprintln!("once more: continued {by:?} after all were ready");
        fs::remove_dir_all(place.path("run")).expect("it was made");
    }
}

/// Lets strace follow the system calls of the second vehicle while values travel, and hold it at each for half a millisecond: on a
/// quiet machine it would be too quick for anything to be late. Returns the process that was traced.
fn run_traced(place: &Place) -> (String, Value) {
    let mut started = place.start(punctual(&format!("{RUN} --out run --trace")));
    let parent = started.id();
    started.has("vehicles that are ready", || all_ready(parent));
    let traced = children(parent).into_iter().nth(1).unwrap_or_default();
    let strace = "-k 1 2 strace -f -qq -e inject=all:delay_enter=500 -o /dev/null -p";
    let mut strace_for_a_while = Command::new("timeout");
    let status = strace_for_a_while.args(strace.split(' ')).arg(&traced).status().expect("a program");
    eprintln!("strace ended: {status}");
    let ended = started.end();
    assert!(place.path("run/summary.json").exists(), "{}", ended.err);
    let said = place.punctual("explain run --json").with(0).out;
    (traced, serde_json::from_str(&said).expect("JSON"))
}

/// Goal: a vehicle whose system calls are traced is named, with its tracer, although each stop is short; no other vehicle is.
#[test]
fn a_traced_vehicle_is_named_with_its_tracer() {
    let _turn = alone();
    let has_strace = Command::new("strace").arg("-V").output().is_ok();
    if !is_root() || !has_strace {
        punctual_machine::skipped!("strace and the kernel's trace are needed, and root");
        return;
    }
    let mut seen = Vec::new();
    // On a machine that is busy elsewhere its stops may be too short to make anything late.
    for _ in 0..5 {
        let place = Place::new();
        let (process, said) = run_traced(&place);
        let named = |finding: &&Value| {
            let causes = finding["causes"].as_array().expect("a list");
            causes.iter().any(|cause| cause["name"] == "traced")
        };
        let all = said["findings"].as_array().expect("a list");
        let traced: Vec<&Value> = all.iter().filter(named).collect();
        let owners: Vec<&str> = traced.iter().filter_map(|finding| finding["owner"].as_str()).collect();
        assert!(owners.windows(2).all(|two| two[0] == two[1]), "one vehicle was traced: {owners:?}");
        let is_first = |finding: &&&Value| finding["cause"] == "traced";
        let Some(first) = traced.iter().find(is_first) else {
            eprintln!("once more: nothing was late for process {process} by its tracer");
            seen.push(said);
            continue;
        };
        assert!(
            first["causes"][0]["evidence"].as_str().is_some_and(|who| who.contains("strace (")),
            "{first:#}"
        );
        let text = place.punctual("explain run").with(0).out;
        assert!(text.contains("held by a debugger"), "{text}");
        return;
    }
    panic!("{seen:#?}");
}

/// Goal: one process stopped is one finding, of its own receiver, that counts what waited elsewhere; with and without the kernel's
/// trace. The page says it too.
#[test]
fn a_stopped_vehicle_is_told_of_once() {
    let _turn = alone();
    for more in ["", "--trace"] {
        let is_told = (0..STOPPED_RUNS_MAX).any(|_| is_told_of_once(more));
        assert!(is_told, "{more:?}: none of {STOPPED_RUNS_MAX} stops was named");
    }
}

/// Returns true if the stop is reported; if so, it is reported once.
fn is_told_of_once(more: &str) -> bool {
    let place = Place::new();
    let said = run(&place, true, more);
    let stopped = findings(&said, "stopped");
    let [one] = &stopped[..] else {
        assert!(stopped.is_empty(), "{more:?}: {stopped:#?} of {said:#}");
        assert_no_other_cause(&said, STOP);
        eprintln!("once more: {said:#}");
        return false;
    };
    let summary = fs::read_to_string(place.path("run/summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let absences = summary["vehicles"]["runs"][0]["absences"].as_array().expect("absences").clone();
    let continued: Vec<&Value> = absences
        .iter()
        .filter(|one| one["continued"].as_u64() > Some(0))
        .map(|one| &one["process"])
        .collect();
    assert_eq!(continued, [&one["owner"]], "{one:#}");
    assert_eq!((&one["side"], &one["role"]), (&"receiver".into(), &"receiver".into()), "{one:#}");
    assert!(one["stage"].is_string() && one["elsewhere"].as_u64() > Some(0), "{one:#}");
    // Anything that it kept waiting is in no second finding.
    let span = |one: &Value| one["during"].as_array().map(|of| (of[0].as_u64(), of[1].as_u64()));
    let (from, to) = span(one).expect("a span");
    let all = said["findings"].as_array().expect("a list");
    let same = all.iter().filter(|other| {
        other["owner"] == one["owner"] && span(other).is_some_and(|(begin, end)| begin < to && end > from)
    });
    assert_eq!(same.count(), 1, "{said:#}");
    let text = place.punctual("explain run").with(0).out;
    assert!(text.contains("stopped, until a signal continued it"), "{text}");
    assert_eq!(place.punctual("explain run").with(0).out, text, "the same again");
    let page = fs::read_to_string(place.path("run/report.html")).expect("a page");
    assert!(page.contains("receiver: stopped"), "the page says it too");
    let traced = one["parts"].as_array().is_some_and(|parts| !parts.is_empty());
    let wants_trace = !more.is_empty() && is_root();
    if wants_trace && !traced {
        punctual_machine::skipped!("no trace of the kernel: {}", one["would_help"]);
    }
    assert!(!traced || wants_trace, "{one:#}");
    true
}

/// Goal: of a clean run nothing is named that was not there: nobody was stopped, frozen or held by a debugger.
#[test]
fn of_a_clean_run_nothing_is_made_up() {
    let place = Place::alone();
    let said = run(&place, false, "");
    for cause in ["stopped", "frozen", "traced", "real_time_limit", "urgent_neighbour", "faults_major"] {
        assert_eq!(findings(&said, cause).len(), 0, "{said:#}");
    }
    assert_findings_sum(&said);
}
