//! Once started, sending and receiving allocate nothing, on any medium, in any way of waiting.

mod common;

use std::sync::Barrier;
use std::time::Duration;

use common::{Dice, Medium, PATIENCE, on_every_medium, open_both, watchdog, ways};
use punctual::{Communicator, CommunicatorOptions, Keys, ReceiveError, Target, Wake};
use punctual_machine::allocation::{Counting, count};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: u32 = 150;

/// Messages of one round, in this order: for one port, for all ports, for everybody, for a port nobody has.
const TARGETS: [fn() -> Target; 4] = [
    || Target::port("there", 1),
    || Target::node("there"),
    || Target::EVERYONE,
    || Target::port("there", 99),
];

/// Receives what is for its port in so many rounds: two or three messages each.
fn receive_rounds(receiver: &mut Communicator, rounds: u32) {
    let per_round = if receiver.address().port.get() == 1 { 3 } else { 2 };
    for _ in 0..rounds * per_round {
        // Short waits end by the clock now and then: that path allocates nothing either.
        while let Err(ReceiveError::Empty) = receiver.receive_timeout(Duration::from_millis(2)) {}
    }
}

fn send_rounds(sender: &mut Communicator, rounds: u32, dice: &mut Dice) {
    for _ in 0..rounds {
        for target in TARGETS {
            // In memory a sender sees that nobody is there.
            let is_nobodys = target().port.is_some_and(|port| port.get() == 99);
            let patience = if is_nobodys { Duration::ZERO } else { PATIENCE };
            let sent = sender.send_timeout(target(), &[7; 100], patience);
            assert!(sent.is_ok() || is_nobodys, "{sent:?}");
        }
        dice.pause();
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Messages until both nodes know each other. Then nothing for a while: a waiting thread sleeps, finds the other node's eventfd in its
/// post box, and keeps it. That allocates, once for each peer, and whenever it first sleeps.
fn warm_up(receiver: &mut Communicator) {
    receive_rounds(receiver, 20);
    assert!(receiver.receive_timeout(Duration::from_millis(10)).is_err());
}

/// Goal: after the first messages no thread allocates, also where a message goes through an inbox or for nobody.
/// Method: an allocator that counts per thread; enough rounds for housekeeping to fall into them.
#[test]
fn the_hot_path_allocates_nothing() {
    let _alive = watchdog(90);
    on_every_medium(|medium| {
        for wake in ways(medium.rings) {
            let (here, there) = open_both(medium);
            let mut sender = here.bind(1).unwrap();
            let receivers = [1, 2].map(|port| {
                let options = CommunicatorOptions::waiting(wake).stamped().recording(16);
                there.bind_with(port, &options).unwrap()
            });
            let (warm, done) = (Barrier::new(3), Barrier::new(3));
            let allocated = std::thread::scope(|scope| {
                let (warm, done) = (&warm, &done);
                let receivers = receivers.map(|mut receiver| {
                    scope.spawn(move || {
                        warm_up(&mut receiver);
                        warm.wait();
                        let before = count();
                        receive_rounds(&mut receiver, ROUNDS);
                        let allocated = count() - before;
                        done.wait();
                        allocated
                    })
                });
                let mut dice = Dice(2);
                send_rounds(&mut sender, 20, &mut dice);
                warm.wait();
                let before = count();
                send_rounds(&mut sender, ROUNDS, &mut dice);
                let sent = count() - before;
                done.wait();
                let [one, two] = receivers.map(|receiver| receiver.join().unwrap());
                [sent, one, two]
            });
            assert_eq!(allocated, [0; 3], "{wake}: sender and receivers allocated");
            let ledger = there.ledger();
            assert!(ledger.is_balanced() && (medium.in_memory || ledger.no_such_port > 0), "{ledger}");
        }
    });
}

/// Goal: the first component that finds the engine taken allocates nothing, whenever that is.
/// Method: one holds the engine; another, that was just bound, waits in vain for the first time in its life.
#[test]
fn the_first_follower_allocates_nothing() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let mut leader = there.bind(1).unwrap();
        let mut follower = there.bind(2).unwrap();
        let known = Barrier::new(2);
        std::thread::scope(|scope| {
            let known = &known;
            let leads = scope.spawn(move || {
                // A peer's first message opens its account: that may allocate.
                leader.receive_timeout(PATIENCE).unwrap();
                known.wait();
                leader.receive_timeout(PATIENCE).unwrap();
            });
            sender.send_timeout(Target::port("there", 1), b"lead", PATIENCE).unwrap();
            known.wait();
            // Time to take the engine: without it the follower may lead, which allocates nothing either.
            std::thread::sleep(Duration::from_millis(20));
            let before = count();
            assert!(follower.receive_timeout(Duration::from_millis(5)).is_err());
            let allocated = count() - before;
            sender.send_timeout(Target::port("there", 1), b"leave", PATIENCE).unwrap();
            leads.join().unwrap();
            assert_eq!(allocated, 0);
        });
    });
}

/// The same for one thread that tries, claims in place, queues and arms its own event loop.
#[test]
fn trying_and_arming_allocate_nothing() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        try_and_arm(medium);
        try_and_arm(&medium.sealed(&Keys::random(1)));
    });
}

fn try_and_arm(medium: &Medium) {
    let (here, there) = open_both(medium);
    let mut sender = here.bind(1).unwrap();
    let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin)).unwrap();
    let mut round = || {
        let target = Target::port("there", 1);
        sender.queue(target, b"queued").unwrap();
        let mut claim = sender.claim(target, 6).unwrap();
        claim.payload().copy_from_slice(b"placed");
        claim.commit();
        for _ in 0..2 {
            receiver.receive_timeout(PATIENCE).unwrap();
        }
        assert!(receiver.try_receive().is_err());
        receiver.arm();
    };
    (0..20).for_each(|_| round());
    let before = count();
    (0..500).for_each(|_| round());
    assert_eq!(count() - before, 0);
}
