//! Monitors: they have everything that is said, each source's in order, or count it, and nobody is held back or connected by one.

mod common;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use common::{Medium, PATIENCE, media, unique, watchdog};
use punctual::memory::WhenFull;
use punctual::publication::OfferError;
use punctual::{
    Address, Bus, Keys, Monitor, Node, NodeOptions, PublicationOptions, SendError, SubscriptionOptions,
    Target, Wake,
};
use punctual_machine::counter::Flag;
use punctual_proto::Frame;
use punctual_proto::pcapng::{Block, block_size, read_block};
use punctual_proto::seal::SEAL_SIZE;

/// A message that a monitor showed.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    source: Address,
    target: Target,
    sequence: u64,
    lost_before: u64,
    is_unopened: bool,
    bytes: Vec<u8>,
}

/// Adds what there is now.
fn look(monitor: &mut Monitor, timeout: Duration, seen: &mut Vec<Seen>) -> usize {
    monitor.poll(256, timeout, |observed| {
        let mut bytes = vec![0; observed.len()];
        if observed.copy_to(&mut bytes).is_ok() {
            seen.push(Seen {
                source: observed.source,
                target: observed.target,
                sequence: observed.sequence,
                lost_before: observed.lost_before,
                is_unopened: observed.is_unopened,
                bytes,
            });
        }
    })
}

/// Looks until so many were seen.
fn look_for(monitor: &mut Monitor, count: usize) -> Vec<Seen> {
    let (start, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count}, then nothing: {seen:?}", seen.len());
        look(monitor, Duration::from_millis(1), &mut seen);
    }
    // Nor is there more.
    look(monitor, Duration::from_millis(20), &mut seen);
    seen
}

fn held_back(ring_size: usize) -> PublicationOptions {
    PublicationOptions { ring_size, when_full: Some(WhenFull::HoldBack), ..PublicationOptions::default() }
}

fn memory_buses() -> [Bus; 2] {
    [Bus::loopback(&unique("monitor")), Bus::shared(&unique("monitor"))]
}

/// Goal: messages between other nodes are seen, regardless of their target, and their readers have them all the same.
#[test]
fn in_memory_a_monitor_has_what_others_say_to_each_other() {
    let _alive = watchdog(60);
    for bus in memory_buses() {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let listener = Node::open(&bus, "listener").unwrap();
        // Before the monitor, and after it.
        let mut sender = here.bind(1).unwrap();
        let mut receiver = there.bind(7).unwrap();
        let targets =
            [Target::port("there", 7), Target::node("there"), Target::everyone_at(7), Target::EVERYONE];
        sender.send(targets[0], b"before").unwrap();
        let mut monitor = listener.monitor(Wake::Futex).unwrap();
        for (number, target) in targets.into_iter().cycle().take(40).enumerate() {
            sender.send(target, &number.to_le_bytes()).unwrap();
        }
        let seen = look_for(&mut monitor, 40);
        assert_eq!(seen.len(), 40, "{bus}");
        for target in targets {
            let of_one: Vec<&Seen> = seen.iter().filter(|seen| seen.target == target).collect();
            assert_eq!(of_one.len(), 10, "{bus}: {target}");
            let numbers = of_one.iter().map(|seen| usize::from_le_bytes(seen.bytes[..].try_into().unwrap()));
            assert!(numbers.is_sorted(), "{bus}: {target}: {of_one:?}");
            assert!(of_one.iter().all(|seen| seen.source == sender.address() && seen.lost_before == 0));
        }
        assert_eq!(monitor.name_of(here.id()).as_deref(), Some("here"));
        assert_eq!(monitor.name_of(there.id()).as_deref(), Some("there"));
        let received =
            std::iter::from_fn(|| receiver.try_receive().ok().map(|message| message.payload.len()));
        assert_eq!(received.count(), 41, "{bus}");
        // An account has what was for its node: half of these were for everybody, the others for another node.
        let account = listener.peers().into_iter().find(|peer| peer.node == here.id()).unwrap();
        assert_eq!((account.arrived, account.lost), (0, 0), "{bus}");
        // Nor does it count with a component of that node, when it goes.
        let mut own = listener.bind(9).unwrap();
        sender.send(Target::EVERYONE, b"for all").unwrap();
        assert_eq!(own.receive_timeout(PATIENCE).unwrap().payload, b"for all");
        look_for(&mut monitor, 1);
        drop(monitor);
        let account = listener.peers().into_iter().find(|peer| peer.node == here.id()).unwrap();
        assert_eq!((account.arrived, account.lost), (1, 0), "{bus}");
        drop(own);
        assert_eq!(listener.ledger().delivered, 42, "{}", listener.ledger());
        assert!(listener.ledger().is_balanced(), "{}", listener.ledger());
    }
}

/// Goal: a panic in what is called with a message loses nothing: those before it are counted, it comes again.
#[test]
fn a_panic_over_a_message_is_counted_right() {
    let _alive = watchdog(60);
    for bus in memory_buses() {
        let (here, listener) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "listener").unwrap());
        let _reader = here.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut publication = here.publication(Target::port("here", 7), &held_back(4096)).unwrap();
        let mut monitor = listener.monitor(Wake::Futex).unwrap();
        (0..5).for_each(|number: u8| publication.offer(&[number]).unwrap());
        let mut first = None;
        let mut sequences = Vec::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            monitor.poll(5, Duration::ZERO, |observed| {
                let number = observed.sequence - *first.get_or_insert(observed.sequence);
                assert!(number != 2, "on purpose");
            });
        }));
        assert!(caught.is_err());
        assert_eq!(listener.ledger().delivered, 2, "{bus}");
        monitor.poll(5, Duration::ZERO, |observed| sequences.push(observed.sequence - first.unwrap()));
        assert_eq!(sequences, [2, 3, 4], "{bus}");
        drop(monitor);
        assert_eq!(listener.ledger().delivered, 5, "{bus}");
        assert!(listener.ledger().is_balanced(), "{}", listener.ledger());
    }
}

/// Goal: a writer that is held back by its reader is not by a monitor that never looks. The messages that the monitor then finds and
/// those that it counts are all that was sent.
#[test]
fn nobody_is_held_back_by_a_monitor() {
    const MESSAGES: u64 = 20_000;
    let _alive = watchdog(60);
    for bus in memory_buses() {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let listener = Node::open(&bus, "listener").unwrap();
        let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut publication = here.publication(Target::port("there", 7), &held_back(4096)).unwrap();
        let mut monitor = listener.monitor(Wake::Futex).unwrap();
        let mut buffer = [0; 8];
        for number in 0..MESSAGES {
            // Room for some ten: a reader that stood still would be felt here.
            publication.offer(&number.to_le_bytes()).unwrap();
            subscription.try_receive(&mut buffer).unwrap();
            assert_eq!(u64::from_le_bytes(buffer), number);
        }
        // The monitor was there before the first message: it counts from there.
        let mut seen = Vec::new();
        publication.offer(&MESSAGES.to_le_bytes()).unwrap();
        while look(&mut monitor, Duration::from_millis(1), &mut seen) > 0 {}
        publication.offer(&(MESSAGES + 1).to_le_bytes()).unwrap();
        while look(&mut monitor, Duration::from_millis(1), &mut seen) > 0 {}
        let missed: u64 = seen.iter().map(|seen| seen.lost_before).sum();
        assert_eq!(missed + seen.len() as u64, publication.sent(), "{bus}: {seen:?}");
        assert_eq!(missed, listener.ledger().lost_overrun, "{bus}");
        assert!(missed > 0, "{bus}: the ring was lapped");
    }
}

/// Goal: a monitor that sleeps over messages misses no wake-up: nobody is to ring it.
#[test]
fn a_sleeping_monitor_misses_no_wake_up() {
    let _alive = watchdog(60);
    for bus in memory_buses() {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let listener = Node::open(&bus, "listener").unwrap();
        let mut receiver = there.bind(7).unwrap();
        let mut sender = here.bind(1).unwrap();
        let mut monitor = listener.monitor(Wake::Futex).unwrap();
        sender.send(Target::port("there", 7), b"first").unwrap();
        look_for(&mut monitor, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                sender.send(Target::port("there", 7), b"second").unwrap();
            });
            let mut seen = Vec::new();
            while seen.is_empty() {
                look(&mut monitor, Duration::from_secs(1), &mut seen);
            }
        });
        assert_eq!(listener.ledger().missed_wakeups, 0, "{bus}: {}", listener.ledger());
        assert!(receiver.try_receive().is_ok());
    }
}

/// Goal: a monitor that stands still takes nobody's places: publications that close give theirs back, and any number of targets find
/// rings.
#[test]
fn a_monitor_that_stands_still_takes_no_places() {
    let _alive = watchdog(60);
    for bus in memory_buses() {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let listener = Node::open(&bus, "listener").unwrap();
        let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
        let _monitor = listener.monitor(Wake::Futex).unwrap();
        let mut buffer = [0; 8];
        for number in 0..600_u64 {
            let opened = here.publication(Target::port("there", 7), &held_back(4096));
            let mut publication = opened.unwrap_or_else(|error| panic!("{bus}: {number}: {error}"));
            publication.offer(&number.to_le_bytes()).unwrap();
            subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
            assert_eq!(u64::from_le_bytes(buffer), number);
        }
        // Of one communicator, each target has a ring of its own.
        let mut sender = here.bind(1).unwrap();
        let also = Node::open(&bus, "also").unwrap();
        let bound =
            |name: &'static str, node: &Node, port| (Target::port(name, port), node.bind(port).unwrap());
        let both = |port| [bound("there", &there, port), bound("also", &also, port)];
        let mut receivers: Vec<_> = (1_000..1_150).flat_map(both).collect();
        for round in 0..2_u64 {
            for (target, receiver) in &mut receivers {
                sender.send(*target, &round.to_le_bytes()).unwrap();
                assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, round.to_le_bytes());
            }
        }
    }
}

/// Goal: full rate beside a monitor: every message is seen whole and in order, or counted.
#[test]
fn at_full_rate_everything_is_seen_or_counted() {
    const MESSAGES: u64 = 300_000;
    let _alive = watchdog(120);
    for bus in memory_buses() {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let listener = Node::open(&bus, "listener").unwrap();
        let mut monitor = listener.monitor(Wake::Futex).unwrap();
        let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut publication = here.publication(Target::port("there", 7), &held_back(1 << 16)).unwrap();
        let over = Flag::default();
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut buffer, mut next) = ([0; 256], 0_u64);
                while next < MESSAGES {
                    let Ok(received) = subscription.receive_timeout(PATIENCE, &mut buffer) else { return };
                    assert_eq!((received.sequence, received.lost_before), (next, 0));
                    next += 1;
                }
            });
            let watching = scope.spawn(|| {
                let mut seen = Vec::new();
                while !over.is_raised() || look(&mut monitor, Duration::ZERO, &mut seen) > 0 {
                    look(&mut monitor, Duration::from_micros(100), &mut seen);
                }
                seen
            });
            for number in 0..MESSAGES {
                let size = 8 + (number % 200) as usize;
                let mut message = vec![number as u8; size];
                message[..8].copy_from_slice(&number.to_le_bytes());
                while publication.offer(&message) == Err(OfferError::Full) {
                    std::thread::yield_now();
                }
            }
            over.raise();
            watching.join().unwrap()
        });
        let mut next = 0;
        for seen in &seen {
            next += seen.lost_before;
            assert_eq!(seen.sequence, next, "{bus}: out of order, or not counted");
            let number = u64::from_le_bytes(seen.bytes[..8].try_into().unwrap());
            assert_eq!(number, next, "{bus}");
            assert!(seen.bytes[8..].iter().all(|&byte| byte == number as u8), "{bus}: torn");
            next += 1;
        }
        let lost = listener.ledger().lost_overrun;
        assert_eq!(seen.len() as u64 + lost, MESSAGES, "{bus}: {}", listener.ledger());
    }
}

/// Goal: a monitor is no reader: a message that nobody reads is not sent because of it.
#[test]
fn nobody_is_connected_by_a_monitor() {
    for bus in memory_buses() {
        let here = Node::open(&bus, "here").unwrap();
        let _monitor = Node::open(&bus, "listener").unwrap().monitor(Wake::Futex).unwrap();
        for target in [Target::port("listener", 7), Target::node("listener"), Target::EVERYONE] {
            let mut publication = here.publication(target, &held_back(4096)).unwrap();
            assert_eq!(publication.readers(), 0, "{bus}: {target}");
            assert_eq!(publication.offer(b"to nobody"), Err(OfferError::NotConnected), "{bus}: {target}");
        }
        let to_it = here.bind(1).unwrap().try_send(Target::port("listener", 7), b"to nobody");
        assert_eq!(to_it, Err(SendError::Unreachable), "{bus}");
    }
}

/// Goal: on a wire a monitor is no reader of what its own node sends: nothing is sent, copied or held back because of it. Method: it
/// never looks.
#[test]
fn on_a_wire_nobody_sends_to_a_monitor_beside_it() {
    let _alive = watchdog(60);
    for medium in media().into_iter().filter(|medium| !medium.in_memory) {
        let node = Node::open(&medium.here, "here").unwrap();
        let _monitor = node.monitor(Wake::Epoll).unwrap();
        let mut sender = node.bind(1).unwrap();
        let alone = sender.try_send(Target::node("here"), b"to nobody");
        assert_eq!(alone, Err(SendError::Unreachable), "{}", medium.name);
        let mut beside = node.bind(2).unwrap();
        for number in 0..10_000_u64 {
            sender.try_send(Target::node("here"), &number.to_le_bytes()).unwrap();
            assert_eq!(beside.receive_timeout(PATIENCE).unwrap().payload, number.to_le_bytes());
        }
        let ledger = node.ledger();
        assert_eq!((ledger.copies, ledger.inbox_full), (10_000, 0), "{}: {ledger}", medium.name);
        assert!(ledger.is_balanced(), "{}: {ledger}", medium.name);
    }
}

/// Goal: publications that come and go between two looks are seen all the same.
#[test]
fn short_lived_publications_are_kept_for_it() {
    const LIVES: u64 = 60;
    let _alive = watchdog(60);
    for bus in memory_buses() {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let listener = Node::open(&bus, "listener").unwrap();
        let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut monitor = listener.monitor(Wake::Futex).unwrap();
        let mut buffer = [0; 8];
        for life in 0..LIVES {
            let mut publication = here.publication(Target::port("there", 7), &held_back(4096)).unwrap();
            publication.offer(&life.to_le_bytes()).unwrap();
            // Its reader has found it, and would not have it kept.
            subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
            drop(publication);
        }
        let seen = look_for(&mut monitor, LIVES as usize);
        let mut lives: Vec<u64> =
            seen.iter().map(|seen| u64::from_le_bytes(seen.bytes[..].try_into().unwrap())).collect();
        lives.sort_unstable();
        assert_eq!(lives, (0..LIVES).collect::<Vec<_>>(), "{bus}");
        // The rings go once it has found them: others may take their places.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            look(&mut monitor, Duration::from_millis(10), &mut Vec::new());
            here.housekeep();
        }
        for _ in 0..256 {
            let mut publication = here.publication(Target::port("there", 7), &held_back(4096)).unwrap();
            publication.offer(b"one more").unwrap();
            while subscription.try_receive(&mut buffer).is_err() {}
            look(&mut monitor, Duration::ZERO, &mut Vec::new());
        }
    }
}

/// The messages of a capture, each of which is in a sealed frame.
fn sealed_payloads(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut payloads) = (0, Vec::new());
    while at < file.len() {
        let size = block_size(file[at..].first_chunk().unwrap()).unwrap();
        if let Block::Packet(packet) = read_block(&file[at..at + size]).unwrap() {
            let frame = Frame::parse(packet.frame).unwrap();
            assert!(frame.header.sealed && frame.seal.is_some(), "{:?}", frame.header);
            payloads.push(frame.payload.to_vec());
        }
        at += size;
    }
    payloads
}

/// Goal: with keys the message, opened and shown to be genuine; without them all that stands there, and a word that nobody has
/// looked at the seal.
#[test]
fn sealed_messages_are_opened_with_keys_and_shown_as_they_are_without() {
    let _alive = watchdog(60);
    let keys = Keys::random(3);
    for bare in memory_buses() {
        let bus = bare.clone().sealed(&keys);
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let capture = std::env::temp_dir().join(format!("{}.pcapng", unique("unopened")));
        let stranger = NodeOptions::new("stranger").capture(&capture).open(&bare).unwrap();
        let knows = Node::open(&bus, "knows").unwrap();
        let mut opened = knows.monitor(Wake::Futex).unwrap();
        let mut unopened = stranger.monitor(Wake::Futex).unwrap();
        let mut receiver = there.bind(7).unwrap();
        let mut sender = here.bind(1).unwrap();
        for number in 0_u64..20 {
            sender.send(Target::port("there", 7), &number.to_le_bytes()).unwrap();
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, number.to_le_bytes());
        }
        for (number, seen) in (0_u64..).zip(look_for(&mut opened, 20)) {
            assert_eq!((seen.is_unopened, &seen.bytes[..]), (false, &number.to_le_bytes()[..]), "{bus}");
        }
        for (number, seen) in (0_u64..).zip(look_for(&mut unopened, 20)) {
            assert!(seen.is_unopened && seen.bytes.len() == 8 + SEAL_SIZE, "{bus}: {seen:?}");
            assert_eq!(seen.bytes[..8], number.to_le_bytes(), "{bus}");
        }
        drop((unopened, stranger));
        let captured = sealed_payloads(&std::fs::read(&capture).unwrap());
        assert_eq!(captured, (0_u64..20).map(|number| number.to_le_bytes().to_vec()).collect::<Vec<_>>());
        std::fs::remove_file(&capture).unwrap();
        drop((sender, here));
        drop((receiver, there));
    }
}

/// Goal: on the kernel's media it has every message for everybody and for its node, regardless of the port. Components of that node
/// have their messages as well.
#[test]
fn on_a_wire_a_monitor_has_what_arrives() {
    const ROUNDS: u64 = 30;
    let _alive = watchdog(60);
    let wires: Vec<Medium> = media().into_iter().filter(|medium| !medium.in_memory).collect();
    for medium in wires {
        let here = Node::open(&medium.here, "here").unwrap();
        let there = Node::open(&medium.there, "there").unwrap();
        let mut monitor = there.monitor(Wake::Epoll).unwrap();
        let mut sender = here.bind(1).unwrap();
        let unbound = [Target::port("there", 9), Target::everyone_at(9), Target::EVERYONE];
        let mut expected = HashMap::new();
        let mut seen = Vec::new();
        for number in 0..ROUNDS {
            for target in unbound {
                sender.send(target, &number.to_le_bytes()).unwrap();
                *expected.entry(target).or_insert(0_u64) += 1;
                while seen.len() < expected.values().sum::<u64>() as usize {
                    assert!(look(&mut monitor, PATIENCE, &mut seen) > 0, "{}: {seen:?}", medium.name);
                }
            }
        }
        for (target, count) in expected {
            let of_one: Vec<&Seen> = seen.iter().filter(|seen| seen.target == target).collect();
            assert_eq!(of_one.len() as u64, count, "{}: {target}", medium.name);
            assert!(of_one.iter().map(|seen| &seen.bytes).is_sorted(), "{}: {target}", medium.name);
        }
        // A component beside it: both have what is for that one.
        let mut beside = there.bind(9).unwrap();
        sender.send(Target::port("there", 9), b"to both").unwrap();
        assert_eq!(beside.receive_timeout(PATIENCE).unwrap().payload, b"to both", "{}", medium.name);
        let seen = look_for(&mut monitor, 1);
        assert_eq!((seen.len(), &seen[0].bytes[..]), (1, &b"to both"[..]), "{}", medium.name);
        drop((beside, monitor));
        assert!(there.ledger().is_balanced(), "{}: {}", medium.name, there.ledger());
        assert_eq!(there.ledger().lost(), 0, "{}: {}", medium.name, there.ledger());
    }
}

/// Goal: on a sealed bus a monitor without keys sees the fragments of a large message, and is told that they are parts. A monitor with
/// keys sees the message.
#[test]
fn fragments_that_nobody_opened_are_called_so() {
    const SIZE: usize = 600_000;
    let _alive = watchdog(60);
    let name = unique("monitor");
    let keys = Keys::random(1);
    let (sealed, bare) = (Bus::shared(&name).sealed(&keys), Bus::shared(&name));
    let open = |bus: &Bus, name: &str| NodeOptions::new(name).message_size_max(SIZE).open(bus).unwrap();
    let (here, there) = (open(&sealed, "here"), open(&sealed, "there"));
    let (with, without) = (open(&sealed, "with"), open(&bare, "without"));
    let mut monitors = [with.monitor(Wake::Futex).unwrap(), without.monitor(Wake::Futex).unwrap()];
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
    for size in [100, SIZE] {
        let message = vec![7; size];
        std::thread::scope(|scope| {
            scope.spawn(|| receiver.receive_timeout(PATIENCE).unwrap().payload.len());
            sender.send_timeout(Target::port("there", 7), &message, PATIENCE).unwrap();
        });
        let mut seen = [Vec::new(), Vec::new()];
        for (monitor, seen) in monitors.iter_mut().zip(&mut seen) {
            let start = Instant::now();
            let mut bytes = 0;
            while bytes < size {
                assert!(start.elapsed() < PATIENCE, "{bytes} of {size}");
                monitor.poll(256, Duration::from_millis(1), |observed| {
                    bytes += observed.len();
                    seen.push((observed.len(), observed.is_fragment, observed.is_unopened));
                });
            }
        }
        let [with, without] = seen;
        assert_eq!(with, [(size, false, false)]);
        assert_eq!(without.len() > 1, size == SIZE, "{without:?}");
        assert!(
            without.iter().all(|&(_, is_part, unopened)| unopened && is_part == (size == SIZE)),
            "{without:?}"
        );
    }
}
