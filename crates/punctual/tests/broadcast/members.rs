//! Members of one process.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use punctual::broadcast::{
    BroadcastError, DeliverError, Delivery, Group, GroupAccount, GroupOptions, Guarantee, JoinError,
    Mismatch, View,
};
use punctual::engine::datagram::{DatagramOptions, Reach};
use punctual::memory::{SharedOptions, WhenFull};
use punctual::{Bus, Node, NodeId};
use punctual_machine::event_fd::wait_readable;

use crate::common::{Dice, PATIENCE, free_ports, unique, watchdog};
use crate::on_every_medium;

const NAMES: [&str; 3] = ["anne", "bob", "carl"];

/// Longer than any thread stands still on a busy host, except for a member that is meant to be suspected.
const SUSPECT_AFTER: Duration = Duration::from_secs(3);

fn options(names: &[&str]) -> GroupOptions {
    GroupOptions { suspect_after: SUSPECT_AFTER, ..GroupOptions::new("team", names) }
}

fn join(node: &Node, options: &GroupOptions, founds: bool) -> Group {
    Group::join(node, &GroupOptions { founds, ..options.clone() }).unwrap()
}

/// A delivery to one member, without what belongs to one life of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// View, number, sender, and the message.
    Message(u64, u64, NodeId, Vec<u8>),
    View(View),
}

/// The next thing that it is told and that belongs to the order, if something comes in time.
fn next(group: &mut Group, timeout: Duration) -> Option<Told> {
    loop {
        return match group.deliver(timeout) {
            Ok(Delivery::Message(message)) => {
                Some(Told::Message(message.view, message.number, message.sender, message.payload.to_vec()))
            }
            Ok(Delivery::View(view)) => Some(Told::View(view)),
            Ok(Delivery::Stopped | Delivery::Resumed) => continue,
            Ok(Delivery::Expelled) => panic!("{group:?} is expelled"),
            Err(DeliverError::Empty | DeliverError::Left) => None,
            Err(error @ DeliverError::Mismatch(_)) => panic!("{group:?}: {error}"),
        };
    }
}

/// Delivers at all of them, by turns, until all are content. Everything that they were told is added to the logs.
fn run(
    groups: &mut [Group],
    logs: &mut [Vec<Told>],
    mut is_done: impl FnMut(&mut [Group], &[Vec<Told>]) -> bool,
) {
    while !is_done(groups, logs) {
        for (group, log) in groups.iter_mut().zip(&mut *logs) {
            while let Some(told) = next(group, Duration::from_micros(200)) {
                log.push(told);
            }
        }
    }
}

/// Until all of them are in a view of this size.
fn meet(groups: &mut [Group], logs: &mut [Vec<Told>], size: usize) {
    run(groups, logs, |groups, _| groups.iter_mut().all(|group| group.view().members.len() == size));
    // The view is another one before its change is told.
    let mut is_told = false;
    run(groups, logs, |_, _| std::mem::replace(&mut is_told, true));
}

/// The message of that number from that sender: sizes differ, most fill one frame, some many.
fn message(sender: usize, number: u64) -> Vec<u8> {
    let mut dice = Dice(1 + 1_000 * sender as u64 + number);
    let size = if number.is_multiple_of(10) { 1 + dice.below(40_000) } else { 1 + dice.below(900) };
    let mut bytes = vec![sender as u8];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend((0..size).map(|_| dice.below(256) as u8));
    bytes
}

fn messages(log: &[Told]) -> Vec<&Vec<u8>> {
    log.iter()
        .filter_map(|told| if let Told::Message(.., bytes) = told { Some(bytes) } else { None })
        .collect()
}

/// Plays one member in a thread of its own: waits until all are there, broadcasts, and delivers until it has all of theirs.
fn take_part(mut group: Group, (place, size): (usize, usize), each: u64, all_done: &Barrier) -> Vec<Told> {
    let mut log = Vec::new();
    let (mut sent, mut view_size, mut delivered) = (0, 0, 0);
    while delivered < size as u64 * each {
        while view_size == size && sent < each {
            let guarantee = if sent % 3 == 0 { Guarantee::Agreed } else { Guarantee::Uniform };
            match group.try_broadcast_as(&message(place, sent), guarantee) {
                Ok(()) => sent += 1,
                Err(BroadcastError::Full) => break,
                Err(error) => panic!("{group:?}: {error}"),
            }
        }
        match next(&mut group, if sent < each { Duration::from_micros(100) } else { PATIENCE }) {
            Some(Told::View(view)) => {
                (view_size, delivered) = (view.members.len(), 0);
                log = vec![Told::View(view)];
            }
            Some(told) => {
                delivered += 1;
                log.push(told);
            }
            None => {}
        }
    }
    // Others may still need what it holds: its caretaker sees to that.
    all_done.wait();
    log
}

/// All broadcast at once; all are told the same, and everything.
fn agree(nodes: &[Node], names: &[&str], options: &GroupOptions, each: u64) {
    let all_done = Barrier::new(names.len());
    let logs: Vec<Vec<Told>> = std::thread::scope(|scope| {
        let members: Vec<_> = (0..nodes.len())
            .map(|place| {
                let group = join(&nodes[place], options, place == 0);
                let all_done = &all_done;
                scope.spawn(move || take_part(group, (place, names.len()), each, all_done))
            })
            .collect();
        members.into_iter().map(|member| member.join().unwrap()).collect()
    });
    for log in &logs[1..] {
        assert!(log == &logs[0], "one order");
    }
    for (place, name) in names.iter().enumerate() {
        let of_it =
            |told: &&Told| matches!(told, Told::Message(_, _, sender, _) if *sender == NodeId::named(name));
        let numbers: Vec<Told> = logs[0].iter().filter(of_it).cloned().collect();
        let expected: Vec<Vec<u8>> = (0..each).map(|number| message(place, number)).collect();
        assert!(messages(&numbers).into_iter().eq(&expected), "{name}: all that it sent, in its order");
    }
}

/// Goal: on every medium, all members deliver the same in the same order, while all of them send.
#[test]
fn all_members_agree_on_every_medium() {
    let _alive = watchdog(120);
    on_every_medium(&NAMES, |nodes, names| agree(nodes, names, &options(names), 300));
}

/// Three nodes that know each other's addresses.
fn peers() -> Vec<Bus> {
    let ((a, b), (c, _)) = (free_ports(), free_ports());
    let all: [SocketAddr; 3] = [a, b, c];
    let others = |own: SocketAddr| all.into_iter().filter(|&other| other != own).collect::<Vec<_>>();
    all.into_iter().map(|own| Bus::peers(own, &others(own))).collect()
}

/// Goal: frames follow the medium: they are as small, or as large, as it carries; and loss on the way is repaired.
#[test]
fn frames_of_any_size_and_lost_ones() {
    use punctual::engine::faulty::Faults;
    use punctual::node::NodeOptions;
    let _alive = watchdog(120);
    let nodes: Vec<Node> = peers()
        .iter()
        .zip(NAMES)
        .map(|(bus, name)| {
            let faults = Faults::seeded(7).loss(30).corruption(10);
            NodeOptions::new(name).faults(faults).open(bus).unwrap()
        })
        .collect();
    agree(&nodes, &NAMES, &GroupOptions { frame_size: Some(1_024), ..options(&NAMES) }, 200);
    // A ring that is overrun, and the most that fits it.
    let bus = SharedOptions {
        ring_size: 1 << 16,
        when_full: WhenFull::Overrun,
        ..SharedOptions::new(&unique("team"))
    };
    let nodes = NAMES.map(|name| Node::open(&Bus::Shared(bus.clone()), name).unwrap());
    let most = nodes[0].payload_size_max() - punctual_proto::broadcast::DATA_PREFIX_SIZE;
    agree(&nodes, &NAMES, &GroupOptions { frame_size: Some(most), window: Some(64), ..options(&NAMES) }, 100);
    let refused = Group::join(&nodes[0], &GroupOptions { frame_size: Some(most + 1), ..options(&NAMES) });
    assert!(matches!(refused, Err(JoinError::FrameSize { .. })), "{refused:?}");
}

/// Goal: a member that joins late is told what comes from its first view on. A member that leaves is told what came up to its last
/// view. The others go on.
#[test]
fn members_come_and_go() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("team"));
    let nodes = NAMES.map(|name| Node::open(&bus, name).unwrap());
    let options = options(&NAMES);
    let mut groups: Vec<Group> = (0..2).map(|place| join(&nodes[place], &options, place == 0)).collect();
    let mut logs = vec![Vec::new(), Vec::new()];
    meet(&mut groups, &mut logs, 2);
    let say = |groups: &mut [Group], logs: &mut [Vec<Told>], place: usize, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let mut is_said = false;
            run(groups, logs, |groups, _| {
                is_said = is_said || groups[place].try_broadcast(&message(place, number)).is_ok();
                is_said
            });
        }
    };
    let all_have = |count: usize| {
        move |_: &mut [Group], logs: &[Vec<Told>]| logs.iter().all(|log| messages(log).len() >= count)
    };
    say(&mut groups, &mut logs, 1, 0..40);
    run(&mut groups, &mut logs, all_have(40));

    groups.push(join(&nodes[2], &options, false));
    logs.push(Vec::new());
    say(&mut groups, &mut logs, 0, 0..40);
    meet(&mut groups, &mut logs, 3);
    say(&mut groups, &mut logs, 2, 0..40);
    run(&mut groups, &mut logs, |_, logs| {
        logs.iter().all(|log| {
            log.ends_with(&logs[0][logs[0].len() - 1..])
                && messages(log).last().is_some_and(|last| **last == message(2, 39))
        })
    });
    let first = logs[0].iter().position(|told| Some(told) == logs[2].first());
    let first = first.expect("its first view is one of the others' too");
    assert!(logs[2] == logs[0][first..] && logs[0].ends_with(&logs[1][logs[1].len() - 60..]));

    // The first leaves, which orders the messages.
    groups[0].leave();
    assert_eq!(groups[0].try_broadcast(b"late"), Err(BroadcastError::NoMember));
    run(&mut groups, &mut logs, |groups, _| groups[0].try_deliver() == Err(DeliverError::Left));
    drop(groups.remove(0));
    let mut left = logs.remove(0);
    meet(&mut groups, &mut logs, 2);
    say(&mut groups, &mut logs, 0, 40..80);
    run(&mut groups, &mut logs, |_, logs| {
        logs.iter().all(|log| messages(log).last().is_some_and(|last| **last == message(0, 79)))
    });
    let (of_bob, of_carl) = (messages(&logs[0]), messages(&logs[1]));
    assert_eq!(of_bob.len(), 160);
    assert!(of_bob.ends_with(&of_carl));
    left.retain(|told| matches!(told, Told::Message(..)));
    assert!(of_bob.starts_with(&messages(&left)));
}

/// A heartbeat so long that no caretaker is there in time.
fn without_caretaker(options: GroupOptions, heartbeat: Duration) -> GroupOptions {
    GroupOptions { heartbeat, suspect_after: 4 * heartbeat, expel_slow_after: None, ..options }
}

/// Goal: a member that only looks at the view of its group takes part: it joins, and sees it.
#[test]
fn a_member_that_only_looks_takes_part() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("looks"));
    let nodes = [NAMES[0], NAMES[1]].map(|name| Node::open(&bus, name).unwrap());
    let options = without_caretaker(options(&NAMES[..2]), Duration::from_secs(600));
    let mut groups = [join(&nodes[0], &options, true), join(&nodes[1], &options, false)];
    std::thread::scope(|scope| {
        for group in &mut groups {
            scope.spawn(move || {
                while group.view().members.len() < 2 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
}

/// Goal: a member that only broadcasts hears the others, however its small messages gather. Method: of two members both must hold a
/// message before it is delivered as uniform.
#[test]
fn a_member_that_only_broadcasts_takes_part() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("talks"));
    let nodes = [NAMES[0], NAMES[1]].map(|name| Node::open(&bus, name).unwrap());
    // Bob takes nothing, so this is all the room that it has, for longer than anybody may stand still.
    let options = GroupOptions { window: Some(512), ..options(&NAMES[..2]) };
    let options = without_caretaker(options, Duration::from_secs(1));
    let mut groups = vec![join(&nodes[0], &options, true), join(&nodes[1], &options, false)];
    meet(&mut groups, &mut [Vec::new(), Vec::new()], 2);
    let (mut bob, mut anne) = (groups.pop().unwrap(), groups.pop().unwrap());
    std::thread::scope(|scope| {
        let listening = scope.spawn(|| {
            for number in 0..3 {
                let said = message(0, number);
                anne.broadcast(&said, PATIENCE).unwrap();
                while messages(next(&mut anne, PATIENCE).as_slice()) != [&said] {}
            }
        });
        while !listening.is_finished() {
            bob.try_broadcast(&[0; 20]).expect("a member that hears has credit");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!((anne.account().expelled, bob.account().expelled), (0, 0));
}

/// Goal: a member that has left is told so by each call that would wait.
#[test]
fn a_member_that_has_left_waits_for_nothing() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("left"));
    let nodes = [NAMES[0], NAMES[1]].map(|name| Node::open(&bus, name).unwrap());
    let options = options(&NAMES[..2]);
    let mut groups = vec![join(&nodes[0], &options, true), join(&nodes[1], &options, false)];
    let mut logs = [Vec::new(), Vec::new()];
    meet(&mut groups, &mut logs, 2);
    groups[1].leave();
    run(&mut groups, &mut logs, |groups, _| groups[1].try_deliver() == Err(DeliverError::Left));
    let mut broadcaster = groups[1].broadcaster();
    assert_eq!(groups[1].broadcast(b"late", Duration::MAX), Err(BroadcastError::NoMember));
    assert_eq!(broadcaster.broadcast(b"late", Duration::MAX), Err(BroadcastError::NoMember));
}

/// Goal: a member whose user takes nothing holds the others up, is not suspected, and is expelled when its time is over. The
/// others go on, and it comes back once its user looks.
#[test]
fn a_member_that_takes_nothing_is_expelled() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("team"));
    let nodes = NAMES.map(|name| Node::open(&bus, name).unwrap());
    let slow = Duration::from_secs(2);
    let options = GroupOptions { expel_slow_after: Some(slow), window: Some(16), ..options(&NAMES) };
    let mut groups: Vec<Group> = (0..3).map(|place| join(&nodes[place], &options, place == 0)).collect();
    let mut logs = vec![Vec::new(); 3];
    meet(&mut groups, &mut logs, 3);
    let mut idle = groups.pop().unwrap();
    logs.pop();
    let (mut sent, mut was_full) = (0, false);
    run(&mut groups, &mut logs, |groups, _| {
        match groups[0].try_broadcast(&message(0, sent)) {
            Ok(()) => sent += 1,
            Err(BroadcastError::Full) => was_full = true,
            Err(_) => {}
        }
        groups[1].view().members.len() == 2 && sent > 100
    });
    assert!(was_full, "a window, and then nobody takes for the third");
    run(&mut groups, &mut logs, |_, logs| logs.iter().all(|log| messages(log).len() as u64 == sent));
    run(&mut groups, &mut logs, |_, _| idle.account().expelled == 1);
    assert!(!idle.arm(), "there is something to take");
    let begin = Instant::now();
    run(&mut groups, &mut logs, |_, _| begin.elapsed() > Duration::from_millis(500));
    assert_eq!(groups[0].view().members.len(), 2, "it joins before its user knows");
    let mut is_expelled = false;
    while !(is_expelled && idle.view().members.len() == 3) {
        is_expelled |= matches!(idle.deliver(Duration::from_millis(1)), Ok(Delivery::Expelled));
        groups.iter_mut().for_each(|group| while next(group, Duration::ZERO).is_some() {});
    }
}

/// Goal: a view begins without the user of the member that orders the messages, which is told everything in order when it comes.
/// Method: nobody is ever expelled for being slow, so only its caretaker can let the others go on.
#[test]
fn a_view_begins_without_its_user() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("team"));
    let nodes = NAMES.map(|name| Node::open(&bus, name).unwrap());
    let options = GroupOptions { expel_slow_after: None, ..options(&NAMES) };
    let mut groups: Vec<Group> = (0..3).map(|place| join(&nodes[place], &options, place == 0)).collect();
    let mut logs = vec![Vec::new(); 3];
    meet(&mut groups, &mut logs, 3);
    let said = [message(1, 1), message(1, 10), message(1, 2)];
    let crashes = groups.pop().unwrap();
    logs.pop();
    let mut absent = groups.remove(0);
    let mut log = logs.remove(0);
    for bytes in &said[..2] {
        groups[0].broadcast(bytes, PATIENCE).unwrap();
    }
    run(&mut groups, &mut logs, |_, logs| messages(&logs[0]).len() == 2);
    drop(crashes);
    meet(&mut groups, &mut logs, 2);
    groups[0].broadcast(&said[2], PATIENCE).unwrap();
    run(&mut groups, &mut logs, |_, logs| messages(&logs[0]).len() == 3);
    while messages(&log).len() < 3 {
        log.extend(next(&mut absent, PATIENCE));
    }
    assert!(messages(&log).into_iter().eq(&said), "what it sent, in order");
    let end = |log: &[Told]| log[log.len() - 4..].to_vec();
    assert_eq!(end(&log), end(&logs[0]), "a view stands between the same messages");
    assert!(matches!(&end(&log)[2], Told::View(view) if view.members.len() == 2));
}

/// Goal: a member reports its state: its view, its user's lag, and the member that takes nothing.
#[test]
fn members_say_who_holds_the_group_up() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("seen"));
    let nodes = NAMES.map(|name| Node::open(&bus, name).unwrap());
    let options = GroupOptions { expel_slow_after: None, window: Some(16), ..options(&NAMES) };
    let mut groups: Vec<Group> = (0..3).map(|place| join(&nodes[place], &options, place == 0)).collect();
    meet(&mut groups, &mut vec![Vec::new(); 3], 3);
    let view = groups[0].view().number;
    // The last one takes nothing any more.
    let (number, mut is_seen) = (1, false);
    while !is_seen {
        groups[0].try_broadcast(&message(0, number)).ok();
        groups[..2].iter_mut().for_each(|group| while next(group, Duration::from_millis(1)).is_some() {});
        let accounts: Vec<_> = groups.iter_mut().map(Group::account).collect();
        let is_told = |account: &GroupAccount| {
            let named = (account.view, account.members, account.held_up_by);
            let is_behind = account.slowest().is_some_and(|member| member.lag >= 8 && member.missing == 0);
            named == (view, 3, Some(NodeId::named(NAMES[2]))) && is_behind
        };
        is_seen = accounts.iter().all(is_told) && accounts[2].lag >= 8;
    }
}

/// Goal: an event loop is told of a message that another thread of the same member broadcast, at once. Method: a heartbeat so long that
/// a caretaker that rests for a part of it is not there in time.
#[test]
fn an_event_loop_is_told_of_its_own_broadcaster() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("own"));
    let node = Node::open(&bus, NAMES[0]).unwrap();
    let mut options = options(&NAMES[..1]);
    (options.heartbeat, options.suspect_after) = (Duration::from_secs(600), Duration::from_secs(2_400));
    options.expel_slow_after = None;
    let mut group = join(&node, &options, true);
    assert!(matches!(next(&mut group, PATIENCE), Some(Told::View(_))));
    let broadcaster = group.broadcaster();
    for number in 0..20 {
        while !group.arm() {
            group.deliver(Duration::ZERO).ok();
        }
        let mut broadcaster = broadcaster.clone();
        let sending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(number % 4 * 5));
            broadcaster.try_broadcast(&message(0, number))
        });
        assert!(wait_readable(group.as_fd(), Some(PATIENCE)).unwrap(), "{number}");
        sending.join().unwrap().unwrap();
        assert_eq!(messages(&[next(&mut group, PATIENCE).unwrap()]), [&message(0, number)]);
    }
}

/// Goal: a group that is dropped gives its port back, also while something may still broadcast by it.
#[test]
fn a_broadcaster_keeps_no_port() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("port"));
    let node = Node::open(&bus, NAMES[0]).unwrap();
    let options = options(&NAMES[..1]);
    let mut broadcasters = Vec::new();
    for _ in 0..3 {
        let mut group = join(&node, &options, true);
        assert!(matches!(next(&mut group, PATIENCE), Some(Told::View(_))));
        broadcasters.push(group.broadcaster());
    }
    for broadcaster in &mut broadcasters {
        assert_eq!(broadcaster.try_broadcast(b"late"), Err(BroadcastError::NoMember));
    }
}

/// Goal: an event loop is woken by the descriptor for what is to be delivered, and by nothing else; other threads broadcast.
#[test]
fn an_event_loop_waits_for_deliveries() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("team"));
    let nodes = [NAMES[0], NAMES[1]].map(|name| Node::open(&bus, name).unwrap());
    let options = options(&NAMES[..2]);
    let mut groups: Vec<Group> = (0..2).map(|place| join(&nodes[place], &options, place == 0)).collect();
    meet(&mut groups, &mut [Vec::new(), Vec::new()], 2);
    let (mut here, mut there) = (groups.pop().unwrap(), groups.pop().unwrap());
    let mut broadcaster = there.broadcaster();
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for number in 0..200 {
                broadcaster.broadcast(&message(0, number), PATIENCE).unwrap();
            }
            broadcaster
        });
        scope.spawn(move || {
            let mut delivered = 0;
            while delivered < 200 {
                delivered += usize::from(matches!(next(&mut there, PATIENCE), Some(Told::Message(..))));
            }
            let mut broadcaster = sending.join().unwrap();
            // The other one may not have all yet, and two are needed.
            while there.view().members.len() == 2 {
                there.deliver(Duration::from_millis(1)).ok();
            }
            drop(there);
            assert_eq!(broadcaster.try_broadcast(b"late"), Err(BroadcastError::NoMember));
        });
        let mut delivered = 0;
        while delivered < 200 {
            while let Some(told) = next(&mut here, Duration::ZERO) {
                assert_eq!(messages(&[told]), [&message(0, delivered)]);
                delivered += 1;
            }
            if delivered < 200 && here.arm() {
                assert!(wait_readable(here.as_fd(), Some(PATIENCE)).unwrap());
                assert!(!here.arm(), "readable, so something is there");
            }
        }
        here.leave();
        while here.deliver(PATIENCE) != Err(DeliverError::Left) {}
    });
}

/// Goal: a member with other options than the group's is told which, once and by its descriptor; the group is not held up.
#[test]
fn a_member_with_other_options_is_refused() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("team"));
    let nodes: Vec<Node> = NAMES.iter().map(|name| Node::open(&bus, name).unwrap()).collect();
    let equal = options(&NAMES);
    let mut groups = vec![join(&nodes[0], &equal, true), join(&nodes[1], &equal, false)];
    let mut other = join(&nodes[2], &GroupOptions { message_size_max: 5_000, ..equal.clone() }, false);
    assert!(other.arm(), "nobody has answered yet");
    meet(&mut groups, &mut [Vec::new(), Vec::new()], 2);
    while !wait_readable(other.as_fd(), Some(Duration::from_millis(1))).unwrap() {
        groups.iter_mut().for_each(|group| assert_eq!(next(group, Duration::ZERO), None));
    }
    let there = equal.message_size_max as u32;
    let refusal = DeliverError::Mismatch(Mismatch::MessageSize { here: 5_000, there });
    assert_eq!(other.deliver(PATIENCE), Err(refusal));
    assert!(
        refusal
            .to_string()
            .contains("message_size_max is 5000 bytes at this member and 1048576 in the group")
    );
    assert_eq!(other.deliver(Duration::from_millis(50)), Err(DeliverError::Empty), "it is told once");
    assert_eq!(other.mismatch(), Some(Mismatch::MessageSize { here: 5_000, there }));
    assert_eq!(groups[1].mismatch(), None);
    assert_eq!(groups[0].view().members.len(), 2);
}

/// Goal: an error for something impossible names it, and says what to do about it.
#[test]
fn impossible_requests_are_refused_in_words() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("team"));
    let node = Node::open(&bus, NAMES[0]).unwrap();
    let text = |options: &GroupOptions| Group::join(&node, options).unwrap_err().to_string();
    assert!(text(&options(&["bob", "carl"])).contains("not in the roster"));
    assert!(
        text(&GroupOptions { window: Some(0), ..options(&NAMES) })
            .contains("window is 0, where 1 to 4096 is possible")
    );
    let mut alone = join(&node, &options(&NAMES[..1]), true);
    assert!(text(&options(&NAMES[..1])).contains("a port of its own"));
    assert_eq!(alone.try_broadcast(b""), Err(BroadcastError::Size { size: 0, size_max: 1 << 20 }));
    let mut taken = 0;
    let refused = loop {
        match alone.broadcast(b"to myself", PATIENCE) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(
        (refused, taken),
        (BroadcastError::Undelivered, 64 + 8_192 / 11),
        "a window, and what waits in one frame"
    );
    while next(&mut alone, Duration::ZERO).is_some() {}
    assert_eq!(alone.broadcast(b"again", PATIENCE), Ok(()));
    // Alone among three it has no majority.
    let node = Node::open(&bus, NAMES[1]).unwrap();
    let mut minority = join(&node, &GroupOptions { name: "others".to_owned(), ..options(&NAMES) }, true);
    assert_eq!(
        minority.broadcast(b"nobody hears", Duration::from_millis(5)),
        Err(BroadcastError::Undelivered)
    );
    while minority.try_deliver().is_ok() {}
    assert_eq!(minority.broadcast(b"nobody hears", Duration::from_millis(5)), Err(BroadcastError::Stopped));
    let small = Bus::Datagram(DatagramOptions {
        payload_size_max: 400,
        ..DatagramOptions::new(Reach::Peers { local: free_ports().0, peers: Vec::new() })
    });
    let refused = Group::join(
        &Node::open(&small, NAMES[0]).unwrap(),
        &GroupOptions { window: Some(4_096), ..options(&NAMES) },
    );
    assert!(matches!(refused, Err(JoinError::Window { .. })), "{refused:?}");
}
