//! Events of a bus's nodes: joins, departures and deaths, each with the node's life. Captures of nodes.

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, Role, be_a_node_that_idles, free_ports, reopen, unique, watchdog};
use punctual::memory::WhenFull;
use punctual::node::{NodeChange, NodeEvent, NodeEvents};
use punctual::publication::OfferError;
use punctual::{Bus, Node, NodeId, NodeOptions, PublicationOptions, SubscriptionOptions, Target, Wake};
use punctual_proto::Frame;
use punctual_proto::pcapng::{Block, Direction, block_size, read_block};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Not a test of its own: a node of another process, that does nothing until it is killed.
#[test]
fn role() {
    be_a_node_that_idles();
}

/// Goal: a watcher of nodes reads no messages: it holds no writer back, and is nobody's reader.
#[test]
fn a_watcher_of_nodes_is_no_reader() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("watcher")), Bus::shared(&unique("watcher"))] {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let _events = Node::open(&bus, "watches").unwrap().events(Wake::Futex).unwrap();
        let held_back =
            PublicationOptions { when_full: Some(WhenFull::HoldBack), ..PublicationOptions::default() };
        let mut publication = here.publication(Target::EVERYONE, &held_back).unwrap();
        assert_eq!(publication.offer(b"to nobody"), Err(OfferError::NotConnected), "{bus}");
        let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
        assert_eq!(publication.readers(), 1, "{bus}");
        let mut buffer = [0; 64];
        for number in 0..20_000 {
            publication.offer(&[0; 64]).unwrap_or_else(|error| panic!("{bus}, {number}: {error}"));
            subscription.try_receive(&mut buffer).unwrap();
        }
    }
}

fn next(events: &mut NodeEvents) -> NodeEvent {
    events.next_timeout(PATIENCE).expect("an event")
}

fn what(event: &NodeEvent) -> (NodeChange, NodeId) {
    (event.change, event.node)
}

/// Goal: of two and three nodes each is told of once, with its name and its whole life, also a node that was there before. A node that
/// comes back is another life.
fn comes_and_goes(bus: &Bus) {
    let first = Node::open(bus, "first").unwrap();
    let watches = Node::open(bus, "watches").unwrap();
    let mut events = watches.events(Wake::Futex).unwrap();
    let joined = next(&mut events);
    assert_eq!(what(&joined), (NodeChange::Joined, first.id()), "the node that is there comes first");
    assert_eq!((joined.name.as_deref(), joined.life.bits), (Some("first"), 64));
    let second = Node::open(bus, "second").unwrap();
    let also = next(&mut events);
    assert_eq!((what(&also), also.name.as_deref()), ((NodeChange::Joined, second.id()), Some("second")));
    assert_ne!(also.life, joined.life);
    drop(first);
    let left = next(&mut events);
    assert_eq!((what(&left), left.life), ((NodeChange::Left, joined.node), joined.life));
    assert_eq!(left.name.as_deref(), Some("first"), "its memory is gone, its name is not");
    let again = Node::open(bus, "first").unwrap();
    let back = next(&mut events);
    assert_eq!(what(&back), (NodeChange::Joined, joined.node));
    assert_ne!(back.life, joined.life);
    let mut late = watches.events(Wake::EventFd).unwrap();
    let mut present = [next(&mut late), next(&mut late)].map(|event| what(&event));
    present.sort_by_key(|(_, node)| node.get());
    let mut expected = [again.id(), second.id()].map(|node| (NodeChange::Joined, node));
    expected.sort_by_key(|(_, node)| node.get());
    assert_eq!(present, expected, "a second one who watches hears of those who are there now");
    assert!(events.try_next().is_none() && late.try_next().is_none());
    drop((again, second));
    for events in [&mut events, &mut late] {
        assert!((0..2).all(|_| next(events).change == NodeChange::Left));
    }
    let ledger = watches.ledger();
    assert!(ledger.is_balanced() && events.missed() == 0, "{ledger}");
}

#[test]
fn nodes_come_and_go_inside_a_process() {
    let _alive = watchdog(60);
    comes_and_goes(&Bus::loopback(&unique("nodes")));
}

#[test]
fn nodes_come_and_go_in_shared_memory() {
    let _alive = watchdog(60);
    comes_and_goes(&Bus::shared(&unique("nodes")));
}

/// Goal: a process that is killed has died, which is told with the life that it had.
#[test]
fn a_killed_process_has_died() {
    let _alive = watchdog(60);
    let bus = unique("killed");
    let watches = Node::open(&Bus::shared(&bus), "watches").unwrap();
    let mut events = watches.events(Wake::default()).unwrap();
    let process = Role::start("mortal", &bus);
    let joined = next(&mut events);
    assert_eq!(what(&joined), (NodeChange::Joined, NodeId::named("mortal")));
    process.kill();
    let died = next(&mut events);
    assert_eq!((what(&died), died.life), ((NodeChange::Died, joined.node), joined.life));
    assert_eq!(died.name.as_deref(), Some("mortal"));
}

/// Goal: over UDP nodes are told of with the part of their life that frames carry; nobody's name is known.
#[test]
fn nodes_come_and_go_over_udp() {
    let _alive = watchdog(60);
    let (here, there) = free_ports();
    let watches = Node::open(&Bus::peers(here, &[there]), "watches").unwrap();
    let mut events = watches.events(Wake::EventFd).unwrap();
    let mut lives = Vec::new();
    for _ in 0..2 {
        let other = reopen(&NodeOptions::new("other"), &Bus::peers(there, &[here]));
        let joined = next(&mut events);
        assert_eq!(what(&joined), (NodeChange::Joined, other.id()));
        assert_eq!((joined.life.bits, &joined.name), (16, &None));
        assert!(joined.life.value <= u64::from(u16::MAX));
        drop(other);
        let left = next(&mut events);
        assert_eq!((what(&left), left.life), ((NodeChange::Left, joined.node), joined.life));
        lives.push(joined.life);
    }
    // Of 65,536 runs one has the same number twice, which is what the documentation says.
    println!("lives {lives:?}");
}

/// Bytes at a UDP port of ours that nobody has taken, as the kernel counts them. A list that is read while other sockets come and go
/// may lack it.
fn queued_at(port: u16) -> u64 {
    let of_port = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_its = fields.next()?.ends_with(&format!(":{port:04X}"));
        let (_sent, received) = fields.nth(2)?.split_once(':')?;
        is_its.then(|| u64::from_str_radix(received, 16).unwrap())
    };
    loop {
        let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
        if let Some(queued) = sockets.lines().find_map(of_port) {
            return queued;
        }
    }
}

/// Goal: a message behind an ICMP answer is found by the first try: an event loop that is told of both by one edge is not told again.
/// Method: a node greets a peer whose port is closed, and that peer comes and speaks before the node looks.
#[test]
fn an_icmp_answer_hides_no_message() {
    let _alive = watchdog(60);
    let (a, b) = free_ports();
    let wait_for_more_than = |bytes| {
        while queued_at(b.port()) <= bytes {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let greets = Node::open(&Bus::peers(b, &[a]), "greets").unwrap();
    let mut inbox = greets.bind(1).unwrap();
    let comes = Node::open(&Bus::peers(a, &[b]), "comes").unwrap();
    // Its greeting comes before its message.
    wait_for_more_than(0);
    let greeting = queued_at(b.port());
    comes.bind(2).unwrap().send(Target::everyone_at(1), b"here I am").unwrap();
    wait_for_more_than(greeting);
    assert_eq!(inbox.try_receive().unwrap().payload, b"here I am");
}

/// Goal: a thread that waits for events takes nobody's messages: those that come for components meanwhile are theirs.
#[test]
fn a_thread_that_waits_for_events_takes_no_messages() {
    let _alive = watchdog(60);
    let bus = Bus::shared(&unique("handed"));
    let watches = Node::open(&bus, "watches").unwrap();
    let mut events = watches.events(Wake::Futex).unwrap();
    let mut component = watches.bind(7).unwrap();
    let other = Node::open(&bus, "other").unwrap();
    let mut speaker = other.bind(1).unwrap();
    speaker.send_timeout(Target::port("watches", 7), b"one", PATIENCE).unwrap();
    speaker.send_timeout(Target::EVERYONE, b"all", PATIENCE).unwrap();
    assert_eq!(what(&next(&mut events)), (NodeChange::Joined, other.id()));
    assert!(events.next_timeout(Duration::from_millis(20)).is_none(), "a message is no event");
    let mut heard: Vec<_> =
        (0..2).map(|_| component.receive_timeout(PATIENCE).unwrap().payload.to_vec()).collect();
    heard.sort_unstable();
    assert_eq!(heard, [&b"all"[..], b"one"]);
    assert!(watches.ledger().is_balanced());
}

/// Goal: events wake an event loop of one's own, and a watcher that stops leaves nothing behind.
#[test]
fn events_wake_an_event_loop() {
    let _alive = watchdog(60);
    let bus = Bus::shared(&unique("loop"));
    let watches = Node::open(&bus, "watches").unwrap();
    let mut events = watches.events(Wake::Epoll).unwrap();
    let mut seen = Vec::new();
    let other = Node::open(&bus, "other").unwrap();
    let give_up = Instant::now() + PATIENCE;
    while seen.is_empty() {
        while let Some(event) = events.try_next() {
            seen.push(what(&event));
        }
        if events.arm() && seen.is_empty() {
            let mut descriptors = [PollFd::new(&events, PollFlags::IN)];
            poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap();
        }
        assert!(Instant::now() < give_up);
    }
    assert_eq!(seen, [(NodeChange::Joined, other.id())]);
    drop(events);
    drop(other);
    watches.housekeep();
    assert!(watches.ledger().is_balanced());
}

/// Goal: a node of a kernel's medium answers a newcomer, however many have come and left before.
#[test]
fn a_newcomer_after_many_that_left_is_answered() {
    let _alive = watchdog(120);
    let group = ([239, 255, 80, 89], free_ports().0.port()).into();
    let bus = Bus::multicast(group, [127, 0, 0, 1].into());
    let hub = Node::open(&bus, "hub").unwrap();
    let mut answers = hub.bind(1).unwrap();
    for number in 0..300 {
        let guest = Node::open(&bus, &format!("guest-{number}")).unwrap();
        let mut asks = guest.bind(1).unwrap();
        asks.send_timeout(Target::port("hub", 1), b"hello", PATIENCE).unwrap();
        let from = answers.receive_timeout(PATIENCE).unwrap().source;
        let answered = answers.send_timeout(from.into(), b"welcome", PATIENCE);
        assert_eq!(answered, Ok(()), "guest {number}");
        assert_eq!(asks.receive_timeout(PATIENCE).unwrap().payload, b"welcome", "guest {number}");
    }
    let ledger = hub.ledger();
    assert_eq!((ledger.lost(), ledger.duplicates), (0, 0), "{ledger}");
}

/// Goal: a node does not write over what another captures; when that has closed, the file is free.
#[test]
fn a_capture_has_its_file_alone() {
    let path = std::env::temp_dir().join(format!("{}.pcapng", unique("capture")));
    let (bus, options) =
        (Bus::loopback(&unique("captured")), |name: &str| NodeOptions::new(name).capture(&path));
    let first = options("first").open(&bus).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    let refused = options("second").open(&bus).unwrap_err().to_string();
    assert!(refused.contains("another capture") && refused.contains("a file of its own"), "{refused}");
    assert!(std::fs::metadata(&path).unwrap().len() >= size, "the captured messages stay");
    drop(first);
    drop(options("second").open(&bus).unwrap());
    std::fs::remove_file(&path).unwrap();
}

/// Goal: in memory a node captures what it receives as well as what it sends, however messages are taken.
#[test]
fn a_capture_has_both_ways() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("ways")), Bus::shared(&unique("ways"))] {
        let path = std::env::temp_dir().join(format!("{}.pcapng", unique("ways")));
        let here = NodeOptions::new("here").capture(&path).open(&bus).unwrap();
        let there = Node::open(&bus, "there").unwrap();
        let (mut own, mut other) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        own.send(Target::port("there", 1), b"question").unwrap();
        assert_eq!(other.receive().unwrap().payload, b"question");
        for (number, answer) in (0..).zip([b"first", b"other", b"third"]) {
            other.send(Target::port("here", 1), answer).unwrap();
            match number {
                0 => assert_eq!(own.receive().unwrap().payload, answer),
                1 => assert_eq!(own.poll(1, |_, payload| assert_eq!(payload, answer)), 1),
                _ => assert_eq!(own.receive_into_until(None, &mut [0; 8]).unwrap().size, answer.len()),
            }
        }
        drop((own, here));
        let (file, mut at, mut ways) = (std::fs::read(&path).unwrap(), 0, Vec::new());
        while at < file.len() {
            let size = block_size(file[at..].first_chunk().unwrap()).unwrap();
            if let Block::Packet(packet) = read_block(&file[at..at + size]).unwrap() {
                let payload = Frame::parse(packet.frame).unwrap().payload;
                ways.push((packet.direction.unwrap(), payload.to_vec()));
            }
            at += size;
        }
        let expected = [
            (Direction::Out, &b"question"[..]),
            (Direction::In, b"first"),
            (Direction::In, b"other"),
            (Direction::In, b"third"),
        ];
        assert_eq!(ways, expected.map(|(way, payload)| (way, payload.to_vec())));
        std::fs::remove_file(&path).unwrap();
    }
}
