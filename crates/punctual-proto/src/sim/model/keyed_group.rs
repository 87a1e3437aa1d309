//! A leader and its members over a network that loses, doubles, moves, alters, and plays back everything that was ever said.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port, Target};
use crate::keyed_group::{
    GroupTiming, Leader, LeaderEvent, MESSAGE_SIZE_MAX, Member, SECRET_SIZE, Secret, State,
};
use crate::limits::SEAL_OVERLAP_NS;
use crate::protocol::{Protocol, Transmit};
use crate::seal::{GroupKey, KEY_SIZE, KeyId, KeyRing, Moment};
use crate::sim::{Clock, Fault, Link, Network, NodeFault, Participant, Plan, Record, Rng, Weather, World};
use crate::time::Nanos;

/// Groups with a key of their own.
pub(super) struct KeyedGroups;

pub(crate) const GROUP: u32 = 5;
pub(crate) const LEADER: u16 = 0;

pub(crate) fn node(index: u64) -> NodeId {
    NodeId::new(100 + index).expect("a number of a node")
}

pub(crate) fn master() -> Secret {
    Secret::new([9; SECRET_SIZE]).expect("it is not zero")
}

/// Role of a node.
#[derive(Debug)]
enum Role {
    Leader(Box<Leader>),
    Member(Box<Member>, KeyRing),
}

/// A node of a group.
#[derive(Debug)]
pub(crate) struct GroupNode {
    own: NodeId,
    timing: GroupTiming,
    role: Role,
    rng: Rng,
    events: VecDeque<GroupEvent>,
}

/// An event of a node of a group.
#[derive(Debug)]
pub(crate) enum GroupEvent {
    Leader(LeaderEvent),
    /// A member was given a key; true if its ring had room.
    Given(GroupKey, bool),
}

/// In a virtual world nobody has all of both clocks.
fn moment(now: Nanos) -> Moment {
    Moment { wall_ns: 0, monotonic_ns: now.0 }
}

impl GroupNode {
    fn new(own: NodeId, timing: GroupTiming, now: Nanos, mut rng: Rng) -> Self {
        let mut entropy = |bytes: &mut [u8]| rng.fill(bytes);
        let role = if own == node(LEADER.into()) {
            Role::Leader(Box::new(Leader::new(own, GROUP, master(), timing, now.0, &mut entropy)))
        } else {
            let both = (own, node(LEADER.into()));
            let member = Member::new(both, GROUP, master().of_member(own), timing, now.0, &mut entropy);
            Role::Member(Box::new(member), KeyRing::new(SEAL_OVERLAP_NS))
        };
        Self { own, timing, role, rng, events: VecDeque::new() }
    }

    /// Lets the leader do something.
    #[cfg(test)]
    pub(crate) fn lead(&mut self, act: impl FnOnce(&mut Leader, &mut dyn FnMut(&mut [u8]))) {
        let Self { role, rng, .. } = self;
        if let Role::Leader(leader) = role {
            act(leader, &mut |bytes: &mut [u8]| rng.fill(bytes));
        }
    }

    fn leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Member(..) => None,
        }
    }

    fn member(&self) -> Option<(&Member, &KeyRing)> {
        match &self.role {
            Role::Leader(_) => None,
            Role::Member(member, ring) => Some((member, ring)),
        }
    }
}

impl Protocol for GroupNode {
    type Event = GroupEvent;

    fn handle_message(&mut self, _: Address, message: &[u8], now: Nanos) {
        let Self { role, rng, events, .. } = self;
        let mut entropy = |bytes: &mut [u8]| rng.fill(bytes);
        match role {
            Role::Leader(leader) => leader.handle_message(message, now.0, &mut entropy),
            Role::Member(member, ring) => {
                if let Some(key) = member.handle_message(message, now.0, &mut entropy) {
                    let has_room = ring.insert_of_group(key.clone(), moment(now)).is_ok();
                    events.push_back(GroupEvent::Given(key, has_room));
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        let Self { role, rng, .. } = self;
        let mut entropy = |bytes: &mut [u8]| rng.fill(bytes);
        match role {
            Role::Leader(leader) => leader.handle_timeout(now.0, &mut entropy),
            Role::Member(member, ring) => {
                member.handle_timeout(now.0, &mut entropy);
                ring.handle_timeout(moment(now));
            }
        }
    }

    fn poll_transmit(&mut self, _: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        let message = match &mut self.role {
            Role::Leader(leader) => leader.poll_transmit().map(|(_, message)| message),
            Role::Member(member, _) => member.poll_transmit(),
        }?;
        buffer[..message.len()].copy_from_slice(&message);
        // Everybody hears everything, and must make nothing of what is for others.
        Some(Transmit { target: Target::EVERYONE, size: message.len() })
    }

    fn poll_event(&mut self) -> Option<GroupEvent> {
        match &mut self.role {
            Role::Leader(leader) => leader.poll_event().map(GroupEvent::Leader),
            Role::Member(..) => self.events.pop_front(),
        }
    }

    fn poll_timeout(&self) -> Nanos {
        match &self.role {
            Role::Leader(leader) => Nanos(leader.poll_timeout()),
            Role::Member(member, _) => member.poll_timeout().map_or(Nanos::NEVER, Nanos),
        }
    }
}

impl Participant for GroupNode {
    fn restart(&mut self, now: Nanos, rng: &mut Rng) {
        *self = Self::new(self.own, self.timing, now, Rng::new(rng.number()));
    }

    /// A leader renews its key, a member leaves.
    fn act(&mut self, _: u64, now: Nanos) {
        let Self { role, rng, .. } = self;
        let mut entropy = |bytes: &mut [u8]| rng.fill(bytes);
        match role {
            Role::Leader(leader) => leader.renew(now.0, &mut entropy),
            Role::Member(member, _) => member.leave(now.0, &mut entropy),
        }
    }

    fn describe(message: &[u8]) -> String {
        let kinds = ["nothing", "Ask", "Offer", "Confirm", "Grant", "Alive", "Leave"];
        let kind = message.first().and_then(|&kind| kinds.get(usize::from(kind))).unwrap_or(&"nonsense");
        String::from(*kind)
    }
}

/// A key that a leader made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) bytes: [u8; KEY_SIZE],
    /// When it begins to seal, true time.
    from: Nanos,
}

/// A group, and what is known of all of its keys.
pub(crate) struct GroupScene {
    pub(crate) world: World<GroupNode>,
    pub(crate) rng: Rng,
    timing: GroupTiming,
    /// All keys, by life of the leader and generation.
    pub(crate) keys: BTreeMap<(u64, u32), Made>,
    /// Keys that each node was given in its current life: the leader's life, and the generation.
    pub(crate) given: Vec<Vec<(u64, u32)>>,
}

impl GroupScene {
    /// A leader without members.
    pub(crate) fn new(plan: &Plan, network: Network, timing: GroupTiming, record: Record) -> Self {
        let mut world = World::new(plan, network, MESSAGE_SIZE_MAX, record).keeping_messages();
        let mut rng = Rng::at(&[plan.seed, 51]);
        let leader = GroupNode::new(node(LEADER.into()), timing, Nanos(0), Rng::new(rng.number()));
        world.add(address(LEADER), Clock::skewed(Nanos(0)), true, leader);
        let given = [Vec::new()].into();
        Self { world, rng, timing, keys: BTreeMap::new(), given }
    }

    /// Adds a member, whose clock has nothing to do with that of the leader, or of another.
    pub(crate) fn add(&mut self, is_alive: bool) -> u16 {
        let index = self.world.size();
        let clock = Clock::skewed(Nanos::from_millis(3_600_000 * u32::from(index)));
        let (own, now) = (node(index.into()), clock.read(self.world.now()));
        let member = GroupNode::new(own, self.timing, now, Rng::new(self.rng.number()));
        self.given.push(Vec::new());
        self.world.add(address(index), clock, is_alive, member)
    }

    pub(crate) fn leader(&self) -> &Leader {
        self.world.node(LEADER).leader().expect("the first node leads")
    }

    pub(crate) fn member(&self, node: u16) -> &Member {
        self.world.node(node).member().expect("it is a member").0
    }

    pub(crate) fn ring(&self, node: u16) -> &KeyRing {
        self.world.node(node).member().expect("it is a member").1
    }

    /// Key with which a member seals now.
    pub(crate) fn sealing(&self, node: u16) -> Option<KeyId> {
        self.ring(node).sealing(moment(self.world.reading(node))).0.map(|key| key.id)
    }

    /// The newest key: of which life, and which generation.
    pub(crate) fn newest(&self) -> (u64, u32) {
        let KeyId { life, generation, .. } = self.leader().key().id;
        (life, generation)
    }

    /// Goes on for so long, and checks every key that is given.
    pub(crate) fn run(&mut self, time: Nanos) -> Result<(), Violation> {
        let until = self.world.now().plus(time);
        while let Some((node, event)) = self.world.poll(until) {
            self.observe(node, event)?;
        }
        let mut members = BTreeSet::new();
        let twice = self.leader().members().find(|&member| !members.insert(member));
        ensure(&mut self.world.record, "nobody is in twice", twice.is_none(), || format!("{twice:?}"))
    }

    fn observe(&mut self, node: u16, event: GroupEvent) -> Result<(), Violation> {
        let now = self.world.now();
        self.world.record.note(now, Some(node), || match &event {
            GroupEvent::Leader(LeaderEvent::Renewed(key)) => format!("has made key {}", key.id.generation),
            GroupEvent::Leader(LeaderEvent::Joined(member)) => format!("lets {member} in"),
            GroupEvent::Leader(LeaderEvent::Left(member)) => format!("puts {member} out"),
            GroupEvent::Given(key, _) => format!("has key {} now", key.id.generation),
        });
        let clock = self.world.clock(node);
        match event {
            GroupEvent::Leader(LeaderEvent::Renewed(key)) => {
                let made = Made { bytes: *key.key.expose(), from: clock.when(Nanos(key.from_ns)) };
                self.keys.insert((key.id.life, key.id.generation), made);
            }
            GroupEvent::Leader(LeaderEvent::Left(_)) => self.check_renewal()?,
            GroupEvent::Leader(LeaderEvent::Joined(_)) => {}
            GroupEvent::Given(key, has_room) => self.check_key(node, &key, has_room)?,
        }
        Ok(())
    }

    /// When one goes, a new key waits for its time, or is made when the one that waits has come to its own.
    fn check_renewal(&mut self) -> Result<(), Violation> {
        let (from, now) = (self.leader().key().from_ns, self.world.reading(LEADER).0);
        let text = || format!("the newest key seals since {from}, and it is {now}");
        ensure(&mut self.world.record, "the key is renewed when one goes", from > now, text)
    }

    fn check_key(&mut self, node: u16, key: &GroupKey, has_room: bool) -> Result<(), Violation> {
        let id = (key.id.life, key.id.generation);
        let from = self.world.clock(node).when(Nanos(key.from_ns));
        let (made, given) = (self.keys.get(&id).copied(), &mut self.given[usize::from(node)]);
        let record = &mut self.world.record;
        let what = || format!("node {node}, {id:?}: from {from:?}, {made:?}, after {given:?}");
        let is_known = made.is_some_and(|made| made.bytes == *key.key.expose());
        ensure(record, "only keys of the leader are given", is_known, what)?;
        ensure(record, "a ring has room", has_room, what)?;
        ensure(record, "a key is given once", !given.contains(&id), what)?;
        let is_newer = given.last().is_none_or(|last| last.0 != id.0 || last.1 < id.1);
        ensure(record, "an older key never follows a newer", is_newer, what)?;
        // Clocks may drift by a thousandth in between.
        let allowed = Nanos(self.timing.notice_ns / 1_000);
        let is_early = made.is_some_and(|made| from.plus(allowed) < made.from);
        ensure(record, "no key begins before its time", !is_early, what)?;
        given.push(id);
        Ok(())
    }

    /// No key was ever on the wire in clear.
    pub(crate) fn check_wire(&mut self) -> Result<(), Violation> {
        let mut first = [false; 256];
        self.keys.values().for_each(|made| first[usize::from(made.bytes[0])] = true);
        let keys: BTreeSet<[u8; KEY_SIZE]> = self.keys.values().map(|made| made.bytes).collect();
        let is_key = |window: &[u8]| first[usize::from(window[0])] && keys.contains(window);
        let clear = self.world.sent().iter().find(|sent| sent.bytes.windows(KEY_SIZE).any(is_key));
        let text = clear.map(|sent| GroupNode::describe(&sent.bytes));
        ensure(&mut self.world.record, "no key is on the wire in clear", text.is_none(), || {
            format!("{text:?}")
        })
    }
}

pub(crate) fn address(index: u16) -> Address {
    Address { node: node(index.into()), port: Port::from(1) }
}

const MS: u64 = 1_000_000;
const MEMBERS: u16 = 4;
const TIMING: GroupTiming =
    GroupTiming { retry_ns: 10 * MS, lease_ns: 120 * MS, notice_ns: 40 * MS, renewal_ns: 300 * MS };

/// Faults end here.
const CALM: Nanos = Nanos::from_millis(600);
/// Long enough for the lease of one who seems gone, and for his return.
const RUN: Nanos = Nanos::from_millis(1_000);
const _: () = assert!(RUN.0 - CALM.0 > 2 * TIMING.lease_ns + 2 * TIMING.notice_ns);

impl GroupScene {
    fn run_plan(&mut self, plan: &Plan) -> Result<(), Violation> {
        for _ in 0..MEMBERS {
            self.add(true);
        }
        let mut restarts: Vec<(Nanos, u16)> = plan
            .node_faults()
            .filter(|&(_, node, fault)| fault == NodeFault::Restart && node != LEADER)
            .map(|(at, node, _)| (at, node))
            .collect();
        restarts.sort_unstable();
        for (at, node) in restarts.into_iter().filter(|&(at, _)| at < CALM) {
            self.run(at.since(self.world.now()))?;
            // A member that begins anew holds nothing.
            if let Some(given) = self.given.get_mut(usize::from(node)) {
                given.clear();
            }
        }
        self.run(CALM.since(self.world.now()))?;
        self.world.calm();
        self.run(RUN.since(self.world.now()))?;
        // A key that was made just now is still under way.
        for _ in 0..20 {
            let before = self.newest();
            self.run(Nanos(3 * TIMING.retry_ns))?;
            if self.newest() == before && self.leader().key().from_ns + 5 * MS <= self.world.reading(LEADER).0
            {
                break;
            }
        }
        self.check_end()?;
        self.check_wire()
    }

    /// All who run and did not leave hold the newest key; those who are gone do not, and are out.
    fn check_end(&mut self) -> Result<(), Violation> {
        if !self.world.is_alive(LEADER) {
            return Ok(());
        }
        let newest = self.newest();
        let is_in =
            |scene: &Self, node: u16| scene.world.is_alive(node) && scene.member(node).state() != State::Left;
        let mut expected: Vec<NodeId> = Vec::new();
        for index in 1..self.world.size() {
            let (last, belongs) = (self.given[usize::from(index)].last().copied(), is_in(self, index));
            let sealing = self.sealing(index).map(|key| (key.life, key.generation));
            expected.extend(belongs.then(|| node(index.into())));
            let (record, what) = (&mut self.world.record, || format!("node {index}: {last:?} of {newest:?}"));
            ensure(record, "every member holds the newest key", !belongs || last == Some(newest), what)?;
            ensure(record, "every member seals with it", !belongs || sealing == Some(newest), what)?;
            ensure(record, "no former member has a newer key", belongs || last != Some(newest), what)?;
        }
        let mut members: Vec<NodeId> = self.leader().members().collect();
        members.sort_unstable();
        let text = || format!("{members:?}, not {expected:?}");
        ensure(&mut self.world.record, "the members are those that joined", members == expected, text)
    }
}

impl Model for KeyedGroups {
    fn name(&self) -> &'static str {
        "keyed-group"
    }

    fn about(&self) -> &'static str {
        "every member comes to hold the newest key, and a former one gets no later key, with frames lost, altered or played back"
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::at(&[seed, 52]);
        let mut plan = Plan::calm(seed);
        let faulty = (Nanos(0), CALM);
        plan.weather(faulty, Link::ANY, Weather::Lose(rng.below(500) as u32));
        plan.weather(faulty, Link::ANY, Weather::Double(rng.below(200) as u32, Nanos(30 * MS)));
        plan.weather(faulty, Link::ANY, Weather::Delay(rng.below(300) as u32, Nanos(30 * MS)));
        plan.weather(faulty, Link::ANY, Weather::Flip(rng.below(50) as u32));
        let every = Nanos(5 * MS + rng.below(20 * MS));
        plan.faults.push(Fault::Replays { since: Nanos(0), until: RUN, every });
        for _ in 0..rng.below(5) {
            let (at, node) = (Nanos(rng.below(CALM.0)), rng.below(u64::from(MEMBERS) + 1) as u16);
            let later = at.plus(Nanos(rng.below(CALM.0 - at.0)));
            match rng.below(7) {
                0 => plan.weather((at, later), Link { source: Some(node), target: None }, Weather::Cut),
                1 => plan.weather((at, later), Link { source: None, target: Some(node) }, Weather::Cut),
                2 => plan.node(at, node, NodeFault::Restart),
                3 => plan.node(at, node, NodeFault::Pause(Nanos(rng.below(100 * MS)))),
                4 => plan.node(at, node, NodeFault::Drift(rng.between(-100_000, 100_000))),
                5 if node != LEADER => plan.node(at, node, NodeFault::Crash),
                _ => plan.node(at, node, NodeFault::Act(0)),
            }
        }
        plan
    }

    fn run(&self, plan: &Plan, record: Record) -> Report {
        let network = Network { ordered: false, checked: false, ..Network::LAN };
        let mut scene = GroupScene::new(plan, network, TIMING, record);
        let outcome = scene.run_plan(plan);
        Report { record: scene.world.record, outcome }
    }
}
