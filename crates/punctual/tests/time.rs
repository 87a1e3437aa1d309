//! Time between nodes over real buses, where the truth is known because both ends read one clock and are told not to trust it;
//! and stamps that no two messages of an origin share.

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{PATIENCE, Role, free_ports, on_every_medium, open_both, own_role, unique, watchdog};
use punctual::memory::{SharedOptions, WhenFull};
use punctual::time::{
    PRIORITY_NEVER, Role as TimeRole, SyncOptions, TIME_PORT, TimeError, TimeKeeper, TimeOptions,
};
use punctual::{Bus, CommunicatorOptions, Nanos, Node, Target};

fn options(priority: u8) -> TimeOptions {
    let sync = SyncOptions { priority, ..SyncOptions::default() };
    TimeOptions { sync, trust_domain: false, ..TimeOptions::default() }
}

fn stamped() -> CommunicatorOptions {
    CommunicatorOptions::default().stamped()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Goal: on every medium, two keepers agree on the master. The true offset, which is zero because both read one clock, is within the
/// bound, always. So is the one-way time of messages, which the shared clock tells exactly.
#[test]
fn the_truth_is_within_the_bound_on_every_medium() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        // Longer than a busy host lets the master stand still: the offset is to stay known.
        let patient = |priority| {
            let options = options(priority);
            let sync = SyncOptions { silence: Nanos::from_millis(3_000), ..options.sync };
            TimeOptions { sync, ..options }
        };
        let master = TimeKeeper::start(&here, &patient(1)).unwrap();
        let follower = TimeKeeper::start(&there, &patient(2)).unwrap();
        wait_until("first exchange", || follower.offset().is_some());
        assert_eq!((master.role(), follower.role()), (TimeRole::Master, TimeRole::Follower(here.id())));
        assert_eq!(master.offset().map(|own| (own.nanos, own.bound)), Some((0, 0)));

        let mut sender = here.bind_with(1, &stamped()).unwrap();
        let mut receiver = there.bind_with(1, &stamped()).unwrap();
        let mut measured = 0;
        for _ in 0..200 {
            let offset = follower.offset().expect("it stays known");
            assert!(offset.nanos.unsigned_abs() <= offset.bound, "{offset:?} where 0 is true");
            sender.send_timeout(Target::port("there", 1), b"message", PATIENCE).unwrap();
            let message = receiver.receive_timeout(PATIENCE).unwrap();
            let stages = message.stages.unwrap();
            let clock = punctual::Clock::get();
            let truth = clock.nanos(stages.receiver.delivered).cast_signed()
                - clock.nanos(punctual::Ticks(stages.sender.sent)).cast_signed();
            if let Some(way) = follower.one_way_of(&message) {
                measured += 1;
                assert!(way.nanos.abs_diff(truth) <= way.bound, "{way:?} where {truth} is true");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(measured > 100, "{measured}: the master says where its clock is");
        assert_eq!(follower.counts().steps, 0);
        let again = TimeKeeper::start(&here, &options(1));
        assert!(matches!(&again, Err(TimeError::Bind(_))), "{again:?}");
        assert!(again.unwrap_err().to_string().contains("has a time keeper already"));
    });
}

/// Goal: a message in another version of the protocol is counted, and the end of a keeper's wait is not.
#[test]
fn another_version_of_the_protocol_is_counted() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("versions"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let keeper = TimeKeeper::start(&here, &options(1)).unwrap();
    let mut communicator = there.bind(1).unwrap();
    for message in [&[0x1F; 24][..], &[], &[7]] {
        communicator.send_timeout(Target::port("here", TIME_PORT), message, PATIENCE).unwrap();
    }
    wait_until("both", || keeper.counts().foreign == 2);
}

/// Goal: nodes that are known to read one clock need no exchange, and the bound is that of two readings.
#[test]
fn one_clock_needs_no_exchange() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("one-clock"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let keeper = TimeKeeper::start(&there, &TimeOptions::default()).unwrap();
    let mut sender = here.bind_with(1, &stamped()).unwrap();
    let mut receiver = there.bind(1).unwrap();
    sender.send(Target::port("there", 1), b"message").unwrap();
    let message = receiver.receive_timeout(PATIENCE).unwrap();
    let way = keeper.one_way_of(&message).unwrap();
    assert!(way.nanos > 0 && way.bound < 100, "{way:?}");
}

/// Not a test of its own: the work of the other process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    let [local, peer] =
        bus.split(' ').map(|text| text.parse::<SocketAddr>().unwrap()).collect::<Vec<_>>()[..]
    else {
        panic!("{bus}: two addresses are needed")
    };
    let node = Node::open(&Bus::peers(local, &[peer]), "there").unwrap();
    let _keeper = TimeKeeper::start(&node, &options(role.parse().unwrap())).unwrap();
    let mut communicator = node.bind_with(1, &stamped()).unwrap();
    loop {
        let _sent = communicator.try_send(Target::port("here", 1), b"message");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Goal: across processes, whose nanoseconds differ by their calibrations: the true one-way time of every message, by the
/// processor's one clock, is within the bound. The other process is master, dies, and its successor is another clock.
#[test]
fn across_processes_the_truth_is_within_the_bound() {
    let _alive = watchdog(120);
    let (a, b) = free_ports();
    let node = Node::open(&Bus::peers(a, &[b]), "here").unwrap();
    let keeper = TimeKeeper::start(&node, &options(100)).unwrap();
    let mut receiver = node.bind_with(1, &stamped()).unwrap();
    wait_until("alone", || keeper.role() == TimeRole::Master);
    for priority in ["1", "1", "200"] {
        let other = Role::start(priority, &format!("{b} {a}"));
        let expected = if priority == "1" { TimeRole::Follower("there".into()) } else { TimeRole::Master };
        let (mut measured, start) = (0, Instant::now());
        while measured < 100 {
            assert!(start.elapsed() < 3 * PATIENCE, "{measured} one-way times");
            let Ok(message) = receiver.receive_timeout(PATIENCE) else { panic!("nothing comes") };
            let stages = message.stages.unwrap();
            let Some(way) = keeper.one_way_of(&message) else { continue };
            let truth = stages.receiver.delivered.since(punctual::Ticks(stages.sender.sent));
            let truth = punctual::Clock::get().nanos(truth).cast_signed();
            assert!(way.nanos.abs_diff(truth) <= way.bound + 1, "{way:?} where {truth} is true");
            measured += 1;
        }
        // A node that stood still for longer than the other's patience is led again by its next status.
        wait_until("one leads", || keeper.role() == expected);
        other.kill();
        wait_until("alone again", || keeper.role() == TimeRole::Master);
        while receiver.try_receive().is_ok() {}
    }
}

/// Goal: a node that must not be master is none, and says so by having no offset.
#[test]
fn a_node_that_must_not_be_master_waits() {
    let _alive = watchdog(60);
    let node = Node::open(&Bus::loopback(&unique("never")), "here").unwrap();
    let keeper = TimeKeeper::start(&node, &options(PRIORITY_NEVER)).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!((keeper.role(), keeper.offset()), (TimeRole::Listening, None));
    keeper.stop();
    TimeKeeper::start(&node, &options(1)).unwrap();
}

/// Goal: (origin, stamp) is unique, however many components of a node send at once, by themselves or by others' hands.
#[test]
fn no_two_messages_of_an_origin_have_one_stamp() {
    const SENDERS: u16 = 4;
    const MESSAGES: usize = 3_000;
    let _alive = watchdog(60);
    let bus = SharedOptions { when_full: WhenFull::HoldBack, ..SharedOptions::new(&unique("stamps")) };
    let bus = Bus::Loopback(bus);
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut receiver = there.bind(1).unwrap();
    std::thread::scope(|scope| {
        for port in 0..SENDERS {
            let mut own = here.bind_with(port, &stamped()).unwrap();
            let mut sender = own.sender();
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    let mut send = || match number % 2 {
                        0 => own.try_send(Target::port("there", 1), b"message"),
                        _ => sender.try_send(Target::port("there", 1), b"message"),
                    };
                    while send().is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut stamps = BTreeSet::new();
        for _ in 0..usize::from(SENDERS) * MESSAGES {
            let message = receiver.receive_timeout(PATIENCE).unwrap();
            let origin = (message.source.node, message.stages.unwrap().sender.sent);
            assert!(stamps.insert(origin), "{origin:?} twice");
        }
    });
}
