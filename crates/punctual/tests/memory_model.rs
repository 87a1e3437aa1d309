//! Communicators in memory beside a model: in any order of things, each message arrives once, and in its order.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;

use common::watchdog;
use proptest::prelude::*;
use punctual::memory::{SharedOptions, WhenFull};
use punctual::{Bus, Communicator, CommunicatorOptions, Keys, Node, SendError, Target, Wake};
use punctual_machine::counter::Flag;

/// A step that may happen between two messages.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One of two senders sends so many messages to a place, stamped or not.
    Send { sender: usize, place: Place, count: usize, size: usize },
    /// One of the receiving node's ports takes so many.
    Receive { port: usize, count: usize },
    /// The receiving node's second port opens, or closes.
    Toggle,
    /// A sender goes and comes back.
    Reopen { sender: usize },
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Port(usize),
    AllPorts,
    Everyone,
}

impl Place {
    fn index(self) -> usize {
        match self {
            Self::Port(_) => 0,
            Self::AllPorts => 1,
            Self::Everyone => 2,
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = prop_oneof![
        4 => (0_usize..2).prop_map(Place::Port),
        1 => Just(Place::AllPorts),
        1 => Just(Place::Everyone)
    ];
    let send = (0_usize..2, place, 1_usize..50, 0_usize..300)
        .prop_map(|(sender, place, count, size)| Step::Send { sender, place, count, size });
    let receive = (0_usize..2, 1_usize..60).prop_map(|(port, count)| Step::Receive { port, count });
    let step = prop_oneof![
        8 => send,
        8 => receive,
        1 => Just(Step::Toggle),
        1 => (0_usize..2).prop_map(|sender| Step::Reopen { sender })
    ];
    proptest::collection::vec(step, 1..60)
}

/// A world of two senders and one node that receives, and what should be in it.
struct World {
    bus: Bus,
    senders: [Option<Communicator>; 2],
    node: Node,
    ports: [Option<Communicator>; 2],
    /// Per port, sender and place: the messages that it has yet to deliver.
    expected: [[[VecDeque<Vec<u8>>; 3]; 2]; 2],
    next: u64,
    /// The group in which every message must have been sealed.
    sealed_in: Option<u32>,
}

const GROUP: u32 = 7;
const SENDERS: [&str; 2] = ["left", "right"];

impl World {
    fn new(name: &str, when_full: WhenFull, keys: Option<&Keys>) -> Self {
        let bus = Bus::Shared(SharedOptions { when_full, ring_size: 1 << 18, ..SharedOptions::new(name) });
        let bus = keys.map_or(bus.clone(), |keys| bus.sealed(keys));
        let node = Node::open(&bus, "middle").unwrap();
        let ports = [Some(bind(&node, 0, false)), None];
        let senders =
            [0, 1].map(|sender| Some(bind(&Node::open(&bus, SENDERS[sender]).unwrap(), 0, sender == 1)));
        let sealed_in = keys.map(|_| GROUP);
        Self { bus, senders, node, ports, expected: Default::default(), next: 0, sealed_in }
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Send { sender, place, count, size } => {
                (0..count).for_each(|_| self.send(sender, place, size));
            }
            Step::Receive { port, count } => (0..count).for_each(|_| _ = self.receive(port)),
            Step::Toggle => self.toggle(),
            Step::Reopen { sender } => {
                // Messages that a sender leaves behind are delivered, or counted as lost: the model wants them delivered.
                self.drain();
                self.senders[sender] = None;
                self.drain();
                let node = Node::open(&self.bus, SENDERS[sender]).unwrap();
                self.senders[sender] = Some(bind(&node, 0, sender == 1));
            }
        }
    }

    fn send(&mut self, sender: usize, place: Place, size: usize) {
        self.next += 1;
        let mut payload = vec![self.next as u8; size.max(8)];
        payload[..8].copy_from_slice(&self.next.to_le_bytes());
        let target = match place {
            Place::Port(port) => Target::port("middle", port as u16),
            Place::AllPorts => Target::node("middle"),
            Place::Everyone => Target::EVERYONE,
        };
        let meant = |port: usize| !matches!(place, Place::Port(other) if other != port);
        let is_open = (0..2).any(|port| meant(port) && self.ports[port].is_some());
        match self.senders[sender].as_mut().unwrap().try_send(target, &payload) {
            Ok(()) => assert!(is_open),
            Err(SendError::Full) => return,
            Err(SendError::Unreachable) => assert!(!is_open, "{target:?} is there"),
            Err(error) => panic!("{error}"),
        }
        for port in (0..2).filter(|&port| meant(port) && self.ports[port].is_some()) {
            self.expected[port][sender][place.index()].push_back(payload.clone());
        }
    }

    /// Takes one message of a port; it must be the oldest of its sender for its place.
    fn receive(&mut self, port: usize) -> bool {
        let Some(communicator) = &mut self.ports[port] else { return false };
        let Ok(message) = communicator.try_receive() else { return false };
        let sender = SENDERS.iter().position(|&name| message.source.node == name.into()).unwrap();
        assert_eq!(message.stages.is_some(), sender == 1);
        assert_eq!((message.lost_before, message.sealed_in), (0, self.sealed_in));
        let place = match message.target {
            Target { port: Some(_), .. } => Place::Port(port),
            Target { node: Some(_), port: None } => Place::AllPorts,
            Target { node: None, port: None } => Place::Everyone,
        };
        let expected = self.expected[port][sender][place.index()].pop_front();
        assert_eq!(Some(message.payload), expected.as_deref(), "port {port}, from {sender}");
        true
    }

    fn toggle(&mut self) {
        // Messages that the second port has not read when it closes are gone, and messages on their way when it opens may be for it.
        self.drain();
        self.ports[1] = match self.ports[1].take() {
            None => Some(bind(&self.node, 1, false)),
            Some(_) => None,
        };
    }

    /// Until both ports are empty twice in a row: a message that one reads first may be handed to the other.
    fn drain(&mut self) {
        let mut quiet = 0;
        while quiet < 2 {
            let found = [0, 1].map(|port| std::iter::from_fn(|| self.receive(port).then_some(())).count());
            quiet = if found == [0, 0] { quiet + 1 } else { 0 };
        }
        assert!(
            self.expected.iter().flatten().flatten().all(VecDeque::is_empty),
            "not delivered: {:?}",
            self.expected
        );
    }
}

fn bind(node: &Node, port: u8, stamps: bool) -> Communicator {
    let options = CommunicatorOptions { stamps, wake: Wake::Spin, ..CommunicatorOptions::default() };
    node.bind_with(port.into(), &options).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    /// Goal: every message arrives once, in its sender's order for its target, at every port that it is for, with what it
    /// carries; sealed or not. Oracle: a queue per port, sender and target.
    #[test]
    fn every_message_arrives_once_and_in_order(steps in steps(), sealed: bool) {
        let name = format!("model-{}", std::process::id());
        let keys = sealed.then(|| Keys::random(GROUP));
        let mut world = World::new(&name, WhenFull::HoldBack, keys.as_ref());
        steps.into_iter().for_each(|step| world.perform(step));
        world.drain();
        let ledger = world.node.ledger();
        prop_assert!(ledger.is_balanced() && ledger.disbelieved() == 0, "{}", ledger);
    }
}

/// Goal: a reader that is overrun is told so, and no damaged message is delivered.
#[test]
fn an_overrun_is_counted() {
    overrun(None);
}

#[test]
fn an_overrun_among_sealed_messages_is_counted() {
    overrun(Some(&Keys::random(GROUP)));
}

fn overrun(keys: Option<&Keys>) {
    let name = format!("model-overrun-{}-{}", std::process::id(), keys.is_some());
    let mut world = World::new(&name, WhenFull::Overrun, keys);
    let (mut sent, mut delivered, mut last) = (0, 0, 0);
    for round in 0..50_u64 {
        let sender = world.senders[0].as_mut().unwrap();
        // Some rounds fit into the ring, others go round it once or twice.
        let count = [10, 500, 3000, 4000][round as usize % 4];
        for _ in 0..count {
            sent += 1;
            let payload = [sent; 16].map(u64::to_le_bytes).concat();
            sender.try_send(Target::port("middle", 0), &payload).unwrap();
        }
        while let Ok(message) = world.ports[0].as_mut().unwrap().try_receive() {
            let words = message.payload.as_chunks::<8>().0;
            assert!(words.len() == 16 && words.iter().all(|word| *word == words[0]), "damaged");
            let number = u64::from_le_bytes(words[0]);
            assert!(number > last, "{number} after {last}");
            assert_eq!(u64::from(message.sequence), number - 1, "the first has number 0");
            last = number;
            delivered += 1;
        }
    }
    let lost: u64 = world.node.peers().iter().map(|peer| peer.lost).sum();
    assert!(lost > 10_000, "of {sent} messages {lost} were overrun");
    assert_eq!(delivered + lost, sent, "each is delivered or counted as lost");
    assert!(world.node.ledger().is_balanced(), "{}", world.node.ledger());
}

/// Goal: a sender whose messages are always there keeps nobody else waiting for long.
#[test]
fn one_who_is_busy_does_not_starve_another() {
    const SENT: usize = 2_000;
    let mut world = World::new(&format!("model-fair-{}", std::process::id()), WhenFull::HoldBack, None);
    for first in [0, 1] {
        (0..SENT).for_each(|_| world.send(first, Place::Port(0), 8));
        (0..SENT / 4).for_each(|_| assert!(world.receive(0)));
        world.send(1 - first, Place::Port(0), 8);
        let until = (1..=SENT).find(|_| {
            assert!(world.receive(0));
            world.expected[0][1 - first][0].is_empty()
        });
        assert!(until.is_some_and(|until| until <= SENT / 4), "heard after {until:?} others");
        world.drain();
    }
}

/// Goal: a message that is overwritten while it is copied is not delivered.
#[test]
fn a_message_overrun_while_it_is_copied_is_not_delivered() {
    const WORDS: usize = 480;
    const ENOUGH: u64 = 500;
    let name = format!("model-torn-{}", std::process::id());
    let bus = Bus::Shared(SharedOptions {
        when_full: WhenFull::Overrun,
        ring_size: 1 << 14,
        ..SharedOptions::new(&name)
    });
    let mut reader = bind(&Node::open(&bus, "reader").unwrap(), 0, false);
    let mut writer = bind(&Node::open(&bus, "writer").unwrap(), 0, false);
    let stop = Arc::new(Flag::default());
    let stopped = Arc::clone(&stop);
    let writing = std::thread::spawn(move || {
        for number in (0_u64..).take_while(|_| !stopped.is_raised()) {
            writer.try_send(Target::port("reader", 0), [number.to_le_bytes(); WORDS].as_flattened()).unwrap();
        }
    });
    let (mut delivered, mut overrun) = (0, 0);
    let _alive = watchdog(120);
    while delivered < 50 * ENOUGH || overrun < ENOUGH {
        let Ok(message) = reader.try_receive() else { continue };
        let words = message.payload.as_chunks::<8>().0;
        assert!(words.len() == WORDS && words.iter().all(|word| *word == words[0]), "damaged: {words:?}");
        delivered += 1;
        overrun += u64::from(message.lost_before > 0);
    }
    stop.raise();
    writing.join().unwrap();
}
