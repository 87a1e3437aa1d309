//! Gaps longer than a frame's number can tell: nobody is deaf after one, and what is missing is counted. Memory has numbers of
//! 64 bits.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{PATIENCE, free_ports, watchdog};
use punctual::{Address, Bus, Communicator, Node, NodeId, PeerAccount, Target};
use punctual_proto::limits::CHECK_SIZE;
use punctual_proto::recency::SILENCE_NS;
use punctual_proto::{Header, Kind, Port};

/// Messages after a gap: nobody needs so many to hear again.
const LATER: u64 = 20_000;

/// Receives what is there; returns how many messages that were.
fn drain(receiver: &mut Communicator) -> u64 {
    std::iter::from_fn(|| receiver.try_receive().ok().map(|_| ())).count() as u64
}

/// Waits until the account says so.
fn wait_for(node: &Node, inbox: &mut Communicator, enough: impl Fn(&PeerAccount) -> bool) -> PeerAccount {
    let give_up = Instant::now() + PATIENCE;
    loop {
        node.housekeep();
        drain(inbox);
        let account = node.peers().remove(0);
        if enough(&account) || Instant::now() > give_up {
            return account;
        }
    }
}

/// A sender of our own making, at a socket: its numbers go on as we say.
struct Forger {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Forger {
    fn send(&self, kind: Kind, sequence: u64, payload: &[u8]) {
        let header = Header {
            kind,
            incarnation: 1,
            source: Address { node: NodeId::named("forger"), port: Port::from(1) },
            target: Target::EVERYONE,
            sequence: sequence as u32,
            payload_size: payload.len() as u32,
            stamped: false,
            sealed: false,
        };
        let mut frame = vec![0; header.frame_size() + CHECK_SIZE];
        header.write(frame.first_chunk_mut().unwrap());
        frame[header.prefix_size()..header.frame_size()].copy_from_slice(payload);
        let (covered, check) = frame.split_last_chunk_mut::<CHECK_SIZE>().unwrap();
        *check = punctual_proto::broadcast::crc32c(0, covered).to_le_bytes();
        self.socket.send_to(&frame, self.to).unwrap();
    }

    /// Sends a message with that number, which says so too.
    fn message(&self, sequence: u64) {
        self.send(Kind::Data, sequence, &sequence.to_le_bytes());
    }

    /// Says that everything before `next` was sent to everybody.
    fn hello(&self, next: u64, flags: u8) {
        let mut body = [0; 17];
        body[..8].copy_from_slice(&next.to_le_bytes());
        body[16] = flags;
        self.send(Kind::Hello, 0, &body);
    }
}

fn node_and_forger() -> (Node, Communicator, Forger) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = free_ports().0;
    let node = Node::open(&Bus::peers(to, &[socket.local_addr().unwrap()]), "node").unwrap();
    let receiver = node.bind(1).unwrap();
    let forger = Forger { socket, to };
    forger.hello(0, 2);
    (node, receiver, forger)
}

fn receive_number(receiver: &mut Communicator, number: u64) {
    let message = receiver.receive_timeout(PATIENCE).unwrap_or_else(|error| panic!("{number}: {error}"));
    assert_eq!(message.payload, number.to_le_bytes());
}

/// Goal: on a wire, where a frame's number has 32 bits, a receiver hears after any gap, and counts the messages that it missed. It does
/// so as soon as the sender has said how far it is.
#[test]
fn a_receiver_of_datagrams_hears_after_any_gap() {
    let _alive = watchdog(120);
    for gap in [(1 << 31) + 5, 1 << 32, (1 << 40) + 12_345] {
        let (node, mut receiver, forger) = node_and_forger();
        for number in 0..10 {
            forger.message(number);
            receive_number(&mut receiver, number);
        }
        forger.hello(10 + gap, 0);
        for number in 10 + gap..10 + gap + LATER {
            forger.message(number);
            receive_number(&mut receiver, number);
        }
        let account = node.peers().remove(0);
        assert_eq!(
            (account.arrived, account.lost, account.missing),
            (10 + LATER, gap, 0),
            "{}",
            node.ledger()
        );
        assert_eq!((node.ledger().duplicates, node.ledger().restarts), (0, 0), "{}", node.ledger());
    }
}

/// Goal: after a silence in which so many can have passed a receiver does not wait for the sender's word: it takes what was queued
/// before the gap and what came after it, and counts that the stream has begun anew; the sender's word makes the sum exact.
#[test]
fn a_receiver_that_was_away_for_long_hears_at_once() {
    let _alive = watchdog(120);
    let (node, mut receiver, forger) = node_and_forger();
    forger.message(0);
    receive_number(&mut receiver, 0);
    let gap = 3 << 31;
    let numbers: Vec<u64> = (1..6).chain(6 + gap..20 + gap).collect();
    for &number in &numbers[..5] {
        forger.message(number);
    }
    std::thread::sleep(Duration::from_nanos(SILENCE_NS) + Duration::from_millis(500));
    for &number in &numbers[5..] {
        forger.message(number);
    }
    for &number in &numbers {
        receive_number(&mut receiver, number);
    }
    let (account, ledger) = (node.peers().remove(0), node.ledger());
    let known = gap % (1 << 32);
    assert_eq!((account.arrived, account.lost + account.missing), (20, known), "{ledger}");
    assert_eq!((ledger.restarts, ledger.duplicates), (1, 0), "{ledger}");
    forger.hello(20 + gap, 0);
    let account = wait_for(&node, &mut receiver, |account| account.lost + account.missing >= gap);
    assert_eq!((account.arrived, account.lost + account.missing), (20, gap), "{}", node.ledger());
    forger.message(20 + gap);
    receive_number(&mut receiver, 20 + gap);
}
