//! Interests follow a vehicle from group to group, between processes.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{PATIENCE, Role, free_ports, own_role, unique, watchdog};
use punctual::interest::{Participant, ParticipantOptions, Publisher, Repetition, Subscriber, Topic};
use punctual::keyed_group::{GroupChange, GroupLeader, GroupMember, GroupTiming, Secret};
use punctual::unit::{MetrePerSecond, Quantity};
use punctual::{Bus, Keys, Node, NodeId};
use punctual_machine::counter::Counter;
use punctual_proto::Nanos;
use std::sync::Arc;

const SPEED: Topic<Quantity<MetrePerSecond, f32>> = Topic::named("speed");
const PERIOD: Duration = Duration::from_millis(5);
const EXCHANGE: u16 = 9;
const GROUPS: [(&str, u32); 2] = [("west", 1), ("east", 2)];

fn fleet() -> Keys {
    Keys::parse("0 1 00112233445566778899aabbccddeeff").unwrap().overlap(Duration::from_millis(50))
}

fn master() -> Secret {
    Secret::new([0x42; 32]).unwrap()
}

fn timing() -> GroupTiming {
    const MS: u64 = 1_000_000;
    GroupTiming { retry_ns: 5 * MS, lease_ns: 5_000 * MS, notice_ns: 60 * MS, renewal_ns: 60_000 * MS }
}

/// `shared NAME`, or `udp OWN PEER…`.
fn bus_of(text: &str) -> Bus {
    let mut words = text.split(' ');
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    match (words.next(), words.next()) {
        (Some("shared"), Some(name)) => Bus::shared(name),
        (Some("udp"), Some(own)) => Bus::peers(address(own), &words.map(address).collect::<Vec<_>>()),
        _ => panic!("{text}: no bus"),
    }
}

/// A vehicle's node, with its keys and its membership.
fn vehicle(bus: &str, name: &str) -> (Node, GroupMember) {
    let keys = fleet();
    let node = Node::open(&bus_of(bus).sealed(&keys), name).unwrap();
    let secret = master().of_member(node.id());
    let member = GroupMember::new(node.bind(EXCHANGE).unwrap(), &keys, secret, timing()).unwrap();
    (node, member)
}

/// Not a test of its own: a vehicle that stays in its group, and publishes which that is.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    let (leader, group) = *GROUPS.iter().find(|(name, _)| *name == role).expect("a role is a group");
    let (node, mut member) = vehicle(&bus, &format!("resident-{leader}"));
    let mut publisher = Publisher::new(node.bind(1).unwrap(), SPEED).unwrap();
    publisher.follow(&member.membership());
    let running = publisher.spawn(move |_| Quantity::new(group as f32)).unwrap();
    member.join(NodeId::named(leader), group).unwrap();
    let end = Instant::now() + Duration::from_secs(600);
    while Instant::now() < end && !running.is_finished() {
        member.turn(|_| ()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Activity of the test's process all the while: two leaders and the vehicle that moves.
struct Street {
    leaders: Vec<GroupLeader>,
    member: GroupMember,
    changes: Vec<GroupChange>,
    /// Values taken, by the group of their publisher.
    taken: Arc<[Counter; 3]>,
}

impl Street {
    /// Lets time pass until something is so. `false` if it does not become so.
    fn turn_until(&mut self, patience: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + patience;
        while !done(self) {
            if Instant::now() > end {
                return false;
            }
            self.leaders.iter_mut().for_each(|leader| leader.turn(|_| ()).unwrap());
            self.member.turn(|change| self.changes.push(change)).unwrap();
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }

    fn taken(&self, group: u32) -> u64 {
        self.taken[group as usize].get_published()
    }
}

/// Goal: a vehicle that is tied to its membership once is served by all publishers in its group, and by nobody else. That holds in each
/// group that it comes to; publishers that it left stop at once. Between processes, over shared memory and UDP.
#[test]
fn interests_follow_a_vehicle_through_its_groups() {
    const ROUNDS_MAX: usize = 8;
    let _alive = watchdog(120);
    let name = unique("follow");
    let ports: Vec<SocketAddr> = (0..3).flat_map(|_| <[SocketAddr; 2]>::from(free_ports())).collect();
    let udp = |own: usize| {
        let peers = (0..5).filter(|&other| other != own).map(|other| ports[other].to_string());
        format!("udp {} {}", ports[own], peers.collect::<Vec<_>>().join(" "))
    };
    let buses = [[0; 5].map(|_| format!("shared {name}")), [0, 1, 2, 3, 4].map(udp)];
    for bus in buses {
        let lead = |(index, (name, group)): (usize, &(&str, u32))| {
            let keys = fleet();
            let node = Node::open(&bus_of(&bus[index]).sealed(&keys), name).unwrap();
            GroupLeader::new(node.bind(EXCHANGE).unwrap(), &keys, *group, master(), timing()).unwrap()
        };
        let leaders = GROUPS.iter().enumerate().map(lead).collect();
        let (node, member) = vehicle(&bus[2], "vehicle");
        let taken: Arc<[Counter; 3]> = Arc::default();
        let mut participant = Participant::new(node.bind(1).unwrap());
        let counts = Arc::clone(&taken);
        let note = move |response: punctual::interest::Response<Quantity<MetrePerSecond, f32>>| {
            counts[response.value.number() as usize].add(1);
        };
        participant.follow(&member.membership());
        participant.subscribe(SPEED, PERIOD, note).unwrap();
        let running = participant.spawn().unwrap();
        let _residents = [Role::start("west", &bus[3]), Role::start("east", &bus[4])];
        let mut street = Street { leaders, member, changes: Vec::new(), taken };
        let residents_are_in =
            |street: &Street| street.leaders.iter().all(|leader| leader.members().count() > 0);
        assert!(street.turn_until(PATIENCE, residents_are_in), "{}", bus[0]);
        assert!(
            !street.turn_until(Duration::from_millis(50), |street| street.taken(1) + street.taken(2) > 0)
        );
        let (mut rounds, mut heard) = (0, 0);
        // On a busy host a follower may come to it after the next key: then the interest's lifetime ends it.
        while rounds < ROUNDS_MAX && (rounds < 6 || heard < 4) {
            let round = rounds;
            rounds += 1;
            let (leader, group) = GROUPS[round % 2];
            let other = 3 - group;
            let before = street.taken(group);
            street.member.join(NodeId::named(leader), group).unwrap();
            assert!(
                street.turn_until(PATIENCE, |street| street.taken(group) >= before + 20),
                "{}, round {round}: {:?}, {}",
                bus[0],
                street.changes,
                node.ledger()
            );
            // Those whom it left have heard of it: nothing more of theirs comes, though it would not be believed.
            let (elsewhere, refused) = (street.taken(other), node.ledger().seal_unknown_key);
            street.turn_until(Duration::from_millis(200), |_| false);
            assert_eq!(street.taken(other), elsewhere, "{}, round {round}", bus[0]);
            // 40 values, were they sent; a node that is there says so twice a second at most, in its own group.
            let refused = node.ledger().seal_unknown_key - refused;
            heard += u32::from(refused < 10);
        }
        assert!(heard >= 4, "{}: in {heard} of {rounds} rounds", bus[0]);
        let joined = street.changes.iter().filter(|change| matches!(change, GroupChange::Joined(_))).count();
        assert_eq!(joined, rounds);
        let participant = running.stop();
        assert_eq!(participant.traffic().foreign, 0, "{:?}", participant.traffic());
        assert!(node.ledger().is_balanced(), "{}", node.ledger());
    }
}

/// Goal: components of one node that follow its membership serve each other, on every medium, while it is in a group and no longer.
#[test]
fn components_of_one_node_follow_it_together() {
    let _alive = watchdog(60);
    let ports: [SocketAddr; 2] = free_ports().into();
    let udp = |own: usize| format!("udp {} {}", ports[own], ports[1 - own]);
    let shared = format!("shared {}", unique("together"));
    for bus in [[shared.clone(), shared], [udp(0), udp(1)]] {
        let (leader, group) = GROUPS[0];
        let keys = fleet();
        let leading = Node::open(&bus_of(&bus[0]).sealed(&keys), leader).unwrap();
        let leads =
            GroupLeader::new(leading.bind(EXCHANGE).unwrap(), &keys, group, master(), timing()).unwrap();
        let (node, member) = vehicle(&bus[1], "vehicle");
        let mut publisher = Publisher::new(node.bind(1).unwrap(), SPEED).unwrap();
        publisher.follow(&member.membership());
        let _publishes = publisher.spawn(move |_| Quantity::new(7.0)).unwrap();
        let mut subscriber = Subscriber::new(node.bind(2).unwrap(), SPEED, PERIOD).unwrap();
        subscriber.follow(&member.membership());
        let taken: Arc<[Counter; 3]> = Arc::default();
        let counts = Arc::clone(&taken);
        let _subscribes = subscriber.spawn(move |_| counts[group as usize].add(1)).unwrap();
        let mut street = Street { leaders: vec![leads], member, changes: Vec::new(), taken };
        assert!(!street.turn_until(Duration::from_millis(50), |street| street.taken(group) > 0));
        street.member.join(NodeId::named(leader), group).unwrap();
        assert!(
            street.turn_until(PATIENCE, |street| street.taken(group) >= 20),
            "{}: {}",
            bus[1],
            node.ledger()
        );
        street.member.leave();
        // Messages that lie in its ring may still be taken.
        let begin = Instant::now();
        let mut before = street.taken(group);
        street.turn_until(Duration::from_millis(100), |_| false);
        while street.taken(group) != before {
            assert!(begin.elapsed() < PATIENCE, "{}: it goes on", bus[1]);
            before = street.taken(group);
            street.turn_until(Duration::from_millis(100), |_| false);
        }
    }
}

/// Goal: a change of group is told to a thread that sleeps, and the interest is repeated then, not at its next repetition. Method: that
/// would come in an hour, and another component of the node hears what the subscriber says.
#[test]
fn a_change_of_group_wakes_who_sleeps() {
    let _alive = watchdog(60);
    let bus = format!("shared {}", unique("woken"));
    let (leader, group) = GROUPS[0];
    let keys = fleet();
    let leading = Node::open(&bus_of(&bus).sealed(&keys), leader).unwrap();
    let leads = GroupLeader::new(leading.bind(EXCHANGE).unwrap(), &keys, group, master(), timing()).unwrap();
    let (node, member) = vehicle(&bus, "vehicle");
    let hour = Nanos::from_millis(3_600_000);
    let repetition = Repetition { every: hour, lifetime: hour, ..Repetition::default() };
    let options = ParticipantOptions { repetition, ..ParticipantOptions::default() };
    let period = Duration::from_secs(3_000);
    let mut subscriber = Subscriber::with(node.bind(2).unwrap(), SPEED, period, &options).unwrap();
    subscriber.follow(&member.membership());
    let (mut observer, address) = (node.bind(3).unwrap(), subscriber.address());
    let _running = subscriber.spawn(|_| ()).unwrap();
    let mut street = Street { leaders: vec![leads], member, changes: Vec::new(), taken: Arc::default() };
    // It sleeps by then, for an hour.
    street.turn_until(Duration::from_millis(100), |_| false);
    while observer.try_receive().is_ok() {}
    street.member.join(NodeId::named(leader), group).unwrap();
    let end = Instant::now() + PATIENCE;
    while observer.try_receive().map(|message| message.source) != Ok(address) {
        assert!(Instant::now() < end, "{:?}", street.changes);
        street.turn_until(Duration::from_millis(1), |_| false);
    }
}

/// Goal: a membership tells its followers while they live, and keeps none of their nodes open afterwards.
#[test]
fn a_follower_that_stops_leaves_its_bus() {
    let _alive = watchdog(60);
    let name = unique("unfollow");
    let (_node, member) = vehicle(&format!("shared {name}"), "member");
    let open = || Node::open(&bus_of(&format!("shared {name}")).sealed(&fleet()), "follower");
    let follower = open().unwrap();
    let mut participants = [1, 2].map(|port| Participant::new(follower.bind(port).unwrap()));
    for participant in &mut participants {
        // Twice: the second takes the place of the first.
        participant.follow(&member.membership());
        participant.follow(&member.membership());
    }
    drop((follower, participants));
    assert!(open().is_ok(), "{:?}", open());
}
