//! Messages larger than a frame, on every medium: whole or counted, and no frame of them without an account.

mod common;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{Dice, Medium, PATIENCE, free_ports, on_every_medium, reopen, unique, watchdog};
use punctual::engine::faulty::Faults;
use punctual::memory::{SharedOptions, WhenFull};
use punctual::publication::TakeError;
use punctual::{
    Address, Bus, Communicator, Keys, Ledger, Node, NodeId, NodeOptions, SendError, SubscriptionOptions,
    Target,
};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::epoll::EpollSet;
use punctual_proto::fragment::{HEAD_SIZE, Head, Part, Progress, RECEIPT_SIZE_MAX, Receipt, State};
use punctual_proto::limits::{ASSEMBLY_AGE, CHECK_SIZE, FRAGMENT_SIZE_MIN};
use punctual_proto::{Frame, Header, Kind};

const MESSAGE_SIZE_MAX: usize = 64 << 20;

fn options(name: &str) -> NodeOptions {
    NodeOptions::new(name).message_size_max(MESSAGE_SIZE_MAX)
}

/// On each medium where a message can be repaired.
fn on_every_wire(trial: impl Fn(&Medium) + Send + Sync) {
    on_every_medium(|medium| {
        if !medium.in_memory {
            trial(medium);
        }
    });
}

fn open(medium: &Medium, faults: Option<Faults>) -> (Node, Node) {
    let there = faults.map_or(options("there"), |faults| options("there").faults(faults));
    (reopen(&options("here"), &medium.here), reopen(&there, &medium.there))
}

/// Its number, and bytes that follow from it.
fn message(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let mut dice = Dice(number + 1);
    bytes.resize_with(size.max(8), || 0);
    bytes[8..].chunks_mut(8).for_each(|part| {
        let word = dice.below(1 << 50).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    });
    bytes
}

fn number_of(payload: &[u8]) -> u64 {
    u64::from_le_bytes(*payload.first_chunk().unwrap())
}

/// Time in which nothing comes after the last.
const SILENCE: Duration = Duration::from_secs(3);

/// Receives until all is sent and nothing more comes; the numbers of those that came as they were sent.
fn receive_all(receiver: &mut Communicator, sizes: &[usize], is_sent: impl Fn() -> bool) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let was_sent = is_sent();
        let received = match receiver.receive_timeout(SILENCE) {
            Ok(received) => received,
            Err(_) if was_sent => return numbers,
            // A large one may be on its way for longer.
            Err(_) => continue,
        };
        let number = number_of(received.payload);
        assert!(received.payload == message(number, sizes[number as usize]), "{number} was altered");
        assert!(!numbers.contains(&number), "{number} twice");
        numbers.push(number);
    }
}

/// Lets nodes tell each other how far they are, until every frame has its account.
fn settle(here: &Node, there: &Node, receiver: &mut Communicator) -> Ledger {
    let give_up = Instant::now() + PATIENCE;
    loop {
        here.housekeep();
        assert!(receiver.receive_timeout(Duration::from_millis(30)).is_err(), "all came before");
        let account = there.peers().into_iter().find(|account| account.node == here.id()).unwrap();
        let sent = here.sent_to(Some(there.id())) + here.sent_to(None);
        let ledger = there.ledger();
        let all_said = account.arrived + account.lost + account.missing == sent && account.missing <= 64;
        if all_said && ledger.is_balanced() && ledger.waiting == 0 {
            assert_eq!(ledger.arrived, account.arrived, "{ledger}");
            return ledger;
        }
        assert!(Instant::now() < give_up, "{sent} sent: {account:?}; {ledger}");
    }
}

/// Sends messages of these sizes, one after the other; the receiver's numbers and both ledgers.
fn exchange(medium: &Medium, faults: Option<Faults>, sizes: &[usize]) -> (Vec<u64>, Ledger, Ledger) {
    let (here, there) = open(medium, faults);
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
    assert_eq!(sender.message_size_max(), MESSAGE_SIZE_MAX);
    let numbers = std::thread::scope(|scope| {
        let sends = scope.spawn(|| {
            for (number, size) in sizes.iter().enumerate() {
                let bytes = message(number as u64, *size);
                sender.send_timeout(Target::port("there", 7), &bytes, 6 * PATIENCE).unwrap();
            }
        });
        let numbers = receive_all(&mut receiver, sizes, || sends.is_finished());
        sends.join().unwrap();
        numbers
    });
    let ledger = settle(&here, &there, &mut receiver);
    (numbers, here.ledger(), ledger)
}

/// Number of these messages that are cut there.
fn cut(medium: &Medium, sizes: &[usize]) -> u64 {
    let node = Node::open(&medium.here, "asked").unwrap();
    sizes.iter().filter(|&&size| size > node.payload_size_max()).count() as u64
}

/// Goal: messages of every size arrive as they were sent, where nothing is in the way.
#[test]
fn messages_of_any_size_arrive() {
    let _alive = watchdog(240);
    on_every_medium(|medium| {
        let sizes = [1, 1_000, 1_500, 65_000, 70_000, 300_000, 1 << 20, 3_333_333, 9];
        let large = cut(medium, &sizes);
        let (numbers, here, there) = exchange(medium, None, &sizes);
        assert_eq!(here.large_sent, large, "{here}");
        assert_eq!(there.large_delivered + there.large_lost, large, "{there}");
        if there.lost() == 0 || !medium.in_memory {
            assert_eq!(numbers, (0..9).collect::<Vec<u64>>(), "{there}");
        }
        assert_eq!(numbers.len() as u64, there.large_delivered + sizes.len() as u64 - large, "{there}");
    });
}

/// Goal: the largest message under a loss of a hundredth is whole or counted, as are others before and behind it; on media where
/// the receiver can answer, each is whole.
#[test]
fn sixty_four_mebibytes_under_loss_are_whole_or_counted() {
    let _alive = watchdog(500);
    on_every_medium(|medium| {
        let mut sizes = vec![1_100_000; 12];
        sizes.push(MESSAGE_SIZE_MAX);
        sizes.extend([1_200_000; 6]);
        let faults = Faults::seeded(5).loss(10);
        let (numbers, here, there) = exchange(medium, Some(faults), &sizes);
        assert_eq!(here.large_sent, sizes.len() as u64, "{here}");
        assert_eq!(there.large_delivered + there.large_lost, here.large_sent, "{there}");
        assert_eq!(there.large_delivered, numbers.len() as u64, "{there}");
        assert!(there.lost() > 0 && (there.large_lost > 0) == medium.in_memory, "{there}");
        assert_eq!(there.fragments_refused, 0, "{there}");
    });
}

/// Goal: in memory, where nothing is lost, the largest message arrives, also past readers that are otherwise written over, and sealed.
#[test]
fn sixty_four_mebibytes_arrive_in_memory() {
    let _alive = watchdog(240);
    let hold =
        Bus::Shared(SharedOptions { when_full: WhenFull::HoldBack, ..SharedOptions::new(&unique("hold")) });
    let keys = Keys::random(1);
    let sealed = Bus::shared(&unique("sealed")).sealed(&keys);
    for bus in [Bus::loopback(&unique("hall")), Bus::shared(&unique("folder")), hold, sealed] {
        let medium = Medium { name: "memory", here: bus.clone(), there: bus, rings: true, in_memory: true };
        let sizes = [MESSAGE_SIZE_MAX, 8, MESSAGE_SIZE_MAX];
        let (numbers, _, there) = exchange(&medium, None, &sizes);
        assert_eq!(numbers, [0, 1, 2], "{there}");
        assert_eq!((there.large_delivered, there.large_lost, there.lost()), (2, 0, 0), "{there}");
    }
}

/// Goal: fragments are sealed as frames are, and faults of all kinds cost messages that are counted.
#[test]
fn sealed_messages_under_every_fault_are_whole_or_counted() {
    let _alive = watchdog(240);
    let keys = Keys::random(1);
    on_every_medium(|medium| {
        let medium = medium.sealed(&keys);
        let sizes = [1_300_000; 12];
        let faults = Faults::seeded(3).loss(8).corruption(8).duplication(30).reordering(40);
        let (numbers, here, there) = exchange(&medium, Some(faults), &sizes);
        assert_eq!(here.large_sent, 12);
        assert_eq!(there.large_delivered + there.large_lost, 12, "{there}");
        assert_eq!(there.large_delivered, numbers.len() as u64, "{there}");
        assert!(medium.in_memory || numbers.len() == 12, "{there}");
    });
}

/// Goal: a node that asked for no large messages takes none and sends none, and says so.
#[test]
fn a_node_that_asked_for_no_large_messages_takes_none() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let (here, there) =
            (options("here").open(&medium.here).unwrap(), Node::open(&medium.there, "there").unwrap());
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let large = vec![1; 600_000];
        let (size, size_max) = (large.len(), there.payload_size_max());
        std::thread::scope(|scope| {
            let receives = scope.spawn(|| receiver.receive_timeout(PATIENCE).unwrap().payload.to_vec());
            // In memory nobody answers.
            let refused = if medium.in_memory { Ok(()) } else { Err(SendError::TooLong { size, size_max }) };
            let to = Target::port("there", 7);
            assert_eq!(sender.send_timeout(to, &large, PATIENCE), refused);
            sender.send_timeout(to, b"small", PATIENCE).unwrap();
            assert_eq!(receives.join().unwrap(), b"small");
        });
        let ledger = settle(&here, &there, &mut receiver);
        assert!(ledger.fragments_refused > 1 && ledger.large_delivered + ledger.large_lost == 0, "{ledger}");
        let back = receiver.try_send(Target::port("here", 1), &large);
        assert_eq!(back, Err(SendError::TooLong { size, size_max }));
        let beyond = vec![0; MESSAGE_SIZE_MAX + 1];
        let refused = sender.send(Target::port("there", 7), &beyond);
        assert_eq!(refused, Err(SendError::TooLong { size: beyond.len(), size_max: MESSAGE_SIZE_MAX }));
    });
    assert!(NodeOptions::new("a").message_size_max(MESSAGE_SIZE_MAX + 1).open(&Bus::loopback("b")).is_err());
}

/// Goal: a large message that is queued keeps its place among others. The error for a message too large to be claimed says what to do
/// instead.
#[test]
fn a_large_message_is_queued_in_its_order() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let target = Target::port("there", 7);
        sender.send_timeout(target, &message(0, 8), PATIENCE).unwrap();
        let size = 2 * here.payload_size_max();
        for (number, size) in [(1, 8), (2, size), (3, 8)] {
            sender.queue(target, &message(number, size)).unwrap();
        }
        sender.flush();
        for (number, size) in [(0, 8), (1, 8), (2, size), (3, 8)] {
            assert!(receiver.receive_timeout(PATIENCE).unwrap().payload == message(number, size), "{number}");
        }
        let refused = sender.claim(target, size).unwrap_err();
        assert_eq!(refused, SendError::TooLong { size, size_max: here.payload_size_max() });
        let text = refused.to_string();
        assert!(text.contains("message_size_max") && text.contains("`send`"), "{text}");
    });
}

/// Goal: all of a message is sealed in the group in which it began, whichever seals meanwhile: its receiver knows it by that.
#[test]
fn a_large_message_stays_in_the_group_in_which_it_began() {
    const COUNT: u64 = 8;
    let _alive = watchdog(180);
    on_every_medium(|medium| {
        let keys = Keys::parse("7 1 000102030405060708090a0b0c0d0e0f\n8 1 010102030405060708090a0b0c0d0e0f")
            .unwrap();
        let (here, there) = open(&medium.sealed(&keys), None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let done = Flag::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for group in (7..=8).cycle().take_while(|_| !done.is_raised()) {
                    assert!(keys.seal_in(group));
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let reads = scope.spawn(|| {
                for number in 0..COUNT {
                    let received = receiver.receive_timeout(PATIENCE).unwrap();
                    assert!(received.payload == message(number, 2_000_000), "{}: {number}", medium.name);
                }
            });
            for number in 0..COUNT {
                let sent =
                    sender.send_timeout(Target::port("there", 7), &message(number, 2_000_000), PATIENCE);
                assert_eq!(sent, Ok(()), "{}: {number}: {}", medium.name, there.ledger());
            }
            reads.join().unwrap();
            done.raise();
        });
        let ledger = there.ledger();
        assert_eq!((ledger.large_delivered, ledger.large_lost), (COUNT, 0), "{}: {ledger}", medium.name);
    });
}

const GROUP_OF_BOTH: &str = "7 1 000102030405060708090a0b0c0d0e0f";
const GROUP_OF_ONE: &str = "8 1 010102030405060708090a0b0c0d0e0f";

/// Goal: a node that seals in a group that the sender has no key of says what it has in the message's group.
#[test]
fn a_receipt_is_in_the_group_of_its_message() {
    let _alive = watchdog(180);
    on_every_wire(|medium| {
        let ours = Keys::parse(GROUP_OF_BOTH).unwrap();
        let theirs = Keys::parse(&format!("{GROUP_OF_BOTH}\n{GROUP_OF_ONE}")).unwrap();
        assert!(theirs.seal_in(8));
        let (here, there) = (medium.here.clone().sealed(&ours), medium.there.clone().sealed(&theirs));
        let (here, there) = (reopen(&options("here"), &here), reopen(&options("there"), &there));
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        std::thread::scope(|scope| {
            let reads =
                scope.spawn(|| receiver.receive_timeout(PATIENCE).map(|received| received.payload.len()));
            let sent = sender.send_timeout(Target::port("there", 7), &message(0, 2_000_000), PATIENCE);
            assert_eq!(sent, Ok(()), "{}: {}", medium.name, there.ledger());
            assert_eq!(reads.join().unwrap(), Ok(2_000_000), "{}", medium.name);
        });
    });
}

/// Goal: the key of a message's group that goes once all of it was sent makes no error: its receiver has the message.
#[test]
fn a_key_that_goes_behind_the_last_fragment_is_no_error() {
    const SIZE: usize = 100_000;
    let _alive = watchdog(180);
    on_every_wire(|medium| {
        let keys = || Keys::parse(&format!("{GROUP_OF_BOTH}\n{GROUP_OF_ONE}")).unwrap();
        let ours = keys();
        assert!(ours.seal_in(8));
        let (here, there) = (medium.here.clone().sealed(&ours), medium.there.clone().sealed(&keys()));
        let (here, there) = (reopen(&options("here"), &here), reopen(&options("there"), &there));
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                sender.send_timeout(Target::port("there", 7), &message(0, SIZE), Duration::from_secs(2))
            });
            let give_up = Instant::now() + PATIENCE;
            let fragments = SIZE.div_ceil(here.payload_size_max() - HEAD_SIZE) as u64;
            while here.sent_to(Some(there.id())) < fragments {
                assert!(Instant::now() < give_up, "{}: {}", medium.name, here.ledger());
                std::thread::sleep(Duration::from_millis(1));
            }
            // The last of them may just have been counted.
            std::thread::sleep(Duration::from_millis(20));
            assert!(ours.seal_in(7));
            ours.remove_group(8);
            assert_eq!(sends.join().unwrap(), Ok(()), "{}", medium.name);
        });
        let received = receiver.receive_timeout(PATIENCE).unwrap();
        assert!(received.payload == message(0, SIZE), "{}", medium.name);
    });
}

/// Goal: a message that does not fit into its receiver's buffer comes next, as any other, and subscriptions have large ones too.
#[test]
fn a_large_message_that_does_not_fit_is_kept() {
    let _alive = watchdog(120);
    let bus = Bus::loopback(&unique("fits"));
    let medium = Medium { name: "loopback", here: bus.clone(), there: bus, rings: true, in_memory: true };
    let (here, there) = open(&medium, None);
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
    let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
    let sent = message(0, 700_000);
    sender.try_send(Target::port("there", 7), &sent).unwrap();
    let mut buffer = vec![0; 1_000_000];
    let refused = receiver.try_receive_into(&mut buffer[..1_000]);
    assert_eq!(refused, Err(TakeError::BufferTooSmall { size: 700_000 }));
    let delivery = receiver.try_receive_into(&mut buffer).unwrap();
    assert!(buffer[..delivery.size] == sent);
    let received = subscription.try_receive(&mut buffer).unwrap();
    assert!(buffer[..received.size] == sent);
    let ledger = there.ledger();
    assert_eq!((ledger.large_delivered, ledger.large_lost), (2, 0), "{ledger}");
}

/// Goal: small and large messages of one sender come in their order in memory, by whichever way each is taken. One that does not fit
/// is the next.
#[test]
fn small_and_large_messages_keep_their_order() {
    let _alive = watchdog(120);
    let open = [Bus::loopback(&unique("mixed")), Bus::shared(&unique("mixed"))];
    let sealed = Bus::loopback(&unique("mixed")).sealed(&Keys::random(1));
    for bus in open.into_iter().chain([sealed]) {
        let (here, there) = (reopen(&options("here"), &bus), reopen(&options("there"), &bus));
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let mut buffer = vec![0; 300_000];
        for round in 0..10 {
            let numbers = 6 * round..6 * (round + 1);
            let sent: Vec<_> =
                numbers.map(|number| message(number, if number % 3 == 1 { 300_000 } else { 64 })).collect();
            sent.iter().for_each(|message| sender.send(Target::port("there", 7), message).unwrap());
            for (place, message) in sent.iter().enumerate() {
                match place % 4 {
                    0 => assert!(receiver.receive().unwrap().payload == message),
                    1 => while receiver.poll(1, |_, payload| assert!(payload == message)) == 0 {},
                    _ => {
                        let refused = receiver.receive_into_until(None, &mut buffer[..32]);
                        assert_eq!(refused, Err(TakeError::BufferTooSmall { size: message.len() }));
                        let delivery = receiver.try_receive_into(&mut buffer).unwrap();
                        assert!(buffer[..delivery.size] == message[..]);
                    }
                }
            }
        }
        let ledger = there.ledger();
        assert_eq!((ledger.lost(), ledger.large_delivered), (0, 20), "{bus}: {ledger}");
    }
}

/// Goal: two nodes that send to each other at once, large messages and small ones, with losses on both sides, have all of them, in
/// order. Messages that come while they send are received then, also into a buffer that is too small at first.
#[test]
fn a_sender_of_large_messages_hears_what_comes_meanwhile() {
    const COUNT: u64 = 4;
    let _alive = watchdog(240);
    on_every_wire(|medium| {
        let faulty = |name, seed| options(name).faults(Faults::seeded(seed).loss(10));
        let nodes = [faulty("here", 1).open(&medium.here), faulty("there", 2).open(&medium.there)];
        let [here, there] = nodes.map(Result::unwrap);
        // A node that has all goes on to answer until the other has.
        let done = Counter::default();
        let play = |node: &Node, other: &str| {
            let (mut own, target) = (node.bind(5).unwrap(), Target::port(other, 5));
            let mut buffer = vec![0; 3_000_000];
            for number in 0..COUNT {
                own.send_timeout(target, &message(number, 2_500_000), PATIENCE).unwrap();
            }
            let mut next = 0;
            while next < COUNT || done.get() < 2 {
                let step = Duration::from_millis(10);
                match own
                    .receive_into_timeout(step, &mut buffer[..if next % 2 == 0 { 100 } else { 3_000_000 }])
                {
                    Err(TakeError::Empty) => continue,
                    Err(TakeError::BufferTooSmall { size }) => {
                        assert_eq!(own.try_receive_into(&mut buffer).unwrap().size, size);
                    }
                    Ok(delivery) => assert_eq!(delivery.size, 2_500_000),
                }
                assert!(buffer[..2_500_000] == message(next, 2_500_000), "{next}");
                next += 1;
                done.add(u64::from(next == COUNT));
            }
            assert_eq!(next, COUNT);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(&here, "there"));
            scope.spawn(|| play(&there, "here"));
        });
        for ledger in [here.ledger(), there.ledger()] {
            let large = (ledger.large_sent, ledger.large_delivered, ledger.large_lost);
            assert!(large == (COUNT, COUNT, 0) && ledger.is_balanced(), "{ledger}");
        }
    });
}

/// Goal: small messages that come while a large one is sent keep their order and are in the ledger. An event loop is told of them.
#[test]
fn messages_that_come_while_a_large_one_is_sent_are_kept_in_order() {
    const SMALL: u64 = 100;
    let _alive = watchdog(120);
    on_every_wire(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let mut others = there.bind(8).unwrap();
        others.send(Target::port("here", 1), b"before").unwrap();
        assert_eq!(sender.receive_timeout(PATIENCE).unwrap().payload, b"before");
        assert!(sender.arm());
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                sender.send_timeout(Target::port("there", 7), &message(0, 1_000_000), PATIENCE).unwrap();
            });
            // Nobody answers the sender until all of them are there.
            for number in 0..SMALL {
                others.send(Target::port("here", 1), &number.to_le_bytes()).unwrap();
            }
            while here.ledger().arrived < SMALL + 1 {
                std::thread::yield_now();
            }
            assert!(receiver.receive_timeout(PATIENCE).unwrap().payload == message(0, 1_000_000));
            while !sends.is_finished() {
                let _questions = receiver.receive_timeout(Duration::from_millis(1));
            }
        });
        assert!(here.ledger().is_balanced() && here.ledger().waiting == SMALL, "{}", here.ledger());
        let set = EpollSet::new().unwrap();
        set.add(sender.as_fd()).unwrap();
        assert!(set.wait(Some(PATIENCE)) > 0, "the loop sleeps for ever");
        assert!(!sender.arm());
        for number in 0..SMALL {
            let received = sender.receive_timeout(PATIENCE).unwrap();
            assert_eq!(received.payload, number.to_le_bytes());
        }
        assert!(sender.try_receive().is_err() && sender.arm());
        assert_eq!(here.ledger().waiting, 0, "{}", here.ledger());
        assert!(here.ledger().is_balanced());
    });
}

/// Goal: a flood makes a sender neither deaf nor late for ever: its message arrives, and it knows. Method: nobody answers it until more
/// small messages have come than it keeps.
#[test]
fn a_flood_makes_no_sender_deaf() {
    const SMALL: u64 = 1_500;
    const KEPT: u64 = 1_024;
    let _alive = watchdog(240);
    on_every_wire(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let mut others = there.bind(8).unwrap();
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                sender.send_timeout(Target::port("there", 7), &message(0, 1_000_000), Duration::MAX)
            });
            for number in 0..SMALL {
                others.send(Target::port("here", 1), &number.to_le_bytes()).unwrap();
                // No faster than it takes them.
                while number.is_multiple_of(50) && here.ledger().arrived < number {
                    std::thread::yield_now();
                }
            }
            assert!(receiver.receive_timeout(PATIENCE).unwrap().payload == message(0, 1_000_000));
            while !sends.is_finished() {
                let _questions = receiver.receive_timeout(Duration::from_millis(1));
            }
            assert_eq!(sends.join().unwrap(), Ok(()));
        });
        for number in 0..KEPT {
            assert_eq!(sender.receive_timeout(PATIENCE).unwrap().payload, number.to_le_bytes());
        }
        let ledger = here.ledger();
        assert!(ledger.unread >= SMALL - KEPT - 50 && ledger.is_balanced(), "{ledger}");
    });
}

/// Goal: each large message is in one account: delivered when the program has it; lost where its receiver had no place for it while it
/// sent, or closed before it read it. Method: several come while a sender sends, of which it keeps two.
#[test]
fn a_large_message_stands_in_one_account() {
    const COUNT: u64 = 5;
    const KEPT: u64 = 2;
    let _alive = watchdog(240);
    on_every_wire(|medium| {
        for read in 0..=KEPT {
            let options = |name| NodeOptions::new(name).message_size_max(1_000_000);
            let here = reopen(&options("here"), &medium.here);
            let there = reopen(&options("there"), &medium.there);
            let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
            let mut others = there.bind(8).unwrap();
            std::thread::scope(|scope| {
                let sends = scope.spawn(|| {
                    sender.send_timeout(Target::port("there", 7), &message(0, 1_000_000), 6 * PATIENCE)
                });
                for number in 0..COUNT {
                    let large = message(number, 900_000);
                    assert_eq!(others.send_timeout(Target::port("here", 1), &large, PATIENCE), Ok(()));
                }
                assert!(receiver.receive_timeout(PATIENCE).unwrap().payload == message(0, 1_000_000));
                while !sends.is_finished() {
                    let _questions = receiver.receive_timeout(Duration::from_millis(1));
                }
                assert_eq!(sends.join().unwrap(), Ok(()));
            });
            let ledger = here.ledger();
            assert_eq!((ledger.large_delivered, ledger.large_lost), (0, COUNT - KEPT), "{ledger}");
            // A message for which a buffer is too small is kept, and is delivered when it is read.
            if read > 0 {
                let too_small = sender.try_receive_into(&mut [0; 8]);
                assert_eq!(too_small.unwrap_err(), TakeError::BufferTooSmall { size: 900_000 });
                assert_eq!(here.ledger().large_delivered, 0);
            }
            for number in 0..read {
                assert!(sender.receive_timeout(PATIENCE).unwrap().payload == message(number, 900_000));
            }
            drop(sender);
            let ledger = here.ledger();
            assert_eq!((ledger.large_delivered, ledger.large_lost), (read, COUNT - read), "{ledger}");
            // The last fragment of each that nobody has is unread, as any message that nobody has.
            assert!(ledger.unread >= COUNT - read && ledger.is_balanced(), "{ledger}");
        }
    });
}

/// One who is any node and any port of a bus, at a socket.
struct Liar<'a> {
    socket: &'a UdpSocket,
    to: SocketAddr,
    /// Frames so far that had numbers, of each node.
    sent: BTreeMap<NodeId, u32>,
}

impl Liar<'_> {
    fn send(&mut self, kind: Kind, source: Address, target: Target, payload: &[u8]) {
        let numbered = self.sent.entry(source.node).or_default();
        let (incarnation, sequence, payload_size) = (1, *numbered, payload.len() as u32);
        *numbered += u32::from(kind.is_numbered());
        let (stamped, sealed) = (false, false);
        let header = Header { kind, incarnation, source, target, sequence, payload_size, stamped, sealed };
        let mut frame = vec![0; header.frame_size() + CHECK_SIZE];
        header.write(frame.first_chunk_mut().unwrap());
        frame[header.prefix_size()..header.frame_size()].copy_from_slice(payload);
        let (covered, check) = frame.split_last_chunk_mut::<CHECK_SIZE>().unwrap();
        *check = punctual_proto::broadcast::crc32c(0, covered).to_le_bytes();
        self.socket.send_to(&frame, self.to).unwrap();
    }

    /// Is there.
    fn join(&mut self, source: Address) {
        let mut body = [0; 17];
        body[16] = 2;
        self.send(Kind::Hello, source, Target::EVERYONE, &body);
    }

    /// Sends one of two parts of the message of that number.
    fn send_part(&mut self, source: Address, target: Target, (number, part): (u32, usize)) {
        const SIZE: usize = FRAGMENT_SIZE_MIN;
        let (message_size, at) = (2 * SIZE as u32, (part * SIZE) as u32);
        let head = Head { number, message_size, at, fragment_size: SIZE as u32, is_repaired: false };
        let mut part = [7; HEAD_SIZE + SIZE];
        part[..HEAD_SIZE].copy_from_slice(&head.to_bytes());
        self.send(Kind::Fragment, source, target, &part);
    }

    fn answer(&mut self, source: Address, target: Address, question: (u32, u32), state: State) {
        let (number, question) = question;
        let receipt = Receipt { number, question, room: 1 << 20, progress: Progress::of(state) };
        let mut bytes = [0; RECEIPT_SIZE_MAX];
        let size = receipt.write(&mut bytes);
        self.send(Kind::Fragment, source, target.into(), &bytes[..size]);
    }

    /// The next question about a message that reaches it: its number, and the question's.
    fn next_question(&self) -> (u32, u32) {
        let mut frame = vec![0; 65_536];
        loop {
            let size = self.socket.recv(&mut frame).expect("nobody asks");
            let frame = Frame::parse(&frame[..size]).unwrap();
            if let (Kind::Fragment, Some(Part::Question(question))) =
                (frame.header.kind, Part::read(frame.payload))
            {
                return (question.message.number, question.number);
            }
        }
    }
}

/// Goal: a receipt for a message from anybody but its receiver means nothing to its sender. Method: a socket is all others of the bus,
/// and knows the message's number. As another node, and as another port of the receiver's node, it says that the message is whole,
/// given up, or too large; then the receiver itself says what became of it.
#[test]
fn a_strangers_receipt_is_ignored() {
    let _alive = watchdog(120);
    let at = |node, port: u16| Address { node: NodeId::named(node), port: port.into() };
    let (receiver, strangers) = (at("there", 7), [at("stranger", 7), at("there", 8)]);
    for (lie, truth) in
        [(State::Whole, State::Lost), (State::Lost, State::Whole), (State::Refused, State::Whole)]
    {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = free_ports().0;
        let here = options("here").open(&Bus::peers(to, &[socket.local_addr().unwrap()])).unwrap();
        let mut sender = here.bind(1).unwrap();
        let target = sender.address();
        let mut liar = Liar { socket: &socket, to, sent: BTreeMap::new() };
        [strangers[0], receiver].into_iter().for_each(|source| liar.join(source));
        let sends = std::thread::spawn(move || {
            sender.send_timeout(Target::port("there", 7), &message(0, 1_000_000), PATIENCE)
        });
        for _ in 0..5 {
            let question = liar.next_question();
            strangers.into_iter().for_each(|source| liar.answer(source, target, question, lie));
        }
        let question = liar.next_question();
        liar.answer(receiver, target, question, truth);
        let expected = if truth == State::Whole { Ok(()) } else { Err(SendError::Full) };
        assert_eq!(sends.join().unwrap(), expected, "{lie:?}");
        // All of it was heard.
        let arrived: Vec<u64> = here.peers().iter().map(|account| account.arrived).collect();
        assert_eq!(arrived.iter().sum::<u64>(), 11, "{arrived:?}");
    }
}

/// Goal: of a receiver that says nothing the sender is told what is true: all was sent, and may arrive; or it was not, and nobody has it.
#[test]
fn a_receiver_that_does_not_read_ends_a_send() {
    let _alive = watchdog(120);
    on_every_wire(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let (target, patience) = (Target::port("there", 7), Duration::from_millis(200));
        let (fits, does_not) = (message(0, 100_000), message(1, 5_000_000));
        assert_eq!(sender.send_timeout(target, &fits, patience), Ok(()));
        assert_eq!(sender.send_timeout(target, &does_not, patience), Err(SendError::Full));
        assert!(receiver.receive_timeout(PATIENCE).unwrap().payload == fits);
        assert!(receiver.receive_timeout(Duration::from_millis(2_500)).is_err());
        let ledger = there.ledger();
        assert_eq!((ledger.large_delivered, ledger.large_lost), (1, 1), "{ledger}");
    });
}

/// Goal: a thread that holds a claim is not kept from receiving by a sender that asks what has come. The answer may have to wait for
/// the claim.
#[test]
fn a_claim_does_not_keep_its_thread_from_receiving() {
    let _alive = watchdog(120);
    on_every_wire(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let mut claims = there.bind(8).unwrap();
        let large = message(0, 1_000_000);
        let sends = std::thread::spawn(move || {
            sender.send_timeout(Target::port("there", 7), &message(0, 1_000_000), PATIENCE)
        });
        let claim = claims.claim(Target::port("here", 1), 8).unwrap();
        // Nothing of it is answered while the claim lives: a part of it may be all that comes.
        let early =
            receiver.receive_timeout(Duration::from_millis(300)).map(|message| message.payload == large);
        drop(claim);
        let whole =
            early.or_else(|_| receiver.receive_timeout(PATIENCE).map(|message| message.payload == large));
        assert_eq!(whole.ok(), Some(true));
        // A sender that asks what became of it is answered while somebody receives.
        while !sends.is_finished() {
            let _nothing = receiver.receive_timeout(Duration::from_millis(5));
        }
        assert_eq!(sends.join().unwrap(), Ok(()));
    });
}

/// Goal: without waiting, a message for which there is no room is delivered to nobody; another that is sent then is.
#[test]
fn a_message_without_room_is_full_and_counted() {
    let _alive = watchdog(120);
    let bus = Bus::loopback(&unique("room"));
    let medium = Medium { name: "loopback", here: bus.clone(), there: bus, rings: true, in_memory: true };
    let (here, there) = open(&medium, None);
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
    let large = message(0, 3 << 20);
    assert_eq!(sender.try_send(Target::port("there", 7), &large), Err(SendError::Full));
    assert!(receiver.try_receive().is_err());
    let (done, ended) = mpsc::channel();
    let receives = std::thread::spawn(move || {
        let whole = receiver.receive_timeout(PATIENCE).unwrap().payload.len();
        ended.recv().unwrap();
        while receiver.receive_timeout(Duration::from_millis(2_500)).is_ok() {}
        whole
    });
    sender.send(Target::port("there", 7), &large).unwrap();
    done.send(()).unwrap();
    assert_eq!(receives.join().unwrap(), large.len());
    let (here, there) = (here.ledger(), there.ledger());
    assert_eq!((here.large_sent, there.large_delivered, there.large_lost), (2, 1, 1), "{here}; {there}");
}

/// A third of all frames is lost.
fn third_lost() -> Faults {
    Faults { loss_permille: 300, ..Faults::seeded(1) }
}

/// Goal: a receiver that waits for messages without end gives up a large one whose rest does not come.
#[test]
fn a_receiver_that_waits_gives_up_what_is_late() {
    let _alive = watchdog(120);
    on_every_wire(|medium| {
        let (here, there) = open(medium, Some(third_lost()));
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let to = Target::port("there", 7);
        let receives = std::thread::spawn(move || receiver.receive().map(|message| message.payload.to_vec()));
        // Sent without waiting, nothing of it is repaired.
        sender.try_send(to, &message(0, 400_000)).unwrap();
        while there.ledger().large_lost == 0 {
            assert!(!receives.is_finished(), "it waits for a message");
            std::thread::sleep(Duration::from_millis(20));
        }
        while !receives.is_finished() {
            sender.send(to, b"small").unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(receives.join().unwrap().unwrap(), b"small");
    });
}

/// A node that hears what is sent by this socket, on which one sender has joined.
fn lied_to(socket: &UdpSocket) -> (Node, Liar<'_>, Address) {
    let (to, source) = (free_ports().0, Address { node: NodeId::named("here"), port: 1.into() });
    let there = options("there").open(&Bus::peers(to, &[socket.local_addr().unwrap()])).unwrap();
    let mut liar = Liar { socket, to, sent: BTreeMap::new() };
    liar.join(source);
    (there, liar, source)
}

/// Goal: a component gives nothing up while another one, which drives the engine, looks at nothing: the rest lies in the socket. Method:
/// that one's function is shown a message, and takes its time for it.
#[test]
fn a_busy_driver_costs_its_neighbour_no_large_message() {
    let _alive = watchdog(120);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (there, mut liar, source) = lied_to(&socket);
    let (mut driver, mut receiver) = (there.bind(1).unwrap(), there.bind(7).unwrap());
    liar.send_part(source, Target::port("there", 7), (1, 0));
    assert!(receiver.receive_timeout(Duration::from_millis(100)).is_err(), "it is a part");
    let (is_busy, may_go_on) = (Flag::default(), Flag::default());
    let wait = || std::thread::sleep(Duration::from_millis(1));
    let take_long = || {
        is_busy.raise();
        while !may_go_on.is_raised() {
            wait();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while driver.poll(1, |_, _| take_long()) == 0 {
                wait();
            }
        });
        liar.send(Kind::Data, source, Target::port("there", 1), b"it takes long");
        while !is_busy.is_raised() {
            std::thread::yield_now();
        }
        liar.send_part(source, Target::port("there", 7), (1, 1));
        let long = Duration::from_nanos(2 * ASSEMBLY_AGE.0);
        let given_up = receiver.receive_timeout(long).is_ok() || there.ledger().large_lost > 0;
        may_go_on.raise();
        assert!(!given_up, "{}", there.ledger());
    });
    let size = receiver.receive_timeout(PATIENCE).map(|message| message.payload.len());
    assert_eq!(size, Ok(2 * FRAGMENT_SIZE_MIN), "{}", there.ledger());
}

/// Goal: a component gives up what does not come, also if another one drives the engine all the time.
#[test]
fn a_follower_gives_up_what_is_late() {
    let _alive = watchdog(120);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (there, mut liar, source) = lied_to(&socket);
    let (mut driver, mut receiver) = (there.bind(1).unwrap(), there.bind(7).unwrap());
    let drives =
        std::thread::spawn(move || driver.receive_timeout(4 * PATIENCE).map(|message| message.payload.len()));
    for (lost, timeout) in [(0, Duration::from_millis(1)), (1, Duration::from_secs(3))] {
        liar.send_part(source, Target::port("there", 7), (lost as u32, 0));
        let ends = Instant::now() + PATIENCE;
        while there.ledger().large_lost == lost {
            assert!(!drives.is_finished() && Instant::now() < ends, "{}", there.ledger());
            assert!(receiver.receive_timeout(timeout).is_err());
        }
    }
    liar.send(Kind::Data, source, Target::port("there", 1), b"done");
    assert_eq!(drives.join().unwrap(), Ok(4));
}

/// Goal: messages in the making of a communicator whose program looks no more leave room for those of others.
#[test]
fn an_idle_communicator_leaves_room_for_others() {
    let _alive = watchdog(120);
    on_every_wire(|medium| {
        let small = |name: &str| NodeOptions::new(name).message_size_max(300_000);
        let here = reopen(&small("here"), &medium.here);
        let there = reopen(&small("there").faults(third_lost()), &medium.there);
        let (mut idle, mut receiver) = (there.bind(6).unwrap(), there.bind(7).unwrap());
        let large = message(0, 300_000);
        // One message after the other of each sender replaces the one before.
        let mut senders: Vec<Communicator> = (1..=6).map(|port| here.bind(100 + port).unwrap()).collect();
        for sender in &mut senders {
            sender.try_send(Target::port("there", 6), &large).unwrap();
            while idle.receive_timeout(Duration::from_millis(5)).is_ok() {}
        }
        let receives = std::thread::spawn(move || receiver.receive_timeout(PATIENCE).unwrap().payload.len());
        senders[0].send_timeout(Target::port("there", 7), &large, PATIENCE).unwrap();
        assert_eq!(receives.join().unwrap(), large.len());
    });
}

/// Goal: a function that is shown messages may send a large one by another communicator of its node.
#[test]
fn a_function_that_is_shown_messages_sends_large_ones() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), here.bind(7).unwrap());
        let mut asks = there.bind(1).unwrap();
        asks.send(Target::port("here", 7), b"go").unwrap();
        let large = message(0, 100_000);
        let mut sent = None;
        while sent.is_none() {
            receiver.poll(1, |_, _| sent = Some(sender.send(Target::port("there", 1), &large)));
        }
        assert_eq!(sent, Some(Ok(())));
        assert_eq!(asks.receive_timeout(PATIENCE).unwrap().payload, large);
    });
}

/// Goal: a thread that receives waits for no claim of another thread, which may wait for it.
#[test]
fn a_claim_keeps_no_other_thread_from_receiving() {
    let _alive = watchdog(120);
    on_every_wire(|medium| {
        let (here, there) = open(medium, None);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(7).unwrap());
        let mut claims = there.bind(8).unwrap();
        let sends = std::thread::spawn(move || {
            sender.send_timeout(Target::port("there", 7), &message(0, 1_000_000), PATIENCE)
        });
        let ((claimed, is_claimed), (done, is_done)) = (mpsc::channel(), mpsc::channel::<()>());
        let holds = std::thread::spawn(move || {
            let claim = claims.claim(Target::port("here", 1), 8).unwrap();
            claimed.send(()).unwrap();
            is_done.recv().unwrap();
            drop(claim);
        });
        is_claimed.recv().unwrap();
        let _early = receiver.receive_timeout(Duration::from_millis(300)).map(drop);
        done.send(()).unwrap();
        holds.join().unwrap();
        while !sends.is_finished() {
            let _nothing = receiver.receive_timeout(Duration::from_millis(5)).map(drop);
        }
        assert_eq!(sends.join().unwrap(), Ok(()));
    });
}
