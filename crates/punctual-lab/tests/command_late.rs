//! `punctual explain FILE`: programs that are stopped, crowded out, asleep or busy leave a log, and it says so.

mod common;
mod late_program;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Place, alone, count, punctual, text};
use late_program::{HARM, Receiver};
use punctual::{Bus, CommunicatorOptions, LateLog, Node, Target, Wake};
use punctual_lab_machine::tracer::HeldProcess;
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{allowed, pin_to};
use punctual_machine::namespace::thread_id;
use serde_json::Value;

/// Not a test of its own: the program that receives, and notes what was late.
#[test]
fn role() {
    late_program::role();
}

/// Findings of that cause, at the receiver, of half of the harm or more.
fn found(said: &Value, cause: &str) -> usize {
    let findings = said["findings"].as_array().expect("a list");
    let is_it = |finding: &&Value| {
        let is_long = count(finding, "excess_ns") >= HARM.as_nanos() as u64 / 2;
        is_long
            && finding["cause"] == cause
            && finding["side"] == "receiver"
            && finding["role"] == "receiver:1"
    };
    findings.iter().filter(is_it).count()
}

/// All findings of that cause.
fn named(said: &Value, cause: &str) -> usize {
    said["findings"].as_array().expect("a list").iter().filter(|finding| finding["cause"] == cause).count()
}

/// Goal: a receiver that was stopped says so, whether it slept for messages or looked for them.
#[test]
fn a_stopped_receiver_is_found_stopped() {
    let _turn = alone();
    for wake in [Wake::Futex, Wake::Spin] {
        let is_found = (0..5).any(|_| {
            let receiver = Receiver::start(wake);
            receiver.send(b"mmmmmmmm", Duration::from_millis(5), |place| {
                if place == 4 {
                    receiver.signal("-STOP");
                }
                if place == 7 {
                    std::thread::sleep(HARM);
                    receiver.signal("-CONT");
                }
            });
            let (said, is_crowded) = receiver.explained();
            for other in ["handler_blocked", "busy"] {
                assert_eq!(found(&said, other), 0, "{wake}: {said:#}");
            }
            let stops = found(&said, "stopped");
            assert!(stops == 1 || stops == 0 && is_crowded, "{wake}: {said:#}");
            stops == 1
        });
        assert!(is_found, "{wake}: none of 5 stops was found");
    }
}

/// Goal: a program that blocks SIGCONT, as one does that waits for it on a thread of its own, notices no end of a stop. A stop of its
/// receiver is then not taken for a sleep, here of a handler that slept for a fourth of that time.
#[test]
fn a_stop_that_nobody_notices_is_no_sleep() {
    let _turn = alone();
    let mut blocking = Command::new("env");
    blocking.arg("--block-signal=CONT");
    if !blocking.arg("true").status().is_ok_and(|status| status.success()) {
        punctual_machine::skipped!("env blocks no signals here (coreutils 8.31 does)");
        return;
    }
    let mut blocking = Command::new("env");
    blocking.arg("--block-signal=CONT").arg(std::env::current_exe().expect("our path"));
    let receiver = Receiver::start_by(blocking, Wake::Futex);
    receiver.send(b"mmsmm", Duration::from_millis(5), |place| {
        if place == 4 {
            receiver.signal("-STOP");
            std::thread::sleep(4 * HARM);
            receiver.signal("-CONT");
        }
    });
    let (said, _) = receiver.explained();
    let all = said["findings"].as_array().expect("a list");
    let is_there = all.iter().any(|finding| count(finding, "excess_ns") >= 2 * HARM.as_nanos() as u64);
    assert!(is_there, "{said:#}");
    assert_eq!([named(&said, "handler_blocked"), named(&said, "stopped")], [0, 0], "{said:#}");
}

/// Goal: a message that a handler kept waiting is named by the handler's activity: it slept, or it computed.
#[test]
fn a_handler_that_sleeps_is_told_from_one_that_computes() {
    let _turn = alone();
    for (kind, cause, other) in [(b's', "handler_blocked", "busy"), (b'c', "busy", "handler_blocked")] {
        let is_found = (0..5).any(|_| {
            let receiver = Receiver::start(Wake::Futex);
            let late_us = receiver.send(&[b'm', kind, b'm', b'm'], Duration::from_millis(5), |_| {});
            let (said, is_taken) = receiver.explained();
            assert_eq!(found(&said, other), 0, "{said:#}");
            let is_crowded = is_taken || late_us[1] > HARM.as_micros() as u64 / 4;
            let is_found = found(&said, cause) == 1;
            assert!(is_found || is_crowded, "{said:#}");
            is_found
        });
        if !is_found {
            punctual_machine::skipped!("others had the CPU whenever a handler was to be {cause}");
        }
    }
}

/// Goal: a handler that sleeps while somebody traces its program is not said to have slept by itself; the tracer is named.
#[test]
fn a_handler_under_a_tracer_is_not_blocked() {
    let _turn = alone();
    let is_found = (0..5).any(|_| {
        let receiver = Receiver::start(Wake::Futex);
        let mut tracer = None;
        let late_us = receiver.send(b"mmsm", Duration::from_millis(5), |place| {
            if place == 1 {
                tracer = HeldProcess::hold(receiver.process()).ok();
                tracer.iter_mut().for_each(HeldProcess::let_run);
            }
        });
        if tracer.is_none() {
            punctual_machine::skipped!("a process may not trace another here");
            return true;
        }
        // It has answered, and writes of it when it finds no other message. On a busy machine that may be later.
        let path = receiver.place.path("late.jsonl");
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(10));
            if text(&path).contains("tracer") {
                break;
            }
        }
        drop(tracer);
        let (said, is_taken) = receiver.explained();
        assert_eq!(found(&said, "handler_blocked"), 0, "{said:#}");
        let is_crowded = is_taken || late_us[2] > HARM.as_micros() as u64 / 4;
        let is_found = found(&said, "traced") == 1;
        assert!(is_found || is_crowded, "{said:#}");
        let of_us = format!("({})", thread_id());
        assert!(!is_found || said.to_string().contains(&of_us), "{said:#}");
        is_found
    });
    if !is_found {
        punctual_machine::skipped!("others had the CPU whenever a handler was to sleep");
    }
}

/// Goal: a receiver that looks for messages all the time, and whose CPU others have too, is found ready to run.
#[test]
fn a_crowded_receiver_is_found_ready() {
    let _turn = alone();
    let done = Flag::default();
    let said = std::thread::scope(|scope| {
        let hog = || {
            pin_to(allowed()[0]).expect("it may run there");
            while !done.is_raised() {}
        };
        (0..12).for_each(|_| drop(scope.spawn(hog)));
        // Its own thread: if it fails, the others still end.
        let asks = scope.spawn(|| {
            let receiver = Receiver::start(Wake::Spin);
            receiver.send(&[b'm'; 100], Duration::from_millis(10), |_| {});
            receiver.explained().0
        });
        let ended = asks.join();
        done.raise();
        ended.expect("it says something")
    });
    let all = said["findings"].as_array().expect("a list").len();
    assert!(all > 0 && 2 * named(&said, "run_queue") > all, "{all}: {said:#}");
}

/// Goal: where nothing was late the log is empty, and that is said.
#[test]
fn nothing_late_is_said() {
    let place = Place::new();
    let path = place.path("late.jsonl");
    in_time(&path);
    assert_eq!(text(&path), "");
    let said = place.punctual("explain late.jsonl").with(0).out;
    assert!(said.contains("No message was late."), "{said}");
}

/// Messages from oneself, all of which are in time.
fn in_time(path: &Path) {
    let late = LateLog::create(path, Duration::from_secs(3600)).expect("a log");
    let node = Node::open(&Bus::loopback("in-time"), "here").expect("a bus");
    let mut port =
        node.bind_with(1, &CommunicatorOptions::default().stamped().noting_late(&late)).expect("a port");
    for _ in 0..1000 {
        port.send(Target::port("here", 1), b"in time").expect("room");
        port.receive().expect("a message");
    }
}

/// Goal: a file that is no log, or not there, is refused with its name and line.
#[test]
fn a_file_that_is_no_log_is_refused() {
    let place = Place::new();
    fs::write(place.path("other.txt"), "something else\n").expect("room");
    let said = place.start(punctual("explain other.txt")).end().with(2).err;
    assert!(said.contains("other.txt: line 1: no log of late messages"), "{said}");
    in_time(&place.path("late.jsonl"));
    for (more, words) in [
        ("--trace nowhere", "--trace nowhere: there is no such file or folder"),
        ("--threshold 1ms", "--threshold goes with"),
        ("--duration 1s", "and not with a log of late messages"),
        ("--pid 1", "--pid goes with"),
    ] {
        let said = place.punctual(&format!("explain late.jsonl {more}")).with(2).err;
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
    let said = place.start(punctual("explain late.jsonl --message 3")).end().with(2).err;
    assert!(said.contains("--message 3"), "{said}");
}
