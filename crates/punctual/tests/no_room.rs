//! Frames for which the kernel has no room yet go when it has, though their sender does nothing more.

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use common::{Host, PATIENCE, watchdog};
use punctual::{Bus, Communicator, Node, SendError, Target};
use punctual_lab_machine::tap::Tap;
use punctual_machine::SystemError;
use punctual_machine::namespace::{
    add_address, add_neighbour, bring_up, create_veth, set_queue, thread_id, unshare_network,
};
use punctual_machine::packet::{ETHERNET_HEADER_SIZE, Interface};
use punctual_proto::frame::HEADER_SIZE;

const HERE: [u8; 4] = [10, 77, 60, 1];
const THERE: [u8; 4] = [10, 77, 60, 2];

/// Frames that a node keeps for which the kernel has no room.
const KEPT: usize = 32;

/// Messages to the node that listens: few, as the kernel lets some overtake others.
const COUNT: usize = 24;

/// Large, so that few of them fill a socket's buffer.
fn message(number: usize) -> Vec<u8> {
    [&number.to_le_bytes()[..], &[7; 1_300]].concat()
}

fn mac(interface: &str) -> [u8; 6] {
    let any = UdpSocket::bind("0.0.0.0:0").unwrap();
    Interface::find(any.as_fd(), interface).unwrap().mac
}

/// Two hosts on one segment. Messages from the first one wait in its sockets, as the second one does not say which station it is.
fn hosts() -> Result<[Host; 2], SystemError> {
    let hosts = [Host::start(), Host::start()];
    let there = hosts[1].run(|| unshare_network().map(|()| thread_id()))?;
    let mac_here = hosts[0].run(move || {
        unshare_network()?;
        create_veth("pta", "ptb", there)?;
        bring_up("pta")?;
        add_address("pta", "10.77.60.1/24")?;
        // It asks for long, and what waits for the answer may be much.
        set("neigh/pta/mcast_solicit", 1_000)?;
        set("neigh/pta/unres_qlen_bytes", 100_000_000)?;
        Ok::<_, SystemError>(mac("pta"))
    })?;
    hosts[1].run(move || {
        bring_up("ptb")?;
        set("conf/ptb/arp_ignore", 8)?;
        add_neighbour("ptb", HERE.into(), mac_here)?;
        add_address("ptb", "10.77.60.2/24")
    })?;
    Ok(hosts)
}

fn set(setting: &str, value: u32) -> Result<(), SystemError> {
    let path = format!("/proc/sys/net/ipv4/{setting}");
    std::fs::write(&path, value.to_string()).map_err(|error| SystemError::new("set", path, error))
}

fn open(host: &Host, name: &'static str, addresses: [[u8; 4]; 2], port: u16) -> Node {
    let [own, peer] = addresses.map(|address| SocketAddr::from((address, port)));
    host.run(move || Node::open(&Bus::peers(own, &[peer]), name).unwrap())
}

/// Method: the sender fills the kernel's buffer and half of what its node keeps, and then does nothing. Room comes only afterwards.
fn nothing_stays_behind(send: impl Fn(&mut Communicator, Target, &[u8]) + Send + 'static) {
    let [near, far] = match hosts() {
        Ok(hosts) => hosts,
        Err(reason) => return punctual_machine::skipped!("two hosts need network namespaces: {reason}"),
    };
    let (target, nobody) = (Target::port("there", 1), Target::port("nobody", 1));
    let room = {
        let mut sender = open(&near, "here", [HERE, THERE], 9_931).bind(1).unwrap();
        let taken = |number: &usize| sender.try_send(nobody, &message(*number)) != Err(SendError::Full);
        let room = (0..).take_while(taken).count();
        assert!(!sender.see_off(Duration::from_millis(1)), "the kernel has no room for all");
        room
    };
    let here = open(&near, "here", [HERE, THERE], 9_930);
    let there = open(&far, "there", [THERE, HERE], 9_930);
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    for number in 0..room - KEPT / 2 - COUNT {
        sender.try_send(nobody, &message(number)).unwrap();
    }
    let sending = std::thread::spawn(move || {
        for number in 0..COUNT {
            send(&mut sender, target, &message(number));
        }
        sender
    });
    std::thread::sleep(Duration::from_millis(200));
    let station = far.run(|| mac("ptb"));
    near.run(move || add_neighbour("pta", THERE.into(), station)).unwrap();
    let mut missing: BTreeSet<Vec<u8>> = (0..COUNT).map(message).collect();
    while !missing.is_empty() {
        let received = receiver.receive_timeout(PATIENCE);
        let received =
            received.unwrap_or_else(|_| panic!("{} stay behind: {}", missing.len(), there.ledger()));
        assert!(missing.remove(received.payload), "{}", there.ledger());
    }
    drop(sending.join().unwrap());
}

/// Goal: `send` returns when the kernel has the message.
#[test]
fn a_message_that_was_sent_does_not_stay_behind() {
    let _alive = watchdog(60);
    nothing_stays_behind(|sender, target, message| sender.send_timeout(target, message, PATIENCE).unwrap());
}

/// Goal: `see_off` does for `try_send` what `send` does itself, and says whether all has gone.
#[test]
fn a_message_that_was_tried_is_seen_off() {
    let _alive = watchdog(60);
    nothing_stays_behind(|sender, target, message| {
        sender.try_send(target, message).unwrap();
        assert!(sender.see_off(PATIENCE), "the kernel has had room");
    });
}

/// Goal: frames for which a device's queue has no room stay behind until it has, and none is lost. Method: the wire is this test, which
/// reads nothing at first.
#[test]
fn a_full_device_loses_no_frame() {
    let _alive = watchdog(60);
    let host = Host::start();
    let made = host.run(|| {
        unshare_network()?;
        let tap = Tap::create("pt")?;
        set_queue("pt", 4)?;
        bring_up("pt")?;
        Ok::<_, SystemError>(tap)
    });
    let tap = match made {
        Ok(tap) => tap,
        Err(reason) => return punctual_machine::skipped!("a wire of our own: {reason}"),
    };
    let node = host.run(|| Node::open(&Bus::ethernet("pt"), "here").unwrap());
    let mut sender = node.bind(1).unwrap();
    for number in 0..COUNT {
        sender.try_send(Target::EVERYONE, &message(number)).unwrap();
    }
    assert!(!sender.see_off(Duration::from_millis(1)), "the device has no room for all");
    let reads = std::thread::spawn(move || {
        let (mut frame, mut missing) = ([0; 2_048], (0..COUNT).map(message).collect::<BTreeSet<_>>());
        while !missing.is_empty() {
            let size = tap.read(&mut frame).unwrap();
            let payload = frame[..size].get(ETHERNET_HEADER_SIZE + HEADER_SIZE..).unwrap_or_default();
            missing.remove(payload.get(..message(0).len()).unwrap_or_default());
        }
        tap
    });
    assert!(sender.see_off(PATIENCE), "it has had room");
    // With it the interface goes, and refuses what is said then.
    let _wire = reads.join().unwrap();
    node.housekeep();
    assert_eq!(node.ledger().refused, 0, "{}", node.ledger());
}

/// Goal: in memory nothing is ever behind.
#[test]
fn a_message_in_memory_is_seen_off_at_once() {
    let node = Node::open(&Bus::loopback("seen-off"), "node").unwrap();
    let (mut sender, _receiver) = (node.bind(1).unwrap(), node.bind(2).unwrap());
    sender.try_send(Target::port("node", 2), b"hello").unwrap();
    assert!(sender.see_off(Duration::ZERO));
}
