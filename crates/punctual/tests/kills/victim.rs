//! Scenes of victims: each takes a node through a part of its life, to the end if nobody kills it.

use std::time::{Duration, Instant};

use punctual::memory::{SharedOptions, Sharing, WhenFull};
use punctual::publication::{OfferError, StampChoice};
use punctual::{
    Bus, CommunicatorOptions, Node, NodeOptions, Publication, PublicationOptions, Subscription,
    SubscriptionOptions, Target, Wake,
};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::PATIENCE;
use crate::world::{ALPHA, BETA, VICTIM, numbered, whole};

/// One way to live and to die.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) role: &'static str,
    /// True if readers hold writers back.
    pub(crate) held: bool,
    /// True if the bus is shared with a group.
    pub(crate) group: bool,
    /// True if others are on the bus already; if not, they come when the victim is dead.
    pub(crate) accompanied: bool,
    /// True if somebody was killed on that bus before.
    pub(crate) littered: bool,
}

const ACCOMPANIED: Scene =
    Scene { role: "visitor", held: false, group: false, accompanied: true, littered: false };

/// Writer, reader, node during discovery, closing node, sweeper, reader of more rings than its table has room for.
pub(crate) const SCENES: &[Scene] = &[
    ACCOMPANIED,
    Scene { accompanied: false, group: true, ..ACCOMPANIED },
    Scene { accompanied: false, littered: true, ..ACCOMPANIED },
    Scene { role: "writer", ..ACCOMPANIED },
    Scene { role: "writer", held: true, ..ACCOMPANIED },
    Scene { role: "reader futex", held: true, ..ACCOMPANIED },
    Scene { role: "reader eventfd", ..ACCOMPANIED },
    Scene { role: "publisher free", ..ACCOMPANIED },
    Scene { role: "publisher held", ..ACCOMPANIED },
    Scene { role: "subscriber", ..ACCOMPANIED },
    Scene { role: "short of rows", ..ACCOMPANIED },
];

/// Port of the subscriptions.
pub(crate) const STREAMS: u16 = 9;

impl Scene {
    /// Reaction to a slow reader of a publication, if the scene is about publications.
    pub(crate) fn streams(&self) -> Option<WhenFull> {
        match self.role {
            "publisher free" => Some(WhenFull::Overrun),
            "publisher held" | "subscriber" => Some(WhenFull::HoldBack),
            _ => None,
        }
    }
}

/// A publication whose ring is lapped soon.
pub(crate) fn small(when_full: WhenFull) -> PublicationOptions {
    PublicationOptions { ring_size: 1 << 12, when_full: Some(when_full), ..PublicationOptions::default() }
}

/// A bus as it is told to a victim: folder, name, `held` or `free`, `group` or `private`.
pub(crate) fn bus_of(text: &str) -> Bus {
    let words: Vec<&str> = text.split(' ').collect();
    let [directory, name, when_full, sharing] = words[..] else { panic!("{text}: no bus") };
    Bus::Shared(SharedOptions {
        ring_size: 1 << 12,
        when_full: if when_full == "held" { WhenFull::HoldBack } else { WhenFull::Overrun },
        sharing: if sharing == "group" { Sharing::Group(own_group()) } else { Sharing::Private },
        directory: directory.into(),
        ..SharedOptions::new(name)
    })
}

fn own_group() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().gid()
}

pub(crate) fn play(role: &str, bus: &str) {
    let is_alone = bus.ends_with("alone");
    let bus = bus_of(bus.trim_end_matches(" alone"));
    match role.split_once(' ').unwrap_or((role, "")) {
        ("visitor", _) => visit(&bus),
        ("writer", _) => write(&bus, is_alone),
        ("publisher", "held") => publish(&Node::open(&bus, VICTIM).unwrap(), &small(WhenFull::HoldBack)),
        // With a capture: its messages are claimed and committed, and not appended.
        ("publisher", _) => {
            let capture = std::env::temp_dir().join(format!("punctual-victim-{}", std::process::id()));
            let node = NodeOptions::new(VICTIM).capture(&capture).open(&bus).unwrap();
            // It is written on, and nothing of it stays.
            std::fs::remove_file(capture).unwrap();
            publish(&node, &PublicationOptions { stamps: StampChoice::All, ..small(WhenFull::Overrun) });
        }
        ("subscriber", _) => subscribe(&bus),
        ("short", _) => read_more_than_it_has_rows(&bus),
        ("reader", wake) => read(&bus, wake.parse().unwrap()),
        _ => panic!("{role}: no role"),
    }
}

/// Joins, talks to a neighbour of the same node and to everybody, leaves.
fn visit(bus: &Bus) {
    let node = Node::open(bus, VICTIM).unwrap();
    let (mut here, mut neighbour) = (node.bind(1).unwrap(), node.bind(2).unwrap());
    here.send_timeout(neighbour.address().into(), b"neighbour", PATIENCE).unwrap();
    assert_eq!(neighbour.receive_timeout(PATIENCE).unwrap().payload, b"neighbour");
    for number in 0..3 {
        here.send_timeout(Target::EVERYONE, &numbered(number), PATIENCE).unwrap();
    }
}

/// Laps its ring several times.
fn write(bus: &Bus, is_alone: bool) {
    let node = Node::open(bus, VICTIM).unwrap();
    let mut communicator = node.bind(1).unwrap();
    for number in 0..300 {
        let target = match number % 3 {
            0 if !is_alone => Target::port(BETA, 1),
            _ => Target::everyone_at(1),
        };
        communicator.send_timeout(target, &numbered(number), PATIENCE).unwrap();
        // A reader that holds others back must read.
        while communicator.try_receive().is_ok() {}
        if number % 10 == 0 {
            // So that readers sleep, and have to be woken.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sleeps for every message; is once too slow.
fn read(bus: &Bus, wake: Wake) {
    let node = Node::open(bus, VICTIM).unwrap();
    let mut communicator = node.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
    communicator.send_timeout(Target::port(ALPHA, 1), &numbered(0), PATIENCE).unwrap();
    let give_up = Instant::now() + PATIENCE;
    let mut expected = 0;
    for count in 0..40 {
        let message = communicator.receive_timeout(PATIENCE).unwrap();
        if message.source.node == punctual::NodeId::named(ALPHA) {
            let number = whole(message.payload);
            assert!(number >= expected, "{number} after {expected}");
            expected = number + 1;
        }
        if count == 20 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(Instant::now() < give_up);
    }
}

/// Laps the ring of a publication several times, alone and in runs.
fn publish(node: &Node, options: &PublicationOptions) {
    let mut publication = node.publication(Target::port(ALPHA, STREAMS), options).unwrap();
    assert!(publication.wait_for_readers(1, PATIENCE));
    let give_up = Instant::now() + PATIENCE;
    let mut number = 0;
    while number < 300 {
        let mut run = publication.run();
        while number % 7 != 6 && run.offer(&numbered(number)).is_ok() {
            number += 1;
        }
        drop(run);
        match publication.offer(&numbered(number)) {
            Ok(()) => number += 1,
            Err(OfferError::Full) => assert!(Instant::now() < give_up, "full for ever"),
            Err(error) => panic!("{error}"),
        }
        if number % 50 < 7 {
            // So that readers sleep, and have to be woken.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sleeps for every message of a publication; is once too slow.
fn subscribe(bus: &Bus) {
    let node = Node::open(bus, VICTIM).unwrap();
    let mut subscription = node.subscription(STREAMS, &SubscriptionOptions { wake: Wake::Futex }).unwrap();
    let mut buffer = [0; 512];
    let mut next = None;
    for count in 0..40 {
        let received = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
        whole(&buffer[..received.size]);
        assert_eq!(received.sequence, next.unwrap_or(received.sequence), "it holds the writer back");
        next = Some(received.sequence + 1);
        if count == 20 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Reads more of its own rings than its table has room for, then fewer: the rows that nobody saw move into the table.
fn read_more_than_it_has_rows(bus: &Bus) {
    // The table's first 2,048 rows fit into a file of that size, and no more.
    let size = Some(250_000);
    setrlimit(Resource::Fsize, Rlimit { current: size, maximum: size }).unwrap();
    let node = Node::open(bus, VICTIM).unwrap();
    let spinning = SubscriptionOptions { wake: Wake::Spin };
    let mut readers: Vec<_> = (100..146).map(|port| node.subscription(port, &spinning).unwrap()).collect();
    let target = Target::node(VICTIM);
    let writer = || node.publication(target, &small(WhenFull::HoldBack)).unwrap();
    let mut writers: Vec<_> = (0..46).map(|_| writer()).collect();
    let look = |writers: &mut [Publication], readers: &mut [Subscription]| {
        for writer in writers {
            writer.offer(&numbered(0)).unwrap();
        }
        for reader in readers {
            while reader.poll(usize::MAX, |_| ()) > 0 {}
        }
    };
    look(&mut writers, &mut readers);
    readers.drain(..6);
    // So that the others look for rings.
    writers.push(writer());
    look(&mut writers, &mut readers);
}
