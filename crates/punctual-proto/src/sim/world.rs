//! Nodes, their clocks and the network between them, in a time of their own. One seed and one plan give one run.

mod pause;
mod replay;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::clock::{Clock, WANDER_EVERY};
use super::network::{Faulty, Network, Passage};
use super::plan::{Fault, NodeFault, Plan};
use super::record::Record;
use super::rng::Rng;
use crate::address::{Address, Target};
use crate::protocol::{Protocol, Transmit};
use crate::time::Nanos;
use replay::flipped;

/// Messages that a node may have to say at one instant. More is a protocol that never ends.
const BURST_MAX: usize = 10_000;

/// Turns that a node may take within a millisecond. More is a protocol that never rests.
const TURNS_MAX: u64 = 10_000;

/// Nobody plays back more often.
const REPLAYS_EVERY_MIN: Nanos = Nanos::from_micros(1);

/// A protocol with what only a virtual world asks of it.
pub trait Participant: Protocol {
    /// Begins a new life. Only what a disk would keep is left of the one before.
    fn restart(&mut self, now: Nanos, rng: &mut Rng);

    /// Does what its model means by this number of a plan.
    fn act(&mut self, number: u64, now: Nanos);

    /// Description of a message in a word or two, for the timeline.
    fn describe(message: &[u8]) -> String;
}

/// A message as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// By whom.
    pub source: Address,
    /// For whom.
    pub target: Target,
    /// The message.
    pub bytes: Rc<[u8]>,
}

/// One node.
#[derive(Debug)]
struct Node<P> {
    protocol: P,
    address: Address,
    clock: Clock,
    rng: Rng,
    is_alive: bool,
    paused_until: Nanos,
    /// When its thread runs next, by the true time, for which timeout of its own clock.
    due: Nanos,
    timeout: Option<Nanos>,
    turns: u64,
    /// Number of times that it was given the chance to send.
    settled: u64,
    /// A millisecond, and its first turn.
    busy: (u64, u64),
}

/// An event that is yet to come.
#[derive(Debug)]
enum Scheduled {
    Arrival { target: u16, source: Address, bytes: Rc<[u8]> },
    Node(u16, NodeFault),
    Replay { message: u64, flip: Option<u32> },
    Replays { until: Nanos, every: Nanos, number: u64 },
    Wander,
}

/// A world of nodes that all run the same program, each in its role.
#[derive(Debug)]
pub struct World<P: Participant> {
    now: Nanos,
    seed: u64,
    network: Faulty,
    nodes: Vec<Node<P>>,
    /// By time, and by order among equals.
    schedule: BTreeMap<(Nanos, u64), Scheduled>,
    order: u64,
    links: BTreeMap<(u16, u16), u64>,
    events: VecDeque<(u16, P::Event)>,
    sent: Option<Vec<Sent>>,
    restarts_clocks: bool,
    buffer: Vec<u8>,
    /// Record of the run.
    pub record: Record,
}

impl<P: Participant> World<P> {
    /// An empty world, in which what the plan says goes wrong. Messages have up to `size_max` bytes.
    pub fn new(plan: &Plan, network: Network, size_max: usize, record: Record) -> Self {
        let mut world = Self {
            now: Nanos(0),
            seed: plan.seed,
            network: Faulty::new(plan.seed, network),
            nodes: Vec::new(),
            schedule: BTreeMap::new(),
            order: 0,
            links: BTreeMap::new(),
            events: VecDeque::new(),
            sent: None,
            restarts_clocks: false,
            buffer: vec![0; size_max],
            record,
        };
        plan.faults.iter().for_each(|fault| world.plan(*fault));
        world
    }

    /// Adds to the plan what is yet to go wrong.
    pub fn plan(&mut self, fault: Fault) {
        match fault {
            Fault::Node { at, node, fault } => self.schedule(at, Scheduled::Node(node, fault)),
            Fault::Replay { at, message, flip } => {
                self.sent.get_or_insert_default();
                self.schedule(at, Scheduled::Replay { message, flip });
            }
            Fault::Replays { since, until, every } => {
                self.sent.get_or_insert_default();
                self.schedule(since, Scheduled::Replays { until, every, number: 0 });
            }
            Fault::Weather { .. } | Fault::Message { .. } => self.network.plan(fault),
        }
    }

    /// From now on nothing of what was planned happens to messages.
    pub fn calm(&mut self) {
        self.network.calm();
    }

    /// Keeps all messages, so that they can be looked at and played back.
    #[must_use]
    pub fn keeping_messages(mut self) -> Self {
        self.sent.get_or_insert_default();
        self
    }

    /// A node that restarts has another clock, as a machine does that was started again.
    #[must_use]
    pub fn restarting_clocks(mut self) -> Self {
        self.restarts_clocks = true;
        self
    }

    /// Adds a node that begins now; or when the plan restarts it, if it is not alive.
    pub fn add(&mut self, address: Address, clock: Clock, is_alive: bool, protocol: P) -> u16 {
        let node = self.nodes.len() as u16;
        if clock.wander_max_ppb_per_s > 0
            && !self.schedule.values().any(|next| matches!(next, Scheduled::Wander))
        {
            self.schedule(self.now.plus(WANDER_EVERY), Scheduled::Wander);
        }
        let rng = Rng::at(&[self.seed, u64::MAX, node.into()]);
        let (paused_until, due, timeout) = (Nanos(0), Nanos::NEVER, None);
        let (turns, settled, busy) = (0, 0, (0, 0));
        self.nodes.push(Node {
            protocol,
            address,
            clock,
            rng,
            is_alive,
            paused_until,
            due,
            timeout,
            turns,
            settled,
            busy,
        });
        self.settle(node);
        node
    }

    fn schedule(&mut self, at: Nanos, what: Scheduled) {
        self.order += 1;
        self.schedule.insert((at, self.order), what);
    }

    /// The true time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Number of nodes.
    pub fn size(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// A node's program.
    pub fn node(&self, node: u16) -> &P {
        &self.nodes[usize::from(node)].protocol
    }

    /// A node's address.
    pub fn address(&self, node: u16) -> Address {
        self.nodes[usize::from(node)].address
    }

    /// A node's clock.
    pub fn clock(&self, node: u16) -> &Clock {
        &self.nodes[usize::from(node)].clock
    }

    /// True if a node runs.
    pub fn is_alive(&self, node: u16) -> bool {
        self.nodes[usize::from(node)].is_alive
    }

    /// True if a node runs and does not stand still.
    pub fn is_running(&self, node: u16) -> bool {
        self.is_alive(node) && !self.is_paused(node)
    }

    fn is_paused(&self, node: u16) -> bool {
        self.nodes.get(usize::from(node)).is_some_and(|held| held.is_alive && held.paused_until > self.now)
    }

    /// Reading of a node's clock.
    pub fn reading(&self, node: u16) -> Nanos {
        self.clock(node).read(self.now)
    }

    /// All messages so far, if they are kept.
    pub fn sent(&self) -> &[Sent] {
        self.sent.as_deref().unwrap_or_default()
    }

    /// Lets a node's user do something; the messages that follow from it are sent. Ask [`Self::is_running`] before: nobody keeps a user
    /// from what a node that stands still cannot do.
    pub fn with<T>(&mut self, node: u16, act: impl FnOnce(&mut P, Nanos) -> T) -> T {
        let reading = self.reading(node);
        let result = act(&mut self.nodes[usize::from(node)].protocol, reading);
        self.settle(node);
        result
    }

    /// Does to a node at once what a plan may do.
    pub fn suffer(&mut self, node: u16, fault: NodeFault) {
        self.record.note(self.now, Some(node), || format!("{fault}"));
        let now = self.now;
        let restarts_clocks = self.restarts_clocks;
        if let NodeFault::Pause(time) = fault {
            self.prolong_pause(node, now.plus(time));
        }
        let Some(held) = self.nodes.get_mut(usize::from(node)) else { return };
        match fault {
            NodeFault::Crash => (held.is_alive, held.due) = (false, Nanos::NEVER),
            NodeFault::Restart => {
                if restarts_clocks {
                    let reading = Nanos(held.rng.below(1 << 60));
                    held.clock.begin(now, reading);
                }
                held.is_alive = true;
                held.paused_until = now;
                held.protocol.restart(held.clock.read(now), &mut held.rng);
            }
            NodeFault::Pause(_) => {}
            NodeFault::Step(step_ns) => held.clock.step(now, step_ns),
            NodeFault::Drift(ppb) => held.clock.set_drift(now, ppb),
            NodeFault::Act(number) if held.is_alive => held.protocol.act(number, held.clock.read(now)),
            NodeFault::Act(_) => {}
        }
        held.timeout = None;
        self.settle(node);
    }

    /// Shows a message at once to all nodes for which it is, wherever it comes from.
    pub fn show(&mut self, source: Address, target: Target, message: &[u8]) {
        for node in 0..self.size() {
            if includes(target, self.address(node)) {
                self.receive(node, source, Rc::from(message));
            }
        }
    }

    /// Goes on until a node says something to its user, at most until then. Time stands at the end when it says `None`.
    pub fn poll(&mut self, until: Nanos) -> Option<(u16, P::Event)> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let scheduled = self.schedule.first_key_value().map_or(Nanos::NEVER, |(&(at, _), _)| at);
            let dues = self.nodes.iter().zip(0..).map(|(node, index)| (node.due, index));
            let (due, node) = dues.min().unwrap_or((Nanos::NEVER, 0));
            let next = scheduled.min(due);
            if next > until {
                self.now = self.now.max(until);
                return None;
            }
            self.now = self.now.max(next);
            if scheduled <= due { self.next_scheduled() } else { self.turn(node) }
        }
    }

    /// Goes on for so long, regardless of what nodes say.
    pub fn run(&mut self, time: Nanos) {
        let until = self.now.plus(time);
        while self.poll(until).is_some() {}
    }

    fn turn(&mut self, node: u16) {
        let now = self.now;
        let held = &mut self.nodes[usize::from(node)];
        let millisecond = now.0 / 1_000_000;
        if held.busy.0 != millisecond {
            held.busy = (millisecond, held.turns);
        }
        assert!(
            held.turns - held.busy.1 < TURNS_MAX,
            "seed {}: node {node} never rests at {now:?}",
            self.seed
        );
        held.turns += 1;
        held.timeout = None;
        held.protocol.handle_timeout(held.clock.read(now));
        self.settle(node);
    }

    fn next_scheduled(&mut self) {
        let Some((_, next)) = self.schedule.pop_first() else { return };
        match next {
            Scheduled::Arrival { target, source, bytes } => self.receive(target, source, bytes),
            Scheduled::Node(node, fault @ NodeFault::Act(_)) if self.is_paused(node) => {
                // A node that stands still does nothing until it goes on.
                self.schedule(self.nodes[usize::from(node)].paused_until, Scheduled::Node(node, fault));
            }
            Scheduled::Node(node, fault) => self.suffer(node, fault),
            Scheduled::Replay { message, flip } => self.replay(message, flip),
            Scheduled::Replays { until, every, number } if self.now < until => {
                self.replay_any(number);
                let next = Scheduled::Replays { until, every, number: number + 1 };
                self.schedule(self.now.plus(every.max(REPLAYS_EVERY_MIN)), next);
            }
            Scheduled::Replays { .. } => {}
            Scheduled::Wander => {
                for held in self.nodes.iter_mut().filter(|held| held.clock.wander_max_ppb_per_s > 0) {
                    held.clock.wander(self.now, &mut held.rng);
                }
                (0..self.size()).for_each(|node| self.redo_due(node));
                self.schedule(self.now.plus(WANDER_EVERY), Scheduled::Wander);
            }
        }
    }

    fn receive(&mut self, node: u16, source: Address, bytes: Rc<[u8]>) {
        let now = self.now;
        let held = &mut self.nodes[usize::from(node)];
        if !held.is_alive {
            self.record.note(now, Some(node), || format!("is gone when {} comes", P::describe(&bytes)));
        } else if held.paused_until > now {
            let at = held.paused_until;
            self.schedule(at, Scheduled::Arrival { target: node, source, bytes });
        } else {
            self.record.note(now, Some(node), || format!("receives {}", P::describe(&bytes)));
            held.protocol.handle_message(source, &bytes, held.clock.read(now));
            // A node that takes several messages at once sends after the last one.
            if self.more_arrives(node) {
                self.tell(node);
            } else {
                self.settle(node);
            }
        }
    }

    /// True if the next event is another message for this node, at this instant.
    fn more_arrives(&self, node: u16) -> bool {
        let next = self.schedule.first_key_value();
        next.is_some_and(|(&(at, _), next)| {
            at == self.now && matches!(next, Scheduled::Arrival { target, .. } if *target == node)
        })
    }

    /// Sends what a node has to say and tells its user what there is, in either order; then finds out when it wants to run next.
    fn settle(&mut self, node: u16) {
        if !self.is_alive(node) {
            return;
        }
        if self.is_paused(node) {
            // Its clock may be set meanwhile.
            return self.find_due(node);
        }
        let held = &mut self.nodes[usize::from(node)];
        held.settled += 1;
        let user_is_first = Rng::at(&[self.seed, u64::MAX - 2, node.into(), held.settled]).happens(500);
        if user_is_first {
            self.tell(node);
        }
        self.say(node);
        self.tell(node);
        self.find_due(node);
    }

    /// Tells a node's user what there is.
    fn tell(&mut self, node: u16) {
        let held = &mut self.nodes[usize::from(node)];
        while let Some(event) = held.protocol.poll_event() {
            self.events.push_back((node, event));
        }
    }

    fn say(&mut self, node: u16) {
        let now = self.now;
        for burst in 0.. {
            assert!(burst < BURST_MAX, "seed {}: node {node} never ends at {now:?}", self.seed);
            let held = &mut self.nodes[usize::from(node)];
            let reading = held.clock.read(now);
            let Some(Transmit { target, size }) = held.protocol.poll_transmit(reading, &mut self.buffer)
            else {
                break;
            };
            let bytes = Rc::from(&self.buffer[..size]);
            self.send(node, target, bytes);
        }
    }

    fn redo_due(&mut self, node: u16) {
        self.nodes[usize::from(node)].timeout = None;
        if self.is_alive(node) {
            self.find_due(node);
        }
    }

    fn find_due(&mut self, node: u16) {
        let now = self.now;
        let held = &mut self.nodes[usize::from(node)];
        let timeout = held.protocol.poll_timeout();
        if held.timeout == Some(timeout) {
            return;
        }
        held.timeout = Some(timeout);
        if timeout == Nanos::NEVER {
            held.due = Nanos::NEVER;
            return;
        }
        // At one instant a thread runs once, so that time goes on.
        let late = self.network.wake_delay(node, held.turns).max(Nanos(1));
        held.due = held.clock.when(timeout).max(now).plus(late).max(held.paused_until);
    }

    fn send(&mut self, source: u16, target: Target, bytes: Rc<[u8]>) {
        self.record.messages += 1;
        let from = self.address(source);
        for node in 0..self.size() {
            if node == source || !includes(target, self.address(node)) {
                continue;
            }
            let count = self.links.entry((source, node)).or_default();
            let passage = Passage { source, target: node, number: *count, now: self.now };
            *count += 1;
            let arrivals = self.network.carry(passage, &mut self.record);
            self.note_passage(passage, &bytes, arrivals.first, arrivals.flipped);
            let arriving = arrivals.flipped.map_or(bytes.clone(), |bit| flipped(&bytes, bit));
            for at in [arrivals.first, arrivals.second].into_iter().flatten() {
                let bytes = arriving.clone();
                self.schedule(at, Scheduled::Arrival { target: node, source: from, bytes });
            }
        }
        if let Some(sent) = &mut self.sent {
            sent.push(Sent { source: from, target, bytes });
        }
    }

    fn note_passage(&mut self, passage: Passage, bytes: &[u8], first: Option<Nanos>, flip: Option<u32>) {
        let Passage { source, target, number, now } = passage;
        self.record.note(now, Some(source), || {
            let fate = match (first, flip) {
                (None, _) => " (lost)",
                (_, Some(_)) => " (a bit flips)",
                _ => "",
            };
            format!("sends {} to node {target}, message {number}{fate}", P::describe(bytes))
        });
    }
}

fn includes(target: Target, address: Address) -> bool {
    target.includes_node(address.node) && target.includes_port(address.port)
}
