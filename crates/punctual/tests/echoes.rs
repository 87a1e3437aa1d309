//! A node's messages to everybody come back to its host, and not to it.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{PATIENCE, free_ports, watchdog};
use punctual::engine::datagram::{DatagramOptions, Reach};
use punctual::{Bus, Communicator, Node, SendError, Target};
use punctual_machine::namespace::{add_address, bring_up, create_bridge, unshare_network};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// More than the buffer of a socket holds, also in runs.
const MESSAGES: u64 = 20_000;

fn multicast(timestamps: bool) -> Bus {
    let group = SocketAddr::new([239, 255, 80, 86].into(), free_ports().0.port());
    let reach = Reach::Multicast { group, interface: [127, 0, 0, 1].into() };
    Bus::Datagram(DatagramOptions { receive_buffer: 256 << 10, timestamps, ..DatagramOptions::new(reach) })
}

/// True if anything wakes a thread that waits for the medium.
fn is_readable(node: &Node) -> bool {
    let mut descriptors: Vec<PollFd<'_>> = node
        .medium_descriptors()
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    poll(&mut descriptors, Some(&Timespec::default())).unwrap() > 0
}

/// Sends so many numbered messages to everybody, so many by each flush.
fn talk(sender: &mut Communicator, messages: std::ops::Range<u64>, run: u64) {
    for number in messages {
        while sender.queue(Target::EVERYONE, &number.to_le_bytes()) == Err(SendError::Full) {
            std::thread::yield_now();
        }
        if number % run == run - 1 {
            sender.flush();
        }
    }
    sender.flush();
}

/// Runs that go through the kernel as one are counted by it as one, unless it is asked for a stamp of each.
const RUNS: [u64; 2] = [1, 16];

/// Goal: a node that is alone on a multicast group and talks is not woken by its own messages. Nor does it count them as dropped when
/// another node comes and speaks. That node hears it as well.
#[test]
fn a_node_that_talks_alone_neither_hears_nor_counts_itself() {
    let _alive = watchdog(60);
    for timestamps in [false, true] {
        RUNS.into_iter().for_each(|run| talk_alone(run, timestamps));
    }
}

fn talk_alone(run: u64, timestamps: bool) {
    let bus = multicast(timestamps);
    let here = Node::open(&bus, "here").unwrap();
    let mut sender = here.bind(1).unwrap();
    talk(&mut sender, 0..MESSAGES, run);
    assert!(!is_readable(&here), "its own messages are in its buffer");
    let there = Node::open(&bus, "there").unwrap();
    let mut other = there.bind(1).unwrap();
    other.send_timeout(Target::everyone_at(1), b"hello", PATIENCE).unwrap();
    assert_eq!(sender.receive_timeout(PATIENCE).unwrap().payload, b"hello");
    sender.send_timeout(Target::EVERYONE, b"welcome", PATIENCE).unwrap();
    while other.receive_timeout(PATIENCE).unwrap().payload != b"welcome" {}
    let ledger = here.ledger();
    assert_eq!((ledger.arrived, ledger.buffer_drops, ledger.bad_frames), (1, 0, 0), "{ledger}");
}

/// Goal: losses by a full buffer are counted, though the kernel counts a node's own messages the same way. Method: both talk, and
/// nobody reads for a while.
#[test]
fn drops_of_a_full_buffer_are_told_from_own_messages() {
    let _alive = watchdog(60);
    RUNS.into_iter().for_each(talk_in_company);
}

fn talk_in_company(run: u64) {
    let bus = multicast(false);
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(2).unwrap());
    for first in (0..MESSAGES).step_by(16) {
        talk(&mut sender, first..MESSAGES.min(first + 16), run);
        for _ in 0..16 {
            receiver.send_timeout(Target::port("nobody", 1), b"mine", PATIENCE).unwrap();
        }
    }
    let give_up = Instant::now() + PATIENCE;
    let (missing, ledger) = loop {
        here.housekeep();
        while receiver.receive_timeout(Duration::from_millis(10)).is_ok() {}
        let (account, ledger) = (there.peers().remove(0), there.ledger());
        if account.arrived + account.lost + account.missing == MESSAGES || Instant::now() > give_up {
            break (account.missing, ledger);
        }
    };
    assert_eq!(ledger.arrived + ledger.lost() + missing, MESSAGES, "{ledger}");
    assert!(ledger.buffer_drops > 0 && ledger.buffer_drops < MESSAGES + 100, "{ledger}");
    assert_eq!((ledger.lost(), ledger.lost_medium), (ledger.lost_buffer_full, 0), "{ledger}");
}

/// Goal: a node hears its multicast group on its own interface, and not what the host is a member of on another one. Method: two
/// interfaces of one network namespace, the same group on both.
#[test]
fn a_group_is_that_of_ones_own_interface() {
    let _alive = watchdog(60);
    let interfaces = [("one", [10, 77, 50, 1]), ("two", [10, 77, 51, 1])];
    // The namespace is this thread's, and ends with it.
    let prepared = unshare_network().and_then(|()| {
        interfaces.iter().try_for_each(|(name, address)| {
            create_bridge(name)?;
            bring_up(name)?;
            let [a, b, c, d] = address;
            add_address(name, &format!("{a}.{b}.{c}.{d}/24"))
        })
    });
    if let Err(reason) = prepared {
        punctual_machine::skipped!("two interfaces need a network namespace: {reason}");
        return;
    }
    let buses =
        interfaces.map(|(_, address)| Bus::multicast(([239, 255, 80, 87], 9_931).into(), address.into()));
    let [here, there] = buses.each_ref().map(|bus| Node::open(bus, "gateway").unwrap());
    let beside = buses.each_ref().map(|bus| Node::open(bus, "beside").unwrap());
    let mut ears = [&here, &there].map(|node| node.bind(1).unwrap());
    for (node, said) in beside.iter().zip([b"by one", b"by two"]) {
        node.bind(1).unwrap().send_timeout(Target::everyone_at(1), said, PATIENCE).unwrap();
    }
    for (ear, said) in ears.iter_mut().zip([b"by one", b"by two"]) {
        assert_eq!(ear.receive_timeout(PATIENCE).unwrap().payload, said);
        let more = ear.receive_timeout(Duration::from_millis(200)).map(|message| message.payload.to_vec());
        assert_eq!(more.ok(), None);
    }
    for node in [&here, &there] {
        let ledger = node.ledger();
        assert_eq!((ledger.joined, ledger.buffer_drops, ledger.bad_frames), (1, 0, 0), "{ledger}");
    }
}
