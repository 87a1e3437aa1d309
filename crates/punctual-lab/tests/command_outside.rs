//! `punctual explain --pid`: a process that knows nothing of it is stopped, crowded out, throttled, and waits for a lock.

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{
    Place, STOPPED_RUNS_MAX, Started, alone, count, has_thread, punctual, unprivileged, with_quota,
};
use punctual_lab::scheduling::{ControlGroup, Job};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{allowed, pin_to};
use punctual_machine::signal::end_with_parent;
use serde_json::Value;

/// Duration of each harm done to the target.
const HARM: Duration = Duration::from_millis(60);

const MS: u64 = 1_000_000;

/// Not a test of its own: the process that is looked at. One thread computes, one sleeps, one holds a lock, and one wants that.
#[test]
fn role() {
    if std::env::var_os("PUNCTUAL_TEST_OUTSIDE").is_none() {
        return;
    }
    end_with_parent();
    let (lock, turn) = (Arc::new(Mutex::new(())), Arc::new(std::sync::Barrier::new(2)));
    let start = |name: &str, work: Box<dyn FnMut() + Send>| {
        let mut work = work;
        let each = move || loop {
            work();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(each).expect("a thread")
    };
    let mut is_pinned = false;
    start(
        "spinner",
        Box::new(move || {
            if !std::mem::replace(&mut is_pinned, true) {
                let _unpinned_if_not = pin_to(allowed()[0]);
            }
            std::hint::spin_loop();
        }),
    );
    start("sleeper", Box::new(|| std::thread::sleep(Duration::from_millis(20))));
    let (held, begun) = (Arc::clone(&lock), Arc::clone(&turn));
    start(
        "holder",
        Box::new(move || {
            let holds = held.lock();
            begun.wait();
            std::thread::sleep(HARM);
            drop(holds);
            begun.wait();
        }),
    );
    let waiter = start(
        "waiter",
        Box::new(move || {
            turn.wait();
            drop(lock.lock());
            turn.wait();
        }),
    );
    let _never = waiter.join();
}

struct Target(Child);

impl Target {
    fn start() -> Self {
        let mut itself = Command::new(std::env::current_exe().expect("our path"));
        itself.args(["role", "--exact", "--quiet", "--nocapture", "--test-threads=1"]);
        let child =
            itself.env("PUNCTUAL_TEST_OUTSIDE", "1").stdout(Stdio::null()).spawn().expect("ourselves");
        let begin = Instant::now();
        while !has_thread(child.id(), "waiter") {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }

    fn signal(&self, name: &str) {
        let sent =
            Command::new("sh").args(["-c", "kill \"$@\"", "kill", name, &self.0.id().to_string()]).status();
        assert!(sent.expect("a shell").success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Findings of a thread by that cause, of this length or more.
fn found(said: &Value, thread: &str, cause: &str, ms: u64) -> Vec<Value> {
    let findings = said["findings"].as_array().expect("a list");
    let is_it = |finding: &&Value| {
        let is_its = finding["role"].as_str().is_some_and(|role| role.starts_with(&format!("{thread} (")));
        is_its && finding["cause"] == cause && count(finding, "excess_ns") >= ms * MS
    };
    findings.iter().filter(is_it).cloned().collect()
}

fn thread<'a>(said: &'a Value, name: &str) -> &'a Value {
    let threads = said["threads"].as_array().expect("a list");
    threads.iter().find(|thread| thread["name"] == name).unwrap_or_else(|| panic!("no {name}: {said:#}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A recording that has begun: its process has mapped the rings.
fn recording(place: &Place, target: &Target, more: &str) -> Option<Started> {
    let pid = target.0.id();
    let mut started = place.start(punctual(&format!("explain --json --pid {pid} {more}")));
    let maps = format!("/proc/{}/maps", started.id());
    if started.ends_before(|| fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("[perf_event]"))) {
        punctual_machine::skipped!("{}", started.end().with(3).err);
        return None;
    }
    std::thread::sleep(Duration::from_millis(200));
    Some(started)
}

/// Goal: each thread's lateness has its cause, with the thread behind it. A thread that sleeps is idle; a lock may be an empty queue,
/// and is said to. The trace on file says the same again.
#[test]
fn the_cause_of_each_late_thread_is_named() {
    let _turn = alone();
    let is_named = (0..STOPPED_RUNS_MAX).any(|_| is_all_named());
    assert!(is_named, "in none of {STOPPED_RUNS_MAX} recordings was all named");
}

/// Returns true if everything that was done was named, or nothing can be recorded here. A busy machine may keep the target from what it
/// does.
fn is_all_named() -> bool {
    let (place, target) = (Place::new(), Target::start());
    let Some(started) = recording(&place, &target, "--duration 2s --out kept.trace.json") else {
        return true;
    };
    target.signal("-STOP");
    std::thread::sleep(HARM);
    target.signal("-CONT");
    std::thread::sleep(Duration::from_millis(100));
    let hogs = Job::on_each("hog", &[0; 4], |_, stop: &Flag| {
        pin_to(allowed()[0]).expect("it may run there");
        while !stop.is_raised() {}
    });
    std::thread::sleep(Duration::from_millis(300));
    drop(hogs);
    let said = json(&started.end().with(0).out);
    assert_eq!((&said["schema"], &said["tier"]), (&"punctual.explain.v1".into(), &1.into()));
    let is_stopped = !found(&said, "spinner", "stopped", HARM.as_millis() as u64 / 2).is_empty();
    let crowded = found(&said, "spinner", "run_queue", 2);
    let by_hog =
        |one: &Value| one["causes"][0]["evidence"].as_str().is_some_and(|text| text.contains("hog ("));
    let is_crowded = crowded.iter().any(by_hog);
    let waited = found(&said, "waiter", "waited", HARM.as_millis() as u64 / 2);
    let by_holder = |one: &Value| {
        let evidence = one["causes"][0]["evidence"].as_str().unwrap_or_default();
        evidence.contains("holder (") && one["may_be_idle"] == true
    };
    let has_waited = waited.iter().any(by_holder);
    let has_calls = said["notes"]
        .as_array()
        .expect("a list")
        .iter()
        .all(|note| !note.as_str().unwrap_or_default().contains("System calls"));
    assert!(!has_calls || waited.iter().all(|one| one["call"] == "futex"), "{said:#}");
    let sleeper = thread(&said, "sleeper");
    // Some kernels record nothing of a thread that is woken while a CPU idles: that time is unknown, and nobody's lateness.
    let slept_ns = count(sleeper, "idle_ns") + count(sleeper, "unknown_ns");
    let is_idle = slept_ns > 500 * MS && count(sleeper, "waited_ns") == 0;
    // It is never idle: in all the time that it did not run, it was kept from running.
    let [ran_ns, kept_ns] = ["ran_ns", "kept_ns"].map(|name| count(thread(&said, "spinner"), name));
    let is_busy = ran_ns > 0 && ran_ns + kept_ns > 1_000 * MS;
    let again = place.json("explain kept.trace.json --json");
    let spans = |said: &Value| {
        let all = said["findings"].as_array().expect("a list").clone();
        all.iter()
            .map(|one| (one["role"].clone(), one["instant_ns"].clone(), one["excess_ns"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(spans(&again), spans(&said));
    let page = place.punctual("explain kept.trace.json").with(0).out;
    // The thread that kept it waiting longest is named, which on a busy host is none of ours.
    for words in ["Threads", "What was late", "Waits for other threads", "spinner ("] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let pid = target.0.id().to_string();
    place.punctual(&format!("explain kept.trace.json --pid {pid}")).with(0);
    let other = place.punctual("explain kept.trace.json --pid 1").with(2).err;
    assert!(other.contains("--pid 1"), "{other}");
    let named = [is_stopped, is_crowded, has_waited, is_idle, is_busy];
    if named != [true; 5] {
        eprintln!("once more: {named:?} of {said:#}");
    }
    named == [true; 5]
}

/// Goal: a user who ends a recording is told how long it was, and not that something was missed.
#[test]
fn a_recording_that_is_ended_says_so() {
    let _turn = alone();
    let (place, target) = (Place::new(), Target::start());
    let Some(started) = recording(&place, &target, "--duration 1h") else { return };
    started.signal("-INT");
    let said = json(&started.end().with(0).out);
    let notes = said["notes"].to_string();
    assert!(notes.contains("It was ended after") && !notes.contains("The trace holds"), "{notes}");
}

/// Goal: a quota that ran out is named by the counter of the group of that process. That counter sometimes shows less than half of it
/// for certain. The time is unexplained then, and another recording is made.
#[test]
fn a_quota_is_named() {
    let _turn = alone();
    let plenty = Duration::from_micros(ControlGroup::PLENTY_US);
    let Some(group) = with_quota("outside-test", plenty) else { return };
    let (place, target) = (Place::new(), Target::start());
    for file in group.members() {
        fs::write(file, target.0.id().to_string()).expect("a member");
    }
    let mut said = Value::Null;
    let is_named = (0..STOPPED_RUNS_MAX).any(|_| {
        let Some(started) = recording(&place, &target, "--duration 1500ms") else { return true };
        group.allow_us(ControlGroup::LEAST_US).expect("a quota");
        std::thread::sleep(Duration::from_millis(400));
        group.allow_us(ControlGroup::PLENTY_US).expect("a quota");
        said = json(&started.end().with(0).out);
        !found(&said, "spinner", "throttled", 20).is_empty()
    });
    assert!(is_named, "{said:#}");
    // The group is removed once it is empty.
    drop(target);
}

/// Goal: without privilege, or without a process, it says what to do; sums without the trace say that they are less.
#[test]
fn a_missing_privilege_or_process_is_said() {
    let _turn = alone();
    let (place, target) = (Place::world_writable(), Target::start());
    let pid = target.0.id().to_string();
    let none = place.punctual("explain --pid 4000000000").with(2).err;
    assert!(none.contains("--pid 4000000000"), "{none}");
    // Found out before anything is recorded: the recording would last longer than the watchdog waits.
    let into = |file| format!("explain --pid {pid} --duration 1h --out {file}");
    let nowhere = place.punctual(&into("no/where")).with(3);
    assert!(nowhere.out.is_empty() && nowhere.err.contains("cannot write no/where"), "{}", nowhere.err);
    if let Some(command) = unprivileged(&format!("explain --pid {pid} --duration 100ms")) {
        let said = place.start(command).end().with(3).err;
        assert!(said.contains("--tier 0"), "{said}");
        let mounts = fs::read_to_string("/proc/mounts").expect("procfs");
        assert!(!mounts.contains(" /sys/kernel/tracing tracefs ") || !said.contains("not mounted"), "{said}");
    }
    let less = format!("explain --tier 0 --pid {pid} --duration 300ms --json");
    let Some(command) = unprivileged(&less) else { return };
    let said = json(&place.start(command).end().with(0).out);
    assert_eq!((said["tier"].as_u64(), said["findings"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert!(count(thread(&said, "spinner"), "ran_ns") > 0, "{said:#}");
    let page = place.punctual(&format!("explain --tier 0 --pid {pid} --duration 50ms")).with(0).out;
    assert!(page.contains("spinner (") && page.contains("--tier 1"), "{page}");
}

/// Goal: a thread that ends before the end is in the table, with what was last seen of it.
#[test]
fn a_thread_that_ends_is_counted_until_then() {
    let place = Place::new();
    let counts = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
    let mut short = Command::new("sh").args(["-c", counts]).spawn().expect("a program");
    let started =
        place.start(punctual(&format!("explain --tier 0 --pid {} --duration 60s --json", short.id())));
    // Until somebody has asked how it ended it is still there.
    assert!(short.wait().is_ok_and(|status| status.success()));
    let said = json(&started.end().with(0).out);
    let counted = thread(&said, "sh");
    assert_eq!(counted["process"].as_u64(), Some(short.id().into()), "{said:#}");
    assert!(count(counted, "ran_ns") > 0, "{said:#}");
}

/// Goal: a recording of perf becomes a trace, of which the same is asked: a sleeper whose time was over waited 6 ms for the CPU.
#[test]
fn a_recording_of_perf_is_explained() {
    let place = Place::new();
    let recording = include_bytes!("../../punctual-lab-machine/src/trace_point/perf_data/sched.data");
    fs::write(place.path("perf.data"), recording).expect("room");
    let said = place.punctual("import perf perf.data").with(0).out;
    assert!(said.contains("punctual explain perf.data.trace.json"), "{said}");
    let said = place.json("explain perf.data.trace.json --json");
    let late = found(&said, "sleep", "run_queue", 6);
    assert_eq!(late.len(), 1, "{said:#}");
    assert_eq!(late[0]["stage"], "wake-up");
    let again = place.json("explain perf.data.trace.json --json --pid 13094");
    assert_eq!(again["threads"].as_array().map(Vec::len), Some(1));
    fs::write(place.path("perf.data"), &recording[..20_000]).expect("room");
    let refused = place.punctual("import perf perf.data").with(2).err;
    assert!(refused.contains("perf.data: it is cut off"), "{refused}");
}
