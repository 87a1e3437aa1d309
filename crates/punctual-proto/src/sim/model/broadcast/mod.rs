//! A broadcast group over a network that loses, alters, doubles, delays and cuts, with members that crash, pause, leave and
//! begin anew.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port};
use crate::broadcast::{
    BroadcastError, Delivery, Event, GroupOptions, Guarantee, Member, Mutant, Mutants, Replication,
};
use crate::protocol::{Protocol, Transmit};
use crate::sim::{Clock, Network, NodeFault, Participant, Plan, Record, Rng, World};
use crate::time::Nanos;

mod checker;
mod copies;
mod plan;

use checker::{Checker, NAME_SIZE, bytes_of};
use copies::{Copies, Log};
use plan::CALM;

/// Atomic broadcast, with one mistake or without; and a state of which every member has a copy, where that is asked for.
pub(crate) struct Broadcast {
    mutants: Mutants,
    is_replicated: bool,
}

impl Broadcast {
    /// As it is.
    pub(crate) const SOUND: Self = Self { mutants: Mutants::NONE, is_replicated: false };

    /// The same, with copies of a state.
    pub(crate) const REPLICATED: Self = Self { mutants: Mutants::NONE, is_replicated: true };

    /// With this mistake.
    #[cfg(test)]
    pub(crate) fn with(mutant: Mutant) -> Self {
        Self { mutants: Mutants::only(mutant), ..Self::SOUND }
    }

    /// With this mistake in how copies are made.
    #[cfg(test)]
    pub(crate) fn replicated_with(mutant: Mutant) -> Self {
        Self { mutants: Mutants::only(mutant), ..Self::REPLICATED }
    }
}

impl Broadcast {
    /// Of the run of a seed: true if the group could go on in the end, the number of its last view, the deliveries, and those without
    /// order.
    #[cfg(test)]
    pub(crate) fn census(&self, seed: u64) -> (bool, u64, u64, u64) {
        let plan = self.plan(seed);
        let mut scene = Scene::new(&plan, Record::counts(), self);
        let _ = scene.run_plan(&plan);
        let newest = scene.checker.newest().map_or(0, |view| view.number);
        (scene.is_viable(), newest, scene.checker.delivered, scene.checker.unordered)
    }
}

/// An event that a member's user is told, and the life in which it is told.
#[derive(Debug)]
struct Told {
    life: u64,
    event: Event,
    bytes: Vec<u8>,
    /// State of the copy after it, where there is one.
    log: Option<Log>,
}

/// A member of the group.
#[derive(Debug)]
struct GroupMember {
    member: Member,
    options: GroupOptions,
    mutants: Mutants,
    /// Messages that this life broadcast.
    count: (u64, u64),
    /// Its copy of the state, where there is one.
    copy: Option<Replication<Log>>,
    now: Nanos,
    /// It wants to leave, and was not told that it has.
    leaves: bool,
    /// It began anew before it had left.
    was_cut_short: bool,
}

impl GroupMember {
    /// Broadcasts what a transfer of the state asks for, as far as that is taken.
    fn transfer(&mut self) {
        let Some(copy) = self.copy.as_mut() else { return };
        while let Some(message) = copy.poll_broadcast()
            && self.member.try_broadcast(message, Guarantee::Uniform, self.now).is_ok()
        {
            copy.note_taken();
        }
    }
}

impl Protocol for GroupMember {
    type Event = Told;

    fn handle_message(&mut self, source: Address, message: &[u8], now: Nanos) {
        self.now = now;
        self.member.handle_message(source, message, now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.now = now;
        self.member.handle_timeout(now);
        self.transfer();
    }

    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        self.member.poll_transmit(now, buffer)
    }

    fn poll_event(&mut self) -> Option<Told> {
        let event = self.member.poll_event()?;
        let bytes = if let Event::Delivered(_) = event { self.member.message().to_vec() } else { Vec::new() };
        self.leaves &= event != Event::Left;
        let copy = self.copy.as_mut();
        let log = copy.and_then(|copy| {
            copy.handle(&event, &bytes);
            copy.state().copied()
        });
        self.transfer();
        Some(Told { life: self.member.life(), event, bytes, log })
    }

    fn poll_timeout(&self) -> Nanos {
        self.member.poll_timeout()
    }
}

impl Participant for GroupMember {
    fn restart(&mut self, now: Nanos, rng: &mut Rng) {
        self.was_cut_short |= !self.member.has_left();
        self.leaves = false;
        let life = if self.mutants.has(Mutant::LifeReused) { self.member.life() } else { rng.number() };
        self.options.founds = false;
        self.member = Member::with_mutants(self.options.clone(), life, now, self.mutants)
            .expect("the options were good before");
        self.copy = self.copy.is_some().then(|| copies::copy(self.member.place(), self.mutants));
    }

    /// The member leaves.
    fn act(&mut self, _: u64, now: Nanos) {
        self.leaves = !self.member.has_left();
        self.member.leave(now);
    }

    fn describe(message: &[u8]) -> String {
        let kinds = [
            "Data", "Order", "Status", "Gaps", "Join", "Prepare", "Promise", "Accept", "Accepted", "Install",
            "Refusal",
        ];
        let kind = message.get(1).and_then(|kind| kinds.get(usize::from(kind & 15))).unwrap_or(&"nonsense");
        let word = |at: usize| {
            message.get(at..at + 8).map_or(0, |b| b.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)))
        };
        format!("{kind} (view {}, epoch {}, ordered {}, held {})", word(24), word(32), word(40), word(48))
    }
}

const FRAME_SIZE: usize = 48;
const MESSAGE_SIZE_MAX: usize = 20 * FRAME_SIZE;

/// Average interval between broadcasts.
const EVERY: Nanos = Nanos::from_millis(6);
/// Long enough for the longest suspicion, a change of views and another one.
const PATIENCE: Nanos = Nanos::from_millis(2_000);
const STEP: Nanos = Nanos::from_millis(10);
/// Silence after which a member that was suspected wrongly before is suspected again: eight times as long.
const SUSPECTED_MAX: Nanos = Nanos(8 * SUSPECT_AFTER.0);
const SUSPECT_AFTER: Nanos = Nanos::from_millis(25);

fn node(index: u16) -> NodeId {
    NodeId::new(100 + u64::from(index)).expect("a number of a node")
}

fn options(size: u16, own: u16) -> GroupOptions {
    let roster = (0..size).map(node).collect();
    GroupOptions {
        founds: own == 0,
        frame_size: FRAME_SIZE,
        window: 8,
        message_size_max: MESSAGE_SIZE_MAX,
        heartbeat: Nanos::from_millis(5),
        suspect_after: SUSPECT_AFTER,
        ..GroupOptions::new(7, roster, node(own), Port::from(1))
    }
}

/// A group, and what is known of it.
struct Scene {
    world: World<GroupMember>,
    rng: Rng,
    /// Generator that chooses among guarantees with order and without.
    kinds: Rng,
    /// Generator that makes bursts of small messages, which share frames.
    bursts: Rng,
    is_replicated: bool,
    checker: Checker,
    copies: Copies,
}

impl Scene {
    fn new(plan: &Plan, record: Record, model: &Broadcast) -> Self {
        let mut rng = Rng::at(&[plan.seed, 71]);
        let size = plan::size(plan.seed);
        let network = Network { checked: false, ordered: rng.happens(500), ..Network::LAN };
        let buffer_size = options(size, 0).datagram_size();
        let mut world = World::new(plan, network, buffer_size, record);
        for index in 0..size {
            let clock = Clock::skewed(Nanos::from_millis(1_000 * u32::from(index)));
            let (options, life) = (options(size, index), rng.number());
            let member = Member::with_mutants(options.clone(), life, clock.read(Nanos(0)), model.mutants)
                .expect("good options");
            let mutants = model.mutants;
            let copy = model.is_replicated.then(|| copies::copy(index.into(), mutants));
            let now = clock.read(Nanos(0));
            let count = (life, 0);
            let (leaves, was_cut_short) = (false, false);
            let node = GroupMember { member, options, mutants, count, copy, now, leaves, was_cut_short };
            world.add(Address { node: self::node(index), port: Port::from(1) }, clock, true, node);
        }
        let (kinds, bursts) = (Rng::at(&[plan.seed, 74]), Rng::at(&[plan.seed, 75]));
        let is_replicated = model.is_replicated;
        let (checker, copies) = (Checker::default(), Copies::default());
        Self { world, rng, kinds, bursts, is_replicated, checker, copies }
    }

    fn run(&mut self, time: Nanos) -> Result<(), Violation> {
        let until = self.world.now().plus(time);
        while let Some((node, Told { life, event, bytes, log })) = self.world.poll(until) {
            let now = self.world.now();
            let is_replicated = self.is_replicated;
            let record = &mut self.world.record;
            record.note(now, Some(node), || format!("life {life:x} tells {event:x?}"));
            self.copies.compare(record, life, (&event, log))?;
            match &event {
                Event::Delivered(delivery) => {
                    let message = if is_replicated { copies::command_in(&bytes) } else { Some(&bytes[..]) };
                    let Some(bytes) = message else { continue };
                    let told = Delivery { size: bytes.len(), ..*delivery };
                    self.checker.deliver(record, life, (&told, bytes))?;
                }
                Event::View(view) => self.checker.view(record, life, view)?,
                Event::Expelled => self.checker.expel(life),
                // A member that has left is there no more: nobody can ask it for anything.
                Event::Left => {
                    self.checker.leave(record, life)?;
                    self.world.suffer(node, NodeFault::Crash);
                }
                Event::Stopped | Event::Resumed | Event::Mismatch(_) => {}
            }
        }
        Ok(())
    }

    /// A member broadcasts a message, if it is taken.
    fn broadcast(&mut self, node: u16, size: usize, guarantee: Guarantee) -> Result<(), BroadcastError> {
        if !self.world.is_running(node) {
            return Err(BroadcastError::NoMember);
        }
        let checker = &mut self.checker;
        let now = self.world.now();
        let (name, result) = self.world.with(node, |node, now| {
            let life = node.member.life();
            if node.count.0 != life {
                node.count = (life, 0);
            }
            let name = (life, node.count.1);
            let bytes = bytes_of(name, size);
            let mut message = bytes.clone();
            if node.copy.is_some() {
                Replication::<Log>::put_command(&bytes, &mut message);
            }
            let result = node.member.try_broadcast(&message, guarantee, now);
            if result.is_ok() {
                node.count.1 += 1;
                checker.note_taken(name, bytes.len(), guarantee, node.member.view().number);
            }
            (name, result)
        });
        self.world.record.note(now, Some(node), || {
            format!("broadcasts {name:x?} as {guarantee:?}, {size} bytes: {result:?}")
        });
        result
    }

    fn broadcast_any(&mut self) {
        let node = self.rng.below(self.world.size().into()) as u16;
        let frames = if self.rng.happens(100) { 19 } else { 2 };
        let size = NAME_SIZE + self.rng.below(frames * FRAME_SIZE as u64) as usize;
        let usual = if self.rng.happens(300) { Guarantee::Agreed } else { Guarantee::Uniform };
        let others = [usual, Guarantee::Reliable, Guarantee::BestEffort];
        // Commands of a replicated state have an order.
        let guarantee = if self.is_replicated { usual } else { others[self.kinds.below(3) as usize] };
        // A message that is not taken was reported so, and is of no further concern.
        let _ = self.broadcast(node, size, guarantee);
    }

    /// A member broadcasts many small messages at once, as far as they are taken.
    fn broadcast_burst(&mut self) {
        let node = self.bursts.below(self.world.size().into()) as u16;
        let guarantee = if self.bursts.happens(300) { Guarantee::Agreed } else { Guarantee::Uniform };
        for _ in 0..self.bursts.below(24) {
            let size = NAME_SIZE + self.bursts.below(7) as usize;
            let _ = self.broadcast(node, size, guarantee);
        }
    }

    /// Nodes that run and have not left, with their lives.
    fn living(&self) -> Vec<(u16, u64)> {
        let is_here = |node: &u16| self.world.is_alive(*node) && !self.world.node(*node).member.has_left();
        let nodes = (0..self.world.size()).filter(is_here);
        nodes.map(|node| (node, self.world.node(node).member.life())).collect()
    }

    /// True if a majority of the newest view of any living member is alive: otherwise nobody can go on, and nobody does.
    fn is_viable(&self) -> bool {
        let living = self.living();
        let views = living.iter().map(|(node, _)| self.world.node(*node).member.view());
        let Some(view) = views.max_by_key(|view| view.number) else { return false };
        let count = living.iter().filter(|(_, life)| view.lives.contains(life)).count();
        2 * count > view.size() && 2 * living.len() > usize::from(self.world.size())
    }

    fn is_whole(&self) -> bool {
        let living = self.living();
        let is_in = |&(node, _): &(u16, u64)| {
            let member = &self.world.node(node).member;
            let members = member.view().lives.iter().filter(|life| **life != 0).count();
            !member.is_stopped()
                && members == living.len()
                && living.iter().all(|(_, life)| member.view().lives.contains(life))
        };
        living.iter().all(is_in)
    }

    /// Goes on until something holds, for as long as it may take.
    fn run_until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<bool, Violation> {
        let until = self.world.now().plus(PATIENCE);
        while !holds(self) && self.world.now() < until {
            self.run(STEP)?;
        }
        Ok(holds(self))
    }

    fn run_plan(&mut self, plan: &Plan) -> Result<(), Violation> {
        while self.world.now() < CALM {
            let wait = Nanos(self.rng.below(2 * EVERY.0));
            self.run(wait)?;
            self.broadcast_any();
            if self.bursts.happens(100) {
                self.broadcast_burst();
            }
        }
        self.world.calm();
        // A member that was not heard at the end may still be expelled, and come back.
        self.run(SUSPECTED_MAX)?;
        let is_whole = self.run_until(|scene| scene.is_whole() || !scene.is_viable())?;
        self.check_leavers()?;
        if !self.is_viable() {
            let was_cut_short = |node| self.world.node(node).was_cut_short;
            let is_owed = plan::takes_nobody(plan) && !(0..self.world.size()).any(was_cut_short);
            let living = self.living();
            let text = || format!("{living:x?} live, too few of the newest view");
            return ensure(&mut self.world.record, "the group goes on", !is_owed, text);
        }
        let living = self.living();
        let text = || format!("not all of {living:x?} are in one view");
        ensure(&mut self.world.record, "liveness of views", is_whole, text)?;
        self.check_progress()
    }

    /// When nothing goes wrong any more, every member that wants to leave can.
    fn check_leavers(&mut self) -> Result<(), Violation> {
        let waiting = |scene: &Self| {
            let living = scene.living().into_iter();
            living.filter(|&(node, _)| scene.world.node(node).leaves).collect::<Vec<_>>()
        };
        self.run_until(|scene| waiting(scene).is_empty())?;
        let waiting = waiting(self);
        let text = || format!("{waiting:x?} are not told that they have left");
        ensure(&mut self.world.record, "leaving", waiting.is_empty(), text)
    }

    /// When nothing goes wrong any more, everything that was taken is delivered by all.
    fn check_progress(&mut self) -> Result<(), Violation> {
        let living = self.living();
        for &(node, _) in &living {
            let ordered = [Guarantee::Agreed, Guarantee::Uniform];
            let others = [Guarantee::BestEffort, Guarantee::Reliable];
            let others = if self.is_replicated { [].iter() } else { others.iter() };
            for &guarantee in others.chain(&ordered) {
                let mut result = Err(BroadcastError::Full);
                for _ in 0..20 {
                    result = self.broadcast(node, NAME_SIZE + 5, guarantee);
                    if result.is_ok() {
                        break;
                    }
                    self.run(STEP)?;
                }
                let text = || format!("node {node}: {result:?}");
                ensure(&mut self.world.record, "liveness of senders", result.is_ok(), text)?;
            }
        }
        let lacks = |scene: &Self| {
            let names = || living.iter().flat_map(|&(_, life)| scene.checker.of(life));
            let view = |life: u64| scene.checker.newest().is_some_and(|view| view.lives.contains(&life));
            let mut newest =
                living.iter().filter_map(|&(_, life)| Some((life, scene.checker.of(life).last()?)));
            let of_itself = names().find(|&name| !scene.checker.has(name.0, name)).map(|name| (name.0, name));
            let of_others = newest.find_map(|(_, name)| {
                living
                    .iter()
                    .find(|&&(_, life)| view(life) && !scene.checker.has(life, name))
                    .map(|&(_, life)| (life, name))
            });
            (of_itself, of_others)
        };
        self.run_until(|scene| lacks(scene) == (None, None))?;
        let (of_itself, of_others) = lacks(self);
        let record = &mut self.world.record;
        ensure(record, "validity", of_itself.is_none(), || format!("{of_itself:x?} is not delivered"))?;
        ensure(record, "liveness", of_others.is_none(), || format!("{of_others:x?} is not delivered"))?;
        self.run(STEP)?;
        let lives: Vec<u64> = self.living().into_iter().map(|(_, life)| life).collect();
        self.checker.end(&mut self.world.record, &lives)?;
        self.check_copies()
    }

    /// When nothing goes wrong any more, all have the state, if anybody has.
    fn check_copies(&mut self) -> Result<(), Violation> {
        let living = self.living();
        let has = |scene: &Self, node: u16| {
            let copy = scene.world.node(node).copy.as_ref();
            copy.is_none_or(|copy| copy.state().is_some())
        };
        let lacks = |scene: &Self| living.iter().find(|&&(node, _)| !has(scene, node)).copied();
        if !living.iter().any(|&(node, _)| has(self, node)) {
            return Ok(());
        }
        self.run_until(|scene| lacks(scene).is_none())?;
        let lacking = lacks(self);
        let record = &mut self.world.record;
        ensure(record, "liveness of copies", lacking.is_none(), || format!("{lacking:x?} lacks the state"))
    }
}

impl Model for Broadcast {
    fn name(&self) -> &'static str {
        if self.is_replicated { "replica" } else { "broadcast" }
    }

    fn about(&self) -> &'static str {
        if self.is_replicated {
            "Copies of a state are equal at every place of the order; and when all is calm, all have it, if anybody has."
        } else {
            "All deliver the same, in one order where that was asked for, nothing twice, nothing that nobody sent; and when all is calm, everything. A member that leaves does, too, or is told."
        }
    }

    fn plan(&self, seed: u64) -> Plan {
        plan::plan(seed)
    }

    fn run(&self, plan: &Plan, record: Record) -> Report {
        let mut scene = Scene::new(plan, record, self);
        let outcome = scene.run_plan(plan);
        Report { record: scene.world.record, outcome }
    }
}
