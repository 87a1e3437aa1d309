//! The conformance suite of ways of waiting: no wake-up is lost, for any waiter, and none comes for nothing.

mod common;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::{Dice, Medium, PATIENCE, free_ports, on_every_medium, open_both, rounds_factor, watchdog, ways};
use punctual::{Bus, Communicator, CommunicatorOptions, Node, ReceiveError, Target, Wake};
use punctual_machine::counter::Counter;
use punctual_machine::epoll::EpollSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Messages that may be on their way: fewer than the smallest buffer of a medium holds.
const WINDOW: u64 = 64;

fn on_every_way(check: impl Fn(&Medium, Wake) + Send + Sync) {
    on_every_medium(|medium| {
        for wake in ways(medium.rings) {
            check(medium, wake);
        }
    });
}

/// Lets the receivers catch up.
fn wait_for_room(sent: u64, received: impl Fn() -> u64) {
    while sent.saturating_sub(received()) >= WINDOW {
        std::thread::yield_now();
    }
}

fn number_of(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("a number was sent"))
}

/// Goal: no wake-up is lost, also for a message that comes between the last look and the sleep.
/// Method: each message is sent when the one before was received, after a random time that ends while its receiver goes to
/// sleep. One that is slept over would be found by the clock only, and stand in the ledger as a missed wake-up.
#[test]
fn no_wake_up_is_lost() {
    let times = rounds_factor();
    let messages = 8_000 * times;
    let _alive = watchdog(600 * times);
    on_every_way(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
        let received = Counter::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..messages {
                    let message = receiver.receive().unwrap();
                    assert_eq!(number_of(message.payload), number, "{wake}");
                    received.publish(number + 1);
                }
            });
            let mut dice = Dice(11);
            for number in 0..messages {
                sender.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
                let mut tries = 0;
                while received.get_published() <= number {
                    tries += 1;
                    if tries < 1_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
                // A waiter that does not spin goes to sleep within some hundred nanoseconds, the others within some ten thousand.
                let spins = [15, 15, 60, 2_000][dice.below(4) as usize];
                (0..dice.below(spins)).for_each(|_| std::hint::spin_loop());
            }
        });
        assert_eq!(there.ledger().missed_wakeups, 0, "{wake}: {}", there.ledger());
        assert!(there.ledger().is_balanced(), "{wake}: {}", there.ledger());
    });
}

/// Goal: a wait that ends by its deadline says so, costs no message, and may be repeated.
#[test]
fn a_timeout_returns_and_a_later_message_still_arrives() {
    let _alive = watchdog(60);
    on_every_way(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
        for round in 0..3_u8 {
            for patience in [Duration::ZERO, Duration::from_millis(5)] {
                let start = Instant::now();
                assert_eq!(receiver.receive_timeout(patience).unwrap_err(), ReceiveError::Empty, "{wake}");
                assert!(start.elapsed() >= patience, "{wake} did not wait");
            }
            sender.send_timeout(Target::port("there", 1), &[round], PATIENCE).unwrap();
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, [round], "{wake}");
        }
    });
}

/// Goal: of many senders, of other nodes and of the receiver's own, none is missed and each keeps its order.
#[test]
fn many_senders_wake_one_receiver() {
    const SENDERS: u16 = 3;
    const MESSAGES: u64 = 300;
    let _alive = watchdog(120);
    on_every_way(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut receiver = there.bind_with(9, &CommunicatorOptions::waiting(wake)).unwrap();
        let senders = (0..SENDERS).map(|port| here.bind(port).unwrap());
        let senders: Vec<_> = senders.chain([there.bind(8).unwrap()]).collect();
        let total = MESSAGES * senders.len() as u64;
        let (sent, received) = (Counter::default(), Counter::default());
        std::thread::scope(|scope| {
            for mut sender in senders {
                let (sent, received) = (&sent, &received);
                scope.spawn(move || {
                    let mut dice = Dice(u64::from(sender.address().port.get()) + 1);
                    for number in 0..MESSAGES {
                        wait_for_room(sent.get(), || received.get());
                        sent.add(1);
                        sender
                            .send_timeout(Target::port("there", 9), &number.to_le_bytes(), PATIENCE)
                            .unwrap();
                        dice.pause();
                    }
                });
            }
            let mut next = [0; 16];
            for _ in 0..total {
                let message = receiver.receive_timeout(PATIENCE).unwrap_or_else(|error| {
                    panic!("{wake}: {error}: {}", there.ledger());
                });
                let expected = &mut next[usize::from(message.source.port.get())];
                assert_eq!(number_of(message.payload), *expected, "{wake}");
                *expected += 1;
                received.add_alone(1);
            }
        });
        assert!(there.ledger().is_balanced());
    });
}

/// Goal: whichever component drives the engine, each gets what is its own, in order, and none sleeps over it.
/// Method: components that wait in different ways and look away now and then, so that the driver changes all the time.
#[test]
fn order_is_kept_while_the_driver_changes() {
    const MESSAGES: u64 = 1_500;
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let wakes: Vec<Wake> = ways(medium.rings).collect();
        let received: Vec<Counter> = wakes.iter().map(|_| Counter::default()).collect();
        std::thread::scope(|scope| {
            for (port, (&wake, received)) in wakes.iter().zip(&received).enumerate() {
                let options = CommunicatorOptions::waiting(wake);
                let mut receiver = there.bind_with(port as u16, &options).unwrap();
                scope.spawn(move || {
                    let mut dice = Dice(port as u64 + 1);
                    for number in 0..MESSAGES {
                        let message = receiver.receive().unwrap();
                        assert_eq!(number_of(message.payload), number, "{wake}");
                        received.add_alone(1);
                        dice.pause();
                    }
                });
            }
            let mut dice = Dice(5);
            for number in 0..MESSAGES {
                for port in 0..wakes.len() as u16 {
                    wait_for_room(number, || received[usize::from(port)].get());
                    sender
                        .send_timeout(Target::port("there", port), &number.to_le_bytes(), PATIENCE)
                        .unwrap();
                }
                dice.pause();
            }
        });
        assert!(there.ledger().is_balanced(), "{}", there.ledger());
        assert_eq!(there.ledger().missed_wakeups, 0, "{}", there.ledger());
    });
}

/// Goal: a component that waits holds nobody up who binds, asks for the accounts or does the housekeeping.
#[test]
fn a_waiting_component_makes_way() {
    let _alive = watchdog(60);
    on_every_way(|medium, wake| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || assert_eq!(receiver.receive().unwrap().payload, b"at last"));
            std::thread::sleep(Duration::from_millis(2));
            for port in 2..6 {
                there.bind(port).unwrap();
                there.peers();
                there.housekeep();
            }
            sender.send_timeout(Target::port("there", 1), b"at last", PATIENCE).unwrap();
        });
    });
}

/// A user's own loop: a communicator next to an ordinary socket. Returns how often it was woken.
fn run_event_loop(
    communicator: &mut Communicator,
    socket: &UdpSocket,
    expected: u64,
    received: &Counter,
) -> u64 {
    let set = EpollSet::new().unwrap();
    set.add(communicator.as_fd()).unwrap();
    set.add(socket.as_fd()).unwrap();
    let (mut wake_ups, mut dice) = (0, Dice(expected));
    let mut seen = 0;
    while seen < expected {
        while communicator.try_receive().is_ok() {
            seen += 1;
            received.add(1);
        }
        while socket.recv(&mut [0; 8]).is_ok() {
            seen += 1;
            received.add(1);
        }
        dice.pause();
        if seen < expected && communicator.arm() {
            assert!(set.wait(Some(PATIENCE)) > 0, "a wake-up was lost after {seen} of {expected}");
            wake_ups += 1;
        }
    }
    // Nothing comes any more: nobody may be woken for ever.
    for _ in 0..5 {
        while communicator.try_receive().is_ok() {}
        if communicator.arm() {
            wake_ups += set.wait(Some(Duration::from_millis(10))) as u64;
        }
    }
    wake_ups
}

/// Companion with which the event loop shares the node.
#[derive(Clone, Copy, Debug)]
enum Companion {
    Nobody,
    Waiter(Wake),
    EventLoop,
}

fn check_event_loop(medium: &Medium, companion: Companion, rounds: u64) {
    let (here, there) = open_both(medium);
    let mut sender = here.bind(1).unwrap();
    let mut first = there.bind(1).unwrap();
    let options = match companion {
        Companion::Waiter(wake) => CommunicatorOptions::waiting(wake),
        _ => CommunicatorOptions::default(),
    };
    let second = there.bind_with(2, &options).unwrap();
    let plan = plan(companion, rounds);
    let count = |which: u16| plan.iter().filter(|&&target| target == which).count() as u64;
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let (near, idle, far) = (socket(), socket(), socket());
    far.connect(near.local_addr().unwrap()).unwrap();
    let received = Counter::default();
    let (here_expected, there_expected) = (count(0) + count(1), count(2));
    let wake_ups = std::thread::scope(|scope| {
        let received = &received;
        let first = scope.spawn(move || run_event_loop(&mut first, &near, here_expected, received));
        let mut second = second;
        let second = scope.spawn(move || match companion {
            Companion::EventLoop => run_event_loop(&mut second, &idle, there_expected, received),
            _ => {
                for _ in 0..there_expected {
                    second.receive().unwrap();
                    received.add(1);
                }
                0
            }
        });
        let mut dice = Dice(3);
        for (number, target) in plan.iter().enumerate() {
            wait_for_room(number as u64, || received.get());
            match target {
                0 => assert_eq!(far.send(&[0; 8]).unwrap(), 8),
                port => {
                    let target = Target::port("there", *port);
                    sender.send_timeout(target, &[0; 8], PATIENCE).unwrap();
                }
            }
            dice.pause();
        }
        first.join().unwrap() + second.join().unwrap()
    });
    // Each message wakes a loop that it is for once at most. Of two loops either is woken for the engine, which both may drive.
    let limit = match companion {
        Companion::EventLoop => 2 * rounds + 100,
        _ => here_expected + 100,
    };
    assert!(wake_ups <= limit, "{}, {companion:?}: {wake_ups} wake-ups for {rounds} messages", medium.name);
    assert!(there.ledger().is_balanced(), "{}", there.ledger());
}

/// For each message whom it is for: 0 the socket, 1 the event loop, 2 its companion.
fn plan(companion: Companion, rounds: u64) -> Vec<u16> {
    let mut dice = Dice(17);
    let for_companion = if matches!(companion, Companion::Nobody) { 0 } else { 5 };
    (0..rounds)
        .map(|_| match dice.below(16) {
            0 | 1 => 0,
            pip if pip < 2 + for_companion => 2,
            _ => 1,
        })
        .collect()
}

/// Goal: in an event loop of the user's own no wake-up is lost, and none comes for nothing for ever.
/// Method: 20,000 messages over the bus and over a socket in one epoll set, with random pauses at both ends; a lost
/// wake-up is a wait that ends by the clock.
#[test]
fn an_event_loop_loses_no_wake_up() {
    let _alive = watchdog(120);
    on_every_medium(|medium| check_event_loop(medium, Companion::Nobody, 20_000));
}

/// The same while another component of the node drives the engine at times.
#[test]
fn an_event_loop_shares_its_node() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        for wake in ways(medium.rings) {
            check_event_loop(medium, Companion::Waiter(wake), 3_000);
        }
        check_event_loop(medium, Companion::EventLoop, 5_000);
    });
}

/// Until the kernel says that something is there for the node: over its own loopback and veth it delivers within the call that
/// sends, or when its thread for that gets a processor. Where the medium is memory, what was sent is there.
fn wait_for_the_kernel(node: &Node) {
    let mut descriptors: Vec<PollFd<'_>> = node
        .medium_descriptors()
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        .collect();
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ready = descriptors.is_empty() || poll(&mut descriptors, Some(&patience)).unwrap() > 0;
    assert!(ready, "the kernel brings nothing");
}

/// Goal: a message that is there is found by the first look, and arming says so.
#[test]
fn a_message_that_is_there_is_found_at_once() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        sender.send_timeout(Target::port("there", 1), b"first", PATIENCE).unwrap();
        receiver.receive_timeout(PATIENCE).unwrap();
        for target in [Target::port("there", 1), Target::EVERYONE] {
            sender.try_send(target, b"now").unwrap();
            std::thread::sleep(Duration::from_millis(20));
            wait_for_the_kernel(&there);
            assert_eq!(receiver.try_receive().unwrap().payload, b"now", "{target}");
        }
        while !receiver.arm() {
            assert!(receiver.try_receive().is_err(), "nothing was sent");
        }
        let set = EpollSet::new().unwrap();
        set.add(receiver.as_fd()).unwrap();
        let local: Node = there.clone();
        local.bind(2).unwrap().send(Target::port("there", 1), b"from next door").unwrap();
        assert_eq!(set.wait(Some(PATIENCE)), 1);
        assert_eq!(receiver.try_receive().unwrap().payload, b"from next door");
    });
}

/// Goal: a thread that sleeps alone in the call that receives hears its own process all the same, and loses nothing of its peer's. Here
/// a message to itself wakes it again and again while its peer sends, and no stranger is heard for it.
#[test]
fn a_thread_that_sleeps_in_the_receive_hears_its_own_process() {
    const MESSAGES: u64 = 2_000;
    let _alive = watchdog(120);
    for strangers in [false, true] {
        let (a, b) = free_ports();
        let here = Node::open(&Bus::peers(a, &[b]), "here").unwrap();
        let there = Node::open(&Bus::peers(b, &[a]), "there").unwrap();
        let mut sender = here.bind(1).unwrap();
        let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(Wake::EventFd)).unwrap();
        let mut own = receiver.sender();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let received = [Counter::default(), Counter::default()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..MESSAGES {
                    wait_for_room(number, || received[0].get());
                    sender.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
                    if strangers {
                        let _refused = stranger.send_to(&[0xB5; 64], b);
                    }
                }
            });
            scope.spawn(|| {
                for number in 0..MESSAGES {
                    wait_for_room(number, || received[1].get());
                    own.try_send(Target::port("there", 1), &number.to_le_bytes()).unwrap();
                }
            });
            for _ in 0..2 * MESSAGES {
                let message = receiver.receive().unwrap();
                let from = usize::from(message.source.node == there.id());
                assert_eq!(number_of(message.payload), received[from].get());
                received[from].add(1);
            }
        });
        let ledger = there.ledger();
        assert!(ledger.is_balanced() && ledger.bad_frames == 0 && ledger.missed_wakeups == 0, "{ledger}");
    }
}
