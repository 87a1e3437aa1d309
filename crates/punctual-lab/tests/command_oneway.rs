//! `punctual run oneway` and `punctual node`, as people call them.

mod common;
mod glossary;

use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Stdio};

use common::{Ended, Place, Stop, alone, own_address, punctual, result, summary_of};
use serde_json::Value;

fn assert_both_ways(summary: &Value) {
    for name in ["udp/there", "udp/back", "udp/there_bound", "udp/back_bound"] {
        assert_eq!(result(summary, name)["kind"], "one_way", "{name}");
        assert!(result(summary, name)["p50"].as_u64().is_some(), "{name}");
    }
    // Each way is within the trip that it is a part of, by its bound.
    let p50 = |name: &str| result(summary, name)["p50"].as_u64().expect("a median");
    let ways = p50("udp/there") + p50("udp/back");
    let bounds = p50("udp/there_bound") + p50("udp/back_bound");
    assert!(ways <= p50("udp/round_trip") + 2 * bounds, "{summary:#}");
    let oneway = &summary["oneway"];
    assert!(oneway["checked"].as_u64().expect("a count") >= 200, "one clock: the truth is known: {oneway}");
    assert_eq!(oneway["checked"], oneway["held"], "the truth lies within the bound");
}

/// Goal: without options both ends are there, and the truth, which is known, lies within every bound.
#[test]
fn both_ways_are_within_their_bounds() {
    let place = Place::alone();
    let ended = place.punctual("run oneway --count 300 --json - --out run").with(0);
    assert_both_ways(&summary_of(&ended.out));
    glossary::explains(&place.path("run"));
    let page = place.punctual("report run").with(0);
    assert!(page.err.is_empty(), "{}", page.err);
}

/// Another process with a node `far`, what it prints, and the bus on which to find it.
fn far_node() -> (Child, Lines<BufReader<ChildStdout>>, String) {
    let free = || UdpSocket::bind((own_address(), 0)).expect("a port");
    let (first, second) = (free(), free());
    let (here, there) = (first.local_addr().expect("bound"), second.local_addr().expect("bound"));
    drop((first, second));
    let mut node = punctual(&format!("node --bus udp:{there},{here} --name far"));
    let mut node = node.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut prints = BufReader::new(node.stdout.take().expect("a pipe")).lines();
    assert!(prints.next().expect("a line").expect("text").contains("keeps time"));
    (node, prints, format!("udp:{here},{there}"))
}

/// Goal: the same between two processes that a user starts.
#[test]
fn a_node_elsewhere_is_the_other_end() {
    let _turn = alone();
    let (mut node, _prints, bus) = far_node();
    let place = Place::new();
    let ended = place.punctual(&format!("run oneway --bus {bus} --to far --count 300 --json -"));
    node.kill().expect("it ran");
    node.wait().expect("it ended");
    assert_both_ways(&summary_of(&ended.with(0).out));
}

/// Goal: an answer that comes late is none that is lost. Method: the far end stands still meanwhile.
#[test]
fn a_late_answer_is_not_lost() {
    let _turn = alone();
    let (mut node, _prints, bus) = far_node();
    let place = Place::new();
    let arguments =
        format!("run oneway --bus {bus} --to far --duration 6s --count 1000000 --json - --out run");
    let mut started = place.start(punctual(&arguments));
    // On a busy machine it takes seconds until the two have a common time, before which nothing is measured.
    while !started.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(1_300));
        assert!(Stop::make(&node.id().to_string(), std::time::Duration::from_millis(700)).is_some());
    }
    let ended = started.end();
    node.kill().expect("it ran");
    node.wait().expect("it ended");
    let summary = summary_of(&ended.with(0).out);
    let trips = result(&summary, "udp/round_trip");
    assert!(trips["max"].as_u64() > Some(300_000_000), "no answer was late: {summary:#}");
    assert_eq!(trips["lost"], 0, "{summary:#}");
}

/// Goal: a far end that goes in the midst of a run takes nothing of what was measured with it, and is told of.
#[test]
fn a_far_end_that_goes_leaves_what_was_measured() {
    let _turn = alone();
    for seconds in [3, 10, 25] {
        let (mut node, _prints, bus) = far_node();
        let (place, lasts) = (Place::new(), format!("{}s", seconds + 3));
        let arguments =
            format!("run oneway --bus {bus} --to far --duration {lasts} --count 1000000 --out run");
        let started = place.start(punctual(&arguments));
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        // It leaves the bus, as a node does that ends.
        let told = std::process::Command::new("sh")
            .args(["-c", "kill \"$@\"", "kill", "-INT", &node.id().to_string()])
            .status();
        assert!(told.is_ok_and(|status| status.success()));
        node.wait().expect("it ended");
        let ended = started.end();
        // On a busy machine the two may not have had a common time by then.
        if ended.code != Some(3) {
            return assert_ended_early(&place, &ended.with(1));
        }
    }
    panic!("no common time in 25 s");
}

fn assert_ended_early(place: &Place, ended: &Ended) {
    let summary = place.summary("run/summary.json");
    assert!(result(&summary, "udp/there")["p50"].as_u64().is_some(), "{}", ended.err);
    let said = summary["doubts"].to_string();
    assert!(said.contains("ended early") || said.contains("lost"), "{said}");
}

#[test]
fn a_wrong_bus_is_refused_in_a_line() {
    let place = Place::new();
    let ended = place.punctual("run oneway --bus shared:here").with(2);
    assert!(ended.err.contains("--bus") && ended.err.contains("ethernet:INTERFACE"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
}

/// Goal: a run that finds no room for its samples leaves no folder that is no run: the next one may have its name.
/// Method: the shell's limit of files.
#[test]
fn a_run_without_room_leaves_nothing() {
    let place = Place::alone();
    let program = env!("CARGO_BIN_EXE_punctual");
    let call = format!("ulimit -f 8; exec {program} run oneway --count 2000 --duration 2s --out run");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &call]);
    let ended = place.start(shell).end().with(3);
    assert!(ended.err.contains("ulimit -f"), "{}", ended.err);
    assert!(!place.path("run").exists(), "{}", ended.err);
}
