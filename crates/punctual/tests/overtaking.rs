//! No message overtakes another of its sender and target: where a node reads two sockets, its own and the group's, and no frame counts
//! as too late for it; and where a node needs more rings than it has.

mod common;

use std::net::SocketAddr;
use std::time::Instant;

use common::{PATIENCE, free_ports, unique, watchdog};
use punctual::{Bus, Communicator, Keys, Ledger, Node, Target};

/// A bus without seals, and one with.
fn buses() -> [Bus; 2] {
    let multicast = || {
        let group = SocketAddr::new([239, 255, 80, 88].into(), free_ports().0.port());
        Bus::multicast(group, [127, 0, 0, 1].into())
    };
    [multicast(), multicast().sealed(&Keys::random(1))]
}

/// Tries until it comes to something.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < give_up, "gave up waiting for {what}");
    }
}

fn send(sender: &mut Communicator, target: Target, numbers: std::ops::Range<u32>) {
    for number in numbers {
        sender.send_timeout(target, &number.to_le_bytes(), PATIENCE).unwrap();
    }
}

/// Takes all that is there, until nothing comes after the node has heard that the other one left.
fn take_all(receiver: &mut Communicator, node: &Node) -> Vec<u32> {
    let mut taken = Vec::new();
    until("the goodbye", || {
        let has_left = node.ledger().left > 0;
        let before = taken.len();
        while let Ok(message) = receiver.try_receive() {
            taken.push(u32::from_le_bytes(message.payload.try_into().unwrap()));
        }
        (has_left && taken.len() == before).then_some(())
    });
    taken
}

fn assert_nothing_was_late(ledger: &Ledger) {
    assert_eq!((ledger.lost(), ledger.duplicates, ledger.seal_replayed), (0, 0, 0), "{ledger}");
}

/// Goal: messages to everybody all arrive, though their sender's goodbye to one node is read before them. Method: the receiver's own
/// socket had something last, so it is read first.
fn a_goodbye_overtakes_what_was_said_to_everybody(bus: &Bus) {
    let (here, there) = (Node::open(bus, "here").unwrap(), Node::open(bus, "there").unwrap());
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    there.housekeep();
    until("the receiver's hello", || {
        let _nothing = sender.try_receive();
        (!here.peers().is_empty()).then_some(())
    });
    send(&mut sender, Target::port("there", 1), 0..1);
    assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, 0_u32.to_le_bytes());
    send(&mut sender, Target::everyone_at(1), 0..200);
    drop((sender, here));
    assert_eq!(take_all(&mut receiver, &there), (0..200).collect::<Vec<_>>(), "{}", there.ledger());
    assert_nothing_was_late(&there.ledger());
}

#[test]
fn nothing_overtakes_what_is_said_to_everybody() {
    let _alive = watchdog(60);
    buses().iter().for_each(a_goodbye_overtakes_what_was_said_to_everybody);
}

/// Goal: a stream to one node arrives whole and in order, though its parts come by two sockets. The first part comes by the group's,
/// while the sender does not know where that node is. The rest comes by the node's own. Method: nothing is read before all is there.
fn the_rest_of_a_stream_overtakes_its_beginning(bus: &Bus) {
    let there = Node::open(bus, "there").unwrap();
    let here = Node::open(bus, "here").unwrap();
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    send(&mut sender, Target::port("there", 1), 0..200);
    there.housekeep();
    until("the receiver's hello", || {
        let _nothing = sender.try_receive();
        (!here.peers().is_empty()).then_some(())
    });
    send(&mut sender, Target::port("there", 1), 200..300);
    send(&mut sender, Target::everyone_at(1), 300..310);
    drop((sender, here));
    let taken = take_all(&mut receiver, &there);
    let in_order = |kind: std::ops::Range<u32>| {
        let of_kind = taken.iter().copied().filter(|number| kind.contains(number));
        assert_eq!(of_kind.collect::<Vec<_>>(), kind.collect::<Vec<_>>(), "{}", there.ledger());
    };
    in_order(0..300);
    in_order(300..310);
    assert_nothing_was_late(&there.ledger());
}

#[test]
fn nothing_overtakes_the_beginning_of_a_stream() {
    let _alive = watchdog(60);
    buses().iter().for_each(the_rest_of_a_stream_overtakes_its_beginning);
}

/// Goal: messages of one communicator to one target keep their order where it has more targets than a node has rings. Method: its reader
/// has found the ring and leaves a message unread, while other targets need rings. It has read last what another node sent.
#[test]
fn rings_that_are_needed_elsewhere_keep_the_order() {
    let _alive = watchdog(120);
    let bus = Bus::shared(&unique("rings"));
    let [here, there, third] = ["here", "there", "third"].map(|name| Node::open(&bus, name).unwrap());
    let (mut sender, mut other) = (here.bind(1).unwrap(), third.bind(1).unwrap());
    let mut reader = there.bind(7).unwrap();
    let to = Target::port("there", 7);
    let mut told = Vec::new();
    let mut take = |reader: &mut Communicator, count| {
        for _ in 0..count {
            told.push(reader.receive_timeout(PATIENCE).unwrap().payload[0]);
        }
    };
    sender.send(to, &[0]).unwrap();
    take(&mut reader, 1);
    other.send(to, &[100]).unwrap();
    take(&mut reader, 1);
    sender.send(to, &[1]).unwrap();
    for port in 1_000..1_300 {
        let mut elsewhere = there.bind(port).unwrap();
        sender.send(Target::port("there", port), b"x").unwrap();
        elsewhere.receive_timeout(PATIENCE).unwrap();
    }
    sender.send(to, &[2]).unwrap();
    take(&mut reader, 2);
    assert_eq!(told, [0, 100, 1, 2]);
}
