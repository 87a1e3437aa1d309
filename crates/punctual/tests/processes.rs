//! Real processes: they start in any order, leave, are killed and stopped, and come back.
//!
//! The test binary starts itself anew with a role in its environment.

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Dice, PATIENCE, Role, free_ports, on_ethernet, own_role, unique, watchdog};
use punctual::memory::{SharedOptions, WhenFull};
use punctual::{Bus, Communicator, CommunicatorOptions, Node, NodeId, SendError, Target, Wake, ledger};
use punctual_machine::process::{random, user};
use punctual_machine::signal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A bus as it is told to another process: `shared NAME RING_SIZE held|free`, `udp LOCAL PEER`, `ethernet INTERFACE`.
fn bus_of(text: &str) -> Bus {
    let words: Vec<&str> = text.split(' ').collect();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    match words[..] {
        ["shared", name, ring_size, when_full] => Bus::Shared(SharedOptions {
            ring_size: ring_size.parse().unwrap(),
            when_full: if when_full == "held" { WhenFull::HoldBack } else { WhenFull::Overrun },
            ..SharedOptions::new(name)
        }),
        ["udp", local, peer] => Bus::peers(address(local), &[address(peer)]),
        ["ethernet", interface] => Bus::ethernet(interface),
        _ => panic!("{text}: no bus"),
    }
}

/// Not a test of its own: the work of the other process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    let bus = bus_of(&bus);
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("pong", _) => answer(&bus),
        ("writer", name) => write_for_ever(&bus, name),
        ("reader", expected) => read_in_order(&bus, expected.parse().unwrap()),
        ("confined", _) => {
            let error = Node::open(&bus, "large").unwrap_err().to_string();
            assert!(error.contains("File too large") && error.contains("ulimit -f"), "{error}");
        }
        ("alone", _) => talk_to_oneself(&bus),
        ("full", _) => meet_without_descriptors(&bus),
        ("sleeper", wake) => sleep_through_signals(&bus, wake.parse().unwrap()),
        _ => panic!("{role}: no role"),
    }
}

/// Both ends of an exchange, asleep in every way that a bus of memory has.
fn talk_to_oneself(bus: &Bus) {
    let (here, there) = (Node::open(bus, "here").unwrap(), Node::open(bus, "there").unwrap());
    for wake in [Wake::Futex, Wake::EventFd, Wake::Epoll] {
        let mut receiver = there.bind_with(7400, &CommunicatorOptions::waiting(wake)).unwrap();
        let mut sender = here.bind(1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"hello", "{wake}");
            });
            sender.send_timeout(Target::port("there", 7400), b"hello", PATIENCE).unwrap();
        });
    }
}

/// Goal: a user can count instructions, or look for mistakes with memory.
#[test]
fn under_valgrind_it_works() {
    let _alive = watchdog(120);
    let bus = format!("shared {} 65536 free", unique("valgrind"));
    let program = std::env::current_exe().unwrap();
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=none", "--quiet"]).arg(program).args([
        "role",
        "--exact",
        "--quiet",
        "--nocapture",
        "--test-threads=1",
    ]);
    match valgrind.env("PUNCTUAL_TEST_ROLE", "alone").env("PUNCTUAL_TEST_BUS", bus).output() {
        Err(missing) => punctual_machine::skipped!("valgrind: {missing} (apt-get install valgrind)"),
        Ok(ended) => assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr)),
    }
}

/// Goal: a limit of file sizes is an error of `open`, and does not end the process by SIGXFSZ.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let _alive = watchdog(60);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    limited.args(["role", "--exact", "--quiet", "--nocapture", "--test-threads=1"]);
    let bus = format!("shared {} 65536 free", unique("limited"));
    let ended = limited.env("PUNCTUAL_TEST_ROLE", "confined").env("PUNCTUAL_TEST_BUS", bus).output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}

/// Has no descriptor left for a time, and then hears who came meanwhile.
fn meet_without_descriptors(bus: &Bus) {
    let node = Node::open(bus, "full").unwrap();
    let mut communicator = node.bind(1).unwrap();
    // With the first message it makes its ring.
    communicator.send_timeout(Target::port("first", 1), b"there", PATIENCE).unwrap();
    let before = getrlimit(Resource::Nofile);
    // A new descriptor has the lowest number that is free.
    let lowest = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest), ..before }).unwrap();
    assert!(std::fs::File::open("/dev/null").is_err());
    communicator.send_timeout(Target::port("first", 1), b"full", PATIENCE).unwrap();
    // Meanwhile it looks around several times.
    assert!(communicator.receive_timeout(Duration::from_millis(500)).is_err());
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(communicator.receive_timeout(PATIENCE).unwrap().payload, b"late");
}

/// Goal: a node that could not see who joined, as its process had no descriptor left, sees them once it has some.
#[test]
fn a_newcomer_is_seen_once_there_are_descriptors() {
    let _alive = watchdog(90);
    let text = format!("shared {} 65536 free", unique("full"));
    let bus = bus_of(&text);
    let first = Node::open(&bus, "first").unwrap();
    let mut communicator = first.bind(1).unwrap();
    let mut full = Role::start("full", &text);
    for expected in [&b"there"[..], b"full"] {
        assert_eq!(communicator.receive_timeout(PATIENCE).unwrap().payload, expected);
    }
    let late = Node::open(&bus, "late").unwrap();
    let mut sender = late.bind(1).unwrap();
    while full.ended().is_none() {
        sender.send_timeout(Target::port("full", 1), b"late", PATIENCE).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    full.end();
}

/// Sends every message back until one says `end`.
fn answer(bus: &Bus) {
    let node = Node::open(bus, "pong").unwrap();
    let mut communicator = node.bind(1).unwrap();
    loop {
        let message = communicator.receive().unwrap();
        let (back, payload) = (Target::from(message.source), message.payload.to_vec());
        communicator.send_timeout(back, &payload, PATIENCE).unwrap();
        if payload == b"end" {
            return;
        }
    }
}

/// The message of that number: its size differs, and every word of it is the number.
fn numbered(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + number as usize % 40)
}

/// The number of a message, if it is whole.
fn whole(payload: &[u8]) -> u64 {
    let number = u64::from_le_bytes(payload[..8].try_into().unwrap());
    assert_eq!(payload, numbered(number), "a torn message");
    number
}

fn write_for_ever(bus: &Bus, name: &str) {
    let node = Node::open(bus, name).unwrap();
    let mut communicator = node.bind(1).unwrap();
    // Between messages to different targets there is no order in memory.
    let target = if random().is_multiple_of(2) { Target::port("survivor", 1) } else { Target::EVERYONE };
    for number in 0.. {
        communicator.send_timeout(target, &numbered(number), PATIENCE).unwrap();
    }
}

fn read_in_order(bus: &Bus, expected: u64) {
    let node = Node::open(bus, "reader").unwrap();
    let mut communicator = node.bind(1).unwrap();
    for number in 0..expected {
        assert_eq!(whole(communicator.receive().unwrap().payload), number);
    }
    assert_eq!(node.ledger().lost(), 0);
}

fn sleep_through_signals(bus: &Bus, wake: Wake) {
    signal::catch_all_interrupts().unwrap();
    let node = Node::open(bus, "sleeper").unwrap();
    let mut communicator = node.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
    communicator.send_timeout(Target::port("waker", 1), b"ready", PATIENCE).unwrap();
    assert_eq!(communicator.receive().unwrap().payload, b"the first message");
    assert!(signal::interrupted(), "the signal came before the message");
}

/// Goal: a signal does not end a wait without deadline, in no way of waiting; nor does being stopped and continued.
#[test]
fn a_signal_ends_no_wait() {
    let _alive = watchdog(60);
    for wake in Wake::ALL {
        let (a, b) = free_ports();
        let shared = format!("shared {} 65536 free", unique("signals"));
        let (here, there) = match wake.can_wait_for(true) {
            true => (shared.clone(), shared),
            false => (format!("udp {a} {b}"), format!("udp {b} {a}")),
        };
        let node = Node::open(&bus_of(&here), "waker").unwrap();
        let mut communicator = node.bind(1).unwrap();
        let sleeper = Role::start(&format!("sleeper {wake}"), &there);
        assert_eq!(communicator.receive_timeout(PATIENCE).unwrap().payload, b"ready");
        for signal in ["-INT", "-STOP", "-CONT", "-TERM"] {
            std::thread::sleep(Duration::from_millis(5));
            sleeper.signal(signal);
        }
        std::thread::sleep(Duration::from_millis(5));
        communicator.send_timeout(Target::port("sleeper", 1), b"the first message", PATIENCE).unwrap();
        sleeper.end();
    }
}

/// Asks until the answer comes: over UDP and Ethernet a message to nobody is lost, as it must be.
fn ask(communicator: &mut Communicator, payload: &[u8]) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        communicator.send_timeout(Target::port("pong", 1), payload, PATIENCE).unwrap();
        while let Ok(message) = communicator.receive_timeout(Duration::from_millis(100)) {
            if message.payload == payload {
                return;
            }
        }
        assert!(Instant::now() < give_up, "no answer");
    }
}

/// Goal: two processes talk, in either order of start, and go on after one has left and come back under its name.
fn check_ping_pong(here: &str, there: &str) {
    for ours_first in [true, false] {
        let mut pong = None;
        if !ours_first {
            pong = Some(Role::start("pong", there));
            std::thread::sleep(Duration::from_millis(50));
        }
        let node = Node::open(&bus_of(here), "ping").unwrap();
        let mut communicator = node.bind(1).unwrap();
        for _ in 0..3 {
            let pong = pong.take().unwrap_or_else(|| Role::start("pong", there));
            for round in 0..100_u64 {
                ask(&mut communicator, &numbered(round));
            }
            ask(&mut communicator, b"end");
            pong.end();
        }
        assert!(node.ledger().is_balanced());
    }
}

#[test]
fn two_processes_talk_and_come_back() {
    let _alive = watchdog(90);
    let shared = format!("shared {} 65536 free", unique("pair"));
    check_ping_pong(&shared, &shared);
    let (a, b) = free_ports();
    check_ping_pong(&format!("udp {a} {b}"), &format!("udp {b} {a}"));
    on_ethernet(|_| check_ping_pong("ethernet pta", "ethernet ptb"));
}

/// The files of a bus, without their endings: one entry per life.
fn lives_in(bus_name: &str) -> BTreeSet<String> {
    let folder = format!("/dev/shm/punctual.{}.{bus_name}", user());
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.rsplit_once('.').unwrap().0.to_owned()
        })
        .collect()
}

/// Names of the live nodes of a bus, as any process can read them.
fn nodes_on(bus: &Bus) -> Vec<String> {
    let bus = bus.to_string();
    ledger::read_all().into_iter().filter(|(page, _)| page.bus == bus).map(|(page, _)| page.name).collect()
}

/// Pages of counters of nodes of that name.
fn counter_pages(node: &str) -> usize {
    let prefix = NodeId::named(node).to_string();
    let entries = std::fs::read_dir(format!("/dev/shm/punctual-counters.{}", user())).into_iter().flatten();
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(&prefix)).count()
}

/// Reads one life of the writer until it is dead and everything of it was read. Returns messages and losses.
fn read_one_life(node: &Node, communicator: &mut Communicator, writer: Role, pause: Duration) -> (u64, u64) {
    let died_before = node.ledger().died;
    let (mut expected, mut lost, mut count) = (0, 0, 0);
    let mut take = |communicator: &mut Communicator, patience| {
        let Ok(message) = communicator.receive_timeout(patience) else { return false };
        let number = whole(message.payload);
        assert!(number >= expected, "{number} after {expected}");
        lost += message.lost_before;
        count += 1;
        expected = number + 1;
        assert!(count + lost <= expected, "no more than was sent");
        true
    };
    assert!(take(communicator, PATIENCE), "the writer never came");
    let kill_at = Instant::now() + pause;
    while Instant::now() < kill_at {
        take(communicator, Duration::from_millis(1));
    }
    writer.kill();
    let give_up = Instant::now() + PATIENCE;
    while node.ledger().died == died_before || take(communicator, Duration::ZERO) {
        take(communicator, Duration::from_millis(1));
        assert!(Instant::now() < give_up, "its death went unnoticed");
    }
    // Lost messages show in the numbers; only the end of the two streams is not seen in them.
    assert!(expected >= count + lost);
    (count, expected)
}

/// Goal: a writer killed at any point leaves whole messages in order and nothing else. The survivor notices, sums, cleans up, and goes
/// on with the next life of the same name.
#[test]
fn a_killed_writer_leaves_whole_messages_and_no_files() {
    let _alive = watchdog(120);
    for (when_full, lives) in [("held", 15), ("free", 15)] {
        let name = unique("killed");
        let text = format!("shared {name} 16384 {when_full}");
        let bus = bus_of(&text);
        let node = Node::open(&bus, "survivor").unwrap();
        let mut communicator = node.bind(1).unwrap();
        let mut dice = Dice(u64::from(std::process::id()));
        for life in 1..=lives {
            let writer = Role::start("writer writer", &text);
            let pause = Duration::from_micros(dice.below(4_000));
            let (count, expected) = read_one_life(&node, &mut communicator, writer, pause);
            let accounts = node.peers();
            assert_eq!(accounts.len(), life);
            let account = accounts.last().unwrap();
            assert_eq!((account.arrived, account.missing, account.present), (count, 0, false));
            assert!(account.arrived + account.lost >= expected, "{account:?}");
            if when_full == "held" {
                assert_eq!((count, account.lost), (expected, 0), "{}", node.ledger());
            }
        }
        let ledger = node.ledger();
        assert!(ledger.is_balanced(), "{ledger}");
        assert_eq!((ledger.died, ledger.corrupt_peers, ledger.bad_frames), (lives as u64, 0, 0), "{ledger}");
        assert_eq!(lives_in(&name).len(), 1, "only the survivor's files: {:?}", lives_in(&name));
        assert_eq!(nodes_on(&bus), ["survivor"]);
    }
}

/// Goal: a reader that dies holds nobody back.
#[test]
fn a_killed_reader_does_not_hold_its_writer() {
    let _alive = watchdog(60);
    let text = format!("shared {} 4096 held", unique("reader"));
    let node = Node::open(&bus_of(&text), "writer").unwrap();
    let mut communicator = node.bind(1).unwrap();
    for life in 0..5 {
        let reader = Role::start("reader 1000000", &text);
        for number in 0..100 + 50 * life {
            communicator.send_timeout(Target::port("reader", 1), &numbered(number), PATIENCE).unwrap();
        }
        reader.kill();
        for number in 0..500 {
            communicator.send_timeout(Target::EVERYONE, &numbered(number), PATIENCE).unwrap();
        }
    }
}

/// Goal: a reader that is stopped holds its writer, which is told so; nothing is lost when it goes on.
#[test]
fn a_stopped_reader_holds_its_writer_and_loses_nothing() {
    const MESSAGES: u64 = 2_000;
    let _alive = watchdog(60);
    let text = format!("shared {} 4096 held", unique("stopped"));
    let node = Node::open(&bus_of(&text), "writer").unwrap();
    let mut communicator = node.bind(1).unwrap();
    let reader = Role::start(&format!("reader {MESSAGES}"), &text);
    communicator.send_timeout(Target::port("reader", 1), &numbered(0), PATIENCE).unwrap();
    reader.signal("-STOP");
    std::thread::sleep(Duration::from_millis(20));
    let mut number = 1;
    while communicator.try_send(Target::port("reader", 1), &numbered(number)).is_ok() {
        number += 1;
        assert!(number < MESSAGES, "the ring is smaller than that");
    }
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        let refused = communicator.try_send(Target::port("reader", 1), &numbered(number));
        assert_eq!(refused, Err(SendError::Full));
    }
    reader.signal("-CONT");
    for number in number..MESSAGES {
        communicator.send_timeout(Target::port("reader", 1), &numbered(number), PATIENCE).unwrap();
    }
    reader.end();
}

/// Goal: files of dead processes are removed by the next process that opens the bus, also where they died while entering. The living
/// are seen from another process, the dead are not.
#[test]
fn the_dead_are_swept_and_the_living_are_seen() {
    let _alive = watchdog(60);
    let name = unique("stale");
    let text = format!("shared {name} 65536 free");
    let bus = bus_of(&text);
    let writer_name = unique("w");
    let writer = Role::start(&format!("writer {writer_name}"), &text);
    let give_up = Instant::now() + PATIENCE;
    while nodes_on(&bus) != [writer_name.as_str()] {
        std::thread::sleep(Duration::from_millis(1));
        assert!(Instant::now() < give_up, "another process's node is not seen: {:?}", nodes_on(&bus));
    }
    let folder = std::path::PathBuf::from(format!("/dev/shm/punctual.{}.{name}", user()));
    // A process that opens a node meanwhile, another test for example, sweeps too: it must leave the folder.
    let kept = folder.join("keep.it");
    std::fs::write(&kept, b"").unwrap();
    writer.kill();
    assert!(nodes_on(&bus).is_empty(), "the dead are not shown");
    let left = folder.join("00000000000000aa.00000000000000bb");
    drop(
        punctual_machine::fd_exchange::PostBox::open(&left.with_extension("00000000000000bb.post")).unwrap(),
    );
    std::fs::write(left.with_extension("00000000000000bb.bell"), [0; 4096]).unwrap();
    std::fs::write(left.with_extension("00000000000000bb.new"), [0; 4096]).unwrap();
    // For the same reason nobody can assert that all is still here.
    let node = Node::open(&bus, "next").unwrap();
    std::fs::remove_file(kept).unwrap();
    assert_eq!(lives_in(&name).len(), 1, "{:?}", lives_in(&name));
    // Where there are many pages, of other users of this host, it takes several openers to get round.
    while counter_pages(&writer_name) > 0 {
        drop(Node::open(&Bus::loopback(&name), "sweeper").unwrap());
        assert!(Instant::now() < give_up, "its counters stay");
    }
    assert_eq!(nodes_on(&bus), ["next"]);
    drop(node);
    assert!(!folder.exists(), "the last one out removes the folder");
}
