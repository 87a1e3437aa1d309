//! Classes within tokio: tokio's sockets, timers and channels in their class, no wake that is lost, nothing that outlives its end.

mod common;

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{Dice, Medium, ask, on_every_medium, open_both, watchdog};
use punctual::runtime::tokio::Classes;
use punctual::runtime::{
    Awaited, JoinError, Lane, Policy, RuntimeOptions, SpawnError, StartError, TaskOptions, Urgency, blocking,
    request, yield_if_due,
};
use punctual::{Communicator, Target};
use punctual_machine::counter::Counter;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc as channel, oneshot};

/// Longer than any test takes on a busy machine.
const LIMIT_S: u64 = 120;

fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn options(workers: usize) -> RuntimeOptions {
    RuntimeOptions { workers, ..RuntimeOptions::default() }
}

fn class(class: u8) -> TaskOptions {
    TaskOptions::of_class(class)
}

/// Tells when it is dropped.
struct Witness(Arc<Counter>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

/// Goal: of tasks that are ready the important ones are first. Method: one worker, tasks spawned while it has not run yet.
#[test]
fn the_important_ones_are_first() {
    let _alive = watchdog(LIMIT_S);
    let said = Arc::new(Mutex::new(Vec::new()));
    let order = one_thread().block_on(async {
        let classes =
            Classes::start(&RuntimeOptions { policy: Policy::Strict, ..RuntimeOptions::default() }).unwrap();
        let joins = [7, 3, 0, 5].map(|number| {
            let said = Arc::clone(&said);
            classes.spawn(class(number), async move { said.lock().unwrap().push(number) }).unwrap()
        });
        for join in joins {
            join.await.unwrap();
        }
        let metrics = classes.spawner().metrics();
        assert_eq!(metrics.workers.iter().map(|worker| worker.polls).sum::<u64>(), 4);
        said.lock().unwrap().clone()
    });
    assert_eq!(order, [0, 3, 5, 7]);
}

/// Goal: every byte comes back, by tokio's sockets, on one thread and on several, with lanes and without.
#[test]
fn bytes_go_there_and_back() {
    let _alive = watchdog(LIMIT_S);
    let lanes = vec![Lane { workers: 1, last_class: 2, urgency: Urgency::Inherited }];
    for (runtime, options) in [
        (one_thread(), options(1)),
        (threads(1), options(2)),
        (threads(3), RuntimeOptions { lanes, ..options(2) }),
    ] {
        runtime.block_on(async {
            let classes = Classes::start(&options).unwrap();
            let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
            let address = listener.local_addr().unwrap();
            let spawner = classes.spawner().clone();
            let accepts = async move {
                for number in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    drop(spawner.spawn(class(number % 8), echo(stream)).unwrap());
                }
            };
            drop(classes.spawn(class(0), accepts).unwrap());
            let clients = (0..6).map(|number| classes.spawn(class(number), rounds(address, number)).unwrap());
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
        });
    }
}

async fn echo(stream: TcpStream) {
    let mut buffer = [0; 256];
    loop {
        stream.readable().await.unwrap();
        match stream.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => write(&stream, &buffer[..count]).await,
            Err(_would_block) => {}
        }
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        stream.writable().await.unwrap();
        if let Ok(count) = stream.try_write(bytes) {
            bytes = &bytes[count..];
        }
    }
}

async fn rounds(address: SocketAddr, seed: u8) {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut dice = Dice(u64::from(seed) + 1);
    for round in 0..100_u64 {
        write(&stream, &round.to_le_bytes()).await;
        let (mut back, mut had) = ([0; 8], 0);
        while had < back.len() {
            stream.readable().await.unwrap();
            had += stream.try_read(&mut back[had..]).unwrap_or(0);
        }
        assert_eq!(u64::from_le_bytes(back), round);
        tokio::time::sleep(Duration::from_micros(dice.below(300))).await;
    }
}

/// Goal: no wake is lost, wherever it comes from. Method: messages from foreign threads, from tokio's own tasks and between classes;
/// a lost one is a test that does not end.
#[test]
fn no_wake_is_lost() {
    const MESSAGES: u64 = 20_000;
    let _alive = watchdog(LIMIT_S);
    for (runtime, workers) in [(threads(2), 2), (threads(1), 1)] {
        let sum = runtime.block_on(async {
            let classes = Classes::start(&options(workers)).unwrap();
            let (ends, mut ended) = channel::unbounded_channel();
            for number in 0..4_u8 {
                let (sends, mut sent) = channel::unbounded_channel();
                let ends = ends.clone();
                let sums = async move {
                    let mut sum = 0;
                    while let Some(message) = sent.recv().await {
                        sum += message;
                    }
                    ends.send(sum).unwrap();
                };
                drop(classes.spawn(class(number * 2), sums).unwrap());
                if number == 3 {
                    drop(tokio::spawn(async move {
                        for message in 0..MESSAGES {
                            sends.send(message).unwrap();
                            if message % 64 == 0 {
                                tokio::task::yield_now().await;
                            }
                        }
                    }));
                } else {
                    std::thread::spawn(move || {
                        let mut dice = Dice(u64::from(number) + 5);
                        for message in 0..MESSAGES {
                            sends.send(message).unwrap();
                            if dice.below(50) == 0 {
                                std::thread::sleep(Duration::from_micros(dice.below(60)));
                            }
                        }
                    });
                }
            }
            drop(ends);
            let mut sum = 0;
            while let Some(of_one) = ended.recv().await {
                sum += of_one;
            }
            sum
        });
        assert_eq!(sum, 4 * (MESSAGES * (MESSAGES - 1) / 2));
    }
}

/// Goal: a task that never waits keeps nobody from anything, as long as it yields when it is due. Method: it goes on until another of
/// tokio's own tasks, a timer and a datagram have come through.
#[test]
fn a_task_that_yields_keeps_nobody() {
    let _alive = watchdog(LIMIT_S);
    one_thread().block_on(async {
        let classes = Classes::start(&options(1)).unwrap();
        let (said, mut told) = oneshot::channel();
        let busy = async move {
            while told.try_recv().is_err() {
                yield_if_due().await;
            }
        };
        let busy = classes.spawn(class(0), busy).unwrap();
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = socket.local_addr().unwrap();
        let others = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            socket.send_to(b"x", address).await.unwrap();
            socket.recv_from(&mut [0; 8]).await.unwrap().0
        });
        assert_eq!(others.await.unwrap(), 1);
        said.send(()).unwrap();
        busy.await.unwrap();
    });
}

/// Sends back so many messages. Each wait is given up now and then, and begun again.
async fn answer(mut inbox: Awaited<Communicator>, count: u64) {
    let patience = Duration::from_micros(300);
    for _ in 0..count {
        let (source, bytes) = loop {
            if let Ok(message) = tokio::time::timeout(patience, inbox.receive()).await {
                break (message.source, <[u8; 8]>::try_from(message.payload).unwrap());
            }
        };
        inbox.get_mut().send(Target::from(source), &bytes).unwrap();
    }
}

/// Goal: no message is slept over, on any medium, by a task of a class or by one of tokio's own. Giving up a wait loses none.
#[test]
fn messages_are_awaited() {
    const COUNT: u64 = 500;
    let _alive = watchdog(LIMIT_S);
    on_every_medium(|medium: &Medium| {
        for runtime in [one_thread(), threads(2)] {
            let (here, there) = open_both(medium);
            let [first, second] = [1, 2].map(|port| there.bind(port).unwrap());
            let asks = [1, 2].map(|port| {
                let from = here.bind(10 + port).unwrap();
                let ask = move || ask(from, Target::port("there", port), COUNT, u64::from(port));
                std::thread::spawn(ask)
            });
            runtime.block_on(async {
                let classes = Classes::start(&options(2)).unwrap();
                let [first, second] = [first, second].map(|inbox| Awaited::in_tokio(inbox).unwrap());
                let own = tokio::spawn(answer(first, COUNT));
                classes.spawn(class(3), answer(second, COUNT)).unwrap().await.unwrap();
                own.await.unwrap();
            });
            asks.into_iter().for_each(|ask| ask.join().unwrap());
        }
    });
}

/// Goal: a request keeps its deadline through its stages on this host too, and `blocking` only does the work.
#[test]
fn a_task_knows_its_request() {
    let _alive = watchdog(LIMIT_S);
    threads(2).block_on(async {
        let classes = Classes::start(&options(1)).unwrap();
        let within = class(1).within(Duration::from_secs(9));
        let deadline = classes.spawn(within, async { blocking(|| request().unwrap().deadline) }).unwrap();
        let metrics = classes.spawner().metrics();
        assert!(deadline.await.unwrap() > metrics.time);
        assert_eq!(request(), None, "no task of a class");
    });
}

/// Goal: a task that waits for classes on a host of its own, inside of its poll, is itself again afterwards: it knows its request,
/// and its worker that another thread has replaced it.
#[test]
fn a_poll_within_a_poll_ends_alone() {
    let _alive = watchdog(LIMIT_S);
    let outer = punctual::runtime::Runtime::start(&options(1)).unwrap();
    for is_replaced in [false, true] {
        let task = outer.spawn(class(3).within(Duration::from_secs(9)), async move {
            if is_replaced {
                blocking(|| std::thread::sleep(Duration::from_millis(1)));
            }
            let before = request();
            let inner = one_thread().block_on(async {
                let classes = Classes::start(&options(1)).unwrap();
                classes.spawn(class(5), async { request() }).unwrap().await.unwrap()
            });
            (before, inner, request())
        });
        let (before, inner, after) = outer.block_on(task.unwrap()).unwrap();
        assert!(before.is_some() && inner.is_some() && before != inner, "{before:?} {inner:?}");
        assert_eq!(after, before, "replaced: {is_replaced}");
    }
}

/// Goal: a panic ends its task alone; a cancelled task is gone; one that is dropped with its classes is dropped, with tokio's
/// runtime as well.
#[test]
fn nothing_outlives_its_end() {
    let _alive = watchdog(LIMIT_S);
    let gone = Arc::new(Counter::default());
    let waits = |gone: &Arc<Counter>| {
        let witness = Witness(Arc::clone(gone));
        async move {
            let _witness = witness;
            pending::<()>().await;
        }
    };
    let runtime = threads(2);
    let spawner = runtime.block_on(async {
        let classes = Classes::start(&options(2)).unwrap();
        let panics = classes.spawn(class(1), async { panic!("by the test") }).unwrap();
        let ended: Result<(), JoinError> = panics.await;
        assert!(matches!(ended, Err(JoinError::Panicked { .. })), "{ended:?}");
        let cancelled = classes.spawn(class(2), waits(&gone)).unwrap().cancel().await;
        assert!(matches!(cancelled, Err(JoinError::Cancelled { .. })), "{cancelled:?}");
        assert_eq!(gone.get(), 1);
        let left = classes.spawn(class(3), waits(&gone)).unwrap();
        let spawner = classes.spawner().clone();
        drop(classes);
        assert!(matches!(left.await, Err(JoinError::Cancelled { .. })));
        assert_eq!(gone.get(), 2);
        assert_eq!(spawner.spawn(class(0), async {}).map(drop), Err(SpawnError::Closed));
        let others = Classes::start(&options(1)).unwrap();
        drop(others.spawn(class(4), waits(&gone)).unwrap());
        let spawner = others.spawner().clone();
        // Kept beyond the runtime that they are in.
        std::mem::forget(others);
        spawner
    });
    let (said, told) = mpsc::channel();
    std::thread::spawn(move || {
        drop(runtime);
        said.send(()).unwrap();
    });
    told.recv().unwrap();
    assert_eq!((gone.get(), spawner.tasks()), (3, 0));
    assert_eq!(spawner.spawn(class(0), async {}).map(drop), Err(SpawnError::Closed));
}

#[test]
fn impossible_requests_are_refused_in_words() {
    let none = Classes::start(&options(1)).unwrap_err();
    assert!(matches!(none, StartError::NoTokio) && none.to_string().contains("tokio runtime"), "{none}");
    let bus = punctual::Bus::loopback("no-tokio");
    let nowhere = Awaited::in_tokio(punctual::Node::open(&bus, "here").unwrap().bind(1).unwrap());
    assert!(nowhere.unwrap_err().to_string().contains("tokio runtime"));
    let inside = threads(1);
    let _entered = inside.enter();
    let lanes = vec![Lane { workers: 1, last_class: 0, urgency: Urgency::Nice(-3) }];
    let urgent = Classes::start(&RuntimeOptions { lanes, ..options(1) }).unwrap_err();
    assert!(matches!(urgent, StartError::UrgencyOnTokio), "{urgent}");
    let nicer = RuntimeOptions { urgency: Urgency::Nice(5), ..options(1) };
    assert!(matches!(Classes::start(&nicer).unwrap_err(), StartError::UrgencyOnTokio));
    assert!(matches!(Classes::start(&options(0)).unwrap_err(), StartError::Workers(0)));
}
