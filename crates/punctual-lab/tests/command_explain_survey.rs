//! `punctual explain RUN` of a survey: the thread that stood still, its side, the stage, and the cause.

mod common;

use std::time::{Duration, Instant};

use common::{Place, STOPPED_RUNS_MAX, Stop, alone, assert_no_other_cause, children, findings, punctual};
use punctual_machine::clock::monotonic_ns;
use serde_json::Value;

/// A survey of one route, while something happens to it once its second trial runs.
fn survey(place: &Place, only: &str, gap: &str, happens: impl FnOnce(u32)) -> Value {
    let arguments = format!(
        "survey --only {only} --gap {gap} --load closed --duration 6s --count 200000 --quiet --out run"
    );
    let mut started = place.start(punctual(&arguments));
    let samples = place.path("run/samples");
    let stored = || std::fs::read_dir(&samples).map_or(0, Iterator::count);
    started.has("its first trial is stored", || stored() >= 3);
    std::thread::sleep(Duration::from_millis(300));
    happens(started.id());
    // Where a host withholds its processors a message may be lost, which ends it with 1.
    let ended = started.end();
    assert!(place.path("run/summary.json").exists(), "{}", ended.err);
    place.json("explain run --json")
}

/// Stops a process for a while.
fn stop(process: &str) {
    Stop::make(process, STOP).unwrap_or_else(|| panic!("{process} is gone"));
}

const STOP: Duration = Duration::from_millis(150);

/// Goal: a responder that was stopped, in another process, is named with its side, once.
#[test]
fn a_stopped_responder_is_named() {
    let _turn = alone();
    let is_named = (0..STOPPED_RUNS_MAX).any(|_| is_responder_named());
    assert!(is_named, "none of {STOPPED_RUNS_MAX} stops was named");
}

fn is_responder_named() -> bool {
    let place = Place::new();
    let said = survey(&place, "shared/eventfd", "1ms", |run| {
        let [responder] = &children(run)[..] else { panic!("one responder") };
        stop(responder);
    });
    let stopped = findings(&said, "stopped");
    let [one] = &stopped[..] else {
        assert!(stopped.is_empty(), "{stopped:#?} of {said:#}");
        assert_no_other_cause(&said, STOP);
        eprintln!("once more: {said:#}");
        return false;
    };
    assert_eq!(one["side"], "responder", "{one:#}");
    assert_eq!(one["name"], "shared/eventfd", "{one:#}");
    assert!(one["stage"].as_str().is_some_and(|stage| stage.starts_with("request.")), "{one:#}");
    assert!(one["causes"][0]["share"].as_f64().is_some_and(|share| share > 0.5), "{one:#}");
    let text = place.punctual("explain run").with(0).out;
    assert_eq!(place.punctual("explain run").with(0).out, text, "the same again");
    let page = std::fs::read_to_string(place.path("run/report.html")).expect("a page");
    assert!(page.contains("responder: stopped"), "the page says it too");
    true
}

/// Goal: a client that was stopped is named, and not the responder who waited for it. Method: without a gap a message is always under
/// way; of several stops one at least is not between two trials.
#[test]
fn a_stopped_client_is_named() {
    let _turn = alone();
    let is_named = (0..STOPPED_RUNS_MAX).any(|_| is_client_named());
    assert!(is_named, "none of {STOPPED_RUNS_MAX} runs' stops was named");
}

fn is_client_named() -> bool {
    let place = Place::new();
    let said = survey(&place, "datagram/epoll", "0", |run| {
        for _ in 0..STOPS {
            stop(&run.to_string());
            std::thread::sleep(Duration::from_millis(90));
        }
    });
    let stopped = findings(&said, "stopped");
    assert!(stopped.len() <= STOPS, "{said:#}");
    assert!(stopped.iter().all(|one| one["side"] == "client"), "{stopped:#?}");
    if stopped.is_empty() {
        assert_no_other_cause(&said, STOP);
        eprintln!("once more: {said:#}");
    }
    !stopped.is_empty()
}

const STOPS: usize = 3;

/// Time beyond the usual that others had the processor of a side, while something went on, nanoseconds.
fn kept_from_running_ns(said: &Value, side: &str, (from_ns, to_ns): (u64, u64)) -> u64 {
    let number = |value: &Value| value.as_u64().expect("a number");
    let began_ns = number(&said["began_ns"]);
    let meanwhile = |one: &&Value| {
        let end_ns = began_ns + number(&one["stall"]["release_ns"]);
        one["side"] == side && end_ns > from_ns && end_ns - number(&one["stall"]["longest_ns"]) < to_ns
    };
    findings(said, "run_queue").into_iter().filter(meanwhile).map(|one| number(&one["excess_ns"])).sum()
}

/// Goal: threads that compute on the responder's processor are named there, and kept it from running for longer than anything kept the
/// client: by user space alone, without being told. Nobody was stopped.
#[test]
fn hogs_beside_the_responder_are_named() {
    let _turn = alone();
    let cpus = punctual_machine::cpu::allowed();
    if cpus.len() < 2 {
        punctual_machine::skipped!("two processors are needed");
        return;
    }
    let cpu = cpus[cpus.len() - 1];
    // On a busy machine the hogs push others to the client's processor: of some runs one shows whose they were.
    for run in 0..RUNS_MAX {
        let (said, span) = beside_hogs(&Place::new(), cpu);
        assert_eq!(findings(&said, "stopped").len(), 0, "{said:#}");
        let [client_ns, responder_ns] =
            ["client", "responder"].map(|side| kept_from_running_ns(&said, side, span));
        if responder_ns > client_ns {
            return;
        }
        eprintln!("run {run}: {client_ns} ns of the client, {responder_ns} of the responder: {said:#}");
    }
    panic!("in {RUNS_MAX} runs the client was kept from running for longer");
}

const RUNS_MAX: usize = 5;

/// A survey beside four threads that compute on a processor, and when they did.
fn beside_hogs(place: &Place, cpu: usize) -> (Value, (u64, u64)) {
    let mut span = (0, 0);
    let said = survey(place, "shared/spin", "1ms", |_| {
        let from_ns = monotonic_ns();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    punctual_machine::cpu::pin_to(cpu).expect("it may run there");
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_millis(800) {
                        std::hint::spin_loop();
                    }
                });
            }
        });
        span = (from_ns, monotonic_ns());
    });
    (said, span)
}
