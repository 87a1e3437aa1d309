//! Descriptors and timers of the runtime: bytes in their class, no report that is lost, no timer that is.

mod common;

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use common::{Dice, PATIENCE, watchdog};
use punctual::Nanos;
use punctual::runtime::{
    Handle, Lane, Policy, Runtime, RuntimeOptions, Sleep, TaskOptions, TcpListener, TcpStream, UdpSocket,
    Urgency, request, yield_now,
};
use punctual_machine::counter::Counter;
use punctual_machine::event_fd::wait_readable;
use punctual_machine::process::raise_descriptor_limit;

/// Bytes that sockets of loopback hold in any case.
const ON_THE_WAY_MAX: usize = 60_000;

/// Longer than any test takes on a busy machine.
const LIMIT_S: u64 = 120;

fn start(workers: usize) -> Runtime {
    Runtime::start(&RuntimeOptions { workers, ..RuntimeOptions::default() }).unwrap()
}

fn class(class: u8) -> TaskOptions {
    TaskOptions::of_class(class)
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Sends back what comes, until the other end has no more.
async fn echo(stream: TcpStream) {
    let mut buffer = [0; 1_024];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return,
            count => stream.write_all(&buffer[..count]).await.unwrap(),
        }
    }
}

/// A server that echoes on every connection, one class after the other.
fn serve(handle: &Handle) -> SocketAddr {
    let listener = TcpListener::bind(handle, anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = handle.clone();
    let accepts = async move {
        for of in (0..8).cycle() {
            let (stream, _) = listener.accept().await.unwrap();
            drop(tasks.spawn(class(of), echo(stream)).unwrap());
        }
    };
    drop(handle.spawn(class(0), accepts).unwrap());
    address
}

/// Goal: every byte comes back, regardless of which end sleeps where. Method: clients outside and inside, with pauses, on one to three
/// workers and with a lane.
#[test]
fn bytes_go_there_and_back() {
    let _alive = watchdog(LIMIT_S);
    let lane = Lane { workers: 1, last_class: 2, urgency: Urgency::Inherited };
    let with_lane = RuntimeOptions { lanes: vec![lane], ..RuntimeOptions::default() };
    for runtime in [start(1), start(3), Runtime::start(&with_lane).unwrap()] {
        let address = serve(runtime.handle());
        let outside: Vec<_> = (0..4)
            .map(|seed| {
                std::thread::spawn(move || {
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    let mut dice = Dice(seed + 1);
                    for round in 0..200_u64 {
                        stream.write_all(&round.to_le_bytes()).unwrap();
                        let mut back = [0; 8];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(u64::from_le_bytes(back), round);
                        dice.pause();
                    }
                })
            })
            .collect();
        let handle = runtime.handle().clone();
        let inside = async move {
            let stream = TcpStream::connect(&handle, address).await.unwrap();
            let large = vec![7; 1 << 20];
            let mut back = 0;
            let mut sent = 0;
            let mut buffer = [0; 10_000];
            while back < large.len() {
                // A little, then as much as has come. More on the way than sockets hold would stop both ends for good: each writes,
                // and neither reads.
                let end = large.len().min(sent + 5_000).min(back + ON_THE_WAY_MAX);
                let part = &large[sent..end.max(sent)];
                stream.write_all(part).await.unwrap();
                sent += part.len();
                let count = stream.read(&mut buffer).await.unwrap();
                assert!(buffer[..count].iter().all(|&byte| byte == 7));
                back += count;
            }
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
        };
        let inside = runtime.spawn(class(3), inside).unwrap();
        runtime.block_on(inside).unwrap();
        outside.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Goal: a task that writes to a peer that has ended its own direction and does not read waits, and keeps nobody. Method: the only
/// worker is told of the end first; another task is served before the peer reads.
#[test]
fn a_peer_that_only_stopped_sending_keeps_no_worker() {
    const SIZE: usize = 32 << 20;
    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let listener = TcpListener::bind(runtime.handle(), anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    let (said, heard) = mpsc::channel();
    let answers = async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 64];
        while stream.read(&mut buffer).await.unwrap() > 0 {}
        said.send(()).unwrap();
        stream.write_all(&vec![7; SIZE]).await.unwrap();
    };
    let answers = runtime.spawn(class(0), answers).unwrap();
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    heard.recv().unwrap();
    runtime.block_on(runtime.spawn(class(7), async {}).unwrap()).unwrap();
    assert!(!answers.is_finished(), "sockets hold less than that");
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert!(all.len() == SIZE && all.iter().all(|&byte| byte == 7));
    runtime.block_on(answers).unwrap();
}

/// Goal: a socket that always has something lets others have their turns. Method: all bytes are there before the first is read. Their
/// reader spawns a task that is more important, and reads one by one.
#[test]
fn a_flood_keeps_nobody_waiting() {
    const SIZE: usize = 4_000;
    let _alive = watchdog(LIMIT_S);
    let turn = Duration::from_micros(1);
    let runtime = Runtime::start(&RuntimeOptions { turn, ..RuntimeOptions::default() }).unwrap();
    let listener = std::net::TcpListener::bind(anywhere()).unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.write_all(&[7; SIZE]).unwrap();
    while server.peek(&mut [0; SIZE]).unwrap() < SIZE {}
    let (stream, again) = (TcpStream::from_std(runtime.handle(), server).unwrap(), runtime.handle().clone());
    let reads = async move {
        let urgent = again.spawn(class(0), async {}).unwrap();
        for read in 0..SIZE {
            if urgent.is_finished() {
                return read;
            }
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
        }
        SIZE
    };
    let read = runtime.block_on(runtime.spawn(class(7), reads).unwrap()).unwrap();
    assert!(read < SIZE, "all was read first");
}

/// Goal: a datagram that nobody took is an error once; then the socket waits for the next, and keeps nobody.
#[test]
fn a_refused_datagram_is_told_once() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let socket = Arc::new(UdpSocket::bind(runtime.handle(), anywhere()).unwrap());
    let nobody = std::net::UdpSocket::bind(anywhere()).unwrap().local_addr().unwrap();
    socket.as_std().connect(nobody).unwrap();
    let (theirs, (said, heard)) = (Arc::clone(&socket), mpsc::channel());
    let receives = async move {
        let refused = theirs.recv_from(&mut [0]).await.unwrap_err();
        said.send(refused.kind()).unwrap();
        theirs.recv_from(&mut [0]).await.map(drop)
    };
    let receives = runtime.spawn(class(0), receives).unwrap();
    // The only worker serves another when that one waits.
    let other_is_served = || runtime.block_on(runtime.spawn(class(7), async {}).unwrap()).unwrap();
    other_is_served();
    socket.as_std().send(b"?").unwrap();
    assert_eq!(heard.recv().unwrap(), std::io::ErrorKind::ConnectionRefused);
    other_is_served();
    assert!(runtime.block_on(receives.cancel()).is_err());
}

#[test]
fn a_refused_connection_is_told() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let handle = runtime.handle().clone();
    let free = std::net::TcpListener::bind(anywhere()).unwrap().local_addr().unwrap();
    let connects = runtime.spawn(class(0), async move { TcpStream::connect(&handle, free).await.map(drop) });
    let error = runtime.block_on(connects.unwrap()).unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn datagrams_go_there_and_back() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(2);
    let sockets = [(); 2].map(|()| UdpSocket::bind(runtime.handle(), anywhere()).unwrap());
    let [here, there] = sockets;
    let target = there.as_std().local_addr().unwrap();
    let answers = async move {
        let mut buffer = [0; 64];
        for _ in 0..500 {
            let (count, source) = there.recv_from(&mut buffer).await.unwrap();
            there.send_to(&buffer[..count], source).await.unwrap();
        }
    };
    let asks = async move {
        let mut buffer = [0; 64];
        for round in 0..500_u32 {
            here.send_to(&round.to_le_bytes(), target).await.unwrap();
            let (count, source) = here.recv_from(&mut buffer).await.unwrap();
            assert_eq!((&buffer[..count], source), (&round.to_le_bytes()[..], target));
        }
    };
    drop(runtime.spawn(class(1), answers).unwrap());
    let asks = runtime.spawn(class(0), asks).unwrap();
    runtime.block_on(asks).unwrap();
}

/// Goal: one listener serves several tasks, and a task that waited and was cancelled takes no connection's report from another.
#[test]
fn several_tasks_accept() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(2);
    let listener = Arc::new(TcpListener::bind(runtime.handle(), anywhere()).unwrap());
    let address = listener.local_addr().unwrap();
    let accept = |class_of| {
        let listener = Arc::clone(&listener);
        runtime.spawn(class(class_of), async move { listener.accept().await.map(drop) }).unwrap()
    };
    for round in 0..50 {
        let (mut first, mut second) = (accept(0), accept(1));
        if round % 5 != 0 {
            // Both wait.
            std::thread::sleep(Duration::from_millis(2));
        }
        if round % 2 == 0 {
            std::mem::swap(&mut first, &mut second);
        }
        assert!(runtime.block_on(first.cancel()).is_err(), "nobody has connected");
        let _connection = std::net::TcpStream::connect(address).unwrap();
        runtime.block_on(second).unwrap().unwrap();
    }
}

/// Goal: a loop over calls that fail at once ends its turns, and keeps no other task waiting.
#[test]
fn calls_that_fail_keep_no_worker() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let socket = UdpSocket::bind(runtime.handle(), anywhere()).unwrap();
    let ended = Arc::new(Counter::default());
    let (other, handle) = (Arc::clone(&ended), runtime.handle().clone());
    let fails = async move {
        // More than a datagram can carry.
        let (bytes, target) = (vec![0; 70_000], socket.as_std().local_addr().unwrap());
        let until = handle.now().plus(Nanos::from_millis(30_000));
        while other.get() == 0 && handle.now() < until {
            socket.send_to(&bytes, target).await.unwrap_err();
        }
        other.get()
    };
    let fails = runtime.spawn(class(0), fails).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let counts = Arc::clone(&ended);
    drop(runtime.spawn(class(0), async move { counts.add(1) }).unwrap());
    assert_eq!(runtime.block_on(fails).unwrap(), 1);
}

/// Goal: bytes are read in their class, not as they come. Method: the worker is busy while they come, last class first.
#[test]
fn bytes_are_read_in_their_class() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let handle = runtime.handle();
    // By the default policy the first of each class may come out of its floor.
    handle.set_policy(Policy::Strict);
    let (said, order) = mpsc::channel();
    let (waits, is_waiting) = mpsc::channel();
    let sockets: Vec<_> = (0..4_u8)
        .map(|number| {
            let socket = UdpSocket::bind(handle, anywhere()).unwrap();
            let same = socket.as_std().try_clone().unwrap();
            let (said, waits) = (said.clone(), waits.clone());
            let reads = async move {
                waits.send(()).unwrap();
                socket.recv_from(&mut [0]).await.unwrap();
                said.send((number, request().unwrap())).unwrap();
            };
            drop(handle.spawn(class(number).within(Duration::from_secs(1)), reads).unwrap());
            same
        })
        .collect();
    drop(said);
    // Each has tried once and found nothing: it waits for a report when the next one begins to try, or this task does.
    (0..4).for_each(|_| is_waiting.recv().unwrap());
    let sends = async move {
        yield_now().await;
        let socket = std::net::UdpSocket::bind(anywhere()).unwrap();
        for other in sockets.iter().rev() {
            socket.send_to(b"x", other.local_addr().unwrap()).unwrap();
            assert!(wait_readable(other.as_fd(), Some(PATIENCE)).unwrap());
        }
    };
    runtime.block_on(handle.spawn(class(7), sends).unwrap()).unwrap();
    let order: Vec<_> = order.iter().collect();
    let classes: Vec<u8> = order.iter().map(|(number, _)| *number).collect();
    assert_eq!(classes, [0, 1, 2, 3]);
    assert!(order.iter().all(|(_, request)| request.deadline - request.arrived == 1_000_000_000));
}

/// Goal: a waker that is dropped where another one replaces it may itself drop a timer.
#[test]
fn a_replaced_waker_may_drop_a_timer() {
    #[derive(Debug)]
    struct Owner(#[expect(dead_code, reason = "kept to be dropped")] Mutex<Sleep>);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let [mut owned, mut kept] = [(); 2].map(|()| runtime.handle().sleep(Duration::from_secs(3_600)));
    let poll = |sleep: &mut Sleep, waker: &Waker| Pin::new(sleep).poll(&mut Context::from_waker(waker));
    assert!(poll(&mut owned, Waker::noop()).is_pending());
    let owner = Waker::from(Arc::new(Owner(Mutex::new(owned))));
    assert!(poll(&mut kept, &owner).is_pending());
    drop(owner);
    assert!(poll(&mut kept, Waker::noop()).is_pending());
}

/// Goal: a worker that sleeps until an instant wakes for an earlier one that comes meanwhile.
#[test]
fn an_earlier_timer_is_not_slept_over() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(1);
    let handle = runtime.handle();
    let hour = handle.sleep(Duration::from_secs(3_600));
    let late = runtime.spawn(class(0), hour).unwrap();
    // The worker sleeps then.
    std::thread::sleep(Duration::from_millis(50));
    runtime.block_on(handle.sleep(Duration::from_millis(20)));
    assert!(runtime.block_on(late.cancel()).is_err(), "the hour is not over");
}

/// Goal: no timer goes off early, and none is forgotten.
#[test]
fn timers_go_off_after_their_time() {
    let _alive = watchdog(LIMIT_S);
    for runtime in [start(1), start(2)] {
        let handle = runtime.handle().clone();
        let began = Instant::now();
        let (said, order) = mpsc::channel();
        // The worker sleeps until the first when the second comes, which is earlier.
        for ms in [60, 20, 40] {
            let (said, handle) = (said.clone(), handle.clone());
            let waits = async move {
                let due = handle.now().plus(Nanos::from_millis(ms));
                handle.sleep(Duration::from_millis(ms.into())).await;
                assert!(handle.now() >= due);
                said.send(ms).unwrap();
            };
            drop(runtime.spawn(class(0), waits).unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(said);
        let mut all: Vec<u32> = order.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [20, 40, 60]);
        assert!(began.elapsed() >= Duration::from_millis(60));
        let early = handle.clone();
        let waits = async move {
            let never = early.within(Duration::from_millis(5), std::future::pending::<()>()).await;
            (never.is_err(), early.within(Duration::from_secs(600), async { 3 }).await)
        };
        let waits = runtime.spawn(class(0), waits).unwrap();
        assert_eq!(runtime.block_on(waits).unwrap(), (true, Ok(3)));
    }
}

/// Keeps a worker until the sender is dropped.
fn hold(runtime: &Runtime) -> (mpsc::Sender<()>, punctual::runtime::Join<()>) {
    let ((go, gate), (held, is_held)) = (mpsc::channel::<()>(), mpsc::channel());
    let holds = async move {
        held.send(()).unwrap();
        let _gone = gate.recv();
    };
    let task = runtime.spawn(class(0), holds).unwrap();
    is_held.recv().unwrap();
    (go, task)
}

/// Goal: a worker that has waited for descriptors and timers, and is kept by a task then, keeps nobody else while another sleeps.
/// Method: either of two workers is kept until a datagram has come, or a timer has gone off, for a thread that is no worker.
#[test]
fn a_worker_that_is_kept_hands_the_lead_on() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(2);
    let socket = UdpSocket::bind(runtime.handle(), anywhere()).unwrap();
    let sender = std::net::UdpSocket::bind(anywhere()).unwrap();
    let address = socket.as_std().local_addr().unwrap();
    for _ in 0..10 {
        // Both sleep mostly.
        std::thread::sleep(Duration::from_millis(5));
        let (go, held) = hold(&runtime);
        let theirs = sender.try_clone().unwrap();
        let sends = std::thread::spawn(move || {
            // It is waited for by then.
            std::thread::sleep(Duration::from_millis(2));
            theirs.send_to(b"x", address).unwrap();
        });
        runtime.block_on(socket.recv_from(&mut [0])).unwrap();
        sends.join().unwrap();
        runtime.block_on(runtime.handle().sleep(Duration::from_millis(1)));
        assert!(!held.is_finished());
        drop(go);
        runtime.block_on(held).unwrap();
    }
    for _ in 0..10 {
        let runtime = start(2);
        std::thread::sleep(Duration::from_millis(5));
        let (go, held) = hold(&runtime);
        // The first timer comes when the one that would wait for it is kept.
        runtime.block_on(runtime.handle().sleep(Duration::from_millis(1)));
        assert!(!held.is_finished());
        drop(go);
        runtime.block_on(held).unwrap();
    }
}

/// Goal: as many timers as there are go off, once each. `PUNCTUAL_TIMERS=100000` has more of them.
#[test]
fn many_timers_go_off_once() {
    let _alive = watchdog(600);
    let count = std::env::var("PUNCTUAL_TIMERS").map_or(5_000, |timers| timers.parse().unwrap());
    let runtime =
        Runtime::start(&RuntimeOptions { workers: 2, tasks_max: count, ..RuntimeOptions::default() });
    let runtime = runtime.unwrap();
    let ended = Arc::new(Counter::default());
    let mut dice = Dice(count as u64);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (ended, handle) = (Arc::clone(&ended), runtime.handle().clone());
            let wait = Duration::from_micros(dice.below(100_000));
            let waits = async move {
                handle.sleep(wait).await;
                ended.add(1);
            };
            runtime.spawn(class(dice.below(8) as u8), waits).unwrap()
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    assert_eq!(ended.get(), count as u64);
}

/// Memory of this process that is resident, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Goal: connections that are idle cost memory alone; each is answered when it asks, and gone with its other end, again and again.
/// `PUNCTUAL_CONNECTIONS=10000` has more of them.
#[test]
fn many_connections_are_idle() {
    let _alive = watchdog(600);
    let wanted = std::env::var("PUNCTUAL_CONNECTIONS").map_or(400, |count| count.parse().unwrap());
    // Both ends are here, beside what else this program has open.
    let count = usize::min(wanted, (raise_descriptor_limit() as usize).saturating_sub(300) / 2);
    if count < wanted {
        punctual_machine::skipped!(
            "{} of {wanted} connections: the limit of descriptors (ulimit -Hn)",
            wanted - count
        );
    }
    let options = RuntimeOptions { workers: 2, tasks_max: 2 * count + 8, ..RuntimeOptions::default() };
    let runtime = Runtime::start(&options).unwrap();
    let address = serve(runtime.handle());
    let sources = || runtime.handle().metrics().reactor.sources;
    let ask = |client: &mut std::net::TcpStream| {
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
    };
    for round in 1..=2 {
        let before = resident();
        let mut clients: Vec<_> = (0..count)
            .map(|_| {
                let mut client = std::net::TcpStream::connect(address).unwrap();
                ask(&mut client);
                client
            })
            .collect();
        let bytes = resident().saturating_sub(before) / count as u64;
        println!(
            "round {round}: {count} idle connections, {bytes} resident bytes each, 1,024 of them a buffer"
        );
        assert_eq!((runtime.handle().tasks(), sources()), (count + 1, count as u64 + 1));
        clients.iter_mut().rev().for_each(ask);
        drop(clients);
        while runtime.handle().tasks() > 1 || sources() > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Goal: a runtime ends with tasks that wait for descriptors and timers, and closes the descriptors.
#[test]
fn the_end_closes_connections() {
    let _alive = watchdog(LIMIT_S);
    let runtime = start(2);
    let address = serve(runtime.handle());
    let handle = runtime.handle().clone();
    let forever = async move { handle.sleep(Duration::from_secs(3_600)).await };
    drop(runtime.spawn(class(4), forever).unwrap());
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    assert!(runtime.handle().metrics().reactor.sources >= 2);
    drop(runtime);
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0, "closed, or reset");
}

/// Goal: a socket of a runtime that is gone waits for nothing, whether it waited at the end or is awaited later.
#[test]
fn the_end_ends_waits_elsewhere() {
    let _alive = watchdog(LIMIT_S);
    let (gone, other) = (start(1), start(1));
    let socket = UdpSocket::bind(gone.handle(), anywhere()).unwrap();
    let (said, heard) = mpsc::channel();
    let receives = async move {
        let mut buffer = [0];
        let mut waits = pin!(socket.recv_from(&mut buffer));
        let ended = poll_fn(|context| {
            let polled = waits.as_mut().poll(context);
            said.send(()).unwrap();
            polled
        });
        [ended.await.map(drop), socket.recv_from(&mut [0]).await.map(drop)]
    };
    let receives = other.spawn(class(0), receives).unwrap();
    heard.recv().unwrap();
    drop(gone);
    for ended in other.block_on(receives).unwrap() {
        assert_eq!(ended.unwrap_err().to_string(), "the runtime is gone");
    }
}
