//! A program that receives and keeps a log of late messages, as tests have it.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use punctual::{Bus, CommunicatorOptions, LateLog, Node, Target, Wake};
use punctual_machine::cpu::{ThreadUsage, allowed, pin_to};
use punctual_machine::process::random;
use punctual_machine::signal::end_with_parent;
use serde_json::Value;

use crate::common::{Place, count, text};

// Every suite uses a part of this file.
const _: () = {
    let _ = (Receiver::start_by, Receiver::signal, Receiver::process, Receiver::explained, Receiver::end);
};

/// Time after which a message is late: ten times what a loaded host needs by itself.
const THRESHOLD: Duration = Duration::from_millis(8);

/// Duration of each harm done to the receiver.
pub(crate) const HARM: Duration = Duration::from_millis(60);

/// The program that receives, and notes what was late. `PUNCTUAL_TEST_LATE` is its bus, its file and how it waits. A message says
/// what its handler does.
pub(crate) fn role() {
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

/// Computes or sleeps as the message says; returns the time that it took beyond that, microseconds.
fn handle(kind: u8) -> u64 {
    let began = Instant::now();
    match kind {
        b'c' => {
            let before = ThreadUsage::now();
            while ThreadUsage::now().since(before).cpu_ns < HARM.as_nanos() as u64 {}
        }
        b's' => std::thread::sleep(HARM),
        b'l' => wait_for_a_lock(),
        _ => return 0,
    }
    (began.elapsed().saturating_sub(HARM)).as_micros() as u64
}

/// Another thread holds it, and is asleep meanwhile.
fn wait_for_a_lock() {
    static LOCK: Mutex<()> = Mutex::new(());
    let (is_held, was_held) = std::sync::mpsc::channel();
    let hold = move || {
        let _held = LOCK.lock();
        is_held.send(()).expect("it waits");
        std::thread::sleep(HARM);
    };
    let holder = std::thread::Builder::new().name("holder".to_owned()).spawn(hold).expect("a thread");
    was_held.recv().expect("it holds the lock");
    drop(LOCK.lock());
    holder.join().expect("it ends");
}

/// A program that receives and keeps a log.
pub(crate) struct Receiver {
    child: Child,
    node: Node,
    pub(crate) place: Place,
}

impl Receiver {
    pub(crate) fn start(wake: Wake) -> Self {
        Self::start_by(Command::new(std::env::current_exe().expect("our path")), wake)
    }

    /// As [`Self::start`], by a command that starts this program.
    pub(crate) fn start_by(mut itself: Command, wake: Wake) -> Self {
        let place = Place::new();
        let bus = format!("late-{:x}", random() & 0xFFFF_FFFF);
        let asked = format!("{bus} {} {wake}", place.path("late.jsonl").display());
        itself.args(["role", "--exact", "--quiet", "--nocapture", "--test-threads=1"]);
        let child = itself.env("PUNCTUAL_TEST_LATE", asked).stdout(Stdio::null()).spawn().expect("ourselves");
        Self { child, node: Node::open(&Bus::shared(&bus), "sender").expect("a bus"), place }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("sh")
            .args(["-c", "kill \"$@\"", "kill", name, &self.child.id().to_string()])
            .status();
        assert!(sent.expect("a shell").success());
    }

    /// Sends messages of these kinds, each `gap` after the one before, regardless of that one's fate. Returns the time that their
    /// handlers took beyond the time asked for, microseconds. `between` is called before each.
    pub(crate) fn send(&self, kinds: &[u8], gap: Duration, mut between: impl FnMut(usize)) -> Vec<u64> {
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

    /// Lets it end.
    pub(crate) fn end(&mut self) {
        self.send(b"e", Duration::ZERO, |_| {});
        assert!(self.child.wait().expect("our child").success());
    }

    /// Lets it end, and asks what was late; also returns whether its thread was ever taken off the CPU around that.
    pub(crate) fn explained(mut self) -> (Value, bool) {
        self.end();
        let said = self.place.punctual("explain late.jsonl --json").with(0).out;
        // The page that a user sees says the same, and every message can be drawn.
        let page = self.place.punctual("explain late.jsonl").with(0).out;
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let finding = &said["findings"][0];
        if !finding.is_null() {
            assert!(page.contains("Why") && page.contains("receiver:1"), "{page}");
            let number = count(&finding["stall"], "first_index").to_string();
            self.place.punctual(&format!("explain late.jsonl --message {number}")).with(0);
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
