//! `punctual run broadcast --app kv`, as scripts and people call it. Short runs: the clients' answers are looked at, never the speed.

mod common;
mod glossary;

use common::{Place, alone, count, is_root, result_where};
use serde_json::Value;

fn short(engines: &str, more: &str) -> String {
    format!("run broadcast --app kv --engine {engines} --keys 16 --json summary.json --out run {more}")
}

fn trials(summary: &Value) -> &[Value] {
    summary["broadcast"]["kv"].as_array().expect("trials")
}

/// Checks the values that every trial reports if its promises held.
fn check(trial: &Value) {
    assert_eq!((count(trial, "violation_count"), count(trial, "undecided")), (0, 0), "{trial:#}");
    assert!(count(trial, "checked_operations") > 100 && count(trial, "checked_keys") == 16, "{trial:#}");
    let is_local = trial["reads"] == "local";
    assert_eq!(count(trial, "local_gets") > 0, is_local, "{trial:#}");
    if is_local {
        let (stale, of) = (count(trial, "stale"), count(trial, "local_gets"));
        eprintln!("{stale} of {of} local gets were stale for certain");
        assert_eq!(stale > 0, count(trial, "stale_ns_max") > 0, "{trial:#}");
    }
}

/// Goal: clients in all members get answers that are linearizable, or local, in memory and on a network that loses; and that is in the
/// summary, in the store and in words.
#[test]
fn histories_are_linearizable() {
    let place = Place::alone();
    let more = "--members 3 --clients 12 --duration 1s --faults 2/1";
    let ended = place.punctual(&short("shared,multicast", more)).with(0);
    for words in ["How many operations a store does", "Operations every second", "What the histories say"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let summary = place.summary("summary.json");
    if !is_root() || !summary["skipped"].is_null() {
        punctual_machine::skipped!("{}", summary["skipped"]);
    }
    assert!([2, 4].contains(&trials(&summary).len()), "{summary:#}");
    trials(&summary).iter().for_each(check);
    let named = |name: &str, unit: &str| {
        let row = result_where(&summary, name, |row| row["unit"] == unit);
        assert!(row["p50"].as_u64() > Some(0), "{row:#}");
    };
    for reads in ["linearizable", "local"] {
        named(&format!("shared/kv/n3/2-1/{reads}"), "op/s");
        named(&format!("shared/kv/n3/2-1/{reads}/c12/put"), "ns");
        named(&format!("shared/kv/n3/2-1/{reads}/c12/get"), "ns");
    }
    let again = place.punctual("report run --text").with(0).out;
    assert!(again.contains("What the histories say"), "{again}");
    glossary::explains(&place.path("run"));
}

/// Goal: without a number clients are doubled until that brings nothing, and the best step is the store's.
#[test]
fn clients_are_raised() {
    let place = Place::alone();
    let more = "--members 2 --duration 100ms --reads linearizable --puts 100";
    place.punctual(&short("shared", more)).with(0);
    let summary = place.summary("summary.json");
    let [trial] = trials(&summary) else { panic!("{summary:#}") };
    check(trial);
    let steps = trial["steps"].as_array().expect("steps");
    assert!(steps.len() >= 3, "{steps:#?}");
    for (place, step) in steps.iter().enumerate() {
        assert_eq!(count(step, "clients"), 1 << place, "{steps:#?}");
    }
    // Members may stand still for one of the steps.
    assert!(steps.iter().map(|step| count(step, "operations")).sum::<u64>() > 0, "{steps:#?}");
}

/// Goal: members that are killed or stopped under load lose nothing that a client was told of, and come back with the same values.
#[test]
fn killed_members_lose_nothing() {
    let place = Place::alone();
    place.punctual(&short("shared", "--kills 3 --stops 1 --suspect 1s --faults 1/0")).with(0);
    let summary = place.summary("summary.json");
    let trials = trials(&summary);
    assert_eq!(trials.len(), 4, "{summary:#}");
    for trial in trials {
        check(trial);
        let times = if trial["disruption"] == "kill" { 3 } else { 1 };
        assert_eq!(count(trial, "disruptions"), times, "{trial:#}");
        assert!(count(trial, "views") >= 2 * times, "{trial:#}");
    }
    // Four clients wait for an answer nearly always when their process is killed.
    let maybe: u64 = trials.iter().map(|trial| count(trial, "maybe")).sum();
    assert!(maybe > 0, "{trials:#?}");
}

/// Goal: one get that answers another value, or one that was overwritten, is found: exit 1, and a sentence that names it.
#[test]
fn wrong_answers_are_found() {
    let _turn = alone();
    for planted in ["content", "order"] {
        let place = Place::new();
        let more = format!("--clients 8 --duration 1s --reads linearizable --plant {planted}");
        let said = place.punctual(&short("shared", &more)).with(1).err;
        assert!(said.contains("a promise did not hold: the get of key"), "{planted}: {said}");
        assert_eq!(count(&trials(&place.summary("summary.json"))[0], "violation_count"), 1, "{planted}");
    }
}

#[test]
fn options_that_do_not_go_together_are_named() {
    let place = Place::new();
    for (arguments, words) in [
        ("--app kv --bytes 1M", "--bytes"),
        ("--app kv --senders all", "--senders"),
        ("--app kv --period 1ms", "--period"),
        ("--app kv --kind agreed", "--kind"),
        ("--app kv --message 16", "--message"),
        ("--app kv --duration 1ms", "--duration"),
        ("--app kv --kills 1 --clients 3", "--clients"),
        ("--app kv --kills 1 --duration 1s", "--duration"),
        ("--app kv --puts 1", "--puts"),
        ("--app sql", "--app"),
        ("--reads local", "--reads"),
        ("--clients 3", "--clients"),
    ] {
        let said = place.punctual(&format!("run broadcast {arguments}")).with(2).err;
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
