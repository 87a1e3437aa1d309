//! `punctual run causes`: an injection makes messages late, and is called by its name, in some run of a few; a seed is a plan.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Place, Started, alone, children, has_thread};
use serde_json::Value;

/// On a busy machine another cause may have more of a stall: of some runs one names all.
const RUNS_MAX: usize = 5;

/// Stalls of clean runs that waited for a processor: so many have neighbours who compute all the while.
const CROWDED: u64 = 100;

fn matrix(place: &Place, run: usize, more: &str) -> Option<Value> {
    matrix_in("response", place, run, more)
}

fn matrix_in(experiment: &str, place: &Place, run: usize, more: &str) -> Option<Value> {
    let arguments = format!("run causes --in {experiment} --injections 2 --json - --out causes-{run} {more}");
    let ended = place.punctual(&arguments);
    if ended.code == Some(3) {
        punctual_machine::skipped!("{}", ended.err);
        return None;
    }
    Some(serde_json::from_str(&ended.with(0).out).expect("JSON"))
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

/// Goal: a computing thread is called busy and a stopped process stopped, of the side that it was, by both tiers where there is a trace;
/// every injection is in one column.
#[test]
fn injections_are_named() {
    let _turn = alone();
    if punctual_machine::cpu::allowed().len() < 2 {
        punctual_machine::skipped!("two processors are needed, so that a side can be late without the other");
        return;
    }
    let place = Place::new();
    let mut crowded = 0;
    for run in 0..RUNS_MAX {
        let Some(said) = matrix(&place, run, "--cause compute,stop") else { return };
        assert_eq!(said["schema"], "punctual.causes.v1");
        let rows = said["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 4, "{said:#}");
        let tier = usize::from(said["without_trace"].is_null());
        for row in rows {
            let named: u64 = row["named"][tier].as_object().expect("names").values().map(count).sum();
            assert_eq!(named + count(&row["no_stall"]), count(&row["made"]), "{row:#}");
        }
        let is_named = |name: &str| {
            rows.iter()
                .any(|row| row["cause"] == name && (0..=tier).all(|tier| count(&row["right"][tier]) > 0))
        };
        if is_named("busy") && is_named("stopped") {
            return;
        }
        crowded += usize::from(said["clean"]["named"][tier]["run_queue"].as_u64() > Some(CROWDED));
        eprintln!("run {run}: not all were named: {said:#}");
    }
    if crowded == RUNS_MAX {
        punctual_machine::skipped!("the processors are never free, and messages are late for other reasons");
        return;
    }
    panic!("in {RUNS_MAX} runs not all were named");
}

/// Goal: a thread that was stopped in another experiment is named, by both tiers where there is a trace, and the other side is not.
#[test]
fn other_experiments_are_injected_into() {
    let _turn = alone();
    if punctual_machine::cpu::allowed().len() < 2 {
        punctual_machine::skipped!("two processors are needed, so that a side can be late without the other");
        return;
    }
    let place = Place::new();
    for (number, (experiment, sides)) in [
        ("survey", ["survey client", "survey responder"]),
        ("vehicles", ["vehicle-0", "vehicle-1"]),
        ("server", ["server client", "server server"]),
        ("broadcast", ["member-0", "member-1"]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut missing = BTreeSet::from(sides.map(|side| format!("stop@{side}")));
        for run in 0..RUNS_MAX {
            let run = number * RUNS_MAX + run;
            let Some(said) = matrix_in(experiment, &place, run, "--pairs 0 --cause stop") else {
                break;
            };
            let tier = usize::from(said["without_trace"].is_null());
            for row in said["rows"].as_array().expect("rows") {
                let name = row["injected"].as_str().expect("a name");
                assert!(sides.iter().any(|side| name == format!("stop@{side}")), "{row:#}");
                let named: u64 = row["named"][tier].as_object().expect("names").values().map(count).sum();
                assert_eq!(named + count(&row["no_stall"]), count(&row["made"]), "{row:#}");
                if (0..=tier).all(|tier| count(&row["right"][tier]) > 0) {
                    missing.remove(name);
                }
            }
            if missing.is_empty() {
                break;
            }
            eprintln!("run {run}: not named yet: {missing:?}: {said:#}");
            assert!(run % RUNS_MAX < RUNS_MAX - 1, "in {RUNS_MAX} runs not named: {missing:?}");
        }
    }
}

/// Goal: every wait is told from every other by the trace, and two at once are both named, the longer first. Waits that are not
/// possible here are left out, with the reason.
#[test]
fn waits_are_told_apart_and_two_at_once() {
    let _turn = alone();
    if punctual_machine::cpu::allowed().len() < 2 {
        punctual_machine::skipped!("two processors are needed, so that a side can be late without the other");
        return;
    }
    let place = Place::new();
    let (mut missing, mut pairs, mut crowded) = (BTreeSet::from(WAITS.map(str::to_owned)), 0, 0);
    let causes = format!("compute,{}", WAITS.join(","));
    for run in 0..RUNS_MAX {
        let Some(said) = matrix(&place, run, &format!("--pairs 8 --cause {causes}")) else { return };
        if let Some(reason) = said["without_trace"].as_str() {
            punctual_machine::skipped!("{reason}");
            return;
        }
        let names =
            |row: &Value| row["injected"].as_str().expect("a name").split('@').next().map(str::to_owned);
        for row in said["rows"].as_array().expect("rows") {
            if count(&row["right"][1]) > 0 {
                missing.retain(|name| Some(name) != names(row).as_ref());
            }
        }
        for skipped in said["skipped"].as_array().expect("a list") {
            let (what, reason) = (&skipped["what"], skipped["reason"].as_str());
            assert!(reason.is_some_and(|reason| !reason.is_empty()), "{skipped}");
            punctual_machine::skipped!("{skipped}");
            missing.retain(|name| !what.as_str().is_some_and(|what| what.starts_with(name.as_str())));
        }
        let Value::Object(counts) = &said["pairs"] else { panic!("{said:#}") };
        let both = count(&counts["both"]);
        assert!(count(&counts["longer_first"]) <= both && both <= count(&counts["made"]), "{counts:?}");
        pairs += count(&counts["longer_first"]);
        if missing.is_empty() && pairs > 0 {
            return;
        }
        crowded += usize::from(said["clean"]["named"][1]["run_queue"].as_u64() > Some(CROWDED));
        eprintln!("run {run}: not named yet: {missing:?}, {pairs} pairs: {said:#}");
    }
    if crowded == RUNS_MAX {
        punctual_machine::skipped!("the processors are never free, and messages are late for other reasons");
        return;
    }
    panic!("in {RUNS_MAX} runs not named: {missing:?}; {pairs} pairs");
}

/// Waits of a thread, as they are injected; the last three keep it from its work.
const WAITS: [&str; 12] = [
    "lock",
    "preempted-holder",
    "memory-map",
    "sleep",
    "sync",
    "cold-pages",
    "freeze",
    "tracer",
    "packets",
    "real-time-limit",
    "move",
    "signal-storm",
];

/// Goal: wrong requests are reported before anything is injected.
#[test]
fn a_wrong_request_is_reported_before_any_injection() {
    let place = Place::new();
    let error = place.punctual("run causes --cause gremlins").with(2).err;
    assert!(error.contains("gremlins") && error.contains("stop"), "{error}");
    std::fs::write(place.path("taken"), "").expect("room");
    let error = place.punctual("run causes --out .").with(2).err;
    assert!(error.contains("not empty"), "{error}");
}

/// Many injections, the first of which are being made: the command, and that run with its own processes. None where there can be none.
fn injecting(place: &Place) -> Option<(Started, Vec<String>)> {
    let arguments = "run causes --in response --cause hog --tier 0 --injections 100 --out causes";
    let mut started = place.start(common::punctual(arguments));
    let own = started.id();
    let ends = |run: &String| children(run.parse().expect("a number"));
    if started.ends_before(|| has_thread(own, "hog")) {
        let ended = started.end().with(3);
        punctual_machine::skipped!("{}", ended.err);
        return None;
    }
    let runs = children(own);
    let all = runs.iter().cloned().chain(runs.iter().flat_map(ends)).collect();
    Some((started, all))
}

/// The control groups of a command that injects.
fn groups(command: u32) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let group = |mount: &str| root.join(mount).join(format!("punctual-causes-{command}"));
    ["", "cpu", "memory", "unified"].map(group).into_iter().filter(|group| group.exists()).collect()
}

/// Waits until all of these have ended.
fn have_ended(processes: &[String]) {
    let goes_on = |process: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // A process that has ended, and was not waited for yet, does nothing more.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    let begun = Instant::now();
    while processes.iter().any(goes_on) {
        assert!(begun.elapsed() < Duration::from_secs(100), "a test hangs: {processes:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Goal: the second Ctrl-C leaves no control group behind. The run ends, too. Method: it is stopped, so that it does not end at the first.
#[test]
fn a_second_interrupt_leaves_no_group_behind() {
    let place = Place::alone();
    let Some((mut started, runs)) = injecting(&place) else { return };
    let command = started.id();
    if groups(command).is_empty() {
        punctual_machine::skipped!("no control group can be made here");
    }
    punctual_machine::signal::stop(runs[0].parse().expect("a number")).expect("it goes on");
    while !started.has_ended() {
        started.signal("-INT");
    }
    assert_eq!(started.end().code, None, "a signal ended it");
    assert_eq!(groups(command), Vec::<PathBuf>::new());
    have_ended(&runs);
}

/// Goal: a run into which something is injected ends with the command that makes it, however that ends: nobody would thaw it. Method: a
/// run that ends by itself has a summary.
#[test]
fn a_run_does_not_outlive_its_command() {
    let place = Place::alone();
    let Some((started, runs)) = injecting(&place) else { return };
    let command = started.id();
    started.signal("-KILL");
    assert_eq!(started.end().code, None);
    have_ended(&runs);
    for group in groups(command) {
        std::fs::remove_dir(group).expect("nobody is in it");
    }
    let stored = place.path("causes/000");
    assert!(!stored.join("summary.json").exists(), "{} went on to its end", stored.display());
}
