//! Nodes whose clocks are skewed, drift, wander and step, in a world that knows the true time.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port, Target};
use crate::interest::Lateness;
use crate::protocol::{Protocol, Transmit};
use crate::sim::{Clock, Link, Network, NodeFault, Participant, Plan, Record, Rng, Weather, World};
use crate::time::Nanos;
use crate::time_sync::{
    ClockModel, OneWay, Role, STATUS_SIZE, StampClock, SyncOptions, Synchroniser, TimeMessage,
};

/// The time of several nodes.
pub(super) struct TimeSync;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A slewed clock runs fast or slow by up to a twelfth, and a little more that it drifts.
const SLEW_MAX_PPB: i64 = 83_400_000;

/// A node with a clock of its own.
#[derive(Debug)]
pub(crate) struct TimeNode {
    pub(crate) id: NodeId,
    pub(crate) node: Synchroniser,
    clock: StampClock,
    options: SyncOptions,
}

impl Protocol for TimeNode {
    type Event = ();

    fn handle_message(&mut self, source: Address, message: &[u8], now: Nanos) {
        if let Ok(message) = TimeMessage::parse(message) {
            self.node.handle_message(source.node, &message, now);
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.node.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        let next = self.node.poll_transmit(now)?;
        let target = Target { node: next.to, port: None };
        let size = next.message.write(buffer.first_chunk_mut()?);
        Some(Transmit { target, size })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Nanos {
        self.node.next_timeout()
    }
}

impl TimeNode {
    fn new(id: NodeId, clock: StampClock, options: SyncOptions, now: Nanos, rng: &mut Rng) -> Self {
        let life = rng.number() as u32;
        Self { id, node: Synchroniser::new(id, life, clock, options, now), clock, options }
    }
}

impl Participant for TimeNode {
    fn restart(&mut self, now: Nanos, rng: &mut Rng) {
        *self = Self::new(self.id, self.clock, self.options, now, rng);
    }

    /// It is told that its clock was set.
    fn act(&mut self, _: u64, now: Nanos) {
        let life = Rng::at(&[self.id.get(), now.0]).number() as u32;
        self.node.handle_clock_changed(life, now);
    }

    fn describe(message: &[u8]) -> String {
        TimeMessage::parse(message).map_or(String::from("no message about time"), |message| {
            let all = format!("{:?}", message.saying);
            String::from(all.split([' ', '(']).next().unwrap_or_default())
        })
    }
}

/// Nodes, and what is known of their clocks.
pub(crate) struct TimeScene {
    pub(crate) world: World<TimeNode>,
    pub(crate) rng: Rng,
    options: SyncOptions,
    /// Until then a node's clock was set without anybody's knowing.
    pub(crate) doubt_until: Vec<Nanos>,
    /// Bounds of estimates that were compared with the truth.
    pub(crate) bounds: Lateness,
}

impl TimeScene {
    pub(crate) fn new(plan: &Plan, network: Network, options: SyncOptions, record: Record) -> Self {
        let world = World::new(plan, network, STATUS_SIZE, record).restarting_clocks();
        let rng = Rng::at(&[plan.seed, 31]);
        Self { world, rng, options, doubt_until: Vec::new(), bounds: Lateness::default() }
    }

    /// Adds a node with a clock of its own; relative to each other clocks keep the model.
    pub(crate) fn add(&mut self, id: u64, priority: u8) -> u16 {
        self.add_with(id, priority, false)
    }

    /// Adds a node whose clock may be [slewed](SLEW_MAX_PPB).
    pub(crate) fn add_with(&mut self, id: u64, priority: u8, is_slewed: bool) -> u16 {
        let model = ClockModel::default();
        let drift_max_ppb = model.drift_max_ppb / 2 - 1_000;
        let mut clock = Clock::skewed(Nanos(self.rng.below(1 << 60)));
        clock.drift_ppb = self.rng.between(-drift_max_ppb, drift_max_ppb);
        clock.drift_max_ppb = if is_slewed { SLEW_MAX_PPB } else { drift_max_ppb };
        clock.wander_max_ppb_per_s = model.wander_max_ppb_per_s / 2 - 10;
        let id = NodeId::new(id).expect("a number of a node");
        let options = SyncOptions { priority, ..self.options };
        let stamps = StampClock { domain: id.get() as u32, scale: 1 << 32, is_slewed };
        let node = TimeNode::new(id, stamps, options, clock.read(Nanos(0)), &mut self.rng);
        self.doubt_until.push(Nanos(0));
        self.world.add(Address { node: id, port: Port::from(1) }, clock, true, node)
    }

    pub(crate) fn role(&self, node: u16) -> Role {
        self.world.node(node).node.role()
    }

    pub(crate) fn bound(&self, node: u16) -> Option<u64> {
        self.world.node(node).node.offset(self.world.reading(node)).map(|estimate| estimate.bound)
    }

    fn of_id(&self, id: NodeId) -> Option<u16> {
        (0..self.world.size()).find(|&node| self.world.node(node).id == id)
    }

    fn is_settled(&self, node: u16) -> bool {
        self.world.is_alive(node) && self.world.now() >= self.doubt_until[usize::from(node)]
    }

    /// Goes on for so long, and compares with the truth this often.
    pub(crate) fn run(&mut self, time: Nanos, every: Nanos) -> Result<(), Violation> {
        let until = self.world.now().plus(time);
        while self.world.now() < until {
            let wait = 1 + self.rng.below(2 * every.0);
            self.world.run(Nanos(wait));
            (0..self.world.size()).try_for_each(|node| self.check(node))?;
            self.check_one_way()?;
        }
        Ok(())
    }

    /// The goal of all of this: the true offset is within the stated bound.
    fn check(&mut self, node: u16) -> Result<(), Violation> {
        let reading = self.world.reading(node);
        let Role::Follower(master) = self.role(node) else { return Ok(()) };
        let (Some(estimate), Some(master)) = (self.world.node(node).node.offset(reading), self.of_id(master))
        else {
            return Ok(());
        };
        if !self.is_settled(node) || !self.is_settled(master) {
            return Ok(());
        }
        let truth = self.world.reading(master) - reading;
        self.bounds.note(Nanos(estimate.bound));
        let holds = estimate.nanos.abs_diff(truth) <= estimate.bound;
        ensure(&mut self.world.record, "the offset is within its bound", holds, || {
            format!("node {node}: {} ± {} ns where {truth} is true", estimate.nanos, estimate.bound)
        })
    }

    /// A message between two nodes that chance chooses: its duration by the reference's clock is within the bound.
    fn check_one_way(&mut self) -> Result<(), Violation> {
        let size = u64::from(self.world.size());
        let (from, to) = (self.rng.below(size) as u16, self.rng.below(size) as u16);
        let reference = match self.role(to) {
            Role::Follower(master) => self.of_id(master),
            Role::Master => Some(to),
            Role::Listening => None,
        };
        let Some(reference) = reference else { return Ok(()) };
        let clocks = [self.world.clock(from), self.world.clock(reference)];
        let since = clocks.map(Clock::since).into_iter().max().unwrap_or_default();
        let sent = Nanos(self.world.now().0.saturating_sub(300_000)).max(since);
        let truth = self.world.reading(reference) - clocks[1].read(sent);
        let (here, source) = (self.world.reading(to), self.world.node(from).id);
        // These instants are readings: a way that cannot be is a defect, too.
        let measured = self.world.node(to).node.any_one_way(source, clocks[0].read(sent), here);
        let settled = [from, to, reference].iter().all(|&node| self.is_settled(node));
        let Some(OneWay { nanos, bound }) = measured.filter(|_| settled) else { return Ok(()) };
        let holds = nanos.abs_diff(truth) <= bound;
        ensure(&mut self.world.record, "a one-way time is within its bound", holds, || {
            format!("from {from} to {to}: {nanos} ± {bound} ns where {truth} is true")
        })
    }
}

/// The options of a model's nodes: as the usual ones, but faster.
const OPTIONS: SyncOptions = SyncOptions {
    priority: 128,
    every: Nanos::from_millis(40),
    silence: Nanos::from_millis(160),
    model: ClockModel::CALIBRATED,
};

const NODES: u16 = 3;
const RUN: Nanos = Nanos::from_millis(1_600);
/// Faults end here, so that all can find together again.
const CALM: Nanos = Nanos::from_millis(1_100);
const _: () = assert!(RUN.0 - CALM.0 > 3 * OPTIONS.silence.0);

impl TimeScene {
    /// Clocks that are set or begin anew are in doubt until others can know.
    fn doubt(&mut self, plan: &Plan) {
        self.doubt_until.fill(Nanos(0));
        let now = self.world.now();
        for (at, node, fault) in plan.node_faults().filter(|&(at, ..)| at <= now.plus(Nanos(10 * MS))) {
            let is_told = plan.node_faults().any(|other| other == (at, node, NodeFault::Act(0)));
            let doubt = match fault {
                NodeFault::Restart => 5 * OPTIONS.silence.0,
                // A node that knows of the step tells everybody.
                NodeFault::Step(_) if is_told => 5 * OPTIONS.silence.0,
                // A large step is found by the next exchange, or by the one after it.
                NodeFault::Step(step) if step.unsigned_abs() > MS => 4 * OPTIONS.silence.0,
                // A small one is forgotten with the window of exchanges.
                NodeFault::Step(_) => 35 * OPTIONS.every.0,
                _ => 0,
            };
            if let Some(until) = self.doubt_until.get_mut(usize::from(node)) {
                *until = at.plus(Nanos(doubt)).max(*until);
            }
        }
    }

    fn run_plan(&mut self, plan: &Plan) -> Result<(), Violation> {
        for id in 1..=NODES {
            self.add(id.into(), 128);
        }
        while self.world.now() < RUN {
            if self.world.now() >= CALM {
                self.world.calm();
            }
            self.doubt(plan);
            self.run(Nanos(4 * MS), Nanos(2 * MS))?;
        }
        self.check_agreement()
    }

    /// Those who are left follow the best of them.
    fn check_agreement(&mut self) -> Result<(), Violation> {
        let alive = || (0..self.world.size()).filter(|&node| self.world.is_alive(node));
        let Some(best) = alive().next() else { return Ok(()) };
        let expected =
            |node| if node == best { Role::Master } else { Role::Follower(self.world.node(best).id) };
        let wrong = alive().find(|&node| self.role(node) != expected(node) || self.bound(node).is_none());
        let text = || format!("node {wrong:?} does not follow node {best}");
        ensure(&mut self.world.record, "the best that is heard is master", wrong.is_none(), text)
    }
}

impl Model for TimeSync {
    fn name(&self) -> &'static str {
        "time-sync"
    }

    fn about(&self) -> &'static str {
        "the true offset between two clocks is within the bound that is stated, with any drift, step and delay"
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::at(&[seed, 32]);
        let mut plan = Plan::calm(seed);
        let faulty = (Nanos(0), CALM);
        match seed % 4 {
            0 => {}
            // One way's delays are longer: the asymmetry that IEEE 1588 cannot see.
            1 => {
                let link = Link { source: None, target: Some(rng.below(NODES.into()) as u16) };
                plan.weather(faulty, link, Weather::Slow(Nanos(300_000)));
            }
            2 => plan.weather(faulty, Link::ANY, Weather::Lose(rng.below(300) as u32)),
            _ => plan.weather(faulty, Link::ANY, Weather::Double(100, Nanos(50 * MS))),
        }
        for _ in 0..rng.below(3) {
            let (at, node) = (Nanos(rng.below(CALM.0 - 600 * MS)), rng.below(NODES.into()) as u16);
            let steps = [10 * S as i64, -10 * MS as i64, 20_000, -20_000, 400_000];
            match rng.below(7) {
                0 => plan.node(at, node, NodeFault::Restart),
                1 => plan.node(at, node, NodeFault::Step(steps[rng.below(5) as usize])),
                2 => plan.node(at, node, NodeFault::Pause(Nanos(rng.below(300 * MS)))),
                3 => plan.node(at, node, NodeFault::Crash),
                4 => plan.node(at, node, NodeFault::Act(0)),
                // It slept, and its clock stood still or began anew.
                5 => {
                    plan.node(at, node, NodeFault::Step(steps[rng.below(5) as usize]));
                    plan.node(at, node, NodeFault::Act(0));
                }
                _ => {
                    let link = Link { source: Some(node), target: None };
                    plan.weather((at, at.plus(Nanos(400 * MS))), link, Weather::Cut);
                }
            }
        }
        plan
    }

    fn run(&self, plan: &Plan, record: Record) -> Report {
        let mut scene = TimeScene::new(plan, Network::LAN, OPTIONS, record);
        let outcome = scene.run_plan(plan);
        Report { record: scene.world.record, outcome }
    }
}
