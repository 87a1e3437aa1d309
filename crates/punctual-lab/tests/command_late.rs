//! `punctual explain FILE`: programs that are stopped, crowded out, asleep or busy leave a log, and it says so.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, alone, count, punctual, text};
use punctual::{Bus, CommunicatorOptions, LateLog, Node, Target, Wake};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{ThreadUsage, allowed, pin_to};
use punctual_machine::process::random;
use punctual_machine::signal::end_with_parent;
use serde_json::Value;

/// What takes longer is late: ten times what a loaded host needs by itself.
const THRESHOLD: Duration = Duration::from_millis(8);

/// What is done to the receiver takes so long.
const HARM: Duration = Duration::from_millis(60);

/// Not a test of its own: the program that receives, and notes what was late. `PUNCTUAL_TEST_LATE` is its bus, its file and how it
/// waits. A message says what its handler does.
#[test]
fn role() {
    let Ok(asked) = std::env::var("PUNCTUAL_TEST_LATE") else { return };
    let [bus, file, wake] = asked.split(' ').collect::<Vec<_>>()[..] else { panic!("{asked}") };
    end_with_parent();
    let _unpinned_if_not = pin_to(allowed()[0]);
    let late = LateLog::create(file, THRESHOLD).expect("a log");
    let node = Node::open(&Bus::shared(bus), "receiver").expect("a bus");
    let wake: Wake = wake.parse().expect("a way to wait");
    let options = CommunicatorOptions::waiting(wake).stamped().noting_late(&late);
    let mut port = node.bind_with(1, &options).expect("a port");
    loop {
        let message = port.receive().expect("a message");
        let (source, kind) = (message.source, message.payload[0]);
        let was_taken_us = handle(kind);
        let target = Target::from(source);
        port.send_timeout(target, &was_taken_us.to_le_bytes(), Duration::from_secs(10)).expect("room");
        if kind == b'e' {
            return;
        }
    }
}

/// Computes or sleeps as the message says; how much longer it took than that, microseconds.
fn handle(kind: u8) -> u64 {
    let began = Instant::now();
    match kind {
        b'c' => {
            let before = ThreadUsage::now();
            while ThreadUsage::now().since(before).cpu_ns < HARM.as_nanos() as u64 {}
        }
        b's' => std::thread::sleep(HARM),
        _ => return 0,
    }
    (began.elapsed().saturating_sub(HARM)).as_micros() as u64
}

/// A program that receives and keeps a log.
struct Receiver {
    child: Child,
    node: Node,
    place: Place,
}

impl Receiver {
    fn start(wake: Wake) -> Self {
        let place = Place::new();
        let bus = format!("late-{:x}", random() & 0xFFFF_FFFF);
        let asked = format!("{bus} {} {wake}", place.path("late.jsonl").display());
        let mut itself = Command::new(std::env::current_exe().expect("our path"));
        itself.args(["role", "--exact", "--quiet", "--nocapture", "--test-threads=1"]);
        let child = itself.env("PUNCTUAL_TEST_LATE", asked).stdout(Stdio::null()).spawn().expect("ourselves");
        Self { child, node: Node::open(&Bus::shared(&bus), "sender").expect("a bus"), place }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is a program").success());
    }

    /// Lets messages of these kinds go, each `gap` after the one before whatever became of that; what their handlers took beyond what
    /// was asked, microseconds. `between` is called before each.
    fn send(&self, kinds: &[u8], gap: Duration, mut between: impl FnMut(usize)) -> Vec<u64> {
        let patience = Duration::from_secs(60);
        let mut port = self.node.bind_with(2, &CommunicatorOptions::default().stamped()).expect("a port");
        let target = Target::port("receiver", 1);
        let began = Instant::now();
        while port.try_send(target, b"h").is_err() {
            assert!(began.elapsed() < patience, "nobody receives");
            std::thread::sleep(Duration::from_millis(1));
        }
        port.receive_timeout(patience).expect("an answer");
        for (place, &kind) in kinds.iter().enumerate() {
            between(place);
            port.send_timeout(target, &[kind], patience).expect("room");
            std::thread::sleep(gap);
        }
        let answer = |_| {
            let answer = port.receive_timeout(patience).expect("an answer");
            u64::from_le_bytes(answer.payload.try_into().expect("eight bytes"))
        };
        (0..kinds.len()).map(answer).collect()
    }

    /// Lets it end, and asks what was late; whether its thread was ever taken off the CPU around that.
    fn explained(mut self) -> (Value, bool) {
        self.send(b"e", Duration::ZERO, |_| {});
        assert!(self.child.wait().expect("our child").success());
        let said = self.place.punctual(&["explain", "late.jsonl", "--json"]).with(0).out;
        // What a user sees says the same, and every message can be drawn.
        let page = self.place.punctual(&["explain", "late.jsonl"]).with(0).out;
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let finding = &said["findings"][0];
        if !finding.is_null() {
            assert!(page.contains("Why") && page.contains("receiver:1"), "{page}");
            let number = count(&finding["stall"], "first_index").to_string();
            self.place.punctual(&["explain", "late.jsonl", "--message", &number]).with(0);
        }
        (said, text(&self.place.path("late.jsonl")).contains("\"switches_involuntary\""))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
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
        let (said, _) = receiver.explained();
        assert_eq!(found(&said, "stopped"), 1, "{wake}: {said:#}");
    }
}

/// Goal: what a handler kept waiting is named by what it did: it slept, or it computed.
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
            eprintln!("SKIPPED: others had the CPU whenever a handler was to be {cause}");
        }
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
    let said = place.punctual(&["explain", "late.jsonl"]).with(0).out;
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

/// Goal: what is no log, or not there, is refused with its name and line.
#[test]
fn what_is_no_log_is_refused() {
    let place = Place::new();
    fs::write(place.path("other.txt"), "something else\n").expect("room");
    let said = place.start(punctual(&["explain", "other.txt"])).end().with(2).err;
    assert!(said.contains("other.txt: line 1: no log of late messages"), "{said}");
    in_time(&place.path("late.jsonl"));
    let said = place.start(punctual(&["explain", "late.jsonl", "--message", "3"])).end().with(2).err;
    assert!(said.contains("--message 3"), "{said}");
}
