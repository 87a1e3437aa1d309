//! C, Rust and Python on one bus: ping and pong either way round, and a ledger that sums across all, under load and `kill -9`.

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{C, PATIENCE, Process, crate_file, folder, free_ports, unique, watchdog};
use punctual::interest::{Due, Publisher, Subscriber, Topic};
use punctual::memory::SharedOptions;
use punctual::unit::{MetrePerSecond, Quantity};
use punctual::{Bus, Communicator, Ledger, Node, NodeId, NodeOptions, PublicationOptions, Target};

const COUNT: u64 = 200;

/// A bus, as each of two processes opens it and as an example in C is told it.
struct Medium {
    ours: Bus,
    theirs: Vec<String>,
}

fn media() -> [Medium; 2] {
    let name = unique("languages");
    let [a, b]: [SocketAddr; 2] = free_ports();
    [
        Medium { ours: Bus::shared(&name), theirs: vec![name] },
        Medium { ours: Bus::peers(a, &[b]), theirs: vec![b.to_string(), a.to_string()] },
    ]
}

fn example(place: &Path, name: &str, medium: &Medium, count: u64) -> Command {
    let mut command = Command::new(place.join(name));
    command.args(&medium.theirs).arg(count.to_string());
    command
}

/// Goal: a ping in C has its answers from a pong in Rust, over shared memory and UDP.
#[test]
fn a_ping_in_c_asks_rust() {
    let _alive = watchdog(120);
    if !C.is_here() {
        return;
    }
    let place = folder();
    C.build(place.path(), &crate_file("examples/ping.c"));
    for medium in media() {
        let node = Node::open(&medium.ours, "pong").unwrap();
        let mut pong = node.bind(7400).unwrap();
        let mut ping = Process::start(&mut example(place.path(), "ping", &medium, COUNT));
        let mut has_disturbed = false;
        // Over UDP the first questions may be lost; a question that is answered late is asked again.
        while !ping.has_ended() {
            let Ok(message) = pong.receive_timeout(Duration::from_millis(10)) else { continue };
            let (back, payload) = (Target::from(message.source), message.payload.to_vec());
            // Larger than any answer: it must not stay in front of them.
            if !std::mem::replace(&mut has_disturbed, true) {
                pong.send(back, &[7; 100]).unwrap();
            }
            pong.send(back, &payload).unwrap();
        }
        let said = ping.end();
        assert_eq!(
            said.lines().filter(|line| line.contains(" bytes after ")).count() as u64,
            COUNT,
            "{said}"
        );
        assert!(node.ledger().is_balanced());
    }
}

/// Goal: a pong in C answers a ping in Rust, over shared memory and UDP.
#[test]
fn a_pong_in_c_answers_rust() {
    let _alive = watchdog(120);
    if !C.is_here() {
        return;
    }
    let place = folder();
    C.build(place.path(), &crate_file("examples/pong.c"));
    for medium in media() {
        let node = Node::open(&medium.ours, "ping").unwrap();
        let mut ping = node.bind(1).unwrap();
        let _pong = Process::start(&mut example(place.path(), "pong", &medium, 0));
        let give_up = Instant::now() + PATIENCE;
        for number in 0..COUNT {
            let question = format!("question {number}").repeat(1 + number as usize % 20);
            let mut answered = false;
            // Over UDP a message to a receiver that is not there yet is lost; a question that is answered late is asked again.
            while !answered {
                ping.send_timeout(Target::port("pong", 7400), question.as_bytes(), PATIENCE).unwrap();
                while !answered && let Ok(answer) = ping.receive_timeout(Duration::from_millis(200)) {
                    answered = answer.payload == question.as_bytes();
                }
                assert!(Instant::now() < give_up, "no answer to {number}");
            }
        }
        assert!(node.ledger().is_balanced());
    }
}

/// Goal: a pong in C goes on behind a message that is larger than any of its own, which a peer's larger ring carries.
#[test]
fn a_pong_in_c_outlives_a_message_larger_than_its_own() {
    let _alive = watchdog(120);
    if !C.is_here() {
        return;
    }
    let place = folder();
    C.build(place.path(), &crate_file("examples/pong.c"));
    let [medium, _] = media();
    let node = Node::open(&medium.ours, "ping").unwrap();
    let mut ping = node.bind(1).unwrap();
    let _pong = Process::start(&mut example(place.path(), "pong", &medium, 0));
    let options = PublicationOptions { ring_size: 4 << 20, ..PublicationOptions::default() };
    let mut large = node.publication(Target::port("pong", 7400), &options).unwrap();
    let message = vec![7; 512 << 10];
    assert!(message.len() > node.message_size_max());
    let give_up = Instant::now() + PATIENCE;
    while large.offer(&message).is_err() {
        assert!(Instant::now() < give_up, "no pong");
        std::thread::sleep(Duration::from_millis(10));
    }
    ping.send_timeout(Target::port("pong", 7400), b"small", PATIENCE).unwrap();
    assert_eq!(ping.receive_timeout(PATIENCE).unwrap().payload, b"small");
}

/// Two speeds.
type Speeds = [Quantity<MetrePerSecond, f32>; 2];
const SPEED: Topic<Speeds> = Topic::named("speed");

/// Values of a publisher: a speed, and the instant for which it is.
fn speeds(due: &Due) -> Speeds {
    [Quantity::new(13.5), Quantity::new(due.instant.offset_us as f32)]
}

/// Programs that publish and subscribe to the topic, in C and, where it is here, in Python.
fn interested(place: &Path) -> Vec<Command> {
    let mut programs = vec![Command::new(C.build(place, &crate_file("tests/interest.c")))];
    programs.extend(python().map(|python| {
        let mut command = Command::new(python);
        command.arg(crate_file("tests/interest.py"));
        command
    }));
    programs
}

/// Goal: C and Python receive the values that Rust publishes with a type as numbers of the same unit.
#[test]
fn others_subscribe_to_what_rust_publishes() {
    let _alive = watchdog(120);
    if !C.is_here() {
        return;
    }
    let place = folder();
    for mut program in interested(place.path()) {
        let name = unique("interest");
        let node = Node::open(&Bus::shared(&name), "rust").unwrap();
        let publisher = Publisher::new(node.bind(1).unwrap(), SPEED).unwrap().spawn(speeds).unwrap();
        let said = Process::start(program.args(["subscribe", &name, "100"])).end();
        assert_eq!(said, "served\n");
        let publisher = publisher.stop();
        assert_eq!(publisher.counts().accepted, 1);
        assert!(node.ledger().is_balanced());
    }
}

/// Goal: Rust receives the values that C and Python publish as its type says.
#[test]
fn rust_subscribes_to_what_others_publish() {
    let _alive = watchdog(120);
    if !C.is_here() {
        return;
    }
    let place = folder();
    for mut program in interested(place.path()) {
        let name = unique("interest");
        let node = Node::open(&Bus::shared(&name), "rust").unwrap();
        let period = Duration::from_millis(2);
        let mut subscriber = Subscriber::new(node.bind(7).unwrap(), SPEED, period).unwrap();
        let publishes = Process::start(program.args(["publish", &name]));
        for _ in 0..100 {
            let response = subscriber.receive_timeout(PATIENCE).unwrap();
            let [speed, instant] = response.value.map(Quantity::number);
            assert_eq!((speed, instant), (13.5, response.offset_us as f32));
        }
        drop(subscriber.into_communicator());
        assert_eq!(publishes.end(), "served\n");
        assert!(node.ledger().is_balanced());
    }
}

/// Goal: a message larger than a frame goes from Rust to C, and to Python, and back as it was.
#[test]
fn large_messages_go_there_and_back() {
    let _alive = watchdog(120);
    if !C.is_here() {
        return;
    }
    let place = folder();
    let mut others = vec![Command::new(C.build(place.path(), &crate_file("tests/large.c")))];
    others.extend(python().map(|python| {
        let mut command = Command::new(python);
        command.arg(crate_file("tests/echo.py"));
        command
    }));
    for mut other in others {
        let name = unique("large");
        let node = NodeOptions::new("rust").message_size_max(8 << 20).open(&Bus::shared(&name)).unwrap();
        let mut asks = node.bind(1).unwrap();
        let sizes = [64 << 10, 8 << 20, 3_333_333];
        let echo = Process::start(other.args(["echo", &name, &sizes.len().to_string()]));
        for size in sizes {
            let question: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
            asks.send_timeout(Target::port("echo", 7), &question, PATIENCE).unwrap();
            assert!(asks.receive_timeout(PATIENCE).unwrap().payload == question, "{size}");
        }
        echo.end();
        assert!(node.ledger().is_balanced());
        assert_eq!(node.ledger().fragments_refused, 0);
    }
}

/// An interpreter that has the package, where `PUNCTUAL_PYTHON` names one.
fn python() -> Option<String> {
    let python = std::env::var("PUNCTUAL_PYTHON").ok();
    if python.is_none() {
        punctual_machine::skipped!(
            "Python: PUNCTUAL_PYTHON names no interpreter (cargo xtask ci --only python)"
        );
    }
    python
}

/// Output of a process that was told to report.
#[derive(Debug, Default)]
struct Report {
    numbers: BTreeMap<String, u64>,
    /// Node, incarnation, arrived, lost, missing, present.
    peers: Vec<[u64; 6]>,
}

impl Report {
    fn of(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == "peer" {
                let mut fields = words[1..].iter().enumerate().map(|(at, word)| {
                    u64::from_str_radix(word, if at == 0 { 16 } else { 10 }).expect("a number")
                });
                report.peers.push(std::array::from_fn(|_| fields.next().expect("six fields")));
            } else {
                report.numbers.insert(words[0].to_owned(), words[1].parse().expect("a number"));
            }
        }
        report
    }

    fn number(&self, name: &str) -> u64 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    fn peers_named(&self, name: &str) -> Vec<[u64; 6]> {
        let node = NodeId::named(name).get();
        self.peers.iter().filter(|peer| peer[0] == node).copied().collect()
    }
}

/// The Rust member of the bus.
struct Member {
    node: Node,
    communicator: Communicator,
    next: u64,
    /// Of each life that was killed, by its pid, the highest number that arrived.
    highest: BTreeMap<u64, u64>,
    stopped: bool,
    reported: bool,
    heard_steady: bool,
}

impl Member {
    fn send(&mut self) {
        let payload = self.next.to_le_bytes().repeat(1 + self.next as usize % 40);
        self.communicator.send_timeout(Target::everyone_at(1), &payload, PATIENCE).unwrap();
        self.next += 1;
    }

    fn take(&mut self, patience: Duration) -> bool {
        let Ok(message) = self.communicator.receive_timeout(patience) else { return false };
        if message.payload == b"stopped" || message.payload == b"reported" {
            self.stopped = true;
            self.reported = message.payload == b"reported";
            return true;
        }
        let number = u64::from_le_bytes(message.payload[..8].try_into().unwrap());
        assert_eq!(message.payload, number.to_le_bytes().repeat(1 + number as usize % 40), "torn");
        self.heard_steady |= message.source.node == NodeId::named("steady");
        if message.source.node == NodeId::named("victim") {
            self.highest.insert(number >> 32, number & 0xFFFF_FFFF);
        }
        true
    }

    fn load_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.send();
            for _ in 0..4 {
                self.take(Duration::ZERO);
            }
        }
    }

    fn ledger(&self) -> Ledger {
        self.node.ledger()
    }

    /// Takes what is there until this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !holds(self) {
            self.take(Duration::from_millis(1));
            // Housekeeping after each message would leave hardly any of a full ring to be read.
            let _some = (0..100).take_while(|_| self.take(Duration::ZERO)).count();
            self.node.housekeep();
            assert!(Instant::now() < give_up, "{what}: {}", self.ledger());
        }
    }
}

/// Programs of the lives that are to be killed: in C, and in Python where `PUNCTUAL_PYTHON` names an interpreter that has the package.
struct Victims<'a> {
    program: &'a Path,
    arguments: [String; 2],
    python: Option<String>,
}

impl<'a> Victims<'a> {
    fn new(program: &'a Path, name: &str, ring_size: usize) -> Self {
        Self { program, arguments: [name.to_owned(), ring_size.to_string()], python: python() }
    }

    /// Every second one is in Python.
    fn start(&self, life: u64) -> Process {
        let mut command = match &self.python {
            Some(python) if life.is_multiple_of(2) => {
                let mut command = Command::new(python);
                command.arg(crate_file("tests/victim.py"));
                command
            }
            _ => {
                let mut command = Command::new(self.program);
                command.args(["victim", "victim"]);
                command
            }
        };
        Process::start(command.args(&self.arguments))
    }
}

/// Goal: on a bus that C, Rust and Python share, everything that was sent arrived or stands in a counter of each receiver, despite
/// kills meanwhile. Method: one member in Rust, one in C, a third in C or Python that is killed again and again; rings too small for
/// all.
#[test]
fn a_ledger_sums_across_languages_under_load_and_kills() {
    const LIVES: u64 = 8;
    let _alive = watchdog(180);
    if !C.is_here() {
        return;
    }
    let (place, name, ring_size) = (folder(), unique("ledger"), 1 << 14);
    let program = C.build(place.path(), &crate_file("tests/member.c"));
    let victims = Victims::new(&program, &name, ring_size);
    let bus = Bus::Shared(SharedOptions { ring_size, ..SharedOptions::new(&name) });
    let node = Node::open(&bus, "rust").unwrap();
    let communicator = node.bind(1).unwrap();
    let mut rust = Member {
        node,
        communicator,
        next: 0,
        highest: BTreeMap::new(),
        stopped: false,
        reported: false,
        heard_steady: false,
    };
    let steady = {
        let arguments = ["steady", "steady", &name, &ring_size.to_string()].map(str::to_owned);
        Process::start(Command::new(&program).args(arguments))
    };
    // A later subscriber has no account of what was sent before.
    rust.until("steady sends", |rust| rust.heard_steady);
    for life in 1..=LIVES {
        let victim = victims.start(life);
        rust.until("the victim sends", |rust| rust.highest.contains_key(&victim.id()));
        rust.load_for(Duration::from_millis(20 + 7 * life));
        victim.kill();
        rust.until("the death is noticed", |rust| rust.ledger().died == life);
    }
    let to_steady = Target::port("steady", 1);
    while !rust.stopped {
        rust.communicator.send_timeout(to_steady, b"stop", PATIENCE).unwrap();
        rust.until("it stops", |_| true);
        rust.load_for(Duration::from_millis(5));
    }
    // This message is the last that is sent to it before it reports.
    let sent = |node: &Node| node.sent_to(None) + node.sent_to(Some(NodeId::named("steady")));
    let report = format!("report {}", sent(&rust.node) + 1);
    rust.communicator.send_timeout(to_steady, report.as_bytes(), PATIENCE).unwrap();
    let sent = sent(&rust.node);
    let printed = {
        let account =
            |rust: &Member| rust.node.peers().into_iter().find(|peer| peer.node == NodeId::named("steady"));
        // Its stream is still: nothing more comes of it, and its account is whole.
        let mut before = None;
        rust.until("steady reports", |rust| rust.reported);
        loop {
            while rust.take(Duration::from_millis(100)) {}
            let now = account(&rust);
            if now == before {
                break;
            }
            before = now;
        }
        rust.communicator.send_timeout(to_steady, b"stop", PATIENCE).unwrap();
        Report::of(&steady.end())
    };
    check_sums(&rust, &printed, sent, LIVES);
}

/// Compares what both ends counted.
fn check_sums(rust: &Member, steady: &Report, sent: u64, lives: u64) {
    let ledger = rust.ledger();
    assert!(ledger.is_balanced(), "{ledger}");
    assert_eq!((ledger.died, ledger.corrupt_peers, ledger.bad_frames), (lives, 0, 0), "{ledger}");
    for (name, expected) in [("torn", 0), ("unbalanced", 0), ("corrupt", 0), ("bad", 0), ("died", lives)] {
        assert_eq!(steady.number(name), expected, "{name}: {steady:?}");
    }
    assert_eq!(steady.number("received"), steady.number("delivered"), "{steady:?}");
    // From C to Rust, and from Rust to C.
    let peers = rust.node.peers();
    let of_steady = peers.iter().find(|peer| peer.node == NodeId::named("steady")).unwrap();
    assert_eq!(of_steady.arrived + of_steady.lost, steady.number("sent"), "{of_steady:?}: {steady:?}");
    assert_eq!(of_steady.missing, 0, "{of_steady:?}");
    let [of_rust] = steady.peers_named("rust")[..] else { panic!("{steady:?}") };
    assert_eq!(of_rust[2] + of_rust[3], sent, "{steady:?}");
    assert!(of_rust[3] + of_steady.lost > 0, "the rings were large enough for all: nothing was tried");
    // Of the dead both know of each life, and no message of it is left open.
    let victims: Vec<_> = peers.iter().filter(|peer| peer.node == NodeId::named("victim")).collect();
    assert_eq!(victims.len() as u64, lives);
    // No account tells its pid: in order of size, each is at least as large as what arrived.
    let mut sums: Vec<u64> = victims.iter().map(|victim| victim.arrived + victim.lost).collect();
    let mut highest: Vec<u64> = rust.highest.values().copied().collect();
    sums.sort_unstable();
    highest.sort_unstable();
    assert!(sums.iter().zip(&highest).all(|(sum, highest)| sum > highest), "{victims:?}: {highest:?}");
    assert!(victims.iter().all(|victim| victim.missing == 0 && !victim.present), "{victims:?}");
    let seen = steady.peers_named("victim");
    // One that died before steady found its ring is in no account of steady's.
    assert!((1..=lives).contains(&(seen.len() as u64)), "{steady:?}");
    assert!(seen.iter().all(|peer| peer[4] == 0 && peer[5] == 0), "{steady:?}");
}
