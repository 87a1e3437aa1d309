//! Causes that are made on purpose, and the names that `punctual run response` gives them: the right stage, the right side, and the
//! right cause or none.
//!
//! A few injections of each kind; `PUNCTUAL_INJECTIONS` says how many. On a machine with other work, a neighbour is a cause too: the
//! assertions are of the stalls that an injection overlaps.

mod common;

use std::time::Duration;

use common::{Place, Started, alone, children, has_thread, punctual, summary_of, way_into, with_quota};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Injections of each kind.
fn injections() -> usize {
    std::env::var("PUNCTUAL_INJECTIONS").ok().and_then(|number| number.parse().ok()).unwrap_or(5)
}

/// From when to when, nanoseconds of `CLOCK_MONOTONIC`.
type Span = (u64, u64);

/// Side and cause named for one injected stall.
#[derive(Debug)]
struct Named {
    side: String,
    cause: String,
    finding: Value,
}

impl Named {
    /// Beside the injected stall another one may happen: the host took the CPU away, or another program of the machine had it.
    /// Then the thread's own account shows that for half of the time, beside all that a quota may have taken, and nothing of a stop.
    fn is_another(&self) -> bool {
        let seen = &self.finding["seen"];
        let of = |name: &str| seen[name].as_u64().unwrap_or(0);
        let is_half = |us: u64| us * 2_000 >= self.finding["excess_ns"].as_u64().unwrap_or(u64::MAX);
        match self.cause.as_str() {
            "steal" => is_half(of("stolen_us")),
            // Time that a quota took may be counted as a wait, too.
            "run_queue" => {
                let wait_us = of("wait_us").saturating_sub(of("throttled_us_most"));
                is_half(wait_us) && of("stopped_us") == 0
            }
            _ => false,
        }
    }
}

/// The stalls, most of whose time beyond the usual lies in an injection.
fn named(summary: &Value, injected: &[Span]) -> Vec<Named> {
    let began_ns = summary["response"]["began_ns"].as_u64().expect("an instant");
    let findings = summary["results"][0]["findings"].as_array().expect("findings");
    let of = |value: &Value| value.as_u64().expect("nanoseconds");
    let is_injected = |finding: &&Value| {
        let end = began_ns + of(&finding["stall"]["release_ns"]);
        let begin = end - of(&finding["stall"]["longest_ns"]);
        let inside = |&(from, to): &Span| to.min(end).saturating_sub(from.max(begin));
        // An injection that covers two thirds leaves no half to anything else.
        injected.iter().map(inside).sum::<u64>() * 3 > of(&finding["excess_ns"]) * 2
    };
    let text = |value: &Value| value.as_str().expect("a word").to_owned();
    findings
        .iter()
        .filter(is_injected)
        .map(|finding| Named {
            side: finding["side"].as_str().unwrap_or_default().to_owned(),
            cause: text(&finding["cause"]),
            finding: finding.clone(),
        })
        .collect()
}

/// Prints what they were called; each must be right, or unexplained.
fn judge(what: &str, named: &[Named], cause: &str, sides: &[&str]) {
    let right = named.iter().filter(|named| named.cause == cause).count();
    let unexplained = named.iter().filter(|named| named.cause == "unexplained").count();
    println!("{what}: {} stalls, {right} {cause}, {unexplained} unexplained", named.len());
    for named in named {
        if named.cause != cause && named.is_another() {
            eprintln!("{what}: another stall at the same time: {}", named.finding);
            continue;
        }
        assert!([cause, "unexplained"].contains(&named.cause.as_str()), "{what}: {:#}", named.finding);
        let is_side = sides.contains(&named.side.as_str());
        assert!(is_side || named.cause == "unexplained", "{what}: {:#}", named.finding);
    }
}

/// A run that goes on for so long, in the background.
fn start(place: &Place, seconds: f64, more: &str, way: &[&str]) -> Started {
    let arguments = format!("run response --json - --rounds 1 --timeout 10s --duration {seconds}s {more}");
    let command = if way.is_empty() { punctual(&arguments) } else { common::punctual_by(way, &arguments) };
    let mut started = place.start(command);
    let run = started.id();
    started.has("a trial", || {
        responder_of(run).is_some_and(|responder| has_thread(responder, "responder"))
            && has_thread(run, "client")
    });
    // The first trips are the slowest in any case.
    std::thread::sleep(Duration::from_millis(200));
    started
}

/// The only child of a run.
fn responder_of(run: u32) -> Option<u32> {
    children(run).pop()?.parse().ok()
}

/// Sends it, if the process is still there.
fn send(process: u32, signal: Signal) -> Option<()> {
    kill_process(Pid::from_raw(process.cast_signed())?, signal).ok()
}

/// The states of a process's threads: none once it is gone.
fn states(process: u32) -> Vec<char> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let state = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    tasks.into_iter().flatten().flatten().filter_map(state).collect()
}

/// Stops a process for so long. None where it is gone: the test was held up for longer than its run lasts.
fn stop(process: u32, lasts: Duration) -> Option<Span> {
    send(process, Signal::STOP)?;
    let sent = monotonic_ns();
    // A thread that waits for a processor when the signal comes goes on to wait for it, and stops when it runs. That wait is a
    // neighbour's doing.
    while states(process).iter().any(|&state| state != 'T') {
        assert!(monotonic_ns() < sent + 10_000_000_000, "process {process} does not stop");
        if states(process).contains(&'Z') {
            return None;
        }
        std::thread::yield_now();
    }
    let from = monotonic_ns();
    sleep_until(from + lasts.as_nanos() as u64);
    let to = monotonic_ns();
    send(process, Signal::CONT)?;
    Some((from, to))
}

/// The stalls of one run that so many stops made; of the first one that lasts until all are made.
fn stops(side: &str, lasts: Duration, count: usize) -> Vec<Named> {
    (0..RUNS_MAX).find_map(|_| stops_in_a_run(side, lasts, count)).expect("a run that is not over too soon")
}

/// None where the run was over before.
fn stops_in_a_run(side: &str, lasts: Duration, count: usize) -> Option<Vec<Named>> {
    let place = Place::new();
    let seconds = 1.0 + count as f64 * (lasts.as_secs_f64() + 0.03) * 2.0;
    let started = start(&place, seconds, "", &[]);
    let client = started.id();
    let process = if side == "client" { Some(client) } else { responder_of(client) };
    let injected = (0..count).map(|number| {
        // Not in step with anything that is periodic.
        std::thread::sleep(Duration::from_micros(20_000 + 1_700 * (number as u64 % 7)));
        stop(process?, lasts)
    });
    let spans: Option<Vec<Span>> = injected.collect();
    let summary = summary_of(&started.end().with(0).out);
    Some(named(&summary, &spans?))
}

/// Runs of which one shows what is looked for, however the machine is used.
const RUNS_MAX: usize = 5;

/// Goal: a stop is called a stop or nothing, of the side that was stopped, however short it is.
#[test]
fn a_stop_is_called_a_stop() {
    let _turn = alone();
    sleep_precisely();
    for lasts in [3, 20, 250].map(Duration::from_millis) {
        for side in ["responder", "client"] {
            let numbers: Vec<usize> = (0..injections()).collect();
            // The summary holds a run's longest stalls only.
            let named: Vec<Named> =
                numbers.chunks(10).flat_map(|some| stops(side, lasts, some.len())).collect();
            judge(&format!("{lasts:?} stops of the {side}"), &named, "stopped", &[side]);
            if lasts > Duration::from_millis(200) {
                assert!(named.iter().any(|named| named.cause == "stopped"), "{named:#?}");
            }
        }
    }
}

/// Goal: a neighbour on the CPU is called a neighbour.
#[test]
fn a_hog_is_called_a_neighbour() {
    let _turn = alone();
    let cpus = punctual_machine::cpu::allowed();
    let [.., last] = cpus[..] else { return };
    let is_named = (0..RUNS_MAX).any(|_| {
        let named = beside_a_hog(last);
        judge("a hog", &named, "run_queue", &["client", "responder"]);
        named.iter().any(|named| named.cause == "run_queue")
    });
    assert!(is_named, "in {RUNS_MAX} runs no hog was named");
}

/// The stalls of a run while a thread computed on a processor.
fn beside_a_hog(cpu: usize) -> Vec<Named> {
    let place = Place::new();
    let count = injections() as u64;
    let started = start(&place, 1.0 + 0.1 * count as f64, "", &[]);
    let hog = std::thread::spawn(move || {
        punctual_machine::cpu::pin_to(cpu).expect("allowed");
        let burst = |_| {
            std::thread::sleep(Duration::from_millis(30));
            let from = monotonic_ns();
            while monotonic_ns() < from + 30_000_000 {
                std::hint::spin_loop();
            }
            (from, monotonic_ns())
        };
        (0..count).map(burst).collect::<Vec<Span>>()
    });
    let spans = hog.join().expect("it computes");
    named(&summary_of(&started.end().with(0).out), &spans)
}

/// Goal: a quota that ran out is no neighbour, its advice is not to isolate, and it is a doubt.
#[test]
fn a_quota_is_called_a_quota() {
    let _turn = alone();
    let Some(group) = with_quota("quota-test", Duration::from_millis(20)) else { return };
    let place = Place::new();
    let way = way_into(&group);
    let seconds = 1.0 + 0.2 * injections() as f64;
    let from = monotonic_ns();
    let started = start(&place, seconds, "", &["sh", "-c", &way]);
    let summary = summary_of(&started.end().with(0).out);
    let mut named = named(&summary, &[(from, monotonic_ns())]);
    // Shorter ones may be a neighbour's.
    named.retain(|Named { finding, .. }| finding["excess_ns"].as_u64() > Some(20_000_000));
    judge("a quota", &named, "throttled", &["client", "responder"]);
    assert!(named.iter().any(|named| named.cause == "throttled"), "{named:#?}");
    let doubts = summary["doubts"].to_string();
    assert!(doubts.contains("quota ran out"), "{doubts}");
}

/// Goal: 20 µs more in a stage show in that stage, as a median.
#[test]
fn twenty_microseconds_show_in_their_stage() {
    let place = Place::alone();
    let stage_ns = |more: &str, stage: &str| {
        let (count, out) = (200 * injections(), monotonic_ns());
        let patient = "run response --json - --rounds 1 --timeout 10s";
        let ended = place.punctual(&format!("{patient} --count {count} --out run-{out} {more}"));
        let summary = summary_of(&ended.with(0).out);
        let stages = summary["results"][0]["stages"].as_array().expect("stages").clone();
        let found = stages.iter().find(|found| found["name"] == stage);
        found.unwrap_or_else(|| panic!("no stage {stage} in {stages:#?}"))["median_ns"].as_i64().expect("ns")
    };
    let open = "--rate 2000";
    for (load, stage, delay_us, least_ns) in [
        (open, "request.sent", 20, 20_000),
        ("", "responder", 20, 20_000),
        // A thread that is away for longer than the packet is under way keeps it waiting for the rest.
        ("", "request.elsewhere", 400, 20_000),
        ("", "reply.elsewhere", 400, 20_000),
    ] {
        let delay = format!("{stage}={delay_us}us");
        let without_ns = stage_ns(load, stage);
        let with_ns = stage_ns(&format!("{load} --delay {delay}"), stage);
        println!("{delay}: {without_ns} → {with_ns} ns");
        assert!(with_ns >= least_ns, "{delay}: {without_ns} → {with_ns} ns");
    }
}

/// Goal: the explanation from the store names the stop of the responder where the kernel's trace could be recorded, and never
/// the client for it; elsewhere it says what is missing. Explained again it is the same to the letter. Method: on a busy machine
/// a stop may begin long before the trip that it makes late, outside of what is dumped; of some runs one names it.
#[test]
fn a_stop_is_explained_from_the_store() {
    let _turn = common::alone();
    let is_named = (0..RUNS_MAX).any(|_| is_stop_explained());
    assert!(is_named, "none of {RUNS_MAX} stops was named");
}

/// Returns true if the stop of a responder was named, or could not be traced here.
fn is_stop_explained() -> bool {
    let place = Place::new();
    let started = start(&place, 2.0, "--trace --out run", &[]);
    let stopped = responder_of(started.id()).and_then(|process| stop(process, Duration::from_millis(100)));
    let summary = summary_of(&started.end().with(0).out);
    if stopped.is_none() {
        eprintln!("once more: the run was over before its responder was stopped");
        return false;
    }
    let said = place.punctual("explain run --json").with(0).out;
    assert_eq!(place.punctual("explain run --json").with(0).out, said);
    let explained: Value = serde_json::from_str(&said).expect("JSON");
    let findings = explained["findings"].as_array().expect("findings");
    assert!(!findings.is_empty(), "a stop of 100 ms makes something late");
    let stopped = |role: &str| {
        let has = |finding: &Value| {
            let causes = finding["causes"].as_array().expect("causes");
            finding["role"] == role && causes.iter().any(|cause| cause["name"] == "stopped")
        };
        findings.iter().any(has)
    };
    assert!(!stopped("client"), "{said}");
    // The list of skipped measurements is left out of a summary if nothing was skipped.
    let mut skipped = summary["skipped"].as_array().into_iter().flatten();
    let is_trace = |skipped: &&Value| skipped["what"].as_str().is_some_and(|what| what.contains("--trace"));
    let Some(skipped) = skipped.find(is_trace) else { return stopped("responder") };
    punctual_machine::skipped!("{skipped}");
    assert!(findings.iter().all(|finding| finding["would_help"].is_string()), "{said}");
    true
}
