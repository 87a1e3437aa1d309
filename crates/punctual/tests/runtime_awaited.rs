//! Messages that tasks await: none is slept over, cancelling loses none, and nobody is woken by a descriptor while workers are awake.

mod common;

use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{Dice, Medium, PATIENCE, ask, on_every_medium, open_both, reopen, unique, watchdog, within};
use futures_core::Stream;
use punctual::engine::faulty::Faults;
use punctual::memory::WhenFull;
use punctual::runtime::{Awaited, Lane, Runtime, RuntimeOptions, TaskOptions, Urgency, request, yield_now};
use punctual::{Bus, Communicator, Node, NodeOptions, PublicationOptions, SubscriptionOptions, Target};
use punctual_machine::counter::Flag;
use punctual_machine::event_fd::wait_readable;
use punctual_proto::Nanos;

/// Longer than any test takes on a busy machine.
const LIMIT_S: u64 = 120;

fn start(workers: usize) -> Runtime {
    Runtime::start(&RuntimeOptions { workers, ..RuntimeOptions::default() }).unwrap()
}

fn class(class: u8) -> TaskOptions {
    TaskOptions::of_class(class)
}

/// Sends back so many messages.
async fn answer(mut inbox: Awaited<Communicator>, count: u64) {
    for _ in 0..count {
        let message = inbox.receive().await;
        let (source, bytes) = (message.source, <[u8; 8]>::try_from(message.payload).unwrap());
        inbox.get_mut().send(Target::from(source), &bytes).unwrap();
    }
}

fn runtimes() -> [Runtime; 3] {
    let lane = Lane { workers: 1, last_class: 2, urgency: Urgency::Inherited };
    let with_lane = RuntimeOptions { lanes: vec![lane], ..RuntimeOptions::default() };
    [start(1), start(2), Runtime::start(&with_lane).unwrap()]
}

/// Goal: no message is slept over, on any medium, with any leader. Method: each is answered before the next is sent; classes with a
/// lane of their own and without.
#[test]
fn no_message_is_slept_over() {
    const COUNT: u64 = 700;
    let _alive = watchdog(5 * LIMIT_S);
    on_every_medium(|medium: &Medium| {
        for (of, runtime) in runtimes().into_iter().enumerate() {
            let (here, there) = open_both(medium);
            let joins: Vec<_> = [(1_u16, 0), (2, 5)]
                .into_iter()
                .map(|(port, number)| {
                    let inbox = Awaited::new(runtime.handle(), there.bind(port).unwrap()).unwrap();
                    runtime.spawn(class(number), answer(inbox, COUNT)).unwrap()
                })
                .collect();
            std::thread::scope(|scope| {
                for port in [1, 2] {
                    let from = here.bind(10 + port).unwrap();
                    let seed = u64::from(port) * 31 + of as u64;
                    scope.spawn(move || ask(from, Target::port("there", port), COUNT, seed));
                }
            });
            joins.into_iter().for_each(|join| runtime.block_on(join).unwrap());
        }
    });
}

/// Goal: a message that a fault has held back reaches its receiver, in an event loop and as a task, though nothing rings for it.
#[test]
fn a_delayed_message_comes_to_an_armed_receiver() {
    let _alive = watchdog(LIMIT_S);
    on_every_medium(|medium: &Medium| {
        let faults = Faults::seeded(1).delay(Duration::from_millis(30));
        let here = reopen(&NodeOptions::new("here"), &medium.here);
        let there = reopen(&NodeOptions::new("there").faults(faults), &medium.there);
        let (mut from, mut inbox) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        from.send_timeout(Target::port("there", 1), b"looped", PATIENCE).unwrap();
        while inbox.try_receive().is_err() {
            let woken = !inbox.arm() || wait_readable(inbox.as_fd(), Some(PATIENCE)).unwrap();
            assert!(woken, "{}: slept over", medium.name);
        }
        let runtime = start(1);
        let mut inbox = Awaited::new(runtime.handle(), inbox).unwrap();
        let task = async move { inbox.receive().await.payload.len() };
        let size = runtime.spawn(class(0), task).unwrap();
        from.send_timeout(Target::port("there", 1), b"awaited", PATIENCE).unwrap();
        assert_eq!(runtime.block_on(size).unwrap(), 7);
    });
}

/// Goal: more than are looked at wait at once, and none is forgotten.
#[test]
fn many_wait_at_once() {
    const INBOXES: u16 = 40;
    let _alive = watchdog(LIMIT_S);
    let bus = Bus::loopback(&unique("many"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let runtime = start(1);
    let joins: Vec<_> = (1..=INBOXES)
        .map(|port| {
            let inbox = Awaited::new(runtime.handle(), there.bind(port).unwrap()).unwrap();
            runtime.spawn(class(port as u8 % 8), answer(inbox, 20)).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for port in 1..=INBOXES {
            let from = here.bind(100 + port).unwrap();
            scope.spawn(move || ask(from, Target::port("there", port), 20, port.into()));
        }
    });
    joins.into_iter().for_each(|join| runtime.block_on(join).unwrap());
}

/// Goal: cancelling loses no message and doubles none. Method: waits that are given up after a random number of polls.
#[test]
fn giving_up_loses_nothing() {
    const COUNT: u64 = 3_000;
    let _alive = watchdog(LIMIT_S);
    let bus = Bus::loopback(&unique("given-up"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let runtime = start(1);
    let mut inbox = Awaited::new(runtime.handle(), there.bind(1).unwrap()).unwrap();
    let join = runtime.spawn(class(0), async move {
        let (mut dice, mut next, mut given_up) = (Dice(5), 0_u64, 0);
        while next < COUNT {
            match within(dice.below(4), inbox.receive()).await {
                Some(message) => {
                    assert_eq!(message.payload, next.to_le_bytes());
                    next += 1;
                }
                None => given_up += 1,
            }
            if dice.below(8) == 0 {
                yield_now().await;
            }
        }
        // An object that is no longer awaited is as it was.
        let mut own = inbox.into_inner();
        assert!(own.try_receive().is_err());
        given_up
    });
    let mut from = here.bind(2).unwrap();
    let mut dice = Dice(9);
    for number in 0..COUNT {
        from.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
        dice.pause();
    }
    assert!(runtime.block_on(join.unwrap()).unwrap() > 0, "nothing was given up");
}

/// Goal: while a worker is awake no descriptor wakes it. Method: one worker, which never sleeps, as another task is always ready.
#[test]
fn an_awake_worker_needs_no_descriptor() {
    let _alive = watchdog(LIMIT_S);
    let bus = Bus::loopback(&unique("awake"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let runtime = start(1);
    let done = Arc::new(Flag::default());
    let ends = Arc::clone(&done);
    let busy = runtime.spawn(class(0), async move {
        while !ends.is_raised() {
            yield_now().await;
        }
    });
    let inbox = Awaited::new(runtime.handle(), there.bind(1).unwrap()).unwrap();
    let answers = runtime.spawn(class(0), answer(inbox, 500)).unwrap();
    ask(here.bind(2).unwrap(), Target::port("there", 1), 1, 3);
    let before = runtime.handle().metrics().reactor.events;
    ask(here.bind(3).unwrap(), Target::port("there", 1), 499, 3);
    assert_eq!(runtime.handle().metrics().reactor.events, before);
    runtime.block_on(answers).unwrap();
    done.raise();
    runtime.block_on(busy.unwrap()).unwrap();
}

/// Goal: a task that is woken while another looks for its own message does not take over that one's deadline. Method: messages for
/// one with a deadline and for one without, in turn.
#[test]
fn a_look_passes_no_deadline_on() {
    const COUNT: u64 = 20_000;
    let _alive = watchdog(5 * LIMIT_S);
    let bus = Bus::loopback(&unique("deadlines"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let runtime = start(1);
    let bind = |port| Awaited::new(runtime.handle(), there.bind(port).unwrap()).unwrap();
    let (hurried, mut calm) = (bind(1), bind(2));
    let hurried = runtime.spawn(class(0).within(Duration::from_millis(40)), answer(hurried, COUNT)).unwrap();
    let calm = runtime.spawn(class(0), async move {
        let mut hurried = 0;
        for _ in 0..COUNT {
            let message = calm.receive().await;
            let (source, bytes) = (message.source, <[u8; 8]>::try_from(message.payload).unwrap());
            hurried += u64::from(request().is_some_and(|request| request.deadline != Nanos::NEVER));
            calm.get_mut().send(Target::from(source), &bytes).unwrap();
        }
        hurried
    });
    let mut from = here.bind(3).unwrap();
    for number in 0..COUNT {
        for port in [1, 2] {
            from.send_timeout(Target::port("there", port), &number.to_le_bytes(), PATIENCE).unwrap();
        }
        for _ in 0..2 {
            assert!(from.receive_timeout(PATIENCE).is_ok(), "{number} was slept over");
        }
    }
    runtime.block_on(hurried).unwrap();
    assert_eq!(runtime.block_on(calm.unwrap()).unwrap(), 0, "of {COUNT} had the other's deadline");
}

/// Goal: messages of a subscription can be awaited too, and a runtime that ends lets go of all that waits.
#[test]
fn subscriptions_are_awaited() {
    let _alive = watchdog(LIMIT_S);
    let bus = Bus::loopback(&unique("streams"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let runtime = start(2);
    let subscription = |port| there.subscription(port, &SubscriptionOptions::default()).unwrap();
    let mut awaited = Awaited::new(runtime.handle(), subscription(1)).unwrap();
    let sums = runtime.spawn(class(0), async move {
        let (mut sum, mut count) = (0, 0);
        while count < 2_000 {
            count += awaited.poll(64, |message| sum += message.word(0).unwrap()).await;
        }
        sum
    });
    let mut publication = here.publication(Target::port("there", 1), &PublicationOptions::default()).unwrap();
    let mut dice = Dice(3);
    for number in 0..2_000_u64 {
        while publication.offer(&number.to_le_bytes()).is_err() {
            std::thread::sleep(Duration::from_micros(20));
        }
        dice.pause();
    }
    assert_eq!(runtime.block_on(sums.unwrap()).unwrap(), 1_999 * 2_000 / 2);
    let mut waits = Awaited::new(runtime.handle(), subscription(2)).unwrap();
    drop(runtime.spawn(class(0), async move { waits.poll(1, |_| {}).await }).unwrap());
    drop(runtime);
    let mut own = subscription(2);
    assert_eq!(own.poll(1, |_| {}), 0);
}

/// Goal: of a message that is overwritten while a stream makes something of it, that is what comes; and another publication's
/// message, which is looked for at once, comes next.
#[test]
fn a_stream_drops_nothing_behind_what_is_overwritten() {
    let _alive = watchdog(LIMIT_S);
    let bus = Bus::loopback(&unique("overwritten"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let runtime = start(1);
    let subscription = there.subscription(1, &SubscriptionOptions::default()).unwrap();
    let options = PublicationOptions {
        ring_size: 1 << 12,
        when_full: Some(WhenFull::Overrun),
        ..PublicationOptions::default()
    };
    let [mut first, mut second] =
        [(); 2].map(|()| here.publication(Target::port("there", 1), &options).unwrap());
    first.offer(&1_u64.to_le_bytes()).unwrap();
    first.offer(&2_u64.to_le_bytes()).unwrap();
    second.offer(&3_u64.to_le_bytes()).unwrap();
    let stream = Awaited::new(runtime.handle(), subscription).unwrap().stream(move |message| {
        let number = message.word(0).unwrap();
        if number == 2 {
            // More than a lap; the check that the message is whole comes afterwards.
            (0..100).for_each(|_| first.offer(&4_u64.to_le_bytes()).unwrap());
        }
        number
    });
    let (mut stream, mut context) = (pin!(stream), Context::from_waker(Waker::noop()));
    let mut next = || stream.as_mut().poll_next(&mut context);
    assert_eq!([next(), next(), next()], [1, 2, 3].map(|number| Poll::Ready(Some(number))));
    assert_eq!(next(), Poll::Pending);
}
