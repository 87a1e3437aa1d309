//! Publishers and subscribers whose network delays, loses and reorders, and whose nodes die, stall and return.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port, Target};
use crate::interest::{
    MESSAGE_SIZE, Message, Publication, PublicationLimits, Repetition, Saying, Subscription, Taken, TopicKey,
};
use crate::protocol::{Protocol, Transmit};
use crate::sim::{Clock, Link, Network, NodeFault, Participant, Plan, Record, Rng, Weather, World};
use crate::time::Nanos;
use crate::unit::{Data, Metre, Quantity};

/// Interests and responses.
pub(super) struct Interests;

pub(crate) const KEY: TopicKey = TopicKey { topic: 1, data: Quantity::<Metre, i64>::TYPE };

/// A value was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) source: Address,
    /// Of the publisher and of the subscriber.
    pub(crate) lives: (u32, u32),
    pub(crate) taken: Taken,
    /// The publisher's content: the instant.
    pub(crate) content: u64,
}

/// One component.
#[derive(Debug)]
pub(crate) enum InterestNode {
    Publisher {
        publication: Publication,
        own: Address,
        limits: PublicationLimits,
        trips: u32,
    },
    Subscriber {
        subscription: Subscription,
        repetition: Repetition,
        lives: u32,
        wants: bool,
        has_withdrawn: bool,
        values: VecDeque<Value>,
    },
}

impl InterestNode {
    pub(crate) fn publisher(own: Address, life: u32, limits: PublicationLimits, now: Nanos) -> Self {
        Self::Publisher { publication: Publication::new(KEY, own, life, limits, now), own, limits, trips: 0 }
    }

    pub(crate) fn subscriber(period_us: u32, repetition: Repetition, now: Nanos) -> Self {
        let subscription = Subscription::new(KEY, 0, period_us, repetition, now);
        let (wants, has_withdrawn, values) = (true, false, VecDeque::new());
        Self::Subscriber { subscription, repetition, lives: 0, wants, has_withdrawn, values }
    }
}

fn write(message: &Message<'_>, target: Target, buffer: &mut [u8]) -> Option<Transmit> {
    let (head, rest) = buffer.split_first_chunk_mut::<MESSAGE_SIZE>()?;
    message.write_head(head);
    if let Saying::Response { value, .. } = message.saying {
        rest[..value.len()].copy_from_slice(value);
    }
    Some(Transmit { target, size: message.size() })
}

impl Protocol for InterestNode {
    type Event = Value;

    fn handle_message(&mut self, source: Address, bytes: &[u8], now: Nanos) {
        let Ok(message) = Message::parse(bytes) else { return };
        match self {
            Self::Publisher { publication, .. } => publication.handle_message(source, &message, now),
            Self::Subscriber { subscription, values, lives, .. } => {
                let taken = subscription.handle_message(source, &message, now);
                if let (Some(taken), Saying::Response { life, value, .. }) = (taken, message.saying) {
                    let content = value.try_into().map_or(u64::MAX, u64::from_le_bytes);
                    values.push_back(Value { source, lives: (life, *lives), taken, content });
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if let Self::Publisher { publication, .. } = self {
            publication.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Publisher { publication, .. } => {
                if let Some((to, message)) = publication.poll_transmit() {
                    return write(&message, to.map_or(Target::EVERYONE, Target::from), buffer);
                }
                let due = publication.poll_due(now)?;
                let value = due.instant.offset_us.to_le_bytes();
                write(&publication.response(&due, &value), due.target?, buffer)
            }
            Self::Subscriber { subscription, .. } => {
                write(&subscription.poll_transmit(now)?, Target::EVERYONE, buffer)
            }
        }
    }

    fn poll_event(&mut self) -> Option<Value> {
        match self {
            Self::Publisher { .. } => None,
            Self::Subscriber { values, .. } => values.pop_front(),
        }
    }

    fn poll_timeout(&self) -> Nanos {
        match self {
            Self::Publisher { publication, .. } => publication.next_timeout(),
            Self::Subscriber { subscription, .. } => subscription.next_timeout(),
        }
    }
}

impl Participant for InterestNode {
    fn restart(&mut self, now: Nanos, rng: &mut Rng) {
        match self {
            Self::Publisher { own, limits, .. } => {
                *self = Self::publisher(*own, rng.number() as u32, *limits, now);
            }
            Self::Subscriber { subscription, repetition, lives, wants, has_withdrawn, .. } => {
                (*lives, *wants, *has_withdrawn) = (*lives + 1, true, false);
                *subscription = Subscription::new(KEY, *lives, subscription.period_us(), *repetition, now);
            }
        }
    }

    /// Leaves the others (0), is among others again (1), wants no more in this life (2).
    fn act(&mut self, number: u64, now: Nanos) {
        match self {
            Self::Publisher { publication, trips, .. } => {
                *trips += 1;
                if number == 1 { publication.handle_group_changed() } else { publication.handle_group_left() }
            }
            Self::Subscriber { subscription, wants, has_withdrawn, .. } => {
                *has_withdrawn |= number == 2;
                *wants = number == 1 && !*has_withdrawn;
                match number {
                    0 => subscription.handle_group_left(),
                    1 => subscription.handle_group_changed(now),
                    _ => subscription.withdraw(),
                }
            }
        }
    }

    fn describe(message: &[u8]) -> String {
        match Message::parse(message).map(|message| message.saying) {
            Ok(Saying::Interest { period_us, .. }) => format!("interest every {period_us} us"),
            Ok(Saying::Withdrawal { period_us, .. }) => format!("withdrawal of {period_us} us"),
            Ok(Saying::Advertisement { life }) => format!("advertisement of life {life:08x}"),
            Ok(Saying::Response { offset_us, at_once: false, .. }) => format!("the value for {offset_us} us"),
            Ok(Saying::Response { offset_us, .. }) => format!("a value at once, at {offset_us} us"),
            Ok(Saying::Refused { period_us, cause }) => format!("refusal of {period_us} us: {cause}"),
            Err(_) => String::from("no message about interests"),
        }
    }
}

const PERIODS: [u32; 3] = [2_000, 3_000, 5_000];
const PUBLISHERS: u16 = 2;
const NODES: u16 = PUBLISHERS + PERIODS.len() as u16;

/// Interests are repeated faster than usual, so that a run is short.
const REPETITION: Repetition = Repetition {
    every: Nanos::from_millis(20),
    lifetime: Nanos::from_millis(70),
    gap_min: Nanos::from_millis(1),
};

/// Faults end here.
const CALM: Nanos = Nanos::from_millis(150);
/// From here on everything is as it should be.
const STEADY: Nanos = Nanos::from_millis(250);
const RUN: Nanos = Nanos::from_millis(310);
const _: () = assert!(STEADY.0 - CALM.0 > REPETITION.lifetime.0 + REPETITION.every.0);

/// State of the checker for one publisher's values at one subscriber.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    last_us: u64,
    count: u64,
    /// Of instants of the schedule, since all is calm.
    steady: u64,
}

struct Scene {
    world: World<InterestNode>,
    /// By subscriber, publisher and the lives of both.
    seen: BTreeMap<(u16, Address, (u32, u32)), Seen>,
}

fn place(node: u16) -> Address {
    Address { node: NodeId::new(u64::from(node) + 1).expect("not zero"), port: Port::from(1) }
}

impl Scene {
    fn new(plan: &Plan, record: Record) -> Self {
        let network = Network { ordered: false, ..Network::LAN };
        let mut world = World::new(plan, network, MESSAGE_SIZE + 8, record);
        let mut rng = Rng::at(&[plan.seed, 41]);
        for node in 0..NODES {
            let clock = Clock::skewed(Nanos(rng.below(1 << 50)));
            let now = clock.read(Nanos(0));
            let role = match node.checked_sub(PUBLISHERS) {
                None => InterestNode::publisher(
                    place(node),
                    rng.number() as u32,
                    PublicationLimits::default(),
                    now,
                ),
                Some(subscriber) => {
                    InterestNode::subscriber(PERIODS[usize::from(subscriber)], REPETITION, now)
                }
            };
            world.add(place(node), clock, true, role);
        }
        Self { world, seen: BTreeMap::new() }
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.observe_until(CALM)?;
        self.world.calm();
        self.observe_until(STEADY)?;
        self.seen.values_mut().for_each(|seen| seen.steady = 0);
        let missed = |scene: &Self| -> Vec<u64> { scene.subscribers().map(|(_, counts)| counts).collect() };
        let before = missed(self);
        self.observe_until(RUN)?;
        let after = missed(self);
        ensure(&mut self.world.record, "nothing is missed when all is calm", before == after, || {
            format!("missed {before:?}, then {after:?}")
        })?;
        self.check_served()?;
        self.check_sums()
    }

    fn observe_until(&mut self, until: Nanos) -> Result<(), Violation> {
        while let Some((node, value)) = self.world.poll(until) {
            self.observe(node, &value)?;
        }
        Ok(())
    }

    fn observe(&mut self, node: u16, value: &Value) -> Result<(), Violation> {
        let InterestNode::Subscriber { subscription, .. } = self.world.node(node) else { return Ok(()) };
        let (period_us, record) = (u64::from(subscription.period_us()), &mut self.world.record);
        let Taken { offset_us, at_once, missed_before } = value.taken;
        let what = || format!("node {node}: {value:?}");
        ensure(record, "a value is that of its instant", value.content == offset_us, what)?;
        let is_due = at_once || offset_us.is_multiple_of(period_us);
        ensure(record, "only own instants are taken", is_due, what)?;
        let seen = self.seen.entry((node, value.source, value.lives)).or_default();
        let passed = offset_us.saturating_sub(seen.last_us) / period_us;
        let is_later = seen.count == 0 || offset_us > seen.last_us;
        ensure(record, "instants rise", is_later, what)?;
        ensure(record, "only what passed is missed", seen.count == 0 || missed_before <= passed, what)?;
        // Between two instants of the schedule nothing of it is taken.
        seen.last_us = if at_once && seen.count > 0 { seen.last_us } else { offset_us };
        (seen.count, seen.steady) = (seen.count + 1, seen.steady + u64::from(!at_once));
        Ok(())
    }

    /// Subscribers that run, with how many instants they missed.
    fn subscribers(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (PUBLISHERS..NODES).filter(|&node| self.world.is_alive(node)).filter_map(|node| {
            match self.world.node(node) {
                InterestNode::Subscriber { subscription, .. } => Some((node, subscription.counts().missed)),
                InterestNode::Publisher { .. } => None,
            }
        })
    }

    /// A subscriber that runs and wants values gets each of them from each publisher that runs; nobody else is served.
    fn check_served(&mut self) -> Result<(), Violation> {
        for publisher in (0..PUBLISHERS).filter(|&node| self.world.is_alive(node)).collect::<Vec<_>>() {
            for node in PUBLISHERS..NODES {
                self.check_pair(publisher, node)?;
            }
        }
        Ok(())
    }

    fn check_pair(&mut self, publisher: u16, node: u16) -> Result<(), Violation> {
        let (
            InterestNode::Publisher { publication, trips, .. },
            InterestNode::Subscriber { subscription, lives, wants, .. },
        ) = (self.world.node(publisher), self.world.node(node))
        else {
            return Ok(());
        };
        // Each trip away is two acts; a plan that was made short may have left one out.
        let is_home = trips.is_multiple_of(2);
        let wants = self.world.is_alive(node) && *wants;
        let is_served = publication.interests().any(|(address, _)| address == place(node));
        let key = (node, place(publisher), (publication.life(), *lives));
        let got = self.seen.get(&key).map_or(0, |seen| seen.steady);
        let due = (RUN.0 - STEADY.0) / 1_000 / u64::from(subscription.period_us());
        let record = &mut self.world.record;
        let what = || format!("node {publisher} to node {node}: served {is_served}, {got} of {due}");
        ensure(record, "every subscriber is served", !is_home || wants == is_served, what)?;
        ensure(record, "every instant is served", !is_home || !wants || got + 1 >= due, what)
    }

    fn check_sums(&mut self) -> Result<(), Violation> {
        for node in 0..PUBLISHERS {
            let InterestNode::Publisher { publication, trips, .. } = self.world.node(node) else { continue };
            let (counts, held) = (publication.counts(), publication.interests().count() as u64);
            // A publisher that goes away forgets without counting.
            let holds = *trips > 0 || counts.accepted == held + counts.withdrawn + counts.expired;
            ensure(&mut self.world.record, "interests sum up", holds, || format!("{counts:?}, {held} held"))?;
        }
        Ok(())
    }
}

impl Model for Interests {
    fn name(&self) -> &'static str {
        "interest"
    }

    fn about(&self) -> &'static str {
        "losses, stalls and restarts cost values and nothing else; every subscriber is served when all is calm"
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::at(&[seed, 42]);
        let mut plan = Plan::calm(seed);
        let (faulty, within) = ((Nanos(0), CALM), Nanos(rng.below(15_000_000)));
        plan.weather(faulty, Link::ANY, Weather::Lose(rng.below(400) as u32));
        plan.weather(faulty, Link::ANY, Weather::Double(rng.below(200) as u32, within));
        plan.weather(faulty, Link::ANY, Weather::Delay(rng.below(400) as u32, within));
        for _ in 0..rng.below(4) {
            let (at, node) = (Nanos(rng.below(CALM.0)), rng.below(NODES.into()) as u16);
            let later = at.plus(Nanos(rng.below(CALM.0 - at.0)));
            match rng.below(6) {
                0 => plan.node(at, node, NodeFault::Crash),
                1 => plan.node(at, node, NodeFault::Restart),
                2 => plan.node(at, node, NodeFault::Pause(Nanos(rng.below(CALM.0 - at.0)))),
                3 => plan.weather((at, later), Link { source: Some(node), target: None }, Weather::Cut),
                4 => plan.node(at, node.max(PUBLISHERS), NodeFault::Act(2)),
                _ => {
                    plan.node(at, node, NodeFault::Act(0));
                    plan.node(later, node, NodeFault::Act(1));
                }
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
