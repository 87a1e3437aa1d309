//! `punctual watch`: of programs that may not trace, what was late is explained by the kernel's trace.

mod common;
mod late_program;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Place, Started, alone, count, is_root, punctual, text, unprivileged};
use late_program::{HARM, Receiver};
use punctual::Wake;
use punctual_lab::scheduling::{Job, Urgency};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::{allowed, pin_to};
use serde_json::Value;

/// Not a test of its own: the program that receives, and notes what was late.
#[test]
fn role() {
    late_program::role();
}

/// A watcher that has begun; `None`, and the reason printed, where it may not.
fn watcher(place: &Place, more: &str) -> Option<Started> {
    let mut started = place.start(punctual(&format!("watch {more}")));
    let is_recording = {
        let out = started.out_path();
        move || text(&out).contains("recording")
    };
    if started.ends_before(is_recording) {
        punctual_machine::skipped!("{}", started.end().with(3).err);
        return None;
    }
    Some(started)
}

/// Output of the watcher once it has heard of everything and is told to end.
fn said_by(watcher: Started) -> String {
    // It looks every few milliseconds.
    std::thread::sleep(Duration::from_millis(300));
    watcher.signal("-INT");
    watcher.end().with(0).out
}

fn explained(place: &Place, more: &str) -> Value {
    place.json(&format!("explain late.jsonl --json {more}"))
}

/// The findings of half of the harm or more.
fn long(said: &Value) -> Vec<Value> {
    let is_long = |finding: &&Value| count(finding, "excess_ns") >= HARM.as_nanos() as u64 / 2;
    said["findings"].as_array().expect("a list").iter().filter(is_long).cloned().collect()
}

fn traces(place: &Place) -> Vec<PathBuf> {
    let folder = fs::read_dir(place.path("late.jsonl.traces")).expect("a folder of traces");
    folder.map(|entry| entry.expect("an entry").path()).collect()
}

/// Goal: a handler that waits for a lock is reported, with the lock's holder, where a program by itself knows that it slept. Without
/// the trace, or with a damaged one, the explanation is the program's own.
#[test]
fn the_holder_of_a_lock_is_named() {
    let _turn = alone();
    // Where others have the CPU meanwhile, that may be the longer part.
    for _ in 0..RUNS_MAX {
        let mut receiver = Receiver::start(Wake::Futex);
        let place = Place::new();
        let Some(watcher) = watcher(&place, "") else { return };
        receiver.send(b"mlmm", Duration::from_millis(5), |_| {});
        receiver.end();
        let said = said_by(watcher);
        if !said.contains("watching") {
            // A busy machine lets a program come and go between two looks.
            eprintln!("once more: {said}");
            continue;
        }
        assert!(said.contains("late.jsonl.traces/"), "{said}");
        let found = explained(&receiver.place, "");
        assert_eq!(found["tier"], 1);
        let waited_for_holder = |one: &&Value| {
            let evidence = one["causes"][0]["evidence"].as_str();
            one["cause"] == "waited" && evidence.is_some_and(|text| text.contains("holder"))
        };
        let late = long(&found);
        if let Some(one) = late.iter().find(waited_for_holder) {
            return assert_less_says_less(&receiver.place, &found, one);
        }
        eprintln!("once more: {found:#}");
    }
    panic!("in {RUNS_MAX} runs nobody was named who held the lock");
}

const RUNS_MAX: usize = 5;

/// Checks the drawing of a wait that is named, and the output where there is no trace, or half of one.
fn assert_less_says_less(place: &Place, found: &Value, named: &Value) {
    let number = count(&named["stall"], "first_index").to_string();
    let drawn = place.punctual(&format!("explain late.jsonl --message {number}")).with(0).out;
    assert!(drawn.contains("waited for holder"), "{drawn}");
    let less = explained(place, "--tier 0");
    assert_eq!(less["tier"], 0);
    // A thread that waited for the CPU as well knows that by itself.
    let by_itself = ["handler_blocked", "unexplained", "run_queue", "steal"];
    let is_by_itself = |one: &Value| one["cause"].as_str().is_some_and(|cause| by_itself.contains(&cause));
    assert!(long(&less).iter().all(is_by_itself), "{less:#}");
    let files = traces(place);
    fs::rename(place.path("late.jsonl.traces"), place.path("elsewhere")).expect("ours");
    assert_eq!(explained(place, "--trace elsewhere"), *found);
    assert_eq!(explained(place, ""), less);
    for file in files {
        let file = place.path("elsewhere").join(file.file_name().expect("a name"));
        let whole = text(&file);
        fs::write(&file, &whole[..whole.len() / 2]).expect("room");
    }
    let damaged = explained(place, "--trace elsewhere");
    assert_eq!(damaged["findings"], less["findings"]);
    assert!(damaged["notes"].as_array().is_some_and(|notes| !notes.is_empty()), "{damaged:#}");
}

/// Goal: the thread that had the receiver's CPU is named, with its kind: an ordinary thread or a real-time one.
#[test]
fn a_neighbour_is_named() {
    let _turn = alone();
    if !is_root() {
        punctual_machine::skipped!("a real-time neighbour needs root");
        return;
    }
    let [first, .., last] = allowed()[..] else {
        punctual_machine::skipped!("two processors are needed: one for the sender");
        return;
    };
    for (urgency, cause) in [(Urgency::Other, "run_queue"), (Urgency::Fifo(50), "urgent_neighbour")] {
        let mut receiver = Receiver::start(Wake::Spin);
        let place = Place::new();
        let Some(watcher) = watcher(&place, "") else { return };
        receiver.send(b"mm", Duration::from_millis(5), |_| {});
        let hogs = if urgency == Urgency::Other { 12 } else { 1 };
        let send_beside_hogs = || {
            pin_to(last).expect("allowed");
            for _ in 0..4 {
                let mut job = None;
                // Once all hogs have had their turn it is the receiver's; a later message waits for them.
                receiver.send(b"mmmmmm", Duration::from_millis(5), |_| {
                    job.get_or_insert_with(|| hogs_on(first, urgency, hogs));
                });
                drop(job);
            }
        };
        // In a thread of its own, which alone keeps away from the hogs.
        std::thread::scope(|scope| scope.spawn(send_beside_hogs).join()).expect("all are answered");
        receiver.end();
        said_by(watcher);
        let found = explained(&receiver.place, "");
        let is_it = |one: &Value| {
            one["cause"] == cause
                && one["causes"][0]["evidence"].as_str().is_some_and(|text| text.contains("hog ("))
        };
        let all = found["findings"].as_array().expect("a list").clone();
        assert!(all.iter().any(is_it), "{cause}: {found:#}");
        let less = explained(&receiver.place, "--tier 0");
        assert!(
            less["findings"].as_array().expect("a list").iter().all(|one| one["cause"] != "urgent_neighbour"),
            "{less:#}"
        );
    }
}

/// So many threads that compute on a processor, once each of them has had it; from then on for as long as the harm lasts.
fn hogs_on(cpu: usize, urgency: Urgency, hogs: u64) -> Job<()> {
    let begun = Arc::new(Counter::default());
    let seen = Arc::clone(&begun);
    let hog = move |cpu: usize, stop: &Flag| {
        pin_to(cpu).expect("it may run there");
        urgency.apply().expect("root may be urgent");
        begun.add(1);
        while !stop.is_raised() && begun.get() < hogs {}
        let begin = Instant::now();
        while !stop.is_raised() && begin.elapsed() < HARM {}
    };
    let job = Job::on_each("hog", &vec![cpu; hogs as usize], hog);
    let begin = Instant::now();
    while seen.get() < hogs {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} of {hogs} hogs", seen.get());
        std::hint::spin_loop();
    }
    job
}

/// Goal: traces go where they are asked for, and what cannot be recorded or written is said with what to do.
#[test]
fn traces_go_where_they_are_asked_for() {
    let _turn = alone();
    let place = Place::world_writable();
    if let Some(command) = unprivileged("watch") {
        let said = place.start(command).end().with(3).err;
        assert!(said.contains("root"), "{said}");
    }
    fs::write(place.path("file"), "").expect("room");
    let said = place.punctual("watch --out file --duration 10ms").with(2).err;
    assert!(said.contains("file"), "{said}");
    // Where others have the CPU meanwhile, that may be the longer part.
    for _ in 0..RUNS_MAX {
        let place = Place::new();
        let mut receiver = Receiver::start(Wake::Futex);
        let Some(watcher) = watcher(&place, "--out traces") else { return };
        receiver.send(b"msm", Duration::from_millis(5), |_| {});
        receiver.end();
        let said = said_by(watcher);
        assert!(!receiver.place.path("late.jsonl.traces").exists(), "{said}");
        let folder = place.path("traces").display().to_string();
        let found = explained(&receiver.place, &format!("--trace {folder}"));
        if long(&found).iter().any(|one| one["cause"] == "slept") {
            return;
        }
        eprintln!("once more: {said}\n{found:#}");
    }
    panic!("in {RUNS_MAX} runs the handler was not found asleep");
}
