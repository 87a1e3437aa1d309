//! Sealed frames of a sender with several lives, and somebody who plays back and alters what was ever sent.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port, Target};
use crate::frame::{HEADER_SIZE, Header, Kind};
use crate::protocol::{Protocol, Transmit};
use crate::seal::{
    KEY_SIZE, Key, KeyId, KeyRing, Moment, Opener, Refusal, RingKey, SEAL_SIZE, Sealer, TIME_UNIT_NS, WINDOW,
};
use crate::sim::{Clock, Fault, Link, Network, NodeFault, Participant, Plan, Record, Rng, Weather, World};
use crate::time::Nanos;

/// The window of numbers behind a seal.
pub(super) struct Sealing;

const RUN: Nanos = Nanos::from_millis(100);
const ALLOWANCE: Nanos = Nanos::from_millis(10);
const PAYLOAD_SIZE: usize = 16;
const SIZE: usize = HEADER_SIZE + PAYLOAD_SIZE + SEAL_SIZE;
const BUS: &str = "virtual";
const SOURCE: u16 = 0;
const SINK: u16 = 1;

fn ring_key() -> RingKey {
    let key = Key::new([7; KEY_SIZE]).expect("it is not zero");
    RingKey { id: KeyId { group: 1, life: 0, generation: 1 }, key, from_ns: 0 }
}

fn opener(now: Nanos) -> Opener {
    let mut ring = KeyRing::new(u64::MAX);
    let inserted = ring.insert(ring_key(), Moment { wall_ns: now.0, monotonic_ns: now.0 });
    debug_assert!(inserted.is_ok());
    Opener::new(&ring, BUS, now.0, ALLOWANCE.0)
}

#[derive(Debug)]
enum Node {
    Source {
        sealer: Sealer,
        own: Address,
        life: u64,
        lives_apart: bool,
        count: u64,
        at: Nanos,
        due: u32,
        rng: Rng,
    },
    Sink {
        opener: Opener,
        opened: Option<Opened>,
    },
}

/// A frame was looked at.
#[derive(Debug)]
struct Opened {
    bytes: Vec<u8>,
    result: Result<u32, Refusal>,
}

/// Identity of the frame, read from its payload.
fn id_of(frame: &[u8]) -> (u64, u64) {
    let word = |at: usize| frame[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (word(HEADER_SIZE), word(HEADER_SIZE + 8))
}

/// When a frame was sealed, units.
fn time_of(frame: &[u8]) -> u64 {
    frame.last_chunk().map_or(0, |bytes| crate::seal::Seal::read(bytes).time)
}

impl Node {
    fn write(&mut self, now: Nanos, buffer: &mut [u8]) {
        let Self::Source { sealer, own, life, lives_apart, count, .. } = self else { return };
        let header = Header {
            kind: Kind::Data,
            // Two lives of a node may have one number.
            incarnation: if *lives_apart { *life as u16 } else { 3 },
            source: *own,
            target: Target::EVERYONE,
            sequence: *count as u32,
            payload_size: PAYLOAD_SIZE as u32,
            stamped: false,
            sealed: true,
        };
        if let Some(head) = buffer.first_chunk_mut() {
            header.write(head);
        }
        buffer[HEADER_SIZE..][..8].copy_from_slice(&life.to_le_bytes());
        buffer[HEADER_SIZE + 8..][..8].copy_from_slice(&count.to_le_bytes());
        sealer.seal(&mut buffer[..SIZE], now.0 / TIME_UNIT_NS);
    }
}

impl Protocol for Node {
    type Event = Opened;

    fn handle_message(&mut self, _: Address, message: &[u8], now: Nanos) {
        let Self::Sink { opener, opened } = self else { return };
        let Some(Ok(header)) = message.first_chunk().map(Header::read) else { return };
        if message.len() == header.frame_size() {
            let result = opener.open(&header, message, || now.0);
            *opened = Some(Opened { bytes: message.to_vec(), result });
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if let Self::Source { at, due, rng, .. } = self
            && now >= *at
        {
            (*due, *at) = (1 + rng.below(6) as u32, now.plus(Nanos(20_000 + rng.below(2_000_000))));
        }
    }

    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        let Self::Source { due, .. } = self else { return None };
        *due = due.checked_sub(1)?;
        self.write(now, buffer);
        let Self::Source { count, .. } = self else { return None };
        *count += 1;
        Some(Transmit { target: Target::EVERYONE, size: SIZE })
    }

    fn poll_event(&mut self) -> Option<Opened> {
        match self {
            Self::Sink { opened, .. } => opened.take(),
            Self::Source { .. } => None,
        }
    }

    fn poll_timeout(&self) -> Nanos {
        match self {
            Self::Source { at, .. } => *at,
            Self::Sink { .. } => Nanos::NEVER,
        }
    }
}

impl Participant for Node {
    /// A new life of the sender counts from another number; a receiver that begins anew knows no sender.
    fn restart(&mut self, now: Nanos, rng: &mut Rng) {
        match self {
            Self::Source { life, count, .. } => (*life, *count) = (*life + 1, first_count(rng)),
            Self::Sink { opener: old, .. } => *old = opener(now),
        }
    }

    /// So many numbers are used for others.
    fn act(&mut self, number: u64, _: Nanos) {
        if let Self::Source { count, .. } = self {
            *count += number % (1 << 40);
        }
    }

    fn describe(message: &[u8]) -> String {
        if message.len() < SIZE {
            return String::from("a stump");
        }
        let (life, count) = id_of(message);
        format!("number {} of life {life}, sealed at {}", count as u32, time_of(message))
    }
}

/// Low, or shortly before the numbers come round.
fn first_count(rng: &mut Rng) -> u64 {
    [rng.below(50), (1 << 32) - 1 - rng.below(400), rng.below(1 << 32)][rng.below(3) as usize]
}

/// State of the checker.
struct Scene {
    world: World<Node>,
    lives_apart: bool,
    /// Frames that were taken since the receiver began, and the newest of each life.
    taken: BTreeMap<(u64, u64), ()>,
    newest: BTreeMap<u64, u64>,
    /// When the receiver began, and when, at the latest, each life sealed its first.
    began: Nanos,
    restarts: Vec<Nanos>,
}

impl Scene {
    fn new(plan: &Plan, record: Record) -> Self {
        let mut rng = Rng::at(&[plan.seed, 21]);
        let network = Network { checked: false, ..Network::LAN };
        let mut world = World::new(plan, network, SIZE, record).keeping_messages();
        let place = |name| Address { node: NodeId::named(name), port: Port::from(1) };
        let (own, lives_apart) = (place("source"), plan.seed.is_multiple_of(2));
        let begins = Nanos(1_800_000_000_000_000_000);
        let skew = Nanos(rng.below(ALLOWANCE.0 / 2));
        let source = Node::Source {
            sealer: Sealer::new(&ring_key(), BUS),
            own,
            life: 1,
            lives_apart,
            count: first_count(&mut rng),
            at: Nanos(0),
            due: 0,
            rng,
        };
        world.add(own, Clock::skewed(begins.plus(skew)), true, source);
        world.add(
            place("sink"),
            Clock::skewed(begins),
            true,
            Node::Sink { opener: opener(begins), opened: None },
        );
        let sink_restarts =
            plan.node_faults().filter(|&(_, node, fault)| (node, fault) == (SINK, NodeFault::Restart));
        let restarts = sink_restarts.map(|(at, ..)| at).collect();
        let (taken, newest) = (BTreeMap::new(), BTreeMap::new());
        Self { world, lives_apart, taken, newest, began: begins, restarts }
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.restarts.sort_unstable();
        for until in core::mem::take(&mut self.restarts).into_iter().chain([RUN]) {
            // A frame that comes at the very instant of a restart is left to neither life.
            self.observe_until(Nanos(until.0.saturating_sub(1)))?;
            self.world.run(Nanos(2));
            (self.taken, self.newest) = (BTreeMap::new(), BTreeMap::new());
            self.began = self.world.reading(SINK);
        }
        Ok(())
    }

    fn observe_until(&mut self, until: Nanos) -> Result<(), Violation> {
        while let Some((_, opened)) = self.world.poll(until) {
            self.observe(&opened)?;
        }
        Ok(())
    }

    fn observe(&mut self, Opened { bytes, result }: &Opened) -> Result<(), Violation> {
        let (life, count) = id_of(bytes);
        let is_genuine = self.world.sent().iter().any(|sent| sent.bytes[..] == bytes[..]);
        let record = &mut self.world.record;
        let what = || format!("{}: {result:?}", Node::describe(bytes));
        ensure(record, "nothing altered is taken", is_genuine || result.is_err(), what)?;
        if !is_genuine {
            return Ok(());
        }
        let floor = self.began.since(ALLOWANCE).0 / TIME_UNIT_NS;
        let is_recording = time_of(bytes) < floor;
        ensure(record, "nothing of before is taken", !is_recording || result.is_err(), what)?;
        let was_taken = self.taken.contains_key(&(life, count));
        ensure(record, "nothing is taken twice", !was_taken || result.is_err(), what)?;
        let newest = self.newest.get(&life).copied().unwrap_or(count);
        let is_within = count + u64::from(WINDOW) > newest && count < newest + (1 << 31);
        // Lives of one number stand in one window: of two at a time the earlier is given up.
        let is_due = self.lives_apart && is_within && !was_taken && !is_recording;
        ensure(record, "news is taken", !is_due || result.is_ok(), what)?;
        if result.is_ok() {
            self.taken.insert((life, count), ());
            self.newest.insert(life, newest.max(count));
        }
        Ok(())
    }
}

impl Model for Sealing {
    fn name(&self) -> &'static str {
        "sealing"
    }

    fn about(&self) -> &'static str {
        "a sealed frame is taken once, none that was altered or is of before, and every new one"
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::at(&[seed, 22]);
        let mut plan = Plan::calm(seed);
        let (always, within) = ((Nanos(0), RUN), Nanos(rng.below(40_000_000)));
        plan.weather(always, Link::ANY, Weather::Lose(rng.below(200) as u32));
        plan.weather(always, Link::ANY, Weather::Double(rng.below(300) as u32, within));
        plan.weather(always, Link::ANY, Weather::Delay(rng.below(300) as u32, within));
        plan.weather(always, Link::ANY, Weather::Flip(rng.below(100) as u32));
        plan.faults.push(Fault::Replays {
            since: Nanos(0),
            until: RUN,
            every: Nanos(100_000 + rng.below(900_000)),
        });
        for _ in 0..rng.below(4) {
            let gap = [rng.below(70), rng.below(2_100), u64::from(WINDOW), rng.below(1 << 30)]
                [rng.below(4) as usize];
            plan.node(Nanos(rng.below(RUN.0)), SOURCE, NodeFault::Act(gap));
        }
        for node in [SOURCE, SINK] {
            for _ in 0..rng.below(3) {
                plan.node(Nanos(rng.below(RUN.0)), node, NodeFault::Restart);
            }
        }
        plan
    }

    fn run(&self, plan: &Plan, record: Record) -> Report {
        let mut scene = Scene::new(plan, record);
        let outcome = scene.run();
        Report { record: scene.world.record, outcome }
    }
}
