//! A reader that begins while others begin to send, or amid a message, misses nothing and is woken.

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::{PATIENCE, drain, open_on, unique, watchdog};
use punctual::memory::WhenFull;
use punctual::publication::OfferError;
use punctual::{
    Bus, Clock, CommunicatorOptions, Node, PublicationOptions, SendError, Subscription, SubscriptionOptions,
    Target, Wake,
};
use punctual_machine::event_fd::wait_readable;

const PORT: u16 = 7;

fn buses(name: &str) -> [Bus; 2] {
    [Bus::loopback(&unique(name)), Bus::shared(&unique(name))]
}

fn subscribe(node: &Node) -> Subscription {
    node.subscription(PORT, &SubscriptionOptions::default()).unwrap()
}

fn ring(ring_size: usize, when_full: WhenFull) -> PublicationOptions {
    PublicationOptions { ring_size, when_full: Some(when_full), ..PublicationOptions::default() }
}

/// Goal: a subscription that is made while a publication is being made has everything that is sent once both are there.
/// Method: making a ring of 256 MiB takes long; the subscription is made amid that, and looks only when a message was taken.
#[test]
fn a_reader_that_comes_while_a_ring_is_made_has_all() {
    let _alive = watchdog(120);
    for bus in buses("amid") {
        let (here, there) = open_on(&bus);
        let _first = subscribe(&there);
        let (mut publication, mut amid) = std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                let options = ring(1 << 28, WhenFull::Overrun);
                here.publication(Target::everyone_at(PORT), &options).unwrap()
            });
            std::thread::sleep(Duration::from_millis(10));
            let amid = subscribe(&there);
            (making.join().unwrap(), amid)
        });
        publication.offer(b"for both").unwrap();
        assert_eq!(drain(&mut amid), 1, "{bus}");
    }
}

/// Goal: a reader that subscribes between a claim and its commit, or between a queued message and its flush, and sleeps, is woken.
#[test]
fn a_reader_that_joins_amid_a_message_is_woken() {
    let _alive = watchdog(60);
    for bus in buses("claimed") {
        let (here, there) = open_on(&bus);
        let _first = subscribe(&there);
        let target = Target::everyone_at(PORT);
        let mut publication = here.publication(target, &ring(4096, WhenFull::Overrun)).unwrap();
        publication.offer(b"it is known").unwrap();
        let claim = publication.try_claim(8).unwrap();
        let mut amid = subscribe(&there);
        assert_eq!(drain(&mut amid), 0);
        assert!(amid.arm());
        claim.commit();
        assert!(wait_readable(amid.as_fd(), Some(PATIENCE)).unwrap(), "{bus}: nobody rang");
        assert_eq!(drain(&mut amid), 1);
        let mut communicator = here.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin)).unwrap();
        communicator.queue(target, b"queued").unwrap();
        let mut amid = subscribe(&there);
        assert_eq!(drain(&mut amid), 0);
        assert!(amid.arm());
        communicator.flush();
        assert!(wait_readable(amid.as_fd(), Some(PATIENCE)).unwrap(), "{bus}: nobody rang");
    }
}

/// Goal: a reader that sleeps on a descriptor is woken, regardless of earlier sleepers at its doorbell. Method: the sender takes no
/// descriptor in meanwhile, and its box is full of those of subscriptions that have ended.
#[test]
fn a_reader_that_sleeps_where_others_slept_is_woken() {
    let _alive = watchdog(60);
    let bus = Bus::shared(&unique("bells"));
    let (here, there) = open_on(&bus);
    let mut publication =
        here.publication(Target::port("there", PORT), &PublicationOptions::default()).unwrap();
    for _ in 0..40 {
        let mut brief = subscribe(&there);
        drain(&mut brief);
        assert!(brief.arm());
    }
    let mut sleeper = subscribe(&there);
    drain(&mut sleeper);
    assert!(sleeper.arm());
    publication.offer(b"wake up").unwrap();
    let mut slept = 0;
    while !wait_readable(sleeper.as_fd(), Some(Duration::from_millis(500))).unwrap() {
        slept += 1;
        assert!(slept < 4, "nobody rang");
    }
    assert_eq!(drain(&mut sleeper), 1);
}

/// More nodes than are looked at in one step, of which nothing is left but their notes.
fn come_and_go(bus: &Bus) {
    for number in 0..6 {
        let node = Node::open(bus, &format!("brief-{number}")).unwrap();
        drop(subscribe(&node));
    }
}

/// Goal: the first message finds a reader that came behind many who have gone.
#[test]
fn the_first_message_finds_a_reader_behind_others() {
    let _alive = watchdog(60);
    for bus in buses("behind") {
        let here = Node::open(&bus, "here").unwrap();
        let target = Target::everyone_at(PORT);
        let mut publication = here.publication(target, &ring(4096, WhenFull::HoldBack)).unwrap();
        come_and_go(&bus);
        let there = Node::open(&bus, "there").unwrap();
        let mut subscription = subscribe(&there);
        publication.offer(b"one").unwrap_or_else(|error| panic!("{bus}: {error}"));
        assert_eq!(drain(&mut subscription), 1, "{bus}");
    }
}

/// Goal: of many readers that come while a writer that they hold back says nothing, none is written over.
/// Method: more than are looked at in one step. All but one read along, which must stop the writer.
#[test]
fn many_readers_that_come_at_once_all_hold_back() {
    let _alive = watchdog(120);
    const READERS: usize = 9;
    for bus in buses("crowd") {
        for slow in 0..READERS {
            let (here, there) = open_on(&bus);
            let target = Target::everyone_at(PORT);
            let mut first = subscribe(&there);
            let mut publication = here.publication(target, &ring(4096, WhenFull::HoldBack)).unwrap();
            publication.offer(b"it is known").unwrap();
            come_and_go(&bus);
            let nodes: Vec<Node> =
                (0..READERS).map(|number| Node::open(&bus, &format!("reader-{number}")).unwrap()).collect();
            let mut readers: Vec<Subscription> = nodes.iter().map(subscribe).collect();
            let mut is_held_back = false;
            for _ in 0..64 {
                is_held_back |= publication.offer(&[1; 256]) == Err(OfferError::Full);
                drain(&mut first);
                readers.iter_mut().enumerate().filter(|(at, _)| *at != slow).for_each(|(_, one)| {
                    drain(one);
                });
            }
            assert!(is_held_back, "{bus}: {slow} holds nobody back");
            drain(&mut readers[slow]);
            assert!(
                readers[slow].accounts().all(|account| account.lost == 0),
                "{bus}: {slow} was written over"
            );
        }
    }
}

/// Goal: messages from publications that closed before anybody looked stay, however many publications they are. One publication too
/// many is refused.
#[test]
fn closed_rings_that_nobody_found_stay() {
    let _alive = watchdog(60);
    for bus in buses("closed") {
        let (here, there) = open_on(&bus);
        let mut subscription = subscribe(&there);
        let target = Target::port("there", PORT);
        let publish = || here.publication(target, &ring(4096, WhenFull::HoldBack));
        let mut sent = 0;
        while let Ok(mut publication) = publish() {
            publication.offer(b"one").unwrap();
            sent += 1;
            assert!(sent <= 256, "{bus}: of {sent} rings some are gone");
        }
        assert_eq!((sent, drain(&mut subscription)), (256, 256), "{bus}");
        publish().unwrap().offer(b"there is room again").unwrap();
        assert_eq!(drain(&mut subscription), 1);
    }
}

/// Goal: the same of a communicator that has said something to more ports than it has rings, none of which was read yet.
#[test]
fn messages_to_many_ports_all_arrive() {
    let _alive = watchdog(60);
    for bus in buses("ports") {
        let (here, there) = open_on(&bus);
        let mut sender = here.bind(1).unwrap();
        let mut readers: Vec<Subscription> = (0..300)
            .map(|at| there.subscription(100 + at, &SubscriptionOptions::default()).unwrap())
            .collect();
        let mut sent = vec![false; readers.len()];
        let clock = Clock::get();
        let give_up = clock.now().plus(clock.ticks(PATIENCE));
        while sent.iter().any(|is_sent| !is_sent) {
            for (port, is_sent) in (100..).zip(&mut sent) {
                if !*is_sent {
                    let tried = sender.try_send(Target::port("there", port), b"one");
                    assert!(matches!(tried, Ok(()) | Err(SendError::Full)), "{bus}, {port}: {tried:?}");
                    *is_sent = tried.is_ok();
                }
            }
            let taken = sent.iter().filter(|is_sent| **is_sent).count();
            assert!(taken >= 256, "{bus}: {taken}");
            for (reader, sent) in readers.iter_mut().zip(&sent) {
                let count = drain(reader) as u64;
                assert!(count <= u64::from(*sent));
                let had: u64 = reader.accounts().map(|account| account.delivered).sum();
                assert_eq!(had, u64::from(*sent), "{bus}: one was lost");
            }
            assert!(clock.now() < give_up, "{bus}: {taken} were taken");
        }
    }
}
