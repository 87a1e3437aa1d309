//! Publications and subscriptions: every message of every ring is delivered once, in order, or is in an account.

mod common;

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use common::{Dice, PATIENCE, Role, drain, open_on, own_role, unique, watchdog};
use punctual::memory::{SharedOptions, WhenFull};
use punctual::node::BindError;
use punctual::publication::{ImageAccount, OfferError, StampChoice, StreamError, TakeError};
use punctual::trace::{Stage, Stages};
use punctual::{
    Bus, Clock, Keys, LateLog, Node, Publication, PublicationOptions, SendError, Subscription,
    SubscriptionOptions, Target, Ticks, Wake,
};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::event_fd::wait_readable;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const PORT: u16 = 7;

/// Buses of memory: in this process, or in /dev/shm; sealed or not.
fn buses(name: &str) -> [Bus; 4] {
    let keys = Keys::random(1);
    let (inside, between) = (Bus::loopback(&unique(name)), Bus::shared(&unique(name)));
    let sealed = [Bus::loopback(&unique(name)).sealed(&keys), Bus::shared(&unique(name)).sealed(&keys)];
    let [sealed_inside, sealed_between] = sealed;
    [inside, between, sealed_inside, sealed_between]
}

fn waiting(wake: Wake) -> SubscriptionOptions {
    SubscriptionOptions { wake }
}

fn ring(ring_size: usize, when_full: WhenFull) -> PublicationOptions {
    PublicationOptions { ring_size, when_full: Some(when_full), ..PublicationOptions::default() }
}

/// A publication of one node, and its one reader at another.
fn pair(here: &Node, there: &Node, options: &PublicationOptions, wake: Wake) -> (Publication, Subscription) {
    let target = Target { node: Some(there.id()), port: Some(PORT.into()) };
    let mut publication = here.publication(target, options).unwrap();
    assert_eq!(publication.offer(b"nobody is there"), Err(OfferError::NotConnected));
    drop(publication);
    let subscription = there.subscription(PORT, &waiting(wake)).unwrap();
    publication = here.publication(target, options).unwrap();
    assert_eq!(publication.readers(), 1);
    (publication, subscription)
}

fn only_account(subscription: &Subscription) -> ImageAccount {
    let accounts: Vec<_> = subscription.accounts().collect();
    assert_eq!(accounts.len(), 1, "{accounts:?}");
    accounts[0]
}

/// The number in a message, each byte of which follows from it.
fn payload_of(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..size).map(|at| (number as usize).wrapping_mul(7).wrapping_add(at) as u8));
    bytes
}

fn check(payload: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*payload.first_chunk().unwrap());
    assert!(payload == payload_of(number, payload.len()), "message {number} is not what was sent");
    number
}

/// Goal: a run that stands open for long beside a sleeping reader is no missed wake-up: readers are rung at its end.
#[test]
fn an_open_run_misses_no_wake_up() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("open-run")), Bus::shared(&unique("open-run"))] {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let options = SubscriptionOptions { wake: Wake::Futex };
        let mut subscription = there.subscription(7, &options).unwrap();
        let publication = here.publication(Target::port("there", 7), &PublicationOptions::default());
        let mut publication = publication.unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = vec![0; 4_096];
                (0..8).for_each(|_| _ = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap());
            });
            // It sleeps by then.
            std::thread::sleep(Duration::from_millis(20));
            let mut run = publication.run();
            (0..8).for_each(|_| run.offer(&[1; 4_096]).unwrap());
            std::thread::sleep(Duration::from_millis(250));
            drop(run);
            reader.join().unwrap();
        });
        assert_eq!(there.ledger().missed_wakeups, 0, "{bus}: {}", there.ledger());
    }
}

/// Goal: a message that is on its way wakes the subscription that has its predecessor's bell by now.
/// Method: the first ends, and the next sleeps on its own descriptor, between a claim and its commit.
#[test]
fn a_bell_that_changed_hands_wakes_who_has_it() {
    for bus in buses("hands") {
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let (mut publication, mut first) =
            pair(&here, &there, &PublicationOptions::default(), Wake::default());
        assert!(first.arm());
        publication.offer(b"the descriptor is known").unwrap();
        assert!(wait_readable(first.as_fd(), Some(PATIENCE)).unwrap());
        let claim = publication.try_claim(0).unwrap();
        drop(first);
        let mut next = there.subscription(PORT, &SubscriptionOptions::default()).unwrap();
        while !next.arm() {
            assert_eq!(next.poll(1, |_| ()), 0, "nothing was sent");
        }
        claim.commit();
        assert!(wait_readable(next.as_fd(), Some(PATIENCE)).unwrap(), "{bus}: nobody woke it");
        assert_eq!(next.poll(1, |_| ()), 1);
    }
}

#[test]
fn messages_arrive_whole_in_order_and_say_who_sent_them() {
    let _alive = watchdog(60);
    for bus in buses("streams") {
        let (here, there) = open_on(&bus);
        let options =
            PublicationOptions { source: 3, stamps: StampChoice::Ends, ..PublicationOptions::default() };
        let (mut publication, mut subscription) = pair(&here, &there, &options, Wake::Spin);
        let mut buffer = vec![0; publication.payload_size_max()];
        let begin = Clock::get().now();
        for (number, size) in [8, 9, 63, 64, 65, 1000, publication.payload_size_max()].into_iter().enumerate()
        {
            publication.offer(&payload_of(number as u64, size)).unwrap();
            let received = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
            assert_eq!((received.size, received.sequence, received.lost_before), (size, number as u64, 0));
            assert_eq!(received.source, publication.source());
            assert!(received.sent.is_some_and(|sent| sent >= begin && sent <= Clock::get().now()));
            assert_eq!(check(&buffer[..size]), number as u64);
        }
        let size_max = publication.payload_size_max();
        let error = OfferError::TooLong { size: size_max + 1, size_max };
        assert_eq!(publication.offer(&vec![0; size_max + 1]), Err(error));
        // Empty, in place, in a run, and given up.
        publication.offer(b"").unwrap();
        let _given_up = publication.try_claim(5).unwrap().payload().len();
        let mut claim = publication.try_claim(8).unwrap();
        claim.payload().copy_from_slice(b"in place");
        claim.commit();
        let mut run = publication.run();
        (0..5).for_each(|number| run.offer(&payload_of(number, 20)).unwrap());
        drop(run);
        assert_eq!(subscription.try_receive(&mut buffer).map(|received| received.size), Ok(0));
        assert_eq!(subscription.try_receive(&mut buffer[..7]), Err(TakeError::BufferTooSmall { size: 8 }));
        subscription.try_receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..8], b"in place");
        let mut seen = Vec::new();
        while subscription.poll(2, |message| {
            let size = message.copy_to(&mut buffer).unwrap();
            seen.push(check(&buffer[..size]));
        }) > 0
        {}
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert_eq!(subscription.try_receive(&mut buffer), Err(TakeError::Empty));
        let account = only_account(&subscription);
        assert_eq!((account.begin, account.delivered, account.lost), (0, publication.sent(), 0));
        drop(publication);
        subscription.poll(1, |_| ());
        assert!(only_account(&subscription).ended);
    }
}

/// Goal: a later subscriber has what is sent from then on, also while nobody else reads. An earlier subscriber has all, also what was
/// sent before it looked.
#[test]
fn a_subscription_begins_when_it_is_made() {
    let _alive = watchdog(60);
    for bus in buses("begins") {
        let (here, there) = open_on(&bus);
        let target = Target::port("there", PORT);
        let mut old = here.publication(target, &PublicationOptions::default()).unwrap();
        assert_eq!(old.offer(b"to nobody"), Err(OfferError::NotConnected));
        let mut subscription = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
        let mut new = here.publication(target, &PublicationOptions::default()).unwrap();
        (0..3).for_each(|_| old.offer(b"old").unwrap());
        (0..3).for_each(|_| new.offer(b"new").unwrap());
        let mut late = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
        (0..2).for_each(|_| old.offer(b"old").unwrap());
        let counts = |subscription: &mut Subscription| {
            while subscription.poll(1, |_| ()) > 0 {}
            let mut counts: Vec<_> = subscription
                .accounts()
                .map(|account| (account.begin, account.delivered, account.lost))
                .collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(counts(&mut subscription), [(0, 3, 0), (0, 5, 0)]);
        assert_eq!(counts(&mut late), [(3, 0, 0), (3, 2, 0)]);
    }
}

/// Goal: one in n says when it was sent, or where its time went; the others do not, whether they are shown or copied.
#[test]
fn one_in_n_is_stamped() {
    let _alive = watchdog(60);
    for (bus, stamps) in buses("stamps")
        .into_iter()
        .flat_map(|bus| [StampChoice::Ends, StampChoice::All].map(|stamps| (bus.clone(), stamps)))
    {
        let (here, there) = open_on(&bus);
        let options = PublicationOptions { stamps, stamp_one_in: 4, ..PublicationOptions::default() };
        let (mut publication, mut subscription) = pair(&here, &there, &options, Wake::Spin);
        let expected: Vec<_> =
            (0..12).map(|number| (number % 4 == 0, number % 4 == 0 && stamps == StampChoice::All)).collect();
        (0..24).for_each(|_| publication.offer(b"message").unwrap());
        let mut shown = Vec::new();
        let delivered = subscription.poll(12, |message| {
            assert_eq!(message.sequence, shown.len() as u64);
            shown.push((message.sent.is_some(), message.stages().is_some()));
        });
        assert_eq!(delivered, 12);
        assert_eq!(shown, expected);
        let copied = (0..12).map(|_| {
            let is_sent = subscription.receive(&mut [0; 8]).unwrap().sent.is_some();
            (is_sent, subscription.stages().is_some())
        });
        assert_eq!(copied.collect::<Vec<_>>(), expected);
    }
}

/// Goal: of a burst that comes while its reader sleeps each message waited for the waking, not the first alone. Method: a busy host may
/// wake the reader before the second is there: then again.
#[test]
fn all_of_a_burst_were_woken_for() {
    let _alive = watchdog(60);
    for bus in buses("burst") {
        let (here, there) = open_on(&bus);
        let options = PublicationOptions { stamps: StampChoice::All, ..PublicationOptions::default() };
        let (mut publication, mut subscription) = pair(&here, &there, &options, Wake::Futex);
        let mut buffer = [0; 64];
        let mut both = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    publication.offer(b"first").unwrap();
                    publication.offer(b"second").unwrap();
                });
                [(); 2].map(|()| {
                    subscription.receive(&mut buffer).unwrap();
                    subscription.stages().unwrap()
                })
            })
        };
        // One waking that was for both: it came when the second was there.
        let is_burst = |[first, second]: &[Stages; 2]| {
            let woken = first.receiver.woken;
            woken == second.receiver.woken && second.sender.posted().is_some_and(|posted| woken.0 > posted)
        };
        let stages =
            (0..100).map(|_| both()).find(is_burst).expect("a reader that slept until both were there");
        for one in stages {
            assert_eq!(one.unexplained(), Some(0), "{stages:?}");
            assert!(one.time_in(Stage::Woken).is_some_and(|woken| woken.0 > 0), "{stages:?}");
        }
    }
}

/// Goal: the stages of a message say where it was from the instant at which it was due, and add up.
#[test]
fn stages_add_up() {
    let _alive = watchdog(60);
    for bus in buses("stages") {
        let (here, there) = open_on(&bus);
        let options = PublicationOptions { stamps: StampChoice::All, ..PublicationOptions::default() };
        let (mut publication, mut subscription) = pair(&here, &there, &options, Wake::Futex);
        let (clock, mut buffer) = (Clock::get(), [0; 64]);
        let due = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        publication.offer_due(b"late", due).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let received = *subscription.receive(&mut buffer).unwrap();
        let stages = subscription.stages().unwrap();
        let time_in = |stage| clock.duration(stages.time_in(stage).unwrap());
        assert!(time_in(Stage::Sent) >= Duration::from_millis(2), "{stages:?}");
        assert_eq!((stages.unexplained(), received.delivered), (Some(0), Some(stages.receiver.delivered)));
        assert!(stages.total().unwrap() >= received.delivered.unwrap().since(due));
        // It listened from before on, slept, and was woken. A busy host may let it listen only when the message is there: then again.
        let mut wait = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    publication.offer(b"awaited").unwrap();
                });
                subscription.receive(&mut buffer).unwrap();
            });
            subscription.stages().filter(|stages| stages.receiver.woken.0 > 0)
        };
        let stages = (0..20).find_map(|_| wait()).expect("it was woken");
        assert_eq!((stages.unexplained(), stages.time_in(Stage::Sent)), (Some(0), Some(Ticks(0))));
        assert!(stages.receiver.listened.0 > 0, "{stages:?}");
        // The next one lies there while its reader does something else.
        publication.offer(b"not awaited").unwrap();
        std::thread::sleep(Duration::from_millis(4));
        subscription.receive(&mut buffer).unwrap();
        let stages = subscription.stages().unwrap();
        let elsewhere = clock.duration(stages.time_in(Stage::Elsewhere).unwrap());
        assert!(elsewhere >= Duration::from_millis(4), "{stages:?}");
        // Shown where it lies, it says the same but for that.
        publication.offer(b"looked at").unwrap();
        let mut looked = 0;
        subscription.poll(1, |message| looked += i32::from(message.stages().is_some()));
        assert_eq!(looked, 1);
    }
}

/// Goal: every message is read also by a subscription that had not found the publication when that closed, and by no one twice.
#[test]
fn a_subscription_that_looks_late_has_all() {
    let _alive = watchdog(60);
    for bus in buses("closed") {
        let (here, there) = open_on(&bus);
        let target = Target::port("there", PORT);
        let mut subscription = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
        let mut closed = 0;
        for round in 0..300_u64 {
            let mut publication = here.publication(target, &ring(4096, WhenFull::HoldBack)).unwrap();
            publication.offer(&round.to_le_bytes()).unwrap();
            closed += 1;
            if round % 3 == 0 {
                // Its reader has found it, and read to the end, before it closes.
                assert_eq!(drain(&mut subscription), std::mem::take(&mut closed));
            }
        }
        assert_eq!(drain(&mut subscription), closed);
        // One that has sent nothing stays for nobody.
        drop(here.publication(target, &ring(4096, WhenFull::HoldBack)).unwrap());
        assert_eq!(drain(&mut subscription), 0);
        assert_eq!(subscription.accounts().filter(|account| account.delivered == 0).count(), 0);
        // A node that sends one message and leaves; its reader looks up within the time that it has for that.
        let mut look_up = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let node = Node::open(&bus, "brief").unwrap();
                    let mut publication = node.publication(target, &ring(4096, WhenFull::HoldBack)).unwrap();
                    publication.offer(b"the only one").unwrap();
                });
                subscription.receive_timeout(Duration::from_secs(3), &mut [0; 64]).is_ok()
            })
        };
        // A reader that stands still for all of that time finds nobody.
        assert!((0..3).any(|_| look_up()), "a node that leaves is gone at once");
        assert_eq!(drain(&mut subscription), 0);
        assert!(subscription.accounts().all(|account| (account.delivered, account.lost) == (1, 0)));
    }
}

/// Goal: a publication keeps its node on the bus.
#[test]
fn handles_outlive_their_node() {
    let _alive = watchdog(60);
    for bus in buses("outlive") {
        let (here, there) = open_on(&bus);
        let (mut publication, mut subscription) =
            pair(&here, &there, &PublicationOptions::default(), Wake::Futex);
        drop((here, there));
        publication.offer(b"still here").unwrap();
        subscription.receive_timeout(PATIENCE, &mut [0; 64]).unwrap();
        assert!(!only_account(&subscription).ended);
    }
}

fn messages(usual: u64) -> u64 {
    std::env::var("PUNCTUAL_OVERRUNS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Goal: a reader that is overrun gets no wrong message, and its account is exact: begin + delivered + lost = sent.
#[test]
fn losses_by_an_overrun_are_counted_exactly() {
    let _alive = watchdog(600);
    let count = messages(2_000_000);
    for bus in buses("overrun") {
        let (here, there) = open_on(&bus);
        let (mut publication, mut subscription) =
            pair(&here, &there, &ring(8192, WhenFull::Overrun), Wake::Backoff);
        let done = Flag::default();
        let mut told = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut dice = Dice(0x9E37_79B9);
                let mut sent = 0;
                while sent < count {
                    let mut run = publication.run();
                    for _ in 0..1 + dice.below(64) {
                        run.offer(&payload_of(sent, 8 + dice.below(200) as usize)).unwrap();
                        sent += 1;
                    }
                    drop(run);
                    dice.pause();
                }
                done.raise();
            });
            let mut dice = Dice(0x2545_F491);
            let mut buffer = [0; 256];
            loop {
                let was_done = done.is_raised();
                let delivered = subscription.poll(1 + dice.below(100) as usize, |message| {
                    if let Ok(size) = message.copy_to(&mut buffer) {
                        assert_eq!(check(&buffer[..size]), message.sequence);
                        told += message.lost_before;
                    }
                });
                if was_done
                    && delivered == 0
                    && subscription.try_receive(&mut buffer) == Err(TakeError::Empty)
                {
                    break;
                }
                dice.pause();
            }
        });
        let account = only_account(&subscription);
        assert_eq!(account.begin + account.delivered + account.lost, publication.sent(), "{account:?}");
        assert!(account.lost > 0 && account.delivered > 0, "{account:?}: the test tries both");
        assert!(told <= account.lost && !account.corrupt, "{told} of {account:?}");
    }
}

/// Goal: a writer that its readers hold back loses nothing, whichever way they wait; nobody sleeps over a message.
#[test]
fn a_writer_that_is_held_back_loses_nothing() {
    let _alive = watchdog(300);
    const COUNT: u64 = 30_000;
    for bus in buses("held") {
        for wake in [Wake::Spin, Wake::Backoff, Wake::Adaptive, Wake::Futex] {
            let (here, there) = open_on(&bus);
            let (mut publication, mut subscription) =
                pair(&here, &there, &ring(4096, WhenFull::HoldBack), wake);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut dice = Dice(7);
                    for number in 0..COUNT {
                        let payload = payload_of(number, 8 + dice.below(100) as usize);
                        while publication.offer(&payload) == Err(OfferError::Full) {
                            std::thread::yield_now();
                        }
                        dice.pause();
                    }
                });
                let mut buffer = [0; 256];
                for number in 0..COUNT {
                    let received = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
                    assert_eq!(
                        (check(&buffer[..received.size]), received.lost_before),
                        (number, 0),
                        "{wake}"
                    );
                }
            });
            let account = only_account(&subscription);
            assert_eq!((account.begin, account.delivered, account.lost), (0, COUNT, 0));
            assert_eq!(publication.sent(), COUNT);
        }
    }
}

/// Goal: a sleeper is woken for each message; with 100 ms of housekeeping for each that is not, this would take minutes.
#[test]
fn a_sleeper_is_woken_for_every_message() {
    let _alive = watchdog(600);
    const ROUNDS: u64 = 2_000;
    for bus in buses("asleep") {
        for wake in [Wake::Futex, Wake::EventFd, Wake::Epoll] {
            let (here, there) = open_on(&bus);
            let (mut ping, mut heard) = pair(&here, &there, &PublicationOptions::default(), wake);
            let (mut pong, mut answer) = pair(&there, &here, &PublicationOptions::default(), wake);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut buffer = [0; 8];
                    for number in 0..ROUNDS {
                        heard.receive_timeout(PATIENCE, &mut buffer).unwrap();
                        assert_eq!(u64::from_le_bytes(buffer), number);
                        pong.offer(&buffer).unwrap();
                    }
                });
                let mut buffer = [0; 8];
                for number in 0..ROUNDS {
                    ping.offer(&number.to_le_bytes()).unwrap();
                    answer.receive_timeout(PATIENCE, &mut buffer).unwrap();
                    assert_eq!(u64::from_le_bytes(buffer), number);
                }
            });
            assert_eq!((here.ledger().missed_wakeups, there.ledger().missed_wakeups), (0, 0), "{wake}");
        }
    }
}

/// Goal: a subscription that sleeps on a descriptor is woken for messages of publications old and new, of other nodes and of its own.
/// It sleeps in its own way or in its user's event loop.
#[test]
fn each_sleeper_is_woken_for_its_own() {
    let _alive = watchdog(120);
    for bus in buses("descriptors") {
        let (here, there) = open_on(&bus);
        let waits = [Wake::EventFd, Wake::Epoll, Wake::Futex];
        // More lives of the same places: the state of an earlier one wakes nobody.
        for life in 0..3_u64 {
            let subscriptions =
                [1, 2, 3].map(|port| there.subscription(port, &waiting(waits[port as usize - 1])));
            let mut in_loop = there.subscription(4, &waiting(Wake::Spin)).unwrap();
            std::thread::scope(|scope| {
                for subscription in subscriptions {
                    let mut subscription = subscription.unwrap();
                    scope.spawn(move || {
                        for count in 0..300 {
                            let mut buffer = [0; 8];
                            let received = subscription.receive_timeout(PATIENCE / 2, &mut buffer).copied();
                            let accounts = || subscription.accounts().collect::<Vec<_>>();
                            received.unwrap_or_else(|error| panic!("{count}: {error}: {:#?}", accounts()));
                            assert_eq!(u64::from_le_bytes(buffer) >> 32, life);
                        }
                    });
                }
                scope.spawn(move || {
                    let mut number = 0;
                    while number < 300 {
                        if in_loop.poll(1, |_| ()) > 0 {
                            number += 1;
                        } else if in_loop.arm() {
                            assert!(wait_readable(in_loop.as_fd(), Some(PATIENCE)).unwrap());
                        }
                    }
                });
                let [mut old, mut new, mut own]: [Option<Vec<Publication>>; 3] = [const { None }; 3];
                let publish = |node: &Node| {
                    let open =
                        |port| node.publication(Target::port("there", port), &PublicationOptions::default());
                    Some((1..=4).map(|port| open(port).unwrap()).collect::<Vec<_>>())
                };
                for number in 0..100_u64 {
                    // A new one to sleepers; one of the sleepers' own node; and one that stays.
                    old = old.or_else(|| publish(&here));
                    own = own.or_else(|| publish(&there));
                    if number.is_multiple_of(10) {
                        new = publish(&here);
                    }
                    for publication in [&mut old, &mut own, &mut new].into_iter().flatten().flatten() {
                        publication.offer(&(life << 32 | number).to_le_bytes()).unwrap();
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
        }
        assert_eq!((here.ledger().missed_wakeups, there.ledger().missed_wakeups), (0, 0));
    }
}

/// Goal: a subscription that joins while messages move begins at a number that is exact, and holds the writer back from there on.
#[test]
fn a_subscription_that_joins_late_begins_at_an_exact_number() {
    let _alive = watchdog(120);
    for bus in buses("late") {
        let (here, there) = open_on(&bus);
        let (mut publication, mut first) = pair(&here, &there, &ring(4096, WhenFull::HoldBack), Wake::Spin);
        let done = Flag::default();
        let sent = Counter::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0_u64;
                while !done.is_raised() {
                    match publication.offer(&payload_of(number, 40)) {
                        Ok(()) => number += 1,
                        Err(OfferError::Full) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
                sent.set(number);
            });
            let mut buffer = [0; 64];
            for _ in 0..200 {
                let mut late = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
                for _ in 0..20 {
                    first.poll(10, |message| assert!(message.is_intact()));
                    late.poll(10, |message| {
                        let size = message.copy_to(&mut buffer).expect("it holds the writer back");
                        assert_eq!(check(&buffer[..size]), message.sequence);
                    });
                }
                let account = only_account(&late);
                assert_eq!(account.lost, 0, "{account:?}");
            }
            done.raise();
            while first.poll(100, |_| ()) > 0 {}
        });
        while first.poll(100, |_| ()) > 0 {}
        let account = only_account(&first);
        assert_eq!((account.delivered, account.lost), (sent.get(), 0));
    }
}

/// Goal: a panic in what is called with a message loses nothing: those before it were delivered, it comes again.
#[test]
fn a_panic_over_a_message_loses_nothing() {
    let _alive = watchdog(60);
    let (here, there) = open_on(&Bus::loopback(&unique("panic")));
    let (mut publication, mut subscription) = pair(&here, &there, &PublicationOptions::default(), Wake::Spin);
    (0..5).for_each(|number| publication.offer(&payload_of(number, 16)).unwrap());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        subscription.poll(5, |message| assert!(message.sequence != 2, "on purpose"));
    }));
    assert!(caught.is_err());
    assert_eq!(only_account(&subscription).delivered, 2);
    let mut seen = Vec::new();
    subscription.poll(5, |message| seen.push(message.sequence));
    assert_eq!(seen, [2, 3, 4]);
}

/// Goal: targets mean whom they say: a port, all ports of a node, a port of all nodes, everybody, also at the own node.
#[test]
fn targets_mean_whom_they_say() {
    let _alive = watchdog(60);
    for bus in buses("targets") {
        let (here, there) = open_on(&bus);
        let mut subscriptions: Vec<Subscription> = [(&here, 1), (&there, 1), (&there, 2)]
            .map(|(node, port)| node.subscription(port, &waiting(Wake::Spin)).unwrap())
            .into();
        let cases = [
            (Target::port("there", 1), [false, true, false]),
            (Target::node("there"), [false, true, true]),
            (Target::everyone_at(1), [true, true, false]),
            (Target::EVERYONE, [true, true, true]),
        ];
        for (target, reaches) in cases {
            let mut publication = here.publication(target, &PublicationOptions::default()).unwrap();
            assert_eq!(publication.readers(), reaches.iter().filter(|&&reaches| reaches).count(), "{target}");
            publication.offer(b"message").unwrap();
            let reached: Vec<bool> =
                subscriptions.iter_mut().map(|subscription| subscription.poll(2, |_| ()) == 1).collect();
            assert_eq!(reached, reaches, "{target}");
        }
    }
}

/// Goal: a publication that never pauses does not starve the others that a subscription reads.
#[test]
fn a_busy_publication_starves_nobody() {
    let _alive = watchdog(60);
    let (here, there) = open_on(&Bus::loopback(&unique("fair")));
    let mut subscription = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
    let target = Target::port("there", PORT);
    let options = ring(4096, WhenFull::HoldBack);
    let mut all: Vec<Publication> = (0..40).map(|_| here.publication(target, &options).unwrap()).collect();
    subscription.poll(0, |_| ());
    let (busy, quiet) = all.split_first_mut().unwrap();
    quiet.iter_mut().for_each(|publication| publication.offer(b"quiet").unwrap());
    let mut heard = 0;
    let mut turns = 0;
    while heard < quiet.len() {
        while busy.offer(b"busy").is_ok() {}
        subscription.poll(4, |message| heard += usize::from(message.len() == 5));
        turns += 1;
        assert!(turns < 10_000, "{heard} of {} were heard", quiet.len());
    }
}

/// Goal: a publication that is made while the only other one never pauses is found, and read.
#[test]
fn a_busy_publication_hides_no_new_one() {
    let _alive = watchdog(60);
    for bus in buses("found") {
        let (here, there) = open_on(&bus);
        let options = ring(4096, WhenFull::HoldBack);
        let (mut busy, mut subscription) = pair(&here, &there, &options, Wake::Spin);
        let mut new: Option<Publication> = None;
        let (mut turns, mut is_heard) = (0, false);
        while !is_heard {
            while busy.offer(b"busy").is_ok() {}
            subscription.poll(1, |message| is_heard |= message.len() == 3);
            turns += 1;
            if turns == 100 {
                let mut publication = here.publication(Target::port("there", PORT), &options).unwrap();
                publication.offer(b"new").unwrap();
                new = Some(publication);
            }
            assert!(turns < 10_000, "it was not found");
        }
        drop(new);
    }
}

/// Goal: of many publications that have much to say each has its turn. That holds also for a reader so slow that the subscription looks
/// after its house meanwhile.
#[test]
fn a_slow_reader_comes_to_every_publication() {
    const PUBLICATIONS: usize = 6;
    /// As many as one may have before the others have their turn.
    const TURNS: usize = 17;
    let _alive = watchdog(60);
    let (here, there) = open_on(&Bus::loopback(&unique("turns")));
    let mut subscription = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
    for source in 0..PUBLICATIONS {
        let options = PublicationOptions { source: source as u16, ..ring(1 << 16, WhenFull::HoldBack) };
        let mut publication = here.publication(Target::port("there", PORT), &options).unwrap();
        for _ in 0..PUBLICATIONS * TURNS {
            publication.offer(&(source as u64).to_le_bytes()).unwrap();
        }
    }
    let mut heard = [0; PUBLICATIONS];
    for _ in 0..PUBLICATIONS * TURNS {
        assert_eq!(subscription.poll(1, |message| heard[message.word(0).unwrap() as usize] += 1), 1);
        // Looks after the house when that is due, every 100 ms.
        assert!(!subscription.arm(), "there is more");
        std::thread::sleep(Duration::from_millis(3));
    }
    assert!(heard.iter().all(|&count| count > 0), "{heard:?}");
}

/// Goal: a node reads as many rings as its subscriptions are for, in any order of arrival. Each of 66 publications to everybody is heard
/// by all subscriptions, nothing is missing from any account, and every held-back writer is let go.
#[test]
fn a_node_with_many_rows_reads_all_rings() {
    const EACH: usize = 66;
    const ROUNDS: usize = 100;
    let _alive = watchdog(120);
    let [inside, between, ..] = buses("rows");
    for bus in [inside, between] {
        let node = Node::open(&bus, "everybody").unwrap();
        let publish = || node.publication(Target::EVERYONE, &ring(4096, WhenFull::HoldBack)).unwrap();
        let subscribe = |port: usize| node.subscription(port as u16, &waiting(Wake::Spin)).unwrap();
        let mut publications: Vec<_> = (0..EACH / 2).map(|_| publish()).collect();
        let mut subscriptions: Vec<_> = (1..=EACH).map(subscribe).collect();
        publications.extend((EACH / 2..EACH).map(|_| publish()));
        let (mut sent, mut heard) = ([0; EACH], [0; EACH]);
        let give_up = Instant::now() + 6 * PATIENCE;
        while sent != [ROUNDS; EACH] || heard != [EACH * ROUNDS; EACH] {
            assert!(Instant::now() < give_up, "sent {sent:?}, heard {heard:?}");
            for (publication, sent) in publications.iter_mut().zip(&mut sent) {
                while *sent < ROUNDS && publication.offer(&[7; 100]).is_ok() {
                    *sent += 1;
                }
            }
            for (subscription, heard) in subscriptions.iter_mut().zip(&mut heard) {
                *heard += subscription.poll(usize::MAX, |_| ());
            }
        }
        for subscription in &subscriptions {
            assert_eq!((subscription.left_out(), subscription.accounts().count()), (0, EACH));
            let is_whole = |account: ImageAccount| (account.delivered, account.lost) == (ROUNDS as u64, 0);
            assert!(subscription.accounts().all(is_whole));
        }
    }
}

/// Goal: where there are no publications the error says why, and ways of waiting that cannot be are refused.
#[test]
fn impossible_streams_are_refused_in_words() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("refused"));
    let node = Node::open(&bus, "here").unwrap();
    let error = node.subscription(1, &waiting(Wake::Signal)).unwrap_err().to_string();
    assert!(error.contains("signal") && error.contains("any other way"), "{error}");
    assert!(node.subscription(u16::MAX, &waiting(Wake::Spin)).unwrap_err().to_string().contains("65535"));
    let odd = PublicationOptions { ring_size: 5000, ..PublicationOptions::default() };
    assert!(node.publication(Target::EVERYONE, &odd).unwrap_err().to_string().contains("power of two"));
    let reserved = PublicationOptions { source: u16::MAX, ..PublicationOptions::default() };
    assert!(node.publication(Target::EVERYONE, &reserved).unwrap_err().to_string().contains("65535"));
    let small = PublicationOptions { ring_size: 4096, ..PublicationOptions::default() };
    let publications: Vec<_> =
        (0..256).map(|_| node.publication(Target::EVERYONE, &small).unwrap()).collect();
    assert!(node.publication(Target::EVERYONE, &small).unwrap_err().to_string().contains("256"));
    drop(publications);
    node.publication(Target::EVERYONE, &small).unwrap();
    let subscriptions: Vec<_> =
        (0..317).map(|port| node.subscription(port, &waiting(Wake::Spin)).unwrap()).collect();
    assert!(node.subscription(317, &waiting(Wake::Spin)).unwrap_err().to_string().contains("317"));
    assert!(node.bind(317).unwrap_err().to_string().contains("317"), "it has no communicator");
    drop(subscriptions);
    node.subscription(317, &waiting(Wake::Spin)).unwrap();
}

/// Goal: a communicator that comes to a node without a ring to spare is told to try again, and sends once another gives one back.
#[test]
fn a_node_without_a_ring_to_spare_is_full() {
    let _alive = watchdog(60);
    for bus in buses("no-ring") {
        let (here, there) = open_on(&bus);
        let mut receiver = there.bind(PORT).unwrap();
        let mut publications: Vec<_> = (0..256)
            .map(|_| here.publication(Target::EVERYONE, &ring(4096, WhenFull::Overrun)).unwrap())
            .collect();
        let (mut sender, target) = (here.bind(1).unwrap(), Target::port("there", PORT));
        assert_eq!(sender.try_send(target, b"refused"), Err(SendError::Full), "{bus}");
        assert_eq!(here.ledger().send_full, 1, "{bus}");
        publications.pop();
        sender.send_timeout(target, b"taken", PATIENCE).unwrap();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"taken", "{bus}");
    }
}

/// Not a test of its own: the work of the other process.
#[test]
fn role() {
    let Some((role, name)) = own_role() else { return };
    let bus = Bus::Shared(SharedOptions { ring_size: 4096, ..SharedOptions::new(&name) });
    let node = Node::open(&bus, "other").unwrap();
    match role.as_str() {
        "reader" => {
            let mut subscription = node.subscription(PORT, &waiting(Wake::Adaptive)).unwrap();
            loop {
                // Slowly, and most of the time inside of a run of messages.
                subscription.poll(64, |_| std::thread::sleep(Duration::from_micros(50)));
            }
        }
        "locked" => {
            lock_memory_within_limit();
            let refused = node.subscription(PORT, &SubscriptionOptions::default()).unwrap_err().to_string();
            assert!(refused.contains("ulimit -l"), "{refused}");
        }
        "locked log" => {
            lock_memory_within_limit();
            let file = tempfile::NamedTempFile::new().unwrap();
            LateLog::create(file.path(), Duration::from_millis(1)).unwrap();
        }
        "writer" => {
            let mut publication =
                node.publication(Target::port("here", PORT), &ring(4096, WhenFull::HoldBack)).unwrap();
            assert!(publication.wait_for_readers(1, PATIENCE));
            let mut number = 0;
            loop {
                let mut run = publication.run();
                while run.offer(&payload_of(number, 100)).is_ok() {
                    number += 1;
                }
            }
        }
        "short of rows" => be_short_of_rows(&Node::open(&bus, "here").unwrap(), &node),
        _ => panic!("{role}: no role"),
    }
}

/// Offers so many messages, which readers hold back, and has each subscription read until nothing is left.
fn say(publication: &mut Publication, subscriptions: &mut [Subscription], count: usize) {
    let give_up = Instant::now() + PATIENCE;
    let mut sent = 0;
    while sent < count {
        assert!(Instant::now() < give_up, "{sent} sent: held back for ever");
        // Each time as much as there is room for, which is a lap of the ring and more where nobody holds it back.
        while sent < count && publication.offer(&[7; 100]).is_ok() {
            sent += 1;
        }
        for subscription in &mut *subscriptions {
            while subscription.poll(usize::MAX, |_| ()) > 0 {}
        }
    }
}

/// Of a process that may make no larger file: its table of rows cannot grow beyond the first 2,048.
fn be_short_of_rows(here: &Node, there: &Node) {
    const SENT: usize = 200;
    let target = Target::node("other");
    let publish = || here.publication(target, &ring(4096, WhenFull::HoldBack)).unwrap();
    let subscribe = |port| there.subscription(port, &waiting(Wake::Spin));
    let mut publications: Vec<_> = (0..45).map(|_| publish()).collect();
    let mut subscriptions: Vec<_> = (1..=45).map(|port| subscribe(port).unwrap()).collect();
    // It would not be known to the writers of some of the rings that it is to read.
    let refused = subscribe(46).unwrap_err();
    assert!(matches!(refused, StreamError::System(_)), "{refused}");
    let refused = there.bind(46).unwrap_err();
    assert!(matches!(refused, BindError::System(_)), "{refused}");
    // One that comes later is read by all, though it waits for those only whose rows it sees.
    publications.push(publish());
    say(&mut publications[45], &mut subscriptions, SENT);
    let mut lost = 0;
    for subscription in &subscriptions {
        let heard = subscription.accounts().find(|account| account.delivered + account.lost > 0).unwrap();
        assert_eq!(heard.delivered + heard.lost, SENT as u64, "{heard:?}");
        assert_eq!(subscription.left_out(), 0);
        lost += heard.lost;
    }
    assert_eq!(there.ledger().lost_overrun, lost);
    let peers = there.peers();
    let account = peers.iter().find(|peer| peer.node == here.id()).unwrap();
    assert_eq!(account.arrived + account.lost, here.sent_to(Some(there.id())));
    // Once there is room, those are waited for too: now nobody else is left.
    subscriptions.drain(..30);
    publications.remove(0);
    say(&mut publications[0], &mut subscriptions, 1);
    assert_fills(&mut publications[44], &mut subscriptions);
}

/// Readers that do not read hold the publication back: all that it has sent by then they have.
fn assert_fills(publication: &mut Publication, subscriptions: &mut [Subscription]) {
    let full = (0..200).find(|_| publication.offer(&[7; 100]) == Err(OfferError::Full));
    let sent = full.expect("somebody holds it back");
    for subscription in subscriptions {
        let mut heard = 0;
        assert!((0..sent).any(|_| {
            heard += subscription.poll(usize::MAX, |_| ());
            heard == sent
        }));
    }
}

/// Goal: where the table of rows cannot grow, a subscription that comes is refused. A ring that comes is read and accounted for by all,
/// and held back for ever by none.
#[test]
fn a_node_that_is_short_of_rows_loses_nothing_unseen() {
    let _alive = watchdog(60);
    let program = std::env::current_exe().unwrap();
    // In blocks of 512 bytes or of 1,024: one step of rows fits into either, two into none.
    let way = ["sh", "-c", "ulimit -f 300; exec \"$0\" \"$@\""];
    Role::start_by(&way, &program, "short of rows", &unique("short")).end();
}

/// Goal: a message that did not fit is the next one, regardless of which others have sent or ended meanwhile.
#[test]
fn a_message_that_did_not_fit_is_the_next() {
    const SMALL: u8 = 100;
    for bus in buses("fit") {
        let there = Node::open(&bus, "there").unwrap();
        // Two that end are before and behind the others, in whichever order they are found.
        let [first, a, b, c, last] =
            ["first", "a", "b", "c", "last"].map(|name| Node::open(&bus, name).unwrap());
        let senders = [a, b, c];
        for large in 0..senders.len() {
            let mut subscription = there.subscription(PORT, &SubscriptionOptions::default()).unwrap();
            let publish = |node: &Node| {
                node.publication(Target::port("there", PORT), &PublicationOptions::default()).unwrap()
            };
            let mut publications = senders.each_ref().map(publish);
            let ending = [&first, &last].map(publish);
            for number in 0..SMALL {
                for publication in &mut publications {
                    publication.offer(&[number; 8]).unwrap();
                }
                if number == 20 {
                    publications[large].offer(&[7; 100]).unwrap();
                }
            }
            let mut heard = 0;
            let found = loop {
                match subscription.try_receive(&mut [0; 16]) {
                    Ok(_) => heard += 1,
                    refused => break refused.unwrap_err(),
                }
            };
            assert!(heard < 2 * usize::from(SMALL), "it was passed over");
            assert_eq!(found, TakeError::BufferTooSmall { size: 100 });
            for ending in ending.map(Some).into_iter().chain([None]) {
                for _ in 0..40 {
                    assert_eq!(subscription.try_receive(&mut [0; 16]).unwrap_err(), found);
                }
                drop(ending);
            }
            let received = subscription.try_receive(&mut [0; 128]).unwrap();
            assert_eq!((received.size, received.source.node), (100, senders[large].id()));
            loop {
                match subscription.poll(usize::MAX, |_| ()) {
                    0 => break,
                    count => heard += count,
                }
            }
            assert_eq!(heard, 3 * usize::from(SMALL));
        }
    }
}

/// The limit of memory that a process locks, bytes.
const LOCKED_SIZE: u64 = 8 << 20;

/// Locks what memory it maps from now on, up to the limit.
fn lock_memory_within_limit() {
    let mut capabilities = capabilities(None).unwrap();
    capabilities.effective -= CapabilitySet::IPC_LOCK;
    set_capabilities(None, capabilities).unwrap();
    let maximum = getrlimit(Resource::Memlock).maximum;
    let current = Some(LOCKED_SIZE.min(maximum.unwrap_or(LOCKED_SIZE)));
    setrlimit(Resource::Memlock, Rlimit { current, maximum }).unwrap();
    mlockall(MlockAllFlags::FUTURE).unwrap();
}

/// Goal: a ring that cannot be mapped, because this process may lock no more memory, is not passed over in silence.
#[test]
fn a_limit_of_locked_memory_is_an_error() {
    let _alive = watchdog(60);
    let name = unique("locked");
    let node = Node::open(&Bus::shared(&name), "here").unwrap();
    let large = PublicationOptions { ring_size: 2 * LOCKED_SIZE as usize, ..PublicationOptions::default() };
    let _publication = node.publication(Target::port("other", PORT), &large).unwrap();
    Role::start("locked", &name).end();
}

/// Goal: a program that locks its memory, as far as an ordinary user may, can keep a log of late messages.
#[test]
fn a_log_needs_little_locked_memory() {
    let _alive = watchdog(60);
    Role::start("locked log", &unique("locked-log")).end();
}

/// Goal: a reader that is killed inside of a run holds its writer back no longer than until its death is noticed; the next
/// life of its node is found again.
#[test]
fn a_reader_that_dies_holds_nothing() {
    let _alive = watchdog(120);
    let name = unique("killed-reader");
    let node = Node::open(&Bus::shared(&name), "here").unwrap();
    let mut publication =
        node.publication(Target::port("other", PORT), &ring(4096, WhenFull::HoldBack)).unwrap();
    for life in 0..3 {
        let reader = Role::start("reader", &name);
        assert!(publication.wait_for_readers(1, PATIENCE), "life {life}");
        let before = publication.sent();
        while publication.sent() < before + 500 {
            let _full = publication.offer(&payload_of(publication.sent(), 64));
        }
        reader.kill();
        while publication.offer(&payload_of(0, 64)) != Err(OfferError::NotConnected) {
            std::thread::yield_now();
        }
    }
}

/// Goal: of a writer that is killed all that it committed arrives, in order and whole, and then its stream ends.
#[test]
fn a_writer_that_dies_leaves_whole_messages() {
    let _alive = watchdog(120);
    let name = unique("killed-writer");
    let node = Node::open(&Bus::shared(&name), "here").unwrap();
    let mut subscription = node.subscription(PORT, &waiting(Wake::Futex)).unwrap();
    let mut buffer = [0; 128];
    for life in 0..3 {
        let writer = Role::start("writer", &name);
        let mut next = 0;
        while next < 2_000 {
            let received = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
            assert_eq!((check(&buffer[..received.size]), received.sequence), (next, next), "life {life}");
            next += 1;
        }
        writer.kill();
        while subscription.accounts().any(|account| !account.ended) {
            if let Ok(received) = subscription.receive_timeout(Duration::from_millis(10), &mut buffer) {
                assert_eq!((check(&buffer[..received.size]), received.sequence), (next, next), "life {life}");
                next += 1;
            }
        }
        while let Ok(received) = subscription.try_receive(&mut buffer) {
            assert_eq!((check(&buffer[..received.size]), received.sequence), (next, next), "life {life}");
            next += 1;
        }
    }
    subscription.poll(1, |_| ());
    assert_eq!(subscription.accounts().count(), 3);
    assert!(
        subscription.accounts().all(|account| account.begin == 0 && account.lost == 0 && !account.corrupt)
    );
}

/// Goal: regardless of what a hostile publisher writes into its ring, its readers neither die nor read outside, and others go on.
#[test]
fn scribbled_rings_harm_nobody() {
    let _alive = watchdog(300);
    let readers: u64 =
        std::env::var("PUNCTUAL_SCRIBBLES").ok().and_then(|count| count.parse().ok()).unwrap_or(400);
    let name = unique("scribbled");
    let bus = Bus::shared(&name);
    let (here, there) = open_on(&bus);
    let target = Target::port("there", PORT);
    let mut hostile = here.publication(target, &ring(4096, WhenFull::Overrun)).unwrap();
    let folder = format!("/dev/shm/punctual.{}.{name}", punctual_machine::process::user());
    let is_ring = |path: &std::path::PathBuf| path.extension().is_some_and(|ending| ending == "stream");
    let path = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(is_ring).unwrap();
    let mut honest = here.publication(target, &PublicationOptions::default()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut dice = Dice(0xC0FF_EE11);
    let mut buffer = vec![0; 4096];
    let mut corrupt = 0;
    for reader in 0..readers {
        let mut subscription = there.subscription(PORT, &waiting(Wake::Spin)).unwrap();
        honest.offer(&payload_of(reader, 32)).unwrap();
        for _ in 0..20 {
            let _what_it_says_does_not_matter = hostile.offer(&payload_of(1, 8 + dice.below(500) as usize));
            for _ in 0..dice.below(8) {
                // The identity is looked at once; control words and commit words at each message.
                let at =
                    if dice.below(3) == 0 { 1024 + 8 * dice.below(16) } else { 4096 + 16 * dice.below(256) };
                let word = match dice.below(3) {
                    0 => dice.below(u64::MAX),
                    1 => dice.below(64) << 32 | 1 << 28 | dice.below(4096),
                    _ => 0,
                };
                std::os::unix::fs::FileExt::write_all_at(&file, &word.to_le_bytes(), at).unwrap();
            }
            subscription.poll(10, |message| {
                let _either = message.copy_to(&mut buffer);
                let _any = message.word(dice.below(1 << 20) as usize);
            });
        }
        let accounts: Vec<_> = subscription.accounts().collect();
        corrupt += u64::from(accounts.iter().any(|account| account.corrupt));
        let is_whole = |account: &&ImageAccount| account.delivered == 1 && account.lost == 0;
        assert!(accounts.iter().any(|account| is_whole(&account)), "reader {reader}: {accounts:?}");
    }
    assert!(corrupt > readers / 10, "{corrupt} of {readers} readers noticed");
}
