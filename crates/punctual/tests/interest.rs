//! Interest and response over real buses: every medium, callbacks and blocking, late and dead ends, other processes.

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{
    Medium, PATIENCE, Role, free_ports, on_every_medium, open_both, own_role, reopen, unique, watchdog,
};
use punctual::engine::faulty::Faults;
use punctual::interest::{
    Due, InterestError, Participant, ParticipantOptions, Period, PublicationLimits, Publisher, Refusal,
    Repetition, Response, Running, Subscriber, Topic,
};
use punctual::unit::{Metre, MetrePerSecond, Quantity};
use punctual::{Bus, CommunicatorOptions, Keys, Node, NodeOptions, Target};
use punctual_machine::counter::Counter;
use punctual_proto::Nanos;

type Position = [Quantity<Metre, f64>; 3];
const POSITION: Topic<Position> = Topic::named("position");
type Speed = Quantity<MetrePerSecond, i64>;
const SPEED: Topic<Speed> = Topic::named("speed");

/// Short, so that many instants pass in a test; long enough for a machine that is busy with others.
const PERIOD: Duration = Duration::from_millis(2);

fn stamped() -> CommunicatorOptions {
    CommunicatorOptions::default().stamped()
}

/// A publisher of its instants: a receiver of one can tell what the value must be.
fn publish_instants(node: &Node, port: u16) -> Running<Publisher<Quantity<MetrePerSecond, i64>>> {
    let publisher = Publisher::new(node.bind_with(port, &stamped()).unwrap(), SPEED).unwrap();
    publisher.spawn(|due| Quantity::new(due.instant.offset_us.cast_signed())).unwrap()
}

fn check_instant(response: &Response<Quantity<MetrePerSecond, i64>>, period: Duration) {
    assert_eq!(response.value.number(), response.offset_us.cast_signed());
    assert!(response.at_once || u128::from(response.offset_us).is_multiple_of(period.as_micros()));
}

/// Goal: subscribers of different periods get each of their instants, in order, on every medium; every message of the protocol stands
/// in a counter. Values that a busy machine makes late are missed, and counted: never lost.
#[test]
fn all_periods_are_served_on_every_medium() {
    let _alive = watchdog(120);
    on_every_medium(|medium: &Medium| {
        let (here, there) = open_both(medium);
        let publisher = publish_instants(&here, 1);
        let periods = [PERIOD, PERIOD * 3 / 2, PERIOD * 5];
        let subscribers: Vec<_> = periods
            .into_iter()
            .zip(1..)
            .map(|(period, port)| {
                let mut subscriber = Subscriber::new(there.bind(port).unwrap(), SPEED, period).unwrap();
                std::thread::spawn(move || {
                    let (mut last, mut accepted, mut early) = (None, false, 0);
                    for _ in 0..50 {
                        let response = subscriber.receive_timeout(PATIENCE).unwrap();
                        check_instant(&response, period);
                        // A value that is sent at once lies between the instants, and overtakes one that is late.
                        if !response.at_once {
                            let offset_us = response.offset_us;
                            assert!(last < Some(offset_us), "{last:?} before {offset_us}");
                            last = Some(offset_us);
                        }
                        // A value that is sent to others suits it too, before the publisher knows of its interest.
                        accepted |= response.at_once;
                        early += u64::from(!accepted);
                    }
                    subscriber.withdraw();
                    let (jitter, lateness) = (subscriber.jitter().count(), subscriber.lateness().count());
                    (period, early, subscriber.counts().taken, jitter, lateness)
                })
            })
            .collect();
        let mut served_min = Vec::new();
        for subscriber in subscribers {
            let (period, early, taken, jitter, lateness) = subscriber.join().unwrap();
            assert_eq!(taken, 50);
            assert!(jitter >= 48 && lateness >= 49, "{jitter} {lateness}: both ends read one clock");
            served_min.push((period, 49_u64.saturating_sub(early)));
        }
        let publisher = publisher.stop();
        assert_eq!(publisher.periods().len(), 3);
        for (period, served_min) in served_min {
            let is_it = |known: &&Period| u128::from(known.period_us()) == period.as_micros();
            let served = publisher.periods().iter().find(is_it).expect("it was wanted").lateness().count();
            assert!(served >= served_min, "{served} of {served_min} instants of {period:?}");
        }
        assert_eq!((publisher.traffic().foreign, publisher.traffic().full), (0, 0));
        assert!(here.ledger().is_balanced() && there.ledger().is_balanced(), "{}", there.ledger());
    });
}

/// Goal: publishers stop to serve a subscriber that is dropped, long before its interest would end.
#[test]
fn a_dropped_subscriber_has_withdrawn() {
    let _alive = watchdog(60);
    let bus = Bus::shared(&unique("dropped"));
    let (publishing, subscribing) = (Node::open(&bus, "a").unwrap(), Node::open(&bus, "b").unwrap());
    let mut publisher = Publisher::new(publishing.bind(1).unwrap(), SPEED).unwrap();
    let serve = |publisher: &mut Publisher<_>| {
        publisher
            .serve_for(Duration::from_millis(5), |due| Quantity::new(due.instant.offset_us.cast_signed()));
        publisher.counts()
    };
    let repetition = Repetition { lifetime: Nanos::from_millis(60_000), ..Repetition::default() };
    let options = ParticipantOptions { repetition, ..ParticipantOptions::default() };
    // A subscriber whose communicator is taken back withdraws, and so does a subscriber or participant that is dropped.
    for withdrawn in [1, 3, 4, 6] {
        let communicator = subscribing.bind(2).unwrap();
        let mut subscriber = Subscriber::with(communicator, SPEED, PERIOD, &options).unwrap();
        while subscriber.receive_timeout(Duration::from_millis(1)).is_err() {
            serve(&mut publisher);
        }
        if withdrawn % 3 == 1 {
            drop(subscriber);
        } else {
            let mut participant = Participant::with(subscriber.into_communicator(), &options);
            participant.subscribe(SPEED, PERIOD, |_| ()).unwrap();
            while serve(&mut publisher).accepted < withdrawn {
                participant.serve_for(Duration::from_millis(1));
            }
        }
        while serve(&mut publisher).withdrawn < withdrawn {}
    }
}

/// Goal: a subscriber that comes back to its port is served at once, as any newcomer is, however long its period is. Method: one that
/// is dropped, and processes that are killed, whose interests hold still.
#[test]
fn a_subscriber_that_comes_back_is_served_at_once() {
    let _alive = watchdog(120);
    let name = unique("back");
    let publishing = Node::open(&Bus::shared(&name), "a").unwrap();
    let _running = publish_instants(&publishing, 1);
    let mut ear = publishing.bind(EAR).unwrap();
    for _ in 0..3 {
        let child = Role::start("subscriber", &format!("shared {name}"));
        // Messages that all nodes send each other come to this port, too.
        while ear.receive_timeout(PATIENCE).expect("it was served").payload != b"served" {}
        child.kill();
    }
    let subscribing = Node::open(&Bus::shared(&name), "subscriber").unwrap();
    for _ in 0..2 {
        assert!(subscribe_for_long(&subscribing).receive_timeout(PATIENCE).unwrap().at_once);
    }
}

/// Where a publisher's process hears that a subscriber was served.
const EAR: u16 = 4;

/// With a period and a lifetime that no test outlasts.
fn subscribe_for_long(node: &Node) -> Subscriber<Quantity<MetrePerSecond, i64>> {
    let repetition = Repetition { lifetime: Nanos::from_millis(60_000), ..Repetition::default() };
    let options = ParticipantOptions { repetition, ..ParticipantOptions::default() };
    Subscriber::with(node.bind(2).unwrap(), SPEED, Duration::from_secs(3_600), &options).unwrap()
}

/// Goal: a publisher or subscriber that was stopped, and is given back, runs again: on its caller's thread, and on one of its own.
/// There it goes on until it is stopped, too.
#[test]
fn a_stopped_publisher_or_subscriber_runs_again() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("again"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let (publishes, receives) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let source = || {
        let publishes = Arc::clone(&publishes);
        move |_: &Due| {
            publishes.add(1);
            Quantity::new(7)
        }
    };
    let sink = || {
        let receives = Arc::clone(&receives);
        move |_: Response<_>| receives.add(1)
    };
    let more = |serve: &mut dyn FnMut()| {
        let (before, end) = ((publishes.get(), receives.get()), Instant::now() + PATIENCE);
        while publishes.get() < before.0 + 3 || receives.get() < before.1 + 3 {
            assert!(Instant::now() < end, "{before:?}");
            serve();
        }
    };
    let nap = || std::thread::sleep(Duration::from_millis(1));
    let mut publisher = Publisher::new(here.bind(1).unwrap(), SPEED).unwrap();
    let mut subscriber = Subscriber::new(there.bind(2).unwrap(), SPEED, PERIOD).unwrap();
    for _ in 0..2 {
        let (says, hears) = (publisher.spawn(source()).unwrap(), subscriber.spawn(sink()).unwrap());
        more(&mut || nap());
        assert!(!says.is_finished() && !hears.is_finished());
        subscriber = hears.stop();
        more(&mut || {
            subscriber.serve_for(Duration::from_millis(5), sink());
            nap();
        });
        let hears = subscriber.spawn(sink()).unwrap();
        publisher = says.stop();
        more(&mut || {
            publisher.serve_for(Duration::from_millis(5), source());
            nap();
        });
        subscriber = hears.stop();
    }
}

/// A publisher, and a subscriber whose thread was told to stop while it was in its callback: it looks whether it was before it
/// would wait, and what was to end its wait is still on its way.
fn stopped_in_its_callback(nodes: &(Node, Node)) -> (Publisher<Speed>, Subscriber<Speed>) {
    for _ in 0..20 {
        let (entered, is_inside) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let entries = Arc::new(Counter::default());
        let mut publisher = Publisher::new(nodes.0.bind(1).unwrap(), SPEED).unwrap();
        let subscriber = Subscriber::new(nodes.1.bind(1).unwrap(), SPEED, PERIOD).unwrap();
        let theirs = Arc::clone(&entries);
        let subscriber = subscriber.spawn(move |_| {
            theirs.add(1);
            let _nobody_waits = entered.send(()).is_ok() && may_leave.recv().is_ok();
        });
        let subscriber = subscriber.unwrap();
        while is_inside.try_recv().is_err() {
            publisher.serve_for(PERIOD, |_| Quantity::new(1));
        }
        let stopping = std::thread::spawn(move || subscriber.stop());
        std::thread::sleep(Duration::from_millis(50));
        publisher.serve_for(PERIOD * 5, |_| Quantity::new(1));
        drop((leave, is_inside));
        let subscriber = stopping.join().unwrap();
        // It entered its callback once more where a busy host let it leave before it was told.
        if entries.get() == 1 {
            return (publisher, subscriber);
        }
    }
    panic!("20 subscribers entered their callback once more");
}

/// Goal: a caller that takes back a stopped subscriber has a value that is here, also without waiting.
#[test]
fn a_message_that_ended_a_wait_hides_no_value() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let nodes = open_both(medium);
        let (_publisher, mut subscriber) = stopped_in_its_callback(&nodes);
        let received = subscriber.receive_timeout(Duration::ZERO);
        assert!(received.is_ok(), "{}: {received:?}", medium.name);
    });
}

/// Goal: an owner that takes the communicator back is not woken by a message that was to end a wait of its former thread. It has all
/// other messages.
#[test]
fn a_message_that_ended_a_wait_is_not_for_the_next_owner() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let nodes = open_both(medium);
        let (publisher, subscriber) = stopped_in_its_callback(&nodes);
        let (mut sender, mut receiver) = (publisher.into_communicator(), subscriber.into_communicator());
        let own = receiver.address();
        sender.send(own.into(), b"last").unwrap();
        let mut has_last = false;
        while let Ok(message) = receiver.receive_timeout(if has_last { PERIOD * 5 } else { PATIENCE }) {
            assert_ne!((message.source, message.payload), (own, &[][..]), "{}", medium.name);
            has_last |= message.payload == b"last";
        }
        assert!(has_last, "{}", medium.name);
        // A message from its owner to itself is a message all the same.
        receiver.send(own.into(), b"").unwrap();
        assert!(receiver.receive_timeout(PATIENCE).unwrap().payload.is_empty());
        assert!(nodes.1.ledger().is_balanced(), "{}", nodes.1.ledger());
    });
}

/// Goal: the same where the next owner's first word is a large message, which hears what comes while it is sent.
#[test]
fn a_message_that_ended_a_wait_is_not_heard_amid_a_large_one() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let options = |name| NodeOptions::new(name).message_size_max(1_000_000);
        let nodes = (reopen(&options("here"), &medium.here), reopen(&options("there"), &medium.there));
        let (publisher, subscriber) = stopped_in_its_callback(&nodes);
        let (mut sender, mut receiver) = (publisher.into_communicator(), subscriber.into_communicator());
        let (own, other) = (receiver.address(), sender.address());
        let large = vec![1; 300_000];
        std::thread::scope(|scope| {
            let hears = scope.spawn(|| while sender.receive_timeout(PATIENCE).unwrap().payload != large {});
            receiver.send_timeout(other.into(), &large, PATIENCE).unwrap();
            hears.join().unwrap();
        });
        while let Ok(message) = receiver.receive_timeout(PERIOD * 5) {
            assert_ne!((message.source, message.payload), (own, &[][..]), "{}", medium.name);
        }
        receiver.send(own.into(), b"").unwrap();
        assert!(receiver.receive_timeout(PATIENCE).unwrap().payload.is_empty());
    });
}

/// Goal: the original's vehicle died by an assertion when it ran 200 ms late. Here it goes on.
#[test]
fn a_late_publisher_goes_on() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("late"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut publisher = Publisher::new(here.bind(1).unwrap(), SPEED).unwrap();
    let mut subscriber = Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap();
    let receiver = std::thread::spawn(move || {
        while subscriber.receive_timeout(PATIENCE).unwrap().offset_us < 400_000 {}
        subscriber.withdraw();
        subscriber.counts()
    });
    let mut stalls = 0;
    while let Some(due) = publisher.next_due(Duration::from_secs(1)) {
        if due.instant.offset_us > 100_000 && stalls == 0 {
            stalls = 1;
            std::thread::sleep(Duration::from_millis(200));
        }
        publisher.publish(&due, &Quantity::new(0));
    }
    let counts = receiver.join().unwrap();
    let missed: u64 = publisher.periods().iter().map(punctual::interest::Period::missed).sum();
    assert!(stalls == 1 && missed >= 90, "{missed}");
    assert!(counts.missed >= 90, "{counts:?}");
    assert_eq!(publisher.counts().withdrawn, 1);
}

/// Goal: a publisher that stands still for longer than interests last finds those that were renewed meanwhile: they are served on, and the
/// periods between count as missed. So it is with an interest of its own.
#[test]
fn a_publisher_that_stood_still_reads_renewals_first() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("still"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut participant = Participant::new(here.bind(1).unwrap());
    let still = Duration::from_secs(5);
    let mut stands = Some(still);
    participant.publish(SPEED, |_| Quantity::new(0)).unwrap();
    let own = move |_: Response<Quantity<MetrePerSecond, i64>>| stands.take().map_or((), std::thread::sleep);
    participant.subscribe(SPEED, PERIOD, own).unwrap();
    let mut other = Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap();
    let begin = Instant::now();
    let other = std::thread::spawn(move || {
        // Longer than the other stands still, so that it renews its interest.
        while begin.elapsed() < 2 * still {
            let _value = other.receive_timeout(Duration::from_millis(100)).map(drop);
        }
    });
    while begin.elapsed() < 2 * still {
        participant.serve_for(Duration::from_millis(100));
    }
    other.join().unwrap();
    let publication = &participant.publications()[0];
    assert_eq!(publication.counts().expired, 0, "{:?}", publication.counts());
    let missed: u64 = publication.schedule().periods().iter().map(punctual::interest::Period::missed).sum();
    let periods = still.as_nanos() / PERIOD.as_nanos();
    assert!(u128::from(missed) >= periods * 9 / 10, "{missed} of {periods}");
}

/// Goal: a participant that publishes what it wants itself gets it in its callback, on the same thread, from no medium;
/// others get it too.
#[test]
fn ones_own_values_need_no_medium() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("own"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut participant = Participant::new(here.bind(1).unwrap());
    let (values, received) = mpsc::channel();
    participant.publish(POSITION, |_| [1.0, 2.0, 3.0].map(Quantity::new)).unwrap();
    participant
        .subscribe(POSITION, PERIOD, move |response| {
            values.send((response, std::thread::current().id())).unwrap();
        })
        .unwrap();
    let twice = participant.publish(POSITION, |_| [0.0; 3].map(Quantity::new));
    assert!(matches!(twice, Err(InterestError::Published(_))));

    let mut other = Subscriber::new(there.bind(1).unwrap(), POSITION, PERIOD).unwrap();
    let other = std::thread::spawn(move || (0..20).all(|_| other.receive_timeout(PATIENCE).is_ok()));
    let (mut own, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while own.len() <= 50 && Instant::now() < deadline {
        participant.serve_for(Duration::from_millis(100));
        own.extend(received.try_iter());
    }
    assert!(own.len() > 50, "{}", own.len());
    for (response, thread) in own {
        assert_eq!(response.value, [1.0, 2.0, 3.0].map(Quantity::new));
        assert_eq!((response.source, response.stages.is_none()), (participant.address(), true));
        assert!(response.sent.is_some() && response.due <= response.sent);
        assert_eq!(thread, std::thread::current().id());
    }
    let deadline = Instant::now() + PATIENCE;
    while !other.is_finished() && Instant::now() < deadline {
        participant.serve_for(Duration::from_millis(10));
    }
    assert!(other.join().unwrap());
    let counts = participant.subscriptions()[0].counts();
    let missed = participant.publications()[0].schedule().periods()[0].missed();
    if counts.stale == 0 {
        assert_eq!(counts.missed, missed);
    } else {
        // The thread lost its processor between taking the interest on and its first value. That value then is newer than that of the
        // last instant which passed meanwhile.
        assert!(counts.stale == 1 && counts.missed <= missed, "{counts:?}, {missed}");
    }
}

/// Goal: a participant counts nothing twice that it says or publishes to everybody at its own port, whether the medium brings it back
/// or not. Method: two others at that port want the same, so that values go to everybody there.
#[test]
fn ones_own_messages_count_once() {
    const PORT: u16 = 5;
    let _alive = watchdog(120);
    let has_three = |medium: &Medium| medium.name != "udp";
    for medium in common::media().into_iter().filter(has_three) {
        let nodes = ["here", "there", "elsewhere"].map(|name| Node::open(&medium.here, name).unwrap());
        // So often that announcements that come back would stand out.
        let repetition = Repetition { every: Nanos::from_millis(20), ..Repetition::default() };
        let options = ParticipantOptions { repetition, ..ParticipantOptions::default() }.at_port(PORT);
        let [mut own, first, second] = nodes.each_ref().map(|node| {
            let mut participant = Participant::with(node.bind(PORT).unwrap(), &options);
            participant.subscribe(SPEED, PERIOD, |_| ()).unwrap();
            participant
        });
        own.publish(SPEED, |due| Quantity::new(due.instant.offset_us.cast_signed())).unwrap();
        let others = [first, second].map(|other| other.spawn().unwrap());
        let give_up = Instant::now() + PATIENCE;
        let goes_on = |own: &Participant| {
            let said = own.subscriptions()[0].counts();
            own.publications()[0].interests().count() < 3 || said.announced < 20 || said.taken < 50
        };
        while goes_on(&own) {
            assert!(Instant::now() < give_up, "{}: {:?}", medium.name, own.publications()[0].counts());
            own.serve_for(Duration::from_millis(10));
        }
        let announced = |participant: &Participant| participant.subscriptions()[0].counts().announced;
        let [first, second] = others.map(Running::stop);
        // All that they have sent is here.
        own.serve_for(Duration::from_millis(50));
        let (counts, said) = (own.publications()[0].counts(), own.subscriptions()[0].counts());
        let all = announced(&own) + announced(&first) + announced(&second);
        assert!(counts.accepted + counts.renewed <= all, "{}: {counts:?}, {all} announced", medium.name);
        // A thread that lost its processor may have taken a newer value first.
        assert!(said.stale <= 1, "{}: {said:?}", medium.name);
        assert!(nodes.iter().all(|node| node.ledger().is_balanced()), "{}", nodes[0].ledger());
    }
}

/// Goal: a component on a thread of its own stops, and can be dropped, though its node seals and has no key left.
#[test]
fn without_a_key_everything_stops_all_the_same() {
    let _alive = watchdog(60);
    let keys = Keys::random(1).also_local();
    let node = Node::open(&Bus::loopback(&unique("keyless")).sealed(&keys), "one").unwrap();
    let publisher = Publisher::new(node.bind(1).unwrap(), SPEED).unwrap();
    let publisher = publisher.spawn(|_| Quantity::new(1)).unwrap();
    let subscriber = Subscriber::new(node.bind(2).unwrap(), SPEED, Duration::from_secs(3_000)).unwrap();
    let (taken, values) = mpsc::channel();
    let subscriber = subscriber.spawn(move |_| taken.send(()).unwrap()).unwrap();
    let observer = node.bind(3).unwrap().on_message(|_| ()).unwrap();
    let participant = Participant::new(node.bind(4).unwrap()).spawn().unwrap();
    values.recv_timeout(PATIENCE).unwrap();
    keys.remove_group(1);
    assert!(keys.ids().is_empty());
    // All of them sleep by now, for an hour.
    std::thread::sleep(Duration::from_millis(50));
    drop(participant);
    subscriber.stop();
    publisher.stop();
    observer.stop();
    assert!(node.ledger().is_balanced(), "{}", node.ledger());
}

/// Goal: a sink may drop what runs it. The thread ends then, and the port is free.
#[test]
fn a_sink_drops_what_runs_it() {
    let _alive = watchdog(60);
    let node = Node::open(&Bus::loopback(&unique("own-end")), "one").unwrap();
    let publisher = publish_instants(&node, 1);
    let held: Arc<Mutex<Option<Running<Subscriber<_>>>>> = Arc::default();
    let (own, (told, dropped)) = (Arc::clone(&held), mpsc::channel());
    let subscriber = Subscriber::new(node.bind(2).unwrap(), SPEED, PERIOD).unwrap();
    let mut hold = held.lock().unwrap();
    *hold = Some(
        subscriber
            .spawn(move |_| {
                drop(own.lock().unwrap().take());
                let _after_the_first = told.send(());
            })
            .unwrap(),
    );
    drop(hold);
    dropped.recv_timeout(PATIENCE).expect("the sink went on");
    let began = Instant::now();
    while node.bind(2).is_err() {
        assert!(began.elapsed() < PATIENCE, "the thread goes on");
        std::thread::yield_now();
    }
    publisher.stop();
}

/// Goal: a source that is slower than its period holds up neither who serves for a time nor the other publications.
#[test]
fn a_slow_source_keeps_nobody() {
    let _alive = watchdog(60);
    let node = Node::open(&Bus::loopback(&unique("slow")), "one").unwrap();
    let mut participant = Participant::new(node.bind(1).unwrap());
    let (taken, values) = mpsc::channel();
    for number in [1, 2] {
        let topic = Topic::<Quantity<MetrePerSecond, i64>>::new(number);
        let source = move |_: &_| {
            std::thread::sleep(PERIOD * 2);
            Quantity::new(0)
        };
        participant.publish(topic, source).unwrap();
        let taken = taken.clone();
        participant.subscribe(topic, PERIOD, move |_| taken.send(number).unwrap()).unwrap();
    }
    let (mut taken, deadline) = ([0; 2], Instant::now() + PATIENCE);
    while taken.into_iter().min() < Some(4) {
        assert!(Instant::now() < deadline, "of both topics: {taken:?}");
        participant.serve_for(PERIOD * 40);
        values.try_iter().for_each(|number| taken[number as usize - 1] += 1);
    }
    let mut publisher = Publisher::new(node.bind(2).unwrap(), SPEED).unwrap();
    let mut subscriber = Subscriber::new(node.bind(3).unwrap(), SPEED, PERIOD).unwrap();
    publisher.serve_for(PERIOD, |_| Quantity::new(0));
    assert!(subscriber.receive_timeout(PERIOD).is_err(), "only its interest is said");
    let (mut served, deadline) = (0, Instant::now() + PATIENCE);
    while served < 4 {
        assert!(Instant::now() < deadline, "{served} values");
        publisher.serve_for(PERIOD * 10, |_| {
            std::thread::sleep(PERIOD * 2);
            served += 1;
            Quantity::new(1)
        });
    }
    // A subscriber that does not wait gets what is here.
    assert_eq!(subscriber.receive_timeout(Duration::ZERO).unwrap().value.number(), 1);
}

/// Goal: a publisher refuses what it cannot serve, and the subscriber can read why.
#[test]
fn refusals_reach_the_subscriber() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("refuse"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let limits = PublicationLimits { period_min_us: 10_000, ..PublicationLimits::default() };
    let options = ParticipantOptions { limits, ..ParticipantOptions::default() };
    let publisher = Publisher::with(here.bind(1).unwrap(), SPEED, &options).unwrap();
    let publisher = publisher.spawn(|_| Quantity::new(1)).unwrap();
    let mut subscriber = Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while subscriber.counts().refused[Refusal::TooShort.place()] == 0 {
        assert!(Instant::now() < deadline, "never refused");
        assert!(subscriber.receive_timeout(Duration::from_millis(10)).is_err());
    }
    assert!(publisher.stop().counts().refused[Refusal::TooShort.place()] >= 1);
}

/// Goal: a bus that loses, doubles and reorders costs values and nothing else.
#[test]
fn faults_cost_values_and_nothing_else() {
    let _alive = watchdog(120);
    let (a, b) = free_ports();
    let faults = Faults {
        loss_permille: 200,
        duplication_permille: 200,
        reordering_permille: 200,
        ..Faults::seeded(7)
    };
    let here = NodeOptions::new("here").faults(faults).open(&Bus::peers(a, &[b])).unwrap();
    let there = NodeOptions::new("there").faults(faults).open(&Bus::peers(b, &[a])).unwrap();
    let publisher = publish_instants(&here, 1);
    let mut subscriber = Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap();
    let mut last = 0;
    for _ in 0..300 {
        let response = subscriber.receive_timeout(PATIENCE).unwrap();
        check_instant(&response, PERIOD);
        assert!(response.offset_us > last || response.at_once, "{} after {last}", response.offset_us);
        last = last.max(response.offset_us);
    }
    let counts = subscriber.counts();
    assert!(counts.missed > 20, "{counts:?}: a fifth is lost");
    publisher.stop();
}

/// Not a test of its own: the work of the other process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    let node = Node::open(&bus_of(&bus), &role).unwrap();
    match role.as_str() {
        "publisher" => {
            let _running = publish_instants(&node, 1);
            std::thread::sleep(Duration::from_secs(600));
        }
        "subscriber" => {
            let mut subscriber = subscribe_for_long(&node);
            assert!(subscriber.receive_timeout(PATIENCE).unwrap().at_once);
            node.bind(3).unwrap().send_timeout(Target::port("a", EAR), b"served", PATIENCE).unwrap();
            std::thread::sleep(Duration::from_secs(600));
        }
        _ => panic!("{role}: no role"),
    }
}

fn bus_of(text: &str) -> Bus {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    match text.split(' ').collect::<Vec<_>>()[..] {
        ["shared", name] => Bus::shared(name),
        ["udp", local, peer] => Bus::peers(address(local), &[address(peer)]),
        _ => panic!("{text}: no bus"),
    }
}

/// Goal: between processes, over shared memory and UDP: a publisher that starts later, is killed, and comes back is served
/// and believed each time, and its death is no more than silence.
#[test]
fn other_processes_publish_die_and_come_back() {
    let _alive = watchdog(180);
    let (a, b) = free_ports();
    let name = unique("procs");
    let buses = [
        (format!("shared {name}"), format!("shared {name}")),
        (format!("udp {a} {b}"), format!("udp {b} {a}")),
    ];
    for (here, there) in buses {
        let node = Node::open(&bus_of(&here), "subscriber").unwrap();
        let mut subscriber = Subscriber::new(node.bind(1).unwrap(), SPEED, PERIOD).unwrap();
        assert!(subscriber.receive_timeout(Duration::from_millis(50)).is_err(), "nobody publishes yet");
        for _ in 0..2 {
            let publisher = Role::start("publisher", &there);
            let mut last = None;
            for _ in 0..100 {
                let response = subscriber.receive_timeout(PATIENCE).unwrap();
                check_instant(&response, PERIOD);
                assert!(last < Some(response.offset_us), "{here}: {last:?} before {}", response.offset_us);
                last = Some(response.offset_us);
            }
            publisher.kill();
            while subscriber.receive_timeout(Duration::from_millis(500)).is_ok() {}
        }
        assert!(subscriber.lateness().count() > 100, "{here}: {:?}", subscriber.lateness().count());
        assert!(node.ledger().is_balanced(), "{here}: {}", node.ledger());
    }
}
