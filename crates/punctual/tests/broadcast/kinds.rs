//! Messages with and without order, by all members at once.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;

use punctual::broadcast::{BroadcastError, DeliverError, Delivery, Group, GroupOptions, Guarantee};
use punctual::node::NodeOptions;
use punctual::{Bus, Node, NodeId};

use crate::common::{Dice, PATIENCE, unique, watchdog};
use crate::on_every_medium;

const NAMES: [&str; 3] = ["anne", "bob", "carl"];
const KINDS: [Guarantee; 4] =
    [Guarantee::Uniform, Guarantee::Reliable, Guarantee::BestEffort, Guarantee::Agreed];

/// Longer than any thread stands still on a busy host.
const SUSPECT_AFTER: Duration = Duration::from_secs(3);

fn options(names: &[&str]) -> GroupOptions {
    GroupOptions { suspect_after: SUSPECT_AFTER, ..GroupOptions::new("kinds", names) }
}

/// The message of that number from that sender, which says what was asked for it: most fill one frame, some many.
fn message(sender: u64, number: u64) -> Vec<u8> {
    let mut dice = Dice(1 + 1_000 * sender + number);
    let size = if number % 9 == 4 { 1 + dice.below(20_000) } else { 1 + dice.below(900) };
    let mut bytes: Vec<u8> = number.to_le_bytes().into();
    bytes.extend((0..size).map(|_| dice.below(256) as u8));
    bytes
}

/// Deliveries of one member, in the order in which it made them: sender, number, what is known of it, and the message.
type Log = Vec<(NodeId, u64, Guarantee, Vec<u8>)>;

/// Waits until all are there, broadcasts messages of all kinds in turn, and delivers until it has all of theirs.
fn take_part(mut group: Group, (place, size): (usize, usize), each: u64, all_done: &Barrier) -> Log {
    let (mut log, mut sent, mut view_size) = (Log::new(), 0, 0);
    let mut broadcaster = group.broadcaster();
    while log.len() < size * each as usize {
        while view_size == size && sent < each {
            let (bytes, kind) = (message(place as u64, sent), KINDS[(sent % 4) as usize]);
            // Of two ways, which must be one.
            let taken = if sent.is_multiple_of(2) {
                group.try_broadcast_as(&bytes, kind)
            } else {
                broadcaster.try_broadcast_as(&bytes, kind)
            };
            match taken {
                Ok(()) => sent += 1,
                Err(BroadcastError::Full) => break,
                Err(error) => panic!("{group:?}: {error}"),
            }
        }
        match group.deliver(if sent < each { Duration::from_micros(100) } else { PATIENCE }) {
            Ok(Delivery::Message(told)) => {
                let number = u64::from_le_bytes(told.payload[..8].try_into().expect("a number"));
                log.push((told.sender, number, told.guarantee, told.payload.to_vec()));
            }
            Ok(Delivery::View(view)) => {
                assert!(log.is_empty(), "nobody is suspected");
                view_size = view.members.len();
            }
            Ok(Delivery::Expelled) => panic!("{group:?} is expelled"),
            Ok(Delivery::Stopped | Delivery::Resumed) | Err(DeliverError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let account = group.account();
    assert_eq!((account.broadcast, account.delivered), (each, size as u64 * each), "each stands in one row");
    // Others may still need what it holds: its caretaker sees to that.
    all_done.wait();
    log
}

/// All broadcast at once. Each delivers all of it, each message once: ordered messages in one order, and the rest as each sender sent
/// it.
fn agree(nodes: &[Node], names: &[&str], options: &GroupOptions, each: u64) {
    let all_done = Barrier::new(names.len());
    let logs: Vec<Log> = std::thread::scope(|scope| {
        let members: Vec<_> = (0..nodes.len())
            .map(|place| {
                let options = GroupOptions { founds: place == 0, ..options.clone() };
                let group = Group::join(&nodes[place], &options).unwrap();
                let all_done = &all_done;
                scope.spawn(move || take_part(group, (place, names.len()), each, all_done))
            })
            .collect();
        members.into_iter().map(|member| member.join().unwrap()).collect()
    });
    let in_order = |log: &Log| -> Vec<(NodeId, u64)> {
        log.iter().filter(|told| told.2.is_ordered()).map(|told| (told.0, told.1)).collect()
    };
    for log in &logs {
        assert!(in_order(log) == in_order(&logs[0]), "one order");
        let mut streams: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
        for (node, number, guarantee, bytes) in log {
            let sender = names.iter().position(|name| NodeId::named(name) == *node).unwrap() as u64;
            let asked = KINDS[(number % 4) as usize];
            assert!(*bytes == message(sender, *number), "{number} of {sender} is as it was sent");
            let is_known = guarantee.is_ordered() == asked.is_ordered()
                && (guarantee.is_uniform() || !asked.is_uniform());
            assert!(is_known, "{guarantee:?} was {asked:?}");
            let stream = if asked.is_ordered() { 0 } else { number % 4 };
            streams.entry((sender, stream)).or_default().push(*number);
        }
        assert_eq!(streams.len(), 3 * names.len());
        for ((sender, stream), numbers) in streams {
            let is_of = |number: &u64| match stream {
                0 => KINDS[(number % 4) as usize].is_ordered(),
                _ => number % 4 == stream,
            };
            assert!(
                numbers.into_iter().eq((0..each).filter(is_of)),
                "{stream} of {sender}: all, in its order"
            );
        }
    }
}

/// Goal: on every medium all members deliver messages of all kinds, while all of them send.
#[test]
fn all_kinds_on_every_medium() {
    let _alive = watchdog(120);
    on_every_medium(&NAMES, |nodes, names| agree(nodes, names, &options(names), 240));
}

/// Goal: lost messages without order are repaired as all others are, and the small window goes on.
#[test]
fn lost_frames_of_all_kinds_are_repaired() {
    use punctual::engine::faulty::Faults;
    let _alive = watchdog(120);
    let bus = Bus::shared(&unique("kinds"));
    let nodes = NAMES.map(|name| {
        let faults = Faults::seeded(11).loss(30).corruption(10);
        NodeOptions::new(name).faults(faults).open(&bus).unwrap()
    });
    agree(&nodes, &NAMES, &GroupOptions { window: Some(16), frame_size: Some(512), ..options(&NAMES) }, 160);
}

/// Goal: the group's usual guarantee may be one without order, and a member alone delivers such messages to itself.
#[test]
fn a_guarantee_without_order_may_be_the_usual_one() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("kinds"));
    let node = Node::open(&bus, NAMES[0]).unwrap();
    for guarantee in [Guarantee::Reliable, Guarantee::BestEffort] {
        let options = GroupOptions { guarantee, founds: true, ..options(&NAMES[..1]) };
        let mut alone = Group::join(&node, &options).unwrap();
        for number in 0..600 {
            alone.try_broadcast(&message(0, number)).unwrap();
            loop {
                match alone.deliver(PATIENCE).unwrap() {
                    Delivery::Message(told) => {
                        assert_eq!(told.payload, message(0, number));
                        assert!(
                            !told.guarantee.is_ordered()
                                && (told.guarantee == guarantee || told.guarantee.is_uniform())
                        );
                        break;
                    }
                    Delivery::View(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
