//! The recorder on this kernel, where it may be used.
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use super::*;
use crate::softirq_load::SoftirqLoad;
use punctual_machine::cpu::{allowed, pin_to};
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
            punctual_machine::skipped!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// True if a thread fell asleep, as a dump tells.
fn fell_asleep(traces: &[CpuTrace], thread: u32, since_ns: u64) -> bool {
    traces.iter().flat_map(|trace| &trace.events).any(|event| {
        let left =
            |previous: &Task, state: TaskState| previous.thread == thread && state == TaskState::Asleep;
        event.at_ns >= since_ns
            && matches!(&event.event, TraceEvent::Switch { previous, state, .. } if left(previous, *state))
    })
}

/// Goal: the actions of a thread are in the next dump, in the order of time. They are not in a dump that is asked for later events.
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
        assert!(trace.since_ns <= trace.until_ns && trace.until_ns == dump.until_ns);
    }
    let later = recorder.dump(monotonic_ns()).expect("a dump");
    assert!(!fell_asleep(&recorder.read(&later), thread_id(), dump.until_ns));
}

/// Goal: the birth of a thread is recorded, with its parent.
#[test]
fn a_birth_is_recorded() {
    let Some(mut recorder) = recorder() else { return };
    let from_ns = monotonic_ns();
    let born = std::thread::spawn(thread_id).join().expect("it ends");
    let dump = recorder.dump(from_ns).expect("a dump");
    let traces = recorder.read(&dump);
    let is_it = |event: &TracedEvent| matches!(&event.event, TraceEvent::Birth { parent, born: task } if task.thread == born && *parent == thread_id());
    assert!(traces.iter().flat_map(|trace| &trace.events).any(is_it), "{traces:?}");
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
        punctual_machine::skipped!("this kernel tells no system calls");
        return;
    }
    let from_ns = monotonic_ns();
    std::thread::sleep(Duration::from_millis(2));
    std::thread::spawn(|| std::thread::sleep(Duration::from_millis(1))).join().expect("it ends");
    let dump = recorder.dump(from_ns).expect("a dump");
    let traces = recorder.read(&dump);
    let calls = traces.iter().flat_map(|trace| &trace.events).filter_map(|event| match event.event {
        TraceEvent::CallEntry { thread, number } if event.at_ns >= from_ns => {
            Some((event.at_ns, thread, call_name(number)))
        }
        _ => None,
    });
    // The thread may have changed its CPU, and each has a trace of its own.
    let mut calls: Vec<_> = calls.collect();
    calls.sort_unstable();
    let first = calls.first().map(|&(_, thread, name)| (thread, name));
    assert_eq!(first, Some((thread_id(), Some("clock_nanosleep"))));
    assert!(calls.iter().all(|&(_, thread, _)| thread == thread_id()));
    assert!(traces.iter().all(|trace| !trace.is_damaged));
}

/// Time of a CPU in deferred work after an instant, and number of its pieces.
fn deferred_work(traces: &[CpuTrace], cpu: u32, from_ns: u64) -> (u64, usize) {
    let mut begun = from_ns;
    let (mut sum, mut pieces) = (0, 0);
    let events = traces.iter().filter(|trace| trace.cpu == cpu).flat_map(|trace| &trace.events);
    for event in events.filter(|event| event.at_ns >= from_ns) {
        match event.event {
            TraceEvent::SoftInterruptEntry { .. } => begun = event.at_ns,
            TraceEvent::SoftInterruptExit { .. } => {
                sum += event.at_ns - begun;
                pieces += 1;
            }
            _ => {}
        }
    }
    (sum, pieces)
}

/// Goal: receiving within a thread's own calls is not recorded, and work that interrupts the thread is. Method: two recorders of the
/// same time, of which one has every record; first messages to itself, then packets from another CPU.
#[test]
fn deferred_work_is_recorded_where_it_interrupts() {
    const MESSAGES: usize = 20_000;
    const LOADS: usize = 5;
    if recorder().is_none() {
        return;
    }
    let mut filtered = match TraceRecorder::open_as(RING_SIZE, None, true) {
        Ok(filtered) => filtered,
        Err(error) => return punctual_machine::skipped!("{error}"),
    };
    let mut whole = TraceRecorder::open_as(RING_SIZE, None, false).expect("as the other");
    let cpu = *allowed().last().expect("one");
    let number = u32::try_from(cpu).expect("a CPU");
    let mut both = |from_ns: u64| {
        [&mut filtered, &mut whole].map(|recorder| {
            let dump = recorder.dump(from_ns).expect("a dump");
            deferred_work(&recorder.read(&dump), number, from_ns)
        })
    };
    let sent = std::thread::spawn(move || {
        pin_to(cpu).expect("it is allowed");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(socket.local_addr().expect("bound")).expect("to itself");
        let from_ns = monotonic_ns();
        for _ in 0..MESSAGES {
            socket.send(&[0; 64]).expect("sent");
            socket.recv(&mut [0; 64]).expect("received");
        }
        from_ns
    });
    let from_ns = sent.join().expect("it ends");
    let [(sum, _), (whole_sum, whole_pieces)] = both(from_ns);
    assert!(whole_pieces >= MESSAGES, "{whole_pieces}");
    assert!(sum * 2 < whole_sum, "{sum} of {whole_sum}");
    let load = match SoftirqLoad::of(cpu) {
        Ok(load) => load,
        Err(error) => return punctual_machine::skipped!("{error}"),
    };
    // A thread that takes the CPU in the middle of it makes a piece longer than the load, or many short ones. That does not happen each
    // time.
    let tries: Vec<[u64; 3]> = (0..LOADS)
        .map(|_| {
            let until = monotonic_ns() + 30_000_000;
            let (from_ns, to_ns) = load.keep_until(until).expect("packets come through");
            let [(sum, _), (whole_sum, _)] = both(from_ns);
            [sum, whole_sum, to_ns - from_ns]
        })
        .collect();
    let is_right = |&[sum, whole_sum, took]: &[u64; 3]| sum * 4 > whole_sum * 3 && sum <= took;
    assert!(tries.iter().any(is_right), "recorded, whole, and the time it took: {tries:?}");
}

/// Goal: a thread that may trace and may not lock the rings is told that. It is not told to get the right that it has.
#[test]
fn a_limit_of_locked_memory_is_named() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if recorder().is_none() {
        return;
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim() == "-1" {
        punctual_machine::skipped!("this host lets everybody lock as much (perf_event_paranoid)");
        return;
    }
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), ..before }).unwrap();
    let refused = std::thread::spawn(|| {
        let mut ours = capabilities(None).unwrap();
        ours.effective -= CapabilitySet::IPC_LOCK;
        set_capabilities(None, ours).unwrap();
        TraceRecorder::start_with(RING_SIZE).map(drop)
    });
    let refused = refused.join();
    setrlimit(Resource::Memlock, before).unwrap();
    let error = refused.unwrap().unwrap_err();
    let said = error.to_string();
    assert!(said.contains("CAP_IPC_LOCK") && said.contains("ulimit -l"), "{said}");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}
