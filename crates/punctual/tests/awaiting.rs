//! All that can be awaited, on every host: the runtime's own threads, tokio, and an executor that only knows descriptors.

mod common;
#[path = "../examples/executor.rs"]
mod executor;

use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Dice, Medium, PATIENCE, media, open_both, unique, watchdog, within};
use futures_core::Stream;
use punctual::broadcast::{DeliverError, Delivery, Group, GroupOptions, Mismatch};
use punctual::interest::{Due, Participant, Publisher, Subscriber, Topic};
use punctual::node::{NodeChange, NodeEvents};
use punctual::runtime::{Awaitable, Awaited, Runtime, RuntimeOptions, TaskOptions};
use punctual::unit::{MetrePerSecond, Quantity};
use punctual::{Bus, Communicator, Node, Target, Wake};
use punctual_machine::clock::thread_cpu_ns;
use punctual_machine::counter::Counter;
use punctual_machine::event_fd::wait_readable;

/// Longer than any test takes on a busy machine.
const LIMIT_S: u64 = 120;

/// Short, so that many instants pass in a test; long enough for a machine that is busy with others.
const PERIOD: Duration = Duration::from_millis(2);

const SPEED: Topic<Quantity<MetrePerSecond, i64>> = Topic::named("speed");

/// The host that polls futures.
enum Host {
    Own(Runtime),
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Runtime),
    Foreign(Mutex<executor::Loop>),
}

impl Host {
    fn awaited<T: Awaitable>(&self, it: T) -> Awaited<T> {
        let awaited = match self {
            Self::Own(runtime) => Awaited::new(runtime.handle(), it),
            #[cfg(feature = "tokio")]
            Self::Tokio(runtime) => {
                let _entered = runtime.enter();
                Awaited::in_tokio(it)
            }
            Self::Foreign(executor) => {
                let executor = executor.lock().unwrap();
                Awaited::by(it, |descriptor: OwnedFd| executor.watch(descriptor))
            }
        };
        awaited.unwrap()
    }

    fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Own(runtime) => {
                let join = runtime.spawn(TaskOptions::of_class(0), future).unwrap();
                runtime.block_on(join).unwrap()
            }
            #[cfg(feature = "tokio")]
            Self::Tokio(runtime) => runtime.block_on(async { tokio::spawn(future).await.unwrap() }),
            Self::Foreign(executor) => executor.lock().unwrap().block_on(future).unwrap(),
        }
    }
}

fn hosts() -> Vec<(&'static str, Host)> {
    let own = |workers| {
        Host::Own(Runtime::start(&RuntimeOptions { workers, ..RuntimeOptions::default() }).unwrap())
    };
    vec![
        ("one worker", own(1)),
        ("two workers", own(2)),
        #[cfg(feature = "tokio")]
        (
            "tokio's current thread",
            Host::Tokio(tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap()),
        ),
        #[cfg(feature = "tokio")]
        (
            "tokio's threads",
            Host::Tokio(
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap(),
            ),
        ),
        ("an executor on mio", Host::Foreign(Mutex::new(executor::Loop::new().unwrap()))),
    ]
}

/// With every host, on memory, where looks see all, and on UDP, where only the kernel does.
fn on_every_host(check: impl Fn(&Host, &Medium)) {
    for medium in media().iter().filter(|medium| ["loopback", "udp"].contains(&medium.name)) {
        for (name, host) in hosts() {
            eprintln!("{name}, on {}", medium.name);
            check(&host, medium);
        }
    }
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// Sends numbers, each when that is worth while, on a thread of its own.
fn send_numbers(mut from: Communicator, count: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut dice = Dice(9);
        for number in 0..count {
            from.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
            dice.pause();
        }
    })
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().unwrap())
}

/// Goal: messages come as a stream, all of them, in order, on every host.
#[test]
fn messages_come_as_a_stream() {
    const COUNT: u64 = 1_000;
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let mut numbers = host.awaited(there.bind(1).unwrap()).stream(|message| number(message.payload));
        let sending = send_numbers(here.bind(2).unwrap(), COUNT);
        let (got, mut inbox) = host.run(async move {
            let mut got = Vec::new();
            while got.len() < COUNT as usize {
                got.extend(next(&mut numbers).await);
            }
            (got, numbers.into_awaited().into_inner())
        });
        assert!(got.into_iter().eq(0..COUNT));
        assert!(inbox.try_receive().is_err());
        sending.join().unwrap();
    });
}

/// Goal: a wait that is given up at any of its awaiting points loses no message and doubles none. Method: each is given up after
/// every number of polls in turn, while messages come.
#[test]
fn a_wait_given_up_anywhere_loses_nothing() {
    const COUNT: u64 = 600;
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let mut inbox = host.awaited(there.bind(1).unwrap());
        let from = here.bind(2).unwrap();
        let sending = host.run(async move {
            // Each number of polls is given up after once, however fast the sender is.
            for polls in 0..5 {
                assert!(within(polls, inbox.receive()).await.is_none(), "nobody has sent");
            }
            let sending = send_numbers(from, COUNT);
            let (mut expected, mut given_up) = (0, 0_u64);
            while expected < COUNT {
                match within(given_up % 5, inbox.receive()).await {
                    Some(message) => {
                        assert_eq!(number(message.payload), expected);
                        expected += 1;
                    }
                    None => given_up += 1,
                }
            }
            sending
        });
        sending.join().unwrap();
    });
}

/// A member that is alone with another one: broadcasts `count` numbers to it, and ends when it has gone.
fn broadcast_numbers(mut group: Group, count: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut sent, mut were_two, mut dice) = (0, false, Dice(3));
        loop {
            let members = group.view().members.len();
            were_two |= members == 2;
            if were_two && members < 2 {
                return;
            }
            if members == 2 && sent < count && group.try_broadcast(&sent.to_le_bytes()).is_ok() {
                sent += 1;
                dice.pause();
            }
            let wait = if sent < count { Duration::ZERO } else { Duration::from_millis(1) };
            let _told = group.deliver(wait);
        }
    })
}

fn two_members(here: &Node, there: &Node) -> (Group, Group) {
    let suspect_after = Duration::from_secs(10);
    let options = GroupOptions { suspect_after, ..GroupOptions::new("team", &["there", "here"]) };
    let awaited = Group::join(there, &options.clone().founding()).unwrap();
    (Group::join(here, &options).unwrap(), awaited)
}

/// Goal: the deliveries of a group can be awaited on every host: everything, in order, and the end. Waits are given up now and then.
#[test]
fn deliveries_are_awaited() {
    const COUNT: u64 = 300;
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let (other, group) = two_members(&here, &there);
        let mut group = host.awaited(group);
        let (got, sending) = host.run(async move {
            // One wait is given up, however fast the other one is.
            while let Some(told) = within(0, group.deliver()).await {
                assert!(told.is_ok(), "{told:?}");
            }
            let sending = broadcast_numbers(other, COUNT);
            let (mut got, mut given_up) = (Vec::new(), 0);
            while (got.len() as u64) < COUNT {
                match within(given_up % 4, group.deliver()).await {
                    Some(Ok(Delivery::Message(message))) => got.push(number(message.payload)),
                    Some(Ok(_view)) => {}
                    Some(Err(left)) => panic!("{left}"),
                    None => given_up += 1,
                }
            }
            group.get_mut().leave();
            while group.deliver().await.is_ok() {}
            assert_eq!(group.deliver().await, Err(DeliverError::Left), "it does not come back");
            (got, sending)
        });
        assert!(got.into_iter().eq(0..COUNT));
        sending.join().unwrap();
    });
}

/// Goal: a group is a stream that ends when the member has left.
#[test]
fn a_group_is_a_stream_with_an_end() {
    const COUNT: u64 = 50;
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let (other, group) = two_members(&here, &there);
        let mut numbers = host.awaited(group).stream(|delivery| match delivery {
            Delivery::Message(message) => Some(number(message.payload)),
            _ => None,
        });
        let sending = broadcast_numbers(other, COUNT);
        let got = host.run(async move {
            let mut got = Vec::new();
            while let Some(told) = next(&mut numbers).await {
                got.extend(told);
                if got.len() as u64 == COUNT {
                    numbers.get_mut().leave();
                }
            }
            got
        });
        assert!(got.into_iter().eq(0..COUNT));
        sending.join().unwrap();
    });
}

/// Goal: the stream of a member that its group refuses goes on, and has a view once there is a group with its options.
#[test]
fn a_refused_member_is_a_stream_that_goes_on() {
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let options = |window| GroupOptions {
            suspect_after: Duration::from_millis(50),
            window: Some(window),
            ..GroupOptions::new("team", &["there", "here"])
        };
        let other = Group::join(&there, &options(64).founding()).unwrap();
        let group = Group::join(&here, &options(32)).unwrap();
        let mut views = host
            .awaited(group)
            .stream(|delivery| matches!(delivery, Delivery::View(view) if view.members.len() == 2));
        host.run(async move {
            let mut rounds = 0;
            while rounds < 40 || views.get_mut().mismatch().is_none() {
                assert_eq!(within(1, next(&mut views)).await, None);
                std::thread::sleep(Duration::from_millis(5));
                rounds += 1;
            }
            assert_eq!(views.get_mut().mismatch(), Some(Mismatch::Window { here: 32, there: 64 }));
            drop(other);
            let _other = Group::join(&there, &options(32).founding()).unwrap();
            while next(&mut views).await != Some(true) {}
            assert_eq!(views.get_mut().mismatch(), None);
        });
    });
}

fn instant(due: &Due) -> Quantity<MetrePerSecond, i64> {
    Quantity::new(due.instant.offset_us.cast_signed())
}

/// Goal: publishers wait for their instants and subscribers for their values as tasks, on every host. Method: both on tasks of one
/// host, each value is its instant.
#[test]
fn values_and_instants_are_awaited() {
    const COUNT: u64 = 40;
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let mut publisher = host.awaited(Publisher::new(here.bind(1).unwrap(), SPEED).unwrap());
        let subscriber = Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap();
        let mut subscriber = host.awaited(subscriber);
        let publishes = async move {
            loop {
                let due = publisher.next_due().await;
                publisher.get_mut().publish(&due, &instant(&due));
            }
        };
        let receives = async move {
            let mut given_up = 0;
            let mut last = None;
            for _ in 0..COUNT {
                // A subscriber that is asked again and again needs nobody to wake it: most waits are not given up.
                while given_up < 9 && within(given_up % 3, subscriber.receive()).await.is_none() {
                    given_up += 1;
                }
                let response = subscriber.receive().await;
                assert_eq!(response.value.number(), response.offset_us.cast_signed());
                if !response.at_once {
                    assert!(last < Some(response.offset_us));
                    last = Some(response.offset_us);
                }
            }
            (given_up, subscriber.get_mut().counts().taken)
        };
        let (given_up, taken) = host.run(first_of(receives, publishes));
        assert!(given_up == 9 && taken >= COUNT, "{given_up} {taken}");
    });
}

/// The output of the first, while the second goes on.
async fn first_of<A: Future>(first: A, goes_on: impl Future) -> A::Output {
    let (mut first, mut goes_on) = (pin!(first), pin!(goes_on));
    poll_fn(|context| {
        assert!(goes_on.as_mut().poll(context).is_pending());
        first.as_mut().poll(context)
    })
    .await
}

/// Goal: a participant does in its callbacks what it does on a thread of its own.
#[test]
fn participants_serve_as_tasks() {
    const COUNT: u64 = 40;
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let mut participant = Participant::new(here.bind(1).unwrap());
        participant.publish(SPEED, instant).unwrap();
        let own = Arc::new(Counter::default());
        let counts = Arc::clone(&own);
        participant.subscribe(SPEED, PERIOD * 2, move |_| counts.add(1)).unwrap();
        let mut participant = host.awaited(participant);
        let mut subscriber = host.awaited(Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap());
        let receives = async move {
            for _ in 0..COUNT {
                let response = subscriber.receive().await;
                assert_eq!(response.value.number(), response.offset_us.cast_signed());
            }
        };
        host.run(first_of(receives, async move { participant.serve().await }));
        // Of its own instants at most every second one, and those that were late are missed.
        assert!(own.get() > 0);
    });
}

/// Goal: a task that awaits news of nodes is told of those that join and leave.
#[test]
fn news_of_nodes_are_awaited() {
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let watching = Node::open(&medium.there, "there").unwrap();
        let mut events: Awaited<NodeEvents> = host.awaited(watching.events(Wake::Epoll).unwrap());
        let (joins, joined) = mpsc::channel();
        let bus = medium.here.clone();
        let comes = std::thread::spawn(move || {
            let node = Node::open(&bus, "here").unwrap();
            joined.recv().unwrap();
            drop(node);
        });
        host.run(async move {
            loop {
                let event = events.next().await;
                match event.change {
                    NodeChange::Joined => joins.send(()).unwrap(),
                    NodeChange::Left | NodeChange::Died => return,
                }
            }
        });
        comes.join().unwrap();
    });
}

/// Goal: a subscriber serves an event loop of one's own by its descriptor and its time, and no value is slept over.
#[test]
fn a_loop_of_ones_own_waits_for_values() {
    let _alive = watchdog(LIMIT_S);
    for medium in media() {
        let (here, there) = open_both(&medium);
        let publisher = Publisher::new(here.bind(1).unwrap(), SPEED).unwrap().spawn(instant).unwrap();
        let mut subscriber = Subscriber::new(there.bind(1).unwrap(), SPEED, PERIOD).unwrap();
        let (mut taken, mut readable) = (0, 0);
        // Of values that came while this thread stood still many are taken at once.
        while taken < 50 || readable < 10 {
            while subscriber.receive_timeout(Duration::ZERO).is_ok() {
                taken += 1;
            }
            if subscriber.arm() {
                let left = subscriber.time_left();
                assert!(
                    left.is_some_and(|left| left <= Duration::from_secs(1)),
                    "{left:?}: interests are repeated"
                );
                readable += u64::from(wait_readable(subscriber.as_fd(), left).unwrap());
            }
        }
        publisher.stop();
    }
}

/// Counts the polls of a future.
struct Polls<F>(Pin<Box<F>>, Arc<Counter>);

impl<F: Future> Future for Polls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.1.add(1);
        self.0.as_mut().poll(context)
    }
}

/// Goal: a waiting task costs nothing. Method: its polls, and the processor time of the thread that polls beside that of one that looks
/// all the time, over the same stretch.
#[test]
fn a_waiting_task_costs_nothing() {
    const STRETCH: Duration = Duration::from_millis(400);
    let _alive = watchdog(LIMIT_S);
    on_every_host(|host, medium| {
        let (here, there) = open_both(medium);
        let mut inbox = host.awaited(there.bind(1).unwrap());
        let mut from = here.bind(2).unwrap();
        let sends = std::thread::spawn(move || {
            let until = std::time::Instant::now() + STRETCH;
            let before = thread_cpu_ns();
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            from.send_timeout(Target::port("there", 1), b"x", PATIENCE).unwrap();
            thread_cpu_ns() - before
        });
        let polls = Arc::new(Counter::default());
        let count = Arc::clone(&polls);
        let before = (thread_cpu_ns(), own_cpu(host));
        host.run(Polls(Box::pin(async move { inbox.receive().await.payload.len() }), count));
        let waited = thread_cpu_ns() - before.0 + own_cpu(host) - before.1;
        let looked = sends.join().unwrap();
        // On the way to sleep, and for the message.
        assert!(polls.get() <= 8, "{} polls", polls.get());
        assert!(waited * 5 < looked, "{waited} ns, looking took {looked}");
    });
}

/// Processor time of the workers' own threads.
fn own_cpu(host: &Host) -> u64 {
    let Host::Own(runtime) = host else { return 0 };
    runtime.handle().metrics().workers.iter().map(|worker| worker.thread.ran.0).sum()
}

/// Goal: no wake-up is lost between two nodes, both awaited, however often. Method: a lost one is a test that does not end.
#[test]
fn no_wake_up_is_lost_between_two_that_await() {
    const ROUNDS: u64 = 40_000;
    let _alive = watchdog(5 * LIMIT_S);
    for (name, host) in hosts() {
        eprintln!("{name}");
        let bus = Bus::shared(&unique("both-await"));
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let mut client = host.awaited(here.bind(1).unwrap());
        let mut server = host.awaited(there.bind(1).unwrap());
        let serves = async move {
            loop {
                let (source, back) = {
                    let message = server.receive().await;
                    (message.source, number(message.payload))
                };
                server.get_mut().send(Target::from(source), &back.to_le_bytes()).unwrap();
            }
        };
        let asks = async move {
            for round in 0..ROUNDS {
                client.get_mut().send(Target::port("there", 1), &round.to_le_bytes()).unwrap();
                assert_eq!(number(client.receive().await.payload), round);
            }
        };
        match &host {
            #[cfg(feature = "tokio")]
            Host::Tokio(runtime) => {
                let serving = runtime.spawn(serves);
                host.run(asks);
                serving.abort();
            }
            Host::Own(runtime) => {
                let serving = runtime.spawn(TaskOptions::of_class(1), serves).unwrap();
                host.run(asks);
                assert!(runtime.block_on(serving.cancel()).is_err());
            }
            Host::Foreign(_) => host.run(first_of(asks, serves)),
        }
    }
}

/// Goal: the example of another executor does what it says.
#[test]
fn the_example_runs() {
    let _alive = watchdog(LIMIT_S);
    executor::main().unwrap();
}
