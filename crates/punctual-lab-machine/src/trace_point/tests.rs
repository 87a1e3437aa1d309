//! The recorder on this kernel, where it may be used.
use std::io;
use std::time::Duration;

use super::*;
use punctual_machine::namespace::thread_id;

/// `None`, and the reason printed, where this process may not trace.
fn recorder() -> Option<TraceRecorder> {
    recorder_with(RING_SIZE)
}

fn recorder_with(ring_size: usize) -> Option<TraceRecorder> {
    use io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    match TraceRecorder::start_with(ring_size) {
        Ok(recorder) => Some(recorder),
        Err(error) if [NotFound, PermissionDenied, Unsupported].contains(&error.kind()) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether a thread sleeps, as a dump tells.
fn fell_asleep(traces: &[CpuTrace], thread: u32, since_ns: u64) -> bool {
    traces.iter().flat_map(|trace| &trace.events).any(|event| {
        let left =
            |previous: &Task, state: TaskState| previous.thread == thread && state == TaskState::Asleep;
        event.at_ns >= since_ns
            && matches!(&event.event, TraceEvent::Switch { previous, state, .. } if left(previous, *state))
    })
}

/// Goal: what a thread does is in the next dump, in the order of time, and not in one that is asked for what came later.
#[test]
fn a_sleep_is_recorded() {
    let Some(mut recorder) = recorder() else { return };
    let from_ns = monotonic_ns();
    std::thread::sleep(Duration::from_millis(2));
    let dump = recorder.dump(from_ns).expect("a dump");
    let traces = recorder.read(&dump);
    assert!(fell_asleep(&traces, thread_id(), from_ns), "{traces:?}");
    for trace in &traces {
        assert!(!trace.is_damaged, "CPU {}", trace.cpu);
        assert!(trace.events.is_sorted_by_key(|event| event.at_ns), "CPU {}", trace.cpu);
        assert!(trace.since_ns <= trace.until_ns && trace.until_ns == dump.until_ns());
    }
    let later = recorder.dump(monotonic_ns()).expect("a dump");
    assert!(!fell_asleep(&recorder.read(&later), thread_id(), dump.until_ns()));
}

/// Goal: a recorder that is paused says what it lost, and when.
#[test]
fn a_pause_leaves_a_gap() {
    let Some(mut recorder) = recorder() else { return };
    std::thread::sleep(Duration::from_millis(1));
    recorder.pause().expect("paused");
    let paused_ns = monotonic_ns();
    std::thread::sleep(Duration::from_millis(2));
    let resumed_ns = monotonic_ns();
    recorder.resume().expect("resumed");
    std::thread::sleep(Duration::from_millis(2));
    let dump = recorder.dump(paused_ns).expect("a dump");
    let traces = recorder.read(&dump);
    assert!(!traces.iter().flat_map(|trace| &trace.events).any(|event| {
        let inside = event.at_ns > paused_ns && event.at_ns < resumed_ns;
        inside && matches!(event.event, TraceEvent::Switch { .. })
    }));
    let covers = |gap: &(u64, u64)| gap.0 <= paused_ns && gap.1 >= resumed_ns;
    assert!(traces.iter().any(|trace| trace.lost > 0 && trace.gaps.iter().any(covers)), "{traces:?}");
}

/// Goal: a ring that has gone round several times is read whole, and says from when on it knows everything.
#[test]
fn a_small_ring_overwrites_its_oldest() {
    let size = 2 * rustix::param::page_size().max(ring::MARGIN);
    let Some(mut recorder) = recorder_with(size) else { return };
    let from_ns = monotonic_ns();
    for _ in 0..400 {
        std::thread::sleep(Duration::from_micros(10));
    }
    let dump = recorder.dump(from_ns).expect("a dump");
    assert!(dump.size() > 0 && dump.size() <= recorder.rings.len() * (size - ring::MARGIN));
    let traces = recorder.read(&dump);
    assert!(traces.iter().all(|trace| !trace.is_damaged), "{traces:?}");
    // Each sleep is a switch of 88 bytes at least: 400 do not fit.
    assert!(traces.iter().any(|trace| trace.since_ns > from_ns), "{traces:?}");
}

/// Goal: calls of the threads that were asked for are recorded, with their numbers, and of no others.
#[test]
fn calls_of_chosen_threads_are_recorded() {
    if recorder().is_none() {
        return;
    }
    let mut recorder = TraceRecorder::start_with_calls(RING_SIZE, &[thread_id()]).expect("as the other");
    if !recorder.has_calls() {
        eprintln!("SKIPPED: this kernel tells no system calls");
        return;
    }
    let from_ns = monotonic_ns();
    std::thread::sleep(Duration::from_millis(2));
    std::thread::spawn(|| std::thread::sleep(Duration::from_millis(1))).join().expect("it ends");
    let dump = recorder.dump(from_ns).expect("a dump");
    let traces = recorder.read(&dump);
    let mut calls = traces.iter().flat_map(|trace| &trace.events).filter_map(|event| match event.event {
        TraceEvent::CallEntry { thread, number } if event.at_ns >= from_ns => {
            Some((thread, call_name(number)))
        }
        _ => None,
    });
    assert_eq!(calls.next(), Some((thread_id(), Some("clock_nanosleep"))));
    assert!(calls.all(|(thread, _)| thread == thread_id()));
    assert!(traces.iter().all(|trace| !trace.is_damaged));
}
