//! Keyed groups between nodes: joining, speaking, moving on, being put out.

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, unique, watchdog};
use punctual::keyed_group::{
    GroupChange, GroupLeader, GroupMember, GroupTiming, LeaderEvent, Secret, group_of_cell,
};
use punctual::seal::{Key, KeyError, KeyId, RingKey};
use punctual::{Bus, Communicator, Keys, Node, NodeId, Target};

const EXCHANGE: u16 = 9;
const FLEET: &str = "0 1 00112233445566778899aabbccddeeff";

fn timing() -> GroupTiming {
    const MS: u64 = 1_000_000;
    GroupTiming { retry_ns: 5 * MS, lease_ns: 2_000 * MS, notice_ns: 60 * MS, renewal_ns: 60_000 * MS }
}

/// Nobody is out within a test because it was not heard.
fn patient() -> GroupTiming {
    GroupTiming { lease_ns: 600_000_000_000, ..timing() }
}

fn master() -> Secret {
    Secret::new([0x42; 32]).unwrap()
}

struct Vehicle {
    keys: Keys,
    member: GroupMember,
    voice: Communicator,
    changes: Vec<GroupChange>,
}

fn fleet() -> Keys {
    Keys::parse(FLEET).unwrap().overlap(Duration::from_millis(50))
}

impl Vehicle {
    fn new(bus: &Bus, name: &str) -> Self {
        Self::with(bus, name, timing())
    }

    fn with(bus: &Bus, name: &str, timing: GroupTiming) -> Self {
        let keys = fleet();
        let node = Node::open(&bus.clone().sealed(&keys), name).unwrap();
        let secret = master().of_member(node.id());
        let member = GroupMember::new(node.bind(EXCHANGE).unwrap(), &keys, secret, timing).unwrap();
        Self { keys, member, voice: node.bind(1).unwrap(), changes: Vec::new() }
    }

    fn turn(&mut self) {
        self.member.turn(|change| self.changes.push(change)).unwrap();
    }

    /// Messages of others, with the group in which each was sealed.
    fn heard(&mut self) -> Vec<(NodeId, Option<u32>)> {
        std::iter::from_fn(|| self.voice.try_receive().ok().map(|m| (m.source.node, m.sealed_in))).collect()
    }
}

struct Roadside {
    leaders: Vec<GroupLeader>,
    events: Vec<LeaderEvent>,
}

impl Roadside {
    fn new(bus: &Bus, groups: &[(&str, u32)]) -> Self {
        Self::with(bus, groups, timing())
    }

    fn with(bus: &Bus, groups: &[(&str, u32)], timing: GroupTiming) -> Self {
        let open = |(name, group): &(&str, u32)| {
            let keys = fleet();
            let node = Node::open(&bus.clone().sealed(&keys), name).unwrap();
            GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, *group, master(), timing).unwrap()
        };
        Self { leaders: groups.iter().map(open).collect(), events: Vec::new() }
    }

    fn has_left(&self, name: &str) -> bool {
        let left =
            |event: &LeaderEvent| matches!(event, LeaderEvent::Left(node) if *node == NodeId::named(name));
        self.events.iter().any(left)
    }

    fn turn_until(&mut self, vehicles: &mut [Vehicle], done: impl Fn(&Self, &[Vehicle]) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self, vehicles) {
            assert!(Instant::now() < end, "{:?}", self.events);
            for leader in &mut self.leaders {
                leader.turn(|event| self.events.push(event.clone())).unwrap();
            }
            vehicles.iter_mut().for_each(Vehicle::turn);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// The same for one vehicle whose turns may fail, with what came of each.
    fn turn_one_until(
        &mut self,
        vehicle: &mut Vehicle,
        done: impl Fn(&Vehicle, Result<(), KeyError>) -> bool,
    ) {
        let end = Instant::now() + PATIENCE;
        loop {
            for leader in &mut self.leaders {
                leader.turn(|event| self.events.push(event.clone())).unwrap();
            }
            let turned = vehicle.member.turn(|change| vehicle.changes.push(change));
            assert_eq!(vehicle.member.membership().group(), vehicle.member.group());
            if done(vehicle, turned) {
                return;
            }
            assert!(Instant::now() < end, "{:?}, {:?}", vehicle.changes, self.events);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Goal: a message in another version of the exchange is counted at both ends, and nothing else is.
#[test]
fn another_version_of_the_exchange_is_counted() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("versions"));
    let mut roadside = Roadside::with(&bus, &[("leader", 5)], patient());
    let mut vehicles = [Vehicle::with(&bus, "vehicle", patient())];
    vehicles[0].member.join(NodeId::named("leader"), 5).unwrap();
    roadside.turn_until(&mut vehicles, |_, vehicles| vehicles[0].member.group() == Some(5));
    assert_eq!((vehicles[0].member.foreign(), roadside.leaders[0].foreign()), (0, 0));
    let mut message = [1; 100];
    for (version, name) in [(2, "vehicle"), (3, "vehicle"), (3, "leader"), (4, "leader")] {
        message[1] = version;
        vehicles[0].voice.send_timeout(Target::port(name, EXCHANGE), &message, PATIENCE).unwrap();
    }
    roadside.turn_until(&mut vehicles, |roadside, vehicles| {
        (vehicles[0].member.foreign(), roadside.leaders[0].foreign()) == (1, 2)
    });
}

/// Goal: an empty message of a member's or a leader's own address is none of another version. Method: one is behind it.
#[test]
fn an_empty_message_of_the_own_address_is_not_counted() {
    let _alive = watchdog(60);
    let (keys, bus) = (fleet(), Bus::loopback(&unique("nudged")).sealed(&fleet()));
    let open = |name: &str| {
        let node = Node::open(&bus, name).unwrap();
        let mut carrier = node.bind(EXCHANGE).unwrap();
        for message in [&[][..], &[1; 100]] {
            carrier.send_timeout(Target::from(carrier.address()), message, PATIENCE).unwrap();
        }
        carrier
    };
    let mut member = GroupMember::new(open("member"), &keys, master(), timing()).unwrap();
    let mut leader = GroupLeader::new(open("leader"), &keys, 5, master(), timing()).unwrap();
    while member.foreign() == 0 || leader.foreign() == 0 {
        member.turn(|_| {}).unwrap();
        leader.turn(|_| {}).unwrap();
    }
    assert_eq!((member.foreign(), leader.foreign()), (1, 1));
}

/// Goal: a leader that starts again, and knows neither its members nor their key, has them back after a lease.
#[test]
fn members_come_back_to_a_leader_that_starts_again() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("again")), Bus::shared(&unique("again"))] {
        let mut roadside = Roadside::new(&bus, &[("leader", 5)]);
        let mut vehicles: Vec<Vehicle> = ["ann", "ben"].iter().map(|name| Vehicle::new(&bus, name)).collect();
        for vehicle in &mut vehicles {
            vehicle.member.join(NodeId::named("leader"), 5).unwrap();
        }
        let all_in = |roadside: &Roadside, all: &[Vehicle]| {
            roadside.leaders.iter().all(|leader| leader.members().count() == 2)
                && all.iter().all(|vehicle| vehicle.member.group() == Some(5))
        };
        roadside.turn_until(&mut vehicles, all_in);
        // More often than there are seconds.
        for _ in 0..4 {
            let before = vehicles[0].keys.sealing();
            roadside.leaders[0].renew();
            roadside.turn_until(&mut vehicles, |_, all| {
                all.iter().all(|vehicle| vehicle.keys.sealing() != before)
                    && all[0].keys.sealing() == all[1].keys.sealing()
            });
        }
        drop(roadside);
        let before = vehicles[0].keys.sealing();
        let mut roadside = Roadside::new(&bus, &[("leader", 5)]);
        roadside.turn_until(&mut vehicles, all_in);
        roadside.turn_until(&mut vehicles, |roadside, all| {
            let renewed = |event: &LeaderEvent| match event {
                LeaderEvent::Renewed(key) => Some(key.id),
                _ => None,
            };
            let newest = roadside.events.iter().rev().find_map(renewed);
            all.iter().all(|vehicle| vehicle.keys.sealing() == newest && newest != before)
        });
        vehicles[0].voice.send_timeout(Target::everyone_at(1), b"here again", PATIENCE).unwrap();
        let heard = vehicles[1].voice.receive_timeout(PATIENCE).unwrap();
        assert_eq!(heard.sealed_in, Some(5));
    }
}

/// Goal: vehicles of one cell share a group and hear each other in it. A vehicle that moves on speaks in the next cell's group. In the
/// old group nothing that it still seals with the old key is believed any more.
#[test]
fn vehicles_follow_their_cells() {
    let _alive = watchdog(60);
    let (west, east) = (group_of_cell(100.0, 0.0, 500.0), group_of_cell(600.0, 0.0, 500.0));
    for bus in [Bus::loopback(&unique("cells")), Bus::shared(&unique("cells"))] {
        let mut roadside = Roadside::new(&bus, &[("west", west), ("east", east)]);
        let mut vehicles: Vec<Vehicle> =
            ["ann", "ben", "cyd"].iter().map(|name| Vehicle::new(&bus, name)).collect();
        for vehicle in &mut vehicles {
            vehicle.member.join(NodeId::named("west"), west).unwrap();
        }
        roadside.turn_until(&mut vehicles, |_, all| {
            all.iter().all(|vehicle| vehicle.member.group() == Some(west))
        });
        assert!(vehicles.iter().all(|vehicle| vehicle.changes == [GroupChange::Joined(west)]));
        vehicles[0].voice.send_timeout(Target::everyone_at(1), b"in the west", PATIENCE).unwrap();
        assert_eq!(vehicles[1].heard(), [(NodeId::named("ann"), Some(west))]);
        let before = vehicles[1].keys.sealing().unwrap();

        vehicles[0].member.join(NodeId::named("east"), east).unwrap();
        roadside.turn_until(&mut vehicles, |_, all| {
            let renewed =
                all[1..].iter().all(|vehicle| vehicle.keys.sealing().unwrap().generation > before.generation);
            all[0].member.group() == Some(east) && renewed
        });
        assert!(roadside.has_left("ann"));
        // Until the old key is gone everywhere.
        roadside.turn_until(&mut vehicles, |_, all| {
            all.iter().all(|vehicle| !vehicle.keys.ids().contains(&before))
        });
        // Ann is in the east: the west has not its key, and hears nothing; the west still hears each other.
        vehicles[0].voice.send_timeout(Target::everyone_at(1), b"in the east", PATIENCE).unwrap();
        vehicles[1].voice.send_timeout(Target::everyone_at(1), b"still west", PATIENCE).unwrap();
        assert_eq!(vehicles[2].heard().last(), Some(&(NodeId::named("ben"), Some(west))));
        assert!(
            vehicles[0].heard().iter().all(|(_, group)| *group != Some(west)),
            "ann has not the west's new key"
        );
    }
}

/// Goal: a node that leads a group and joins another goes on to lead: newcomers have no key of that other group.
#[test]
fn a_leader_of_one_group_may_join_another() {
    const AT_CROSSINGS: u16 = EXCHANGE + 1;
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("both")), Bus::shared(&unique("both"))] {
        let open = |name| {
            let keys = fleet();
            (Node::open(&bus.clone().sealed(&keys), name).unwrap(), keys)
        };
        let lead = |(node, keys): &(Node, Keys), port, group| {
            GroupLeader::new(node.bind(port).unwrap(), keys, group, master(), timing()).unwrap()
        };
        let (crossing, head) = (open("crossing"), open("head"));
        let leaders = vec![lead(&crossing, AT_CROSSINGS, 6), lead(&head, EXCHANGE, 5)];
        let mut roadside = Roadside { leaders, events: Vec::new() };
        let secret = master().of_member(head.0.id());
        let carrier = head.0.bind(AT_CROSSINGS).unwrap();
        let member = GroupMember::new(carrier, &head.1, secret, timing()).unwrap();
        let voice = head.0.bind(1).unwrap();
        let mut vehicles = vec![Vehicle { keys: head.1, member, voice, changes: Vec::new() }];
        vehicles[0].member.join(NodeId::named("crossing"), 6).unwrap();
        roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(6));
        vehicles.push(Vehicle::new(&bus, "ann"));
        vehicles[1].member.join(NodeId::named("head"), 5).unwrap();
        roadside.turn_until(&mut vehicles, |_, all| all[1].member.group() == Some(5));
        assert_eq!(vehicles[0].member.group(), Some(6));
    }
}

/// Goal: a member that is put out hears nothing more of the group, and is not heard in it.
#[test]
fn a_member_that_is_put_out_is_not_heard() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("out"));
    let mut roadside = Roadside::new(&bus, &[("leader", 3)]);
    let mut vehicles: Vec<Vehicle> =
        ["ann", "ben", "eve"].iter().map(|name| Vehicle::new(&bus, name)).collect();
    for vehicle in &mut vehicles {
        vehicle.member.join(NodeId::named("leader"), 3).unwrap();
    }
    roadside.turn_until(&mut vehicles, |_, all| all.iter().all(|vehicle| vehicle.member.group() == Some(3)));
    let before = vehicles[0].keys.sealing().unwrap();
    roadside.leaders[0].bar(NodeId::named("eve"));
    roadside.turn_until(&mut vehicles, |_, all| {
        all[..2].iter().all(|vehicle| vehicle.keys.sealing().unwrap().generation > before.generation)
    });
    roadside.turn_until(&mut vehicles, |_, all| {
        all[..2].iter().all(|vehicle| !vehicle.keys.ids().contains(&before))
    });
    vehicles.iter_mut().for_each(|vehicle| drop(vehicle.heard()));
    vehicles[2].voice.send_timeout(Target::everyone_at(1), b"it is me", PATIENCE).unwrap();
    vehicles[1].voice.send_timeout(Target::everyone_at(1), b"and me", PATIENCE).unwrap();
    let heard = vehicles[0].heard();
    let in_group: Vec<_> = heard.iter().filter(|(_, group)| *group == Some(3)).collect();
    assert_eq!(in_group, [&(NodeId::named("ben"), Some(3))], "{heard:?}");
    assert_eq!(roadside.leaders[0].members().count(), 2);
}

/// Goal: a member that is put out stays out of a leader that starts again with the list. Method: another one that comes later is in.
#[test]
fn a_member_that_is_put_out_stays_out_of_the_next_life() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("out-again"));
    let mut roadside = Roadside::new(&bus, &[("leader", 3)]);
    let mut vehicles = vec![Vehicle::new(&bus, "eve")];
    vehicles[0].member.join(NodeId::named("leader"), 3).unwrap();
    roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(3));
    roadside.leaders[0].bar(NodeId::named("eve"));
    let barred = roadside.leaders[0].barred().to_vec();
    assert_eq!(barred, [NodeId::named("eve")]);
    drop(roadside);
    let mut roadside = Roadside::new(&bus, &[("leader", 3)]);
    roadside.leaders = roadside.leaders.into_iter().map(|leader| leader.barring(barred.clone())).collect();
    vehicles[0].member.join(NodeId::named("leader"), 3).unwrap();
    for name in ["ann", "ben"] {
        vehicles.push(Vehicle::new(&bus, name));
        vehicles.last_mut().unwrap().member.join(NodeId::named("leader"), 3).unwrap();
        roadside.turn_until(&mut vehicles, |_, all| all.last().unwrap().member.group() == Some(3));
    }
    assert_eq!((vehicles[0].member.group(), roadside.leaders[0].members().count()), (None, 2));
    assert_eq!(roadside.leaders[0].barred(), [NodeId::named("eve")]);
}

/// Goal: a leader's keys never take the place of the fleet's, without which nobody could join: that group's number is refused.
#[test]
fn the_group_of_the_fleets_key_has_no_leader() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("fleet"));
    let open = |name| {
        let keys = Keys::parse("1 1 00112233445566778899aabbccddeeff").unwrap();
        (Node::open(&bus.clone().sealed(&keys), name).unwrap(), keys)
    };
    let (leading, fleet) = open("leader");
    let lead = |port, group| GroupLeader::new(leading.bind(port).unwrap(), &fleet, group, master(), timing());
    assert_eq!(lead(8, 1).err(), Some(KeyError::Fleet(1)));
    let mut roadside = Roadside { leaders: vec![lead(EXCHANGE, 5).unwrap()], events: Vec::new() };
    let (node, keys) = open("ann");
    let secret = master().of_member(node.id());
    let member = GroupMember::new(node.bind(EXCHANGE).unwrap(), &keys, secret, timing()).unwrap();
    let mut vehicles = [Vehicle { keys, member, voice: node.bind(1).unwrap(), changes: Vec::new() }];
    let leader = NodeId::named("leader");
    vehicles[0].member.join(leader, 5).unwrap();
    roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(5));
    assert_eq!(vehicles[0].member.join(leader, 1), Err(KeyError::Fleet(1)));
    assert_eq!(vehicles[0].member.group(), Some(5), "it stays where it is");
    vehicles[0].member.leave();
    assert_eq!(vehicles[0].keys.sealing().map(|id| id.group), Some(1));
    vehicles[0].member.join(leader, 5).unwrap();
    roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(5));
}

/// Goal: a leader that is dropped leaves nothing in its node's ring: a node leads any number of groups one after the other. A key of the
/// file's is no leader's to take.
#[test]
fn a_dropped_leader_leaves_no_key() {
    let _alive = watchdog(60);
    let keys = Keys::parse(&format!("{FLEET}\n7 1 00112233445566778899aabbccddeef0")).unwrap();
    let node = Node::open(&Bus::loopback(&unique("cells")).sealed(&keys), "leader").unwrap();
    let before = keys.ids();
    for group in 100..300 {
        let mut leader =
            GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, group, master(), timing()).unwrap();
        leader.turn(|_| {}).unwrap();
        assert!(keys.ids().iter().any(|id| id.group == group));
    }
    assert_eq!(keys.ids(), before);
    // One that takes the place of another keeps its key.
    let lead = || GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, 5, master(), timing()).unwrap();
    let mut former = lead();
    former.turn(|_| {}).unwrap();
    let of_former = keys.ids();
    let mut next = GroupLeader::new(node.bind(8).unwrap(), &keys, 5, master(), timing()).unwrap();
    next.turn(|_| {}).unwrap();
    let is_of_next = |id: &KeyId| id.group == 5 && !of_former.contains(id);
    assert!(keys.ids().iter().any(is_of_next));
    drop(former);
    assert!(
        keys.ids().iter().any(is_of_next)
            && !keys.ids().iter().any(|id| id.group == 5 && of_former.contains(id))
    );
    assert!(keys.seal_in(5));
    drop(next);
    assert_eq!((keys.ids(), keys.sealing().map(|id| id.group)), (before.clone(), Some(0)));
    let of_file = GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, 7, master(), timing());
    assert_eq!(of_file.err(), Some(KeyError::Fleet(7)));
    let secret = master().of_member(node.id());
    let mut member = GroupMember::new(node.bind(8).unwrap(), &keys, secret, timing()).unwrap();
    assert_eq!(member.join(NodeId::named("leader"), 7), Err(KeyError::Fleet(7)));
    drop(member);
    assert_eq!(keys.ids(), before);
}

/// Goal: a leader learns that a member goes, also if that one asks others for their groups at once.
#[test]
fn a_member_that_goes_on_in_haste_has_said_goodbye() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("haste"));
    let mut roadside = Roadside::with(&bus, &[("a", 5), ("b", 6), ("c", 7)], patient());
    let mut vehicles = [Vehicle::with(&bus, "ann", patient())];
    vehicles[0].member.join(NodeId::named("a"), 5).unwrap();
    roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(5));
    vehicles[0].member.join(NodeId::named("b"), 6).unwrap();
    vehicles[0].member.join(NodeId::named("c"), 7).unwrap();
    roadside.turn_until(&mut vehicles, |roadside, all| {
        all[0].member.group() == Some(7) && roadside.has_left("ann")
    });
}

/// Goal: a member that leaves while it asks again has said goodbye to the leader that still has it. Method: the leader does nothing for
/// longer than the member's lease, and its own lease does not end within the test.
#[test]
fn a_member_that_asks_again_has_said_goodbye() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("asks-again"));
    let mut roadside = Roadside::with(&bus, &[("leader", 5)], patient());
    let short = GroupTiming { lease_ns: 300_000_000, ..timing() };
    let mut vehicles = [Vehicle::with(&bus, "ann", short)];
    vehicles[0].member.join(NodeId::named("leader"), 5).unwrap();
    roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(5));
    while vehicles[0].member.group().is_some() {
        vehicles[0].turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!roadside.has_left("ann"));
    vehicles[0].member.leave();
    roadside.turn_until(&mut vehicles, |roadside, _| roadside.has_left("ann"));
}

/// Goal: a member that is dropped has left. Its node seals as before, those who follow it know, and its leader does not wait for the
/// lease.
#[test]
fn a_dropped_member_has_left() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("dropped")), Bus::shared(&unique("dropped"))] {
        let mut roadside = Roadside::with(&bus, &[("leader", 5)], patient());
        let mut vehicles = vec![Vehicle::with(&bus, "ann", patient())];
        vehicles[0].member.join(NodeId::named("leader"), 5).unwrap();
        roadside.turn_until(&mut vehicles, |_, all| all[0].member.group() == Some(5));
        let Vehicle { keys, member, voice: _voice, .. } = vehicles.remove(0);
        let membership = member.membership();
        assert_eq!(membership.group(), Some(5));
        drop(member);
        assert_eq!((membership.group(), keys.sealing().map(|id| id.group)), (None, Some(0)));
        roadside.turn_until(&mut [], |roadside, _| roadside.has_left("ann"));
    }
}

/// Another group's key.
fn other(group: u32) -> RingKey {
    RingKey { id: KeyId { group, life: 0, generation: 1 }, key: Key::new([7; 16]).unwrap(), from_ns: 0 }
}

/// Goal: a leader has its group's key as soon as there is room for it, and hears its members then.
#[test]
fn a_leader_without_room_for_the_key_has_it_later() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("leader-room"));
    let keys = fleet();
    let node = Node::open(&bus.sealed(&keys), "leader").unwrap();
    let mut leader = GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, 5, master(), timing()).unwrap();
    assert!((100..).any(|group| keys.insert(other(group)) == Err(KeyError::TooMany)));
    let mut renewed = 0;
    for _ in 0..3 {
        let turned = leader.turn(|event| renewed += u32::from(matches!(event, LeaderEvent::Renewed(_))));
        assert_eq!((turned, renewed), (Err(KeyError::TooMany), 1), "tried again, and told once");
    }
    keys.remove_group(100);
    assert_eq!(leader.turn(|event| panic!("{event:?}")), Ok(()));
    assert!(keys.ids().iter().any(|id| id.group == 5), "{keys:?}");
}

/// Goal: a leader has its group's key also where what it tells of that panics.
#[test]
fn a_panic_costs_a_leader_no_key() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("leader-panic"));
    let keys = fleet();
    let node = Node::open(&bus.sealed(&keys), "leader").unwrap();
    let mut leader = GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, 5, master(), timing()).unwrap();
    let turn = std::panic::AssertUnwindSafe(|| leader.turn(|_| std::panic::resume_unwind(Box::new(()))));
    assert!(std::panic::catch_unwind(turn).is_err());
    assert_eq!(leader.turn(|event| panic!("{event:?}")), Ok(()));
    assert!(keys.ids().iter().any(|id| id.group == 5), "{keys:?}");
}

/// Goal: a member that has no room for the group's key is not in, and says so. When there is room it is in, also where the key changes
/// then.
#[test]
fn a_member_without_room_for_the_key_is_not_in() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("room"));
    let mut roadside = Roadside::with(&bus, &[("leader", 5)], patient());
    let mut vehicle = Vehicle::with(&bus, "ann", patient());
    assert!((100..).any(|group| vehicle.keys.insert(other(group)) == Err(KeyError::TooMany)));
    vehicle.member.join(NodeId::named("leader"), 5).unwrap();
    // More than once.
    for _ in 0..2 {
        roadside.turn_one_until(&mut vehicle, |_, turned| turned == Err(KeyError::TooMany));
        assert_eq!((vehicle.member.group(), vehicle.changes.len()), (None, 0));
        assert_eq!(vehicle.keys.sealing().map(|id| id.group), Some(0));
    }
    vehicle.keys.remove_group(100);
    roadside.turn_one_until(&mut vehicle, |vehicle, _| vehicle.member.group() == Some(5));
    assert_eq!(vehicle.changes, [GroupChange::Joined(5)]);
    // The ring has no room for a second key of the group: the vehicle is back in when the first one is over.
    let next = vehicle.keys.sealing().unwrap().generation + 1;
    roadside.leaders[0].renew();
    roadside.turn_one_until(&mut vehicle, |_, turned| turned == Err(KeyError::TooMany));
    assert_eq!(vehicle.keys.sealing().map(|id| id.group), Some(0));
    roadside.turn_one_until(&mut vehicle, |vehicle, _| {
        vehicle.keys.sealing().is_some_and(|id| (id.group, id.generation) == (5, next))
    });
    assert_eq!(vehicle.member.group(), Some(5));
    assert!(!roadside.has_left("ann"), "nobody else needs another key for it");
}

/// Goal: a member whose ring had no room, and that asks again, says goodbye when it leaves: for its leader it is in.
#[test]
fn a_member_without_room_that_leaves_has_said_goodbye() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("room-leaves"));
    let mut roadside = Roadside::with(&bus, &[("leader", 5)], patient());
    let mut vehicle = Vehicle::with(&bus, "ann", patient());
    assert!((100..).any(|group| vehicle.keys.insert(other(group)) == Err(KeyError::TooMany)));
    vehicle.member.join(NodeId::named("leader"), 5).unwrap();
    roadside.turn_one_until(&mut vehicle, |_, turned| turned == Err(KeyError::TooMany));
    vehicle.member.leave();
    roadside.turn_until(std::slice::from_mut(&mut vehicle), |roadside, _| roadside.has_left("ann"));
}
