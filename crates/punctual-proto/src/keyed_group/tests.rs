//! A leader and its members over a network that loses, doubles, moves, and plays back everything that was ever said.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;

use crate::limits::SEAL_OVERLAP_NS;
use crate::seal::{KeyRing, Moment};

const MS: u64 = 1_000_000;
const GROUP: u32 = 5;

/// Xorshift64* (Vigna 2016).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}

impl Entropy for Dice {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.next() as u8);
    }
}

fn timing() -> GroupTiming {
    GroupTiming { retry_ns: 20 * MS, lease_ns: 900 * MS, notice_ns: 200 * MS, renewal_ns: 5_000 * MS }
}

fn node(index: u64) -> NodeId {
    NodeId::new(100 + index).unwrap()
}

/// The clock of a member has nothing to do with that of the leader, or of another.
fn clock_of(index: usize, now_ns: u64) -> u64 {
    now_ns + (index as u64 + 1) * 3_600_000 * MS
}

struct World {
    dice: Dice,
    now_ns: u64,
    leader: Leader,
    master: Secret,
    timing: GroupTiming,
    members: Vec<Member>,
    rings: Vec<KeyRing>,
    /// What each member was ever given.
    given: Vec<BTreeSet<u32>>,
    /// Messages under way: when they arrive, in which order among equals, and the bytes.
    wire: BTreeMap<(u64, u64), Vec<u8>>,
    tape: Vec<Vec<u8>>,
    /// All keys of this life of the leader, and from when on they seal.
    keys: BTreeMap<u32, ([u8; KEY_SIZE], u64)>,
    loss_percent: u64,
    /// The network delivers soon, in order, and once.
    calm: bool,
}

impl World {
    fn new(seed: u64, loss_percent: u64) -> Self {
        Self::with(seed, loss_percent, timing())
    }

    fn with(seed: u64, loss_percent: u64, timing: GroupTiming) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let master = Secret::new([9; SECRET_SIZE]).unwrap();
        let leader = Leader::new(node(0), GROUP, master.clone(), timing, 0, &mut dice);
        Self {
            dice,
            now_ns: 0,
            leader,
            master,
            timing,
            members: Vec::new(),
            rings: Vec::new(),
            given: Vec::new(),
            wire: BTreeMap::new(),
            tape: Vec::new(),
            keys: BTreeMap::new(),
            loss_percent,
            calm: false,
        }
    }

    fn join(&mut self) {
        let index = self.members.len();
        let own = node(index as u64 + 1);
        let (secret, now_ns) = (self.master.of_member(own), clock_of(index, self.now_ns));
        self.members.push(Member::new((own, node(0)), GROUP, secret, self.timing, now_ns, &mut self.dice));
        self.rings.push(KeyRing::new(SEAL_OVERLAP_NS));
        self.given.push(BTreeSet::new());
    }

    fn leave(&mut self, index: usize) {
        self.members[index].leave(clock_of(index, self.now_ns), &mut self.dice);
    }

    /// The leader starts again. It knows nothing, and nothing is under way.
    fn restart(&mut self) {
        let master = self.master.clone();
        self.leader = Leader::new(node(0), GROUP, master, self.timing, self.now_ns, &mut self.dice);
        (self.wire, self.keys) = (BTreeMap::new(), BTreeMap::new());
        self.given.iter_mut().for_each(BTreeSet::clear);
    }

    /// What a member seals with now.
    fn sealing(&self, index: usize) -> Option<KeyId> {
        let monotonic_ns = clock_of(index, self.now_ns);
        self.rings[index].sealing(Moment { wall_ns: 0, monotonic_ns }).0.map(|key| key.id)
    }

    fn post(&mut self, message: &[u8]) {
        self.tape.push(message.to_vec());
        if self.calm {
            self.wire.insert((self.now_ns + MS, self.tape.len() as u64), message.to_vec());
            return;
        }
        let copies = if self.dice.below(10) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if self.dice.below(100) >= self.loss_percent {
                let at = self.now_ns + self.dice.below(30 * MS);
                self.wire.insert((at, self.dice.next()), message.to_vec());
            }
        }
    }

    fn deliver(&mut self, message: &[u8]) {
        let target = target_of(message);
        if target == Some(node(0)) {
            self.leader.handle_message(message, self.now_ns, &mut self.dice);
        }
        for (index, member) in self.members.iter_mut().enumerate() {
            let (monotonic_ns, given) = (clock_of(index, self.now_ns), &mut self.given[index]);
            let Some(key) = member.handle_message(message, monotonic_ns, &mut self.dice) else { continue };
            let made = self.keys.get(&key.id.generation);
            assert_eq!(Some(key.key.expose()), made.map(|(bytes, _)| bytes), "a key nobody made");
            assert!(given.insert(key.id.generation), "given twice");
            assert_eq!(given.last(), Some(&key.id.generation), "an older key came after a newer");
            let early = made.is_some_and(|(_, from_ns)| key.from_ns < clock_of(index, *from_ns));
            assert!(!early, "{key:?}: before its time, {made:?}");
            self.rings[index].insert_of_group(key, Moment { wall_ns: 0, monotonic_ns }).unwrap();
        }
    }

    fn collect(&mut self) {
        let members: Vec<NodeId> = self.leader.members().collect();
        assert_eq!(
            members.iter().collect::<BTreeSet<_>>().len(),
            members.len(),
            "one is in twice: {members:?}"
        );
        while let Some(event) = self.leader.poll_event() {
            if let LeaderEvent::Renewed(key) = event {
                self.keys.insert(key.id.generation, (*key.key.expose(), key.from_ns));
            }
        }
        while let Some((_, message)) = self.leader.poll_transmit() {
            self.post(&message);
        }
        for index in 0..self.members.len() {
            while let Some(message) = self.members[index].poll_transmit() {
                self.post(&message);
            }
        }
    }

    fn step(&mut self, replay: bool) {
        self.now_ns += 5 * MS;
        self.leader.handle_timeout(self.now_ns, &mut self.dice);
        for (index, (member, ring)) in self.members.iter_mut().zip(&mut self.rings).enumerate() {
            let monotonic_ns = clock_of(index, self.now_ns);
            member.handle_timeout(monotonic_ns, &mut self.dice);
            ring.handle_timeout(Moment { wall_ns: 0, monotonic_ns });
        }
        self.collect();
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let message = entry.remove();
            self.deliver(&message);
            self.collect();
        }
        if replay && !self.tape.is_empty() {
            let mut message = self.tape[self.dice.below(self.tape.len() as u64) as usize].clone();
            if self.dice.below(2) == 0 {
                let at = self.dice.below(message.len() as u64) as usize;
                message[at] ^= 1_u8 << self.dice.below(8);
            }
            self.deliver(&message);
            self.collect();
        }
    }

    fn run(&mut self, ms: u64, replay: bool) {
        for _ in 0..ms / 5 {
            self.step(replay);
        }
    }
}

/// Goal: whatever the network does, those who are in come to hold the newest key; those who left never get a later one; an
/// older key never replaces a newer; and no key is ever on the wire in clear.
#[test]
fn members_hold_the_newest_key_and_others_do_not() {
    for seed in 0..40 {
        let mut world = World::new(seed, 10 + seed % 4 * 15);
        let mut left: Vec<(usize, u32)> = Vec::new();
        for _ in 0..6 {
            world.join();
            world.run(300, true);
        }
        for leaving in [1, 4] {
            world.leave(leaving);
            world.run(1_500, true);
            left.push((leaving, world.leader.key().id.generation));
            world.run(500, true);
        }
        world.leader.renew(world.now_ns, &mut world.dice);
        world.collect();
        // Long enough for the lease of one who seems gone because everything was lost, and for his return.
        for loss_percent in [5, 0] {
            world.loss_percent = loss_percent;
            world.run(3_000, true);
        }
        let newest = world.leader.key().id.generation;
        for (index, given) in world.given.iter().enumerate() {
            match left.iter().find(|(leaving, _)| *leaving == index) {
                Some((_, at)) => {
                    assert!(given.last().is_none_or(|last| last < at), "seed {seed}: {index} had left");
                }
                None => assert_eq!(given.last(), Some(&newest), "seed {seed}: member {index}"),
            }
        }
        let members: BTreeSet<NodeId> = world.leader.members().collect();
        assert_eq!(members, [1, 3, 4, 6].map(node).into(), "seed {seed}");
        for message in &world.tape {
            for (key, _) in world.keys.values() {
                assert!(
                    !message.windows(KEY_SIZE).any(|window| window == key),
                    "seed {seed}: a key in clear"
                );
            }
        }
    }
}

/// Goal: a quiet group is quiet, however often its key was renewed: each member says three times in a lease that it is there.
#[test]
fn nobody_answers_an_answer() {
    let mut world = World { calm: true, ..World::new(5, 0) };
    (0..4).for_each(|_| world.join());
    world.run(500, false);
    for _ in 0..3 {
        world.leader.renew(world.now_ns, &mut world.dice);
        world.run(300, false);
    }
    let before = world.tape.len();
    world.run(3_000, false);
    // 4 members, 10 times 300 ms, there and back.
    let messages = world.tape.len() - before;
    assert!((72..=88).contains(&messages), "{messages} messages");
}

/// Goal: somebody who only has recordings, or another node's secret, gets no key and puts nobody out.
#[test]
fn recordings_and_wrong_secrets_get_nothing() {
    let mut world = World::new(77, 0);
    world.join();
    world.run(500, false);
    assert_eq!(world.members[0].state(), State::Joined);
    let generation = world.leader.key().id.generation;
    world.leave(0);
    world.run(500, false);
    assert_eq!(world.leader.members().count(), 0);
    let tape = world.tape.clone();
    for message in &tape {
        world.deliver(message);
    }
    world.collect();
    assert_eq!(world.leader.members().count(), 0, "a played back confirmation is of another session");
    let own = node(2);
    let wrong = world.master.of_member(node(3));
    let mut liar = Member::new((own, node(0)), GROUP, wrong, timing(), world.now_ns, &mut world.dice);
    let ask = liar.poll_transmit().unwrap();
    world.leader.handle_message(&ask, world.now_ns, &mut world.dice);
    assert!(world.leader.poll_transmit().is_none(), "not even an offer");
    assert!(world.leader.key().id.generation > generation, "who left does not have the new key");
}

/// Goal: who joins while the newest key waits for its time gets the one that seals now first, and each that seals in between:
/// otherwise it could neither speak nor hear until then.
#[test]
fn who_joins_during_the_notice_gets_the_key_that_seals_now() {
    for leaving in 1..4 {
        let mut world = World::new(leaving as u64, 0);
        (0..4).for_each(|_| world.join());
        world.run(500, false);
        let sealing = world.leader.key().id.generation;
        for index in 0..leaving {
            world.leave(index);
            world.run(20, false);
        }
        assert_eq!(world.leader.key().id.generation, sealing + 1, "who goes meanwhile shares the next");
        world.join();
        world.run(400, false);
        let newest = world.leader.key().id.generation;
        assert_eq!(newest, sealing + leaving.min(2) as u32);
        let given: BTreeSet<u32> = (sealing..=newest).collect();
        assert_eq!(*world.given.last().unwrap(), given, "after {leaving} left");
        world.run(500, false);
        world.join();
        world.run(150, false);
        assert_eq!(*world.given.last().unwrap(), [newest].into(), "what is over is not given");
    }
}

/// Goal: a leader that starts again has its members back after a lease, and they seal with its key, however often the key was
/// renewed in its earlier life and whatever any clock says.
#[test]
fn members_come_back_to_a_leader_that_starts_again() {
    for (seed, renewals) in [(1, 0), (2, 1), (3, 40)] {
        let mut world = World::new(seed, 20);
        (0..3).for_each(|_| world.join());
        world.run(1_000, false);
        for _ in 0..renewals {
            world.leader.renew(world.now_ns, &mut world.dice);
            world.run(250, false);
        }
        for life in 0..2 {
            world.restart();
            world.run(3_000, false);
            assert_eq!(world.leader.members().count(), 3, "{renewals} renewals, life {life}");
            let newest = world.leader.key().id;
            for index in 0..3 {
                assert_eq!(world.sealing(index), Some(newest), "{renewals} renewals, life {life}");
            }
        }
    }
}

/// Goal: what anybody plays back takes no session away, neither one that is pending nor one that holds. Method: a member asks and
/// leaves some times; then each of its questions is played back between any two messages of a session.
#[test]
fn a_question_played_back_takes_no_session_away() {
    let mut world = World { calm: true, ..World::new(6, 0) };
    world.join();
    let asked = |tape: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let is_ask = |message: &&Vec<u8>| Clear::read(message).is_some_and(|clear| clear.kind == Kind::Ask);
        tape.iter().filter(is_ask).cloned().collect()
    };
    for round in 0..5 {
        world.run(300, false);
        assert_eq!(world.leader.members().count(), 1, "round {round}");
        world.leave(0);
        world.run(300, false);
        assert_eq!(world.leader.members().count(), 0, "round {round}");
        let (own, secret) = (node(1), world.master.of_member(node(1)));
        let now_ns = clock_of(0, world.now_ns);
        world.members[0] = Member::new((own, node(0)), GROUP, secret, timing(), now_ns, &mut world.dice);
        world.given[0].clear();
        world.rings[0] = KeyRing::new(SEAL_OVERLAP_NS);
    }
    let questions = asked(&world.tape);
    assert!(questions.len() >= 5);
    // Three trips of a message make it a member; each takes a step.
    for step in 0..6 {
        world.step(false);
        for question in &questions {
            world.deliver(question);
        }
        world.collect();
        assert!(world.leader.asking.len() <= 1, "step {step}");
    }
    assert_eq!((world.members[0].state(), world.leader.members().count()), (State::Joined, 1));
    // And it stays one, in the same session: nothing is confirmed again.
    let session = world.leader.members[0].session;
    for _ in 0..400 {
        world.step(false);
        for question in &questions {
            world.deliver(question);
        }
        world.collect();
    }
    assert_eq!(world.leader.members[0].session, session);
    assert_eq!((world.members[0].state(), world.leader.members().count()), (State::Joined, 1));
}

/// Goal: who plays back what many nodes once asked fills no table, and does not keep out who asks now.
#[test]
fn many_questions_played_back_keep_nobody_out() {
    let mut world = World::new(8, 0);
    for index in 0..3_000 {
        let own = node(10 + index);
        let secret = world.master.of_member(own);
        let mut ghost = Member::new((own, node(0)), GROUP, secret, timing(), 0, &mut world.dice);
        let ask = ghost.poll_transmit().unwrap();
        world.leader.handle_message(&ask, world.now_ns, &mut world.dice);
    }
    assert_eq!(world.leader.asking.len(), leader::ASKING_MAX);
    while world.leader.poll_transmit().is_some() {}
    world.join();
    world.run(300, false);
    assert_eq!((world.members[0].state(), world.leader.members().count()), (State::Joined, 1));
    world.run(1_000, false);
    assert_eq!(world.leader.asking.len(), 0, "forgotten after a lease");
}

/// Goal: sixty departures within 11 s fill no ring, take no key away before its time, and leave all who stay in step.
#[test]
fn sixty_departures_fill_no_ring() {
    let mut world = World { calm: true, ..World::with(7, 0, GroupTiming::default()) };
    (0..62).for_each(|_| world.join());
    world.run(500, false);
    assert_eq!(world.leader.members().count(), 62);
    let mut most = 0;
    for leaving in 2..62 {
        world.leave(leaving);
        world.run(180, false);
        most = world.rings[..2].iter().map(|ring| ring.accepted().count()).max().unwrap().max(most);
    }
    world.run(2_500, false);
    assert!(most <= 14, "{most} keys");
    let newest = world.leader.key().id;
    for index in 0..2 {
        assert_eq!((world.sealing(index), world.rings[index].cut_short()), (Some(newest), 0));
    }
    for leaving in 2..62 {
        assert!(world.given[leaving].last() < Some(&newest.generation), "{leaving} has left");
    }
    world.run(10_500, false);
    assert_eq!(world.rings[0].accepted().count(), 1, "the others are over");
}

/// Goal: a key begins to seal everywhere when the leader says, but for a message's trip, whatever the clocks say.
#[test]
fn a_key_begins_at_one_time_on_all_clocks() {
    let mut world = World { calm: true, ..World::new(2, 0) };
    (0..4).for_each(|_| world.join());
    world.run(500, false);
    world.leader.renew(world.now_ns, &mut world.dice);
    let newest = world.leader.key().id;
    let begins_ns = world.now_ns + timing().notice_ns;
    while world.now_ns < begins_ns + 20 * MS {
        world.step(false);
        let sealing: Vec<bool> = (0..4).map(|index| world.sealing(index) == Some(newest)).collect();
        let expected = world.now_ns >= begins_ns;
        // A step there, and the millisecond of the network.
        let is_near = world.now_ns.abs_diff(begins_ns) <= 10 * MS;
        assert!(is_near || sealing.iter().all(|seals| *seals == expected), "{sealing:?} at {}", world.now_ns);
    }
}

#[test]
fn who_is_barred_stays_out() {
    let mut world = World::new(3, 0);
    (0..3).for_each(|_| world.join());
    world.run(500, false);
    let before = world.leader.key().id.generation;
    world.leader.bar(node(2), world.now_ns, &mut world.dice);
    world.run(3_000, false);
    assert_eq!(world.leader.members().collect::<BTreeSet<_>>(), [1, 3].map(node).into());
    assert!(world.given[1].iter().all(|generation| *generation <= before));
    assert!(world.given[0].contains(&world.leader.key().id.generation));
}

/// Goal: a member that has just asked again is put out all the same.
#[test]
fn who_is_barred_while_he_asks_again_is_out() {
    for (seed, leaving) in (0..8).flat_map(|seed| [(seed, 0), (seed, 2)]) {
        let mut world = World::new(seed, 0);
        (0..3).for_each(|_| world.join());
        world.run(500, false);
        let asked = |message: &&Vec<u8>| {
            Clear::read(message).is_some_and(|clear| clear.kind == Kind::Ask && clear.source == node(2))
        };
        let ask = world.tape.iter().find(asked).unwrap().clone();
        world.deliver(&ask);
        // Who goes leaves a place before the member's, or after it, to the question.
        world.leave(leaving);
        world.run(50, false);
        let before = world.leader.key().id.generation;
        world.leader.bar(node(2), world.now_ns, &mut world.dice);
        world.run(3_000, false);
        assert!(world.leader.key().id.generation > before, "{seed}, {leaving}: the key is renewed");
        assert_eq!(world.leader.members().collect::<Vec<_>>(), [node(3 - leaving as u64)]);
        assert_eq!(world.given[1].last(), Some(&before));
    }
}

#[test]
fn who_falls_silent_is_out_and_comes_back() {
    let mut world = World::new(4, 0);
    (0..2).for_each(|_| world.join());
    world.run(500, false);
    world.loss_percent = 100;
    world.run(1_500, false);
    assert_eq!(world.leader.members().count(), 0);
    world.loss_percent = 0;
    world.run(2_000, false);
    assert_eq!(world.leader.members().count(), 2);
    let newest = world.leader.key().id.generation;
    assert!(world.given.iter().all(|given| given.last() == Some(&newest)));
}

#[test]
fn any_bytes_are_passed_over() {
    let mut world = World::new(5, 0);
    world.join();
    world.run(200, false);
    for size in 0..200 {
        let mut bytes = alloc::vec![0; size];
        world.dice.fill(&mut bytes);
        if size > 2 {
            (bytes[0], bytes[1]) = (world.dice.below(8) as u8, VERSION);
        }
        world.deliver(&bytes);
    }
    assert_eq!(world.members[0].state(), State::Joined);
}

#[test]
fn a_place_has_a_group_and_secrets_are_not_printed() {
    assert_eq!(group_of_cell(10.0, 20.0, 500.0), group_of_cell(499.0, 0.0, 500.0));
    assert_ne!(group_of_cell(10.0, 20.0, 500.0), group_of_cell(501.0, 20.0, 500.0));
    assert_ne!(group_of_cell(-1.0, 20.0, 500.0), group_of_cell(1.0, 20.0, 500.0));
    assert_ne!(group_of_cell(1.0, 1.0, 500.0), 0);
    let master = Secret::new([0x5A; SECRET_SIZE]).unwrap();
    assert_ne!(master.of_member(node(1)).expose(), master.of_member(node(2)).expose());
    assert!(!format!("{master:?}").contains("90"));
    assert!(Secret::new([0; SECRET_SIZE]).is_none());
}
