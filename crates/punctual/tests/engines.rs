//! The conformance suite of engines: every medium keeps the same promises.

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, on_every_medium, open_both, unique, watchdog, ways};
use punctual::{Bus, CommunicatorOptions, Node, ReceiveError, SendError, Target, Wake};
use punctual_machine::counter::Flag;

#[test]
fn a_message_arrives_whole_and_says_who_sent_it() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(3).unwrap();
        let mut receiver = there.bind(7).unwrap();
        for size in [0, 1, 7, 8, 63, 64, 65, 256, 1000, 1400.min(sender.payload_size_max())] {
            let payload: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            sender.send_timeout(Target::port("there", 7), &payload, PATIENCE).unwrap();
            let message = receiver.receive_timeout(PATIENCE).unwrap();
            assert_eq!(message.payload, payload, "{size} bytes");
            assert_eq!(message.source, sender.address());
            assert_eq!(message.lost_before, 0);
            assert!(message.stages.is_none());
        }
        assert_eq!(receiver.try_receive().unwrap_err(), ReceiveError::Empty);
    });
}

#[test]
fn the_largest_message_arrives_and_a_larger_one_is_refused() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let size_max = sender.payload_size_max();
        let payload = vec![0x5A; size_max + 1];
        sender.send_timeout(Target::port("there", 1), &payload[..size_max], PATIENCE).unwrap();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, &payload[..size_max]);
        let refused = sender.try_send(Target::port("there", 1), &payload);
        assert_eq!(refused, Err(SendError::TooLong { size: size_max + 1, size_max }));
        assert_eq!(here.ledger().sent, 1, "a refused message was not sent");
    });
}

#[test]
fn order_is_kept_and_both_ways_work() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut ping, mut pong) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        for round in 0..500_u32 {
            ping.send_timeout(Target::port("there", 1), &round.to_le_bytes(), PATIENCE).unwrap();
            let message = pong.receive_timeout(PATIENCE).unwrap();
            let (back, number) = (Target::from(message.source), message.payload.to_vec());
            pong.send_timeout(back, &number, PATIENCE).unwrap();
            assert_eq!(ping.receive_timeout(PATIENCE).unwrap().payload, round.to_le_bytes());
        }
        for (node, peer) in [(&here, &there), (&there, &here)] {
            let account = &node.peers()[0];
            assert_eq!(account.arrived + account.lost, peer.sent_to(Some(node.id())), "{:?}", node.ledger());
            assert_eq!(account.lost, 0);
            assert!(node.ledger().is_balanced());
        }
    });
}

#[test]
fn everybody_means_everybody_but_the_sender() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let mut sender = here.bind(1).unwrap();
        let mut neighbour = here.bind(2).unwrap();
        let (mut one, mut two) = (there.bind(1).unwrap(), there.bind(2).unwrap());
        let mut expect = |reaches: [bool; 3], what: &str| {
            for (receiver, reached) in [&mut neighbour, &mut one, &mut two].into_iter().zip(reaches) {
                let patience = if reached { PATIENCE } else { Duration::from_millis(20) };
                let payload = receiver.receive_timeout(patience).map(|message| message.payload.to_vec());
                assert_eq!(
                    payload,
                    if reached { Ok(what.into()) } else { Err(ReceiveError::Empty) },
                    "{what}: {}",
                    there.ledger()
                );
            }
        };
        sender.send_timeout(Target::EVERYONE, b"all", PATIENCE).unwrap();
        expect([true, true, true], "all");
        sender.send_timeout(Target::everyone_at(2), b"port", PATIENCE).unwrap();
        expect([true, false, true], "port");
        sender.send_timeout(Target::node("there"), b"node", PATIENCE).unwrap();
        expect([false, true, true], "node");
        sender.send_timeout(Target::node("here"), b"home", PATIENCE).unwrap();
        expect([true, false, false], "home");
        assert_eq!(sender.try_receive().unwrap_err(), ReceiveError::Empty, "nothing came back");
        assert!(here.ledger().is_balanced() && there.ledger().is_balanced());
    });
}

/// Goal: `send` ends whether or not its target ever comes, and says what was wrong.
#[test]
fn a_send_to_nobody_ends_with_a_word() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("nobody")), Bus::shared(&unique("nobody"))] {
        let node = Node::open(&bus, "here").unwrap();
        let mut sender = node.bind(7400).unwrap();
        assert_eq!(sender.send(Target::port("there", 7400), b"hello"), Err(SendError::Unreachable));
        assert_eq!(node.ledger().sent, 0);
        // A node that comes while it waits gets the message. One that arrives after the node and before its port is counted there, so
        // the sender goes on until one has been received.
        let received = Flag::default();
        let mut there = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !received.is_raised() {
                    sender.send_timeout(Target::port("there", 7400), b"hello", PATIENCE).unwrap();
                    std::thread::yield_now();
                }
            });
            let mut there = Node::open(&bus, "there").unwrap().bind(7400).unwrap();
            let payload = there.receive_timeout(PATIENCE).map(|message| message.payload.to_vec());
            received.raise();
            assert_eq!(payload, Ok(b"hello".to_vec()));
            there
        });
        while let Ok(message) = there.try_receive() {
            assert_eq!(message.payload, b"hello");
        }
    }
}

#[test]
fn a_message_for_no_port_is_counted() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        // In memory a sender sees that nobody is there; elsewhere the receiver does.
        let lost = sender.send_timeout(Target::port("there", 99), b"lost", Duration::from_millis(100));
        assert_eq!(lost, if medium.in_memory { Err(SendError::Unreachable) } else { Ok(()) });
        let lost = u64::from(lost.is_ok());
        sender.send_timeout(Target::port("there", 1), b"found", PATIENCE).unwrap();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"found");
        let ledger = there.ledger();
        assert_eq!((ledger.no_such_port, ledger.delivered, ledger.copies), (lost, 1, 1 + lost));
        assert_eq!(sender.try_send(Target::port("here", 99), b""), Err(SendError::Unreachable));
        // In a frame this number would stand for all ports.
        for target in
            [Target::port("there", u16::MAX), Target::port("here", u16::MAX), Target::everyone_at(u16::MAX)]
        {
            assert_eq!(sender.try_send(target, b""), Err(SendError::Unreachable), "{target}");
            assert_eq!(sender.claim(target, 0).err(), Some(SendError::Unreachable), "{target}");
        }
    });
}

#[test]
fn a_message_is_written_in_place_or_not_at_all() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let target = Target::port("there", 1);
        sender.send_timeout(target, b"first", PATIENCE).unwrap();
        let mut claim = sender.claim(target, 5).unwrap();
        claim.payload().copy_from_slice(b"never");
        drop(claim);
        let mut claim = sender.claim(target, 6).unwrap();
        claim.payload().copy_from_slice(b"second");
        claim.commit();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"first");
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"second");
        assert_eq!(here.ledger().sent, 2);
    });
}

#[test]
fn stamped_messages_say_where_their_time_went() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let options = CommunicatorOptions::default().stamped().recording(8);
        let (mut sender, mut receiver) =
            (here.bind_with(1, &options).unwrap(), there.bind_with(1, &options).unwrap());
        sender.send_timeout(Target::port("there", 1), b"stamped", PATIENCE).unwrap();
        let stages = receiver.receive_timeout(PATIENCE).unwrap().stages.unwrap();
        assert!(stages.one_clock);
        assert!(stages.total().unwrap().0 > 0);
        assert_eq!(stages.unexplained(), Some(0), "the stages sum to the total: {stages:?}");
        assert_eq!(receiver.recorded().count(), 1);
    });
}

#[test]
fn queued_messages_go_with_the_flush() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        sender.send_timeout(Target::port("there", 1), b"", PATIENCE).unwrap();
        for number in 0..20_u8 {
            sender.queue(Target::port("there", 1), &[number]).unwrap();
        }
        sender.flush();
        assert!(receiver.receive_timeout(PATIENCE).unwrap().payload.is_empty());
        for number in 0..20_u8 {
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, [number]);
        }
    });
}

/// Goal: messages that are read where they lie come in order, as many as were asked for, and count as any others. One whose reader
/// panicked is delivered, and none behind it is.
#[test]
fn many_messages_are_shown_in_turn() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let source = sender.address();
        for number in 0..50_u8 {
            sender.send_timeout(Target::port("there", 1), &[number; 20], PATIENCE).unwrap();
        }
        let (mut seen, mut counted) = (Vec::new(), 0);
        let until = Instant::now() + PATIENCE;
        while seen.len() < 20 && Instant::now() < until {
            let asked = 20 - seen.len();
            let count = receiver.poll(asked, |from, payload| {
                assert_eq!((from, payload.len()), (source, 20));
                seen.push(payload[0]);
            });
            assert!(count <= asked);
            counted += count;
        }
        assert_eq!(counted, seen.len());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            loop {
                receiver.poll(64, |_, payload| {
                    seen.push(payload[0]);
                    panic!("by the reader");
                });
            }
        }));
        assert!(panicked.is_err());
        while seen.len() < 50 && Instant::now() < until {
            receiver.poll(usize::MAX, |_, payload| seen.push(payload[0]));
        }
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        assert_eq!(receiver.poll(64, |_, _| {}), 0);
        let ledger = there.ledger();
        assert!(ledger.is_balanced() && ledger.delivered == 50 && ledger.lost() == 0, "{ledger}");
        assert_eq!(ledger.duplicates, 0, "{ledger}");
    });
}

/// Goal: a reader that was shown as many as it asked for is shown no more, wherever more lies: in the socket or in its inbox.
#[test]
fn no_more_are_shown_than_were_asked_for() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let mut neighbour = there.bind(2).unwrap();
        let target = Target::port("there", 1);
        for number in 0..40_u8 {
            sender.queue(target, &[number]).unwrap();
        }
        sender.flush();
        let (mut seen, until) = (Vec::new(), Instant::now() + PATIENCE);
        for asked in (1..3).cycle() {
            let before = seen.len();
            let count = receiver.poll(asked, |_, payload| {
                seen.push(payload[0]);
                if payload[0] < 40 {
                    // It lies in the inbox as soon as this one has been seen.
                    neighbour.send_timeout(target, &[100 + payload[0]], PATIENCE).unwrap();
                }
            });
            assert_eq!(count, seen.len() - before);
            assert!(count <= asked);
            if seen.len() == 80 || Instant::now() > until {
                break;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..40).chain(100..140).collect::<Vec<_>>());
        assert!(there.ledger().is_balanced() && there.ledger().duplicates == 0, "{}", there.ledger());
    });
}

/// Goal: a reader that is shown messages by a node's engine, and would wait for that same engine, is told so in words. Afterwards all
/// goes on.
#[test]
fn a_reader_that_asks_its_own_node_is_told() {
    let _alive = watchdog(60);
    on_every_medium(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let mut neighbour = there.bind(2).unwrap();
        for payload in [b"first", b"again", b"third"] {
            sender.send_timeout(Target::port("there", 1), payload, PATIENCE).unwrap();
            let until = Instant::now() + PATIENCE;
            let mut is_shown = false;
            while !is_shown && Instant::now() < until {
                // Each alone would wait for this thread, on the kernel's media.
                let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    receiver.poll(1, |_, shown| {
                        assert_eq!(shown, payload);
                        is_shown = true;
                        match payload {
                            b"first" => drop(neighbour.receive_timeout(Duration::from_millis(20))),
                            b"again" => drop(there.peers()),
                            _ => drop(there.bind(3)),
                        }
                    })
                }));
                if !is_shown {
                    continue;
                }
                assert_eq!(asked.is_err(), !medium.in_memory, "{payload:?}");
                if let Err(panic) = asked {
                    let words = panic
                        .downcast_ref::<String>()
                        .cloned()
                        .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
                    assert!(words.is_some_and(|words| words.contains("Communicator::poll")));
                }
            }
            assert!(is_shown);
        }
        assert!(there.bind(3).is_ok(), "the port is free");
        sender.send_timeout(Target::port("there", 2), b"on", PATIENCE).unwrap();
        assert_eq!(neighbour.receive_timeout(PATIENCE).unwrap().payload, b"on");
        assert!(there.ledger().is_balanced() && there.ledger().duplicates == 0, "{}", there.ledger());
    });
}

/// Goal: components of one node in threads of their own, each waiting in each way, all get what is theirs.
#[test]
fn components_of_one_node_share_its_engine() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        for wake in ways(medium.rings) {
            let (here, there) = open_both(medium);
            let mut sender = here.bind(1).unwrap();
            let receivers: Vec<_> = (0..3_u16)
                .map(|port| there.bind_with(port, &CommunicatorOptions::waiting(wake)).unwrap())
                .collect();
            std::thread::scope(|scope| {
                for mut receiver in receivers {
                    scope.spawn(move || {
                        for round in 0..40_u8 {
                            let message = receiver.receive_timeout(PATIENCE);
                            assert_eq!(message.expect("in time").payload, [round], "{wake}");
                        }
                    });
                }
                for round in 0..40_u8 {
                    for port in 0..3 {
                        sender.send_timeout(Target::port("there", port), &[round], PATIENCE).unwrap();
                    }
                    std::thread::sleep(Duration::from_micros(u64::from(round) * 20));
                }
            });
            assert!(there.ledger().is_balanced(), "{wake}: {}", there.ledger());
        }
    });
}

#[test]
fn wrong_names_and_ports_are_refused_in_words() {
    let name = |name: &str| Node::open(&Bus::loopback("names"), name).unwrap_err().to_string();
    assert!(name("").contains("letters"), "{}", name(""));
    assert!(name("a/b").contains("a/b"));
    assert!(name(&"x".repeat(33)).contains("32"));
    let node = Node::open(&Bus::loopback(&unique("names")), "only").unwrap();
    let taken = node.bind(5).unwrap();
    assert!(node.bind(5).unwrap_err().to_string().contains("port 5"));
    drop(taken);
    node.bind(5).unwrap();
    assert!(node.bind(u16::MAX).unwrap_err().to_string().contains("65535"));
    let (a, b) = common::free_ports();
    let udp = Node::open(&Bus::peers(a, &[b]), "udp").unwrap();
    let refused = udp.bind_with(1, &CommunicatorOptions::waiting(Wake::Futex)).unwrap_err().to_string();
    assert!(refused.contains("futex cannot wait"), "{refused}");
    let missing = Node::open(&Bus::ethernet("no-such-if"), "eth").unwrap_err().to_string();
    assert!(missing.contains("no-such-if"), "{missing}");
}

#[test]
fn one_name_is_one_node() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("twice")), Bus::shared(&unique("twice"))] {
        let first = Node::open(&bus, "same").unwrap();
        let refused = Node::open(&bus, "same").unwrap_err().to_string();
        assert!(refused.contains("already on the bus"), "{refused}");
        drop(first);
        Node::open(&bus, "same").unwrap();
    }
}
