//! The conformance suite of asynchronous reception: every way of waiting, on every medium, hands every message to the callback once and
//! in order. This holds from before the observer is there until it is stopped.

mod common;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{Dice, Medium, PATIENCE, on_every_medium, open_both, unique, watchdog, ways};
use punctual::{BindError, Bus, Communicator, CommunicatorOptions, Node, Observer, Target, Wake};
use punctual_machine::counter::Counter;

/// Messages that may be on their way: fewer than the smallest buffer of a medium holds.
const WINDOW: u64 = 64;

fn on_every_kind(check: impl Fn(&Medium, Wake) + Send + Sync) {
    on_every_medium(|medium| {
        for wake in ways(medium.rings) {
            check(medium, wake);
        }
    });
}

fn send_numbers(
    sender: &mut Communicator,
    numbers: std::ops::Range<u64>,
    received: &Counter,
    dice: &mut Dice,
) {
    for number in numbers {
        while number.saturating_sub(received.get_published()) >= WINDOW {
            std::thread::yield_now();
        }
        sender.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
        dice.pause();
    }
}

/// A callback that counts, and demands that each number comes once and in order.
fn counting(received: &Arc<Counter>) -> impl FnMut(&punctual::Message<'_>) + Send + use<> {
    let received = Arc::clone(received);
    move |message| {
        let number = u64::from_le_bytes(message.payload.try_into().expect("a number was sent"));
        assert_eq!(number, received.get(), "lost, doubled or overtaken");
        received.publish(number + 1);
    }
}

fn wait_for(received: &Counter, numbers: u64, what: &str) {
    let start = Instant::now();
    while received.get_published() < numbers {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: {} of {numbers}, then nothing",
            received.get_published()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Goal: nothing is lost between the last look and the sleep, with any kind of wake-up. Method: random pauses at both ends; a lost
/// wake-up would end by the clock, and stand in the ledger where the medium is memory.
#[test]
fn every_message_reaches_the_callback_in_order() {
    const MESSAGES: u64 = 1_500;
    let _alive = watchdog(180);
    on_every_kind(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
        let received = Arc::new(Counter::default());
        let observer = receiver.on_message(counting(&received)).unwrap();
        send_numbers(&mut sender, 0..MESSAGES, &received, &mut Dice(3));
        wait_for(&received, MESSAGES, &wake.to_string());
        let mut receiver = observer.stop();
        assert!(receiver.try_receive().is_err(), "{wake}");
        assert_eq!(there.ledger().missed_wakeups, 0, "{wake}: {}", there.ledger());
        assert!(there.ledger().is_balanced(), "{wake}: {}", there.ledger());
    });
}

/// Goal: a flood while the observer is set up. The original asked for signals from the start of the program. Frames that came before
/// the handler was there, or while its flag was set back, waited for the next frame.
#[test]
fn a_flood_during_set_up_is_handed_over() {
    let _alive = watchdog(180);
    on_every_kind(|medium, wake| {
        for round in 0..5 {
            let (here, there) = open_both(medium);
            let mut sender = here.bind(1).unwrap();
            let receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
            let received = Arc::new(Counter::default());
            let observer = std::thread::scope(|scope| {
                let flood = scope.spawn(|| {
                    send_numbers(&mut sender, 0..WINDOW - 1, &Counter::default(), &mut Dice(round + 1));
                });
                (0..round * 5_000).for_each(|_| std::hint::spin_loop());
                let observer = receiver.on_message(counting(&received)).unwrap();
                flood.join().unwrap();
                observer
            });
            wait_for(&received, WINDOW - 1, &format!("{wake}, round {round}"));
            observer.stop();
        }
    });
}

/// Goal: an observer stops when told, wherever it sleeps; its communicator works on, and may be observed again.
#[test]
fn an_observer_stops_and_may_start_again() {
    let _alive = watchdog(120);
    on_every_kind(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
        let received = Arc::new(Counter::default());
        for round in 0..3 {
            let observer = receiver.on_message(counting(&received)).unwrap();
            send_numbers(&mut sender, round..round + 1, &received, &mut Dice(1));
            wait_for(&received, round + 1, &wake.to_string());
            receiver = observer.stop();
        }
        sender.send_timeout(Target::port("there", 1), b"directly", PATIENCE).unwrap();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"directly", "{wake}");
        drop(receiver.on_message(|_| ()).unwrap());
    });
}

/// Goal: a callback may drop its own observer. Its thread ends then, and the port is free.
#[test]
fn a_callback_drops_its_observer() {
    let _alive = watchdog(60);
    let node = Node::open(&Bus::loopback(&unique("own-end")), "one").unwrap();
    let held: Arc<Mutex<Option<Observer>>> = Arc::default();
    let (own, (told, dropped)) = (Arc::clone(&held), mpsc::channel());
    let observer = node.bind(1).unwrap().on_message(move |_| {
        drop(own.lock().unwrap().take());
        told.send(()).unwrap();
    });
    *held.lock().unwrap() = Some(observer.unwrap());
    node.bind(2).unwrap().send_timeout(Target::port("one", 1), b"the first", PATIENCE).unwrap();
    dropped.recv_timeout(PATIENCE).expect("the callback went on");
    let began = Instant::now();
    while node.bind(1).is_err() {
        assert!(began.elapsed() < PATIENCE, "the thread goes on");
        std::thread::yield_now();
    }
}

/// Goal: two observers of one node share its medium: whichever drives the engine hands the other its messages, and takes the
/// signals with it.
#[test]
fn two_observers_of_one_node_do_not_starve_each_other() {
    const MESSAGES: u64 = 500;
    let _alive = watchdog(180);
    on_every_kind(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let all: Vec<_> = (1..=2)
            .map(|port| {
                let receiver = there.bind_with(port, &CommunicatorOptions::waiting(wake)).unwrap();
                let received = Arc::new(Counter::default());
                (receiver.on_message(counting(&received)).unwrap(), received)
            })
            .collect();
        let mut dice = Dice(5);
        for number in 0..MESSAGES {
            for (port, (_, received)) in (1_u16..).zip(&all) {
                while number.saturating_sub(received.get_published()) >= WINDOW / 2 {
                    std::thread::yield_now();
                }
                sender.send_timeout(Target::port("there", port), &number.to_le_bytes(), PATIENCE).unwrap();
                dice.pause();
            }
        }
        for (observer, received) in all {
            wait_for(&received, MESSAGES, &wake.to_string());
            observer.stop();
        }
        assert!(there.ledger().is_balanced(), "{wake}: {}", there.ledger());
    });
}

/// Goal: a medium that raises no signal cannot be waited for by signal, and the error says what can.
#[test]
fn memory_raises_no_signal() {
    let node = Node::open(&Bus::loopback(&common::unique("nosignal")), "here").unwrap();
    let refused = node.bind_with(1, &CommunicatorOptions::waiting(Wake::Signal));
    assert!(matches!(&refused, Err(BindError::CannotWait(Wake::Signal))), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("take any other way"));
}
