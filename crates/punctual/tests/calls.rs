//! Cost of a message in calls of the kernel.

mod common;

use std::net::SocketAddr;

use common::{PATIENCE, free_ports, watchdog};
use punctual::{Bus, Communicator, CommunicatorOptions, Node, Target, Wake};
use punctual_machine::calls;

const MESSAGES: u64 = 2_000;

/// Calls that come on top: announcements, once a second, and each eighth look, which is at the other socket first.
const REST: u64 = MESSAGES / 4;

/// Calls of this thread to send so many messages, and to receive them, one after the other.
fn cost(sender: &mut Communicator, target: Target, receiver: &mut Communicator) -> Option<[u64; 2]> {
    let mut cost = [0; 2];
    // First everything that is done once: a message from the other tells its address.
    for number in 0..MESSAGES + 100 {
        let began = calls::of_this_thread()?;
        sender.send_timeout(target, &number.to_le_bytes(), PATIENCE).unwrap();
        let sent = calls::of_this_thread()?;
        assert_eq!(receiver.receive().unwrap().payload, number.to_le_bytes());
        if number >= 100 {
            cost[0] += sent - began;
            cost[1] += calls::of_this_thread()? - sent;
        }
    }
    Some(cost)
}

/// Checks the cost between two nodes on their own buses, the receiver waiting that way.
fn check(buses: [&Bus; 2], target: Target, wake: Wake, most: [u64; 2]) {
    let [here, there] =
        [(buses[0], "here"), (buses[1], "there")].map(|(bus, name)| Node::open(bus, name).unwrap());
    let mut sender = here.bind(1).unwrap();
    let mut receiver = there.bind_with(1, &CommunicatorOptions::waiting(wake)).unwrap();
    let Some(cost) = cost(&mut sender, target, &mut receiver) else {
        return punctual_machine::skipped!("calls are counted in debug builds only");
    };
    assert!(cost[0] >= MESSAGES && cost[1] >= MESSAGES, "{wake}: not all was counted: {cost:?}");
    assert!(cost[0] <= most[0] + REST && cost[1] <= most[1] + REST, "{wake}: {cost:?} calls, not {most:?}");
    assert!(there.ledger().is_balanced(), "{}", there.ledger());
}

/// Goal: one call sends a datagram, and one receives it: neither is a call made in vain before or after it, nor one to sleep
/// beside one to receive, nor one for the time. Method: the message is there before it is waited for, so that nothing depends
/// on when threads run.
#[test]
fn a_datagram_costs_one_call_at_either_end() {
    let _alive = watchdog(60);
    for wake in [Wake::Spin, Wake::Backoff, Wake::Adaptive, Wake::EventFd] {
        let (a, b) = free_ports();
        // Two nodes are connected to each other; three are not.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
        for others in [&[][..], &[nobody][..]] {
            let buses = [(a, b), (b, a)].map(|(own, peer)| Bus::peers(own, &[&[peer], others].concat()));
            check([&buses[0], &buses[1]], Target::port("there", 1), wake, [MESSAGES; 2]);
        }
    }
}

/// Goal: on a multicast bus whichever socket had something last is read first, the node's own or the group's. A thread that sleeps
/// there needs a second call: two sockets have no call in common that receives.
#[test]
fn the_busy_socket_of_two_is_read_first() {
    let _alive = watchdog(60);
    let group = SocketAddr::new([239, 255, 80, 87].into(), free_ports().0.port());
    let bus = Bus::multicast(group, [127, 0, 0, 1].into());
    for (wake, calls) in [(Wake::Spin, 1), (Wake::EventFd, 2)] {
        for target in [Target::port("there", 1), Target::everyone_at(1)] {
            check([&bus, &bus], target, wake, [MESSAGES, calls * MESSAGES]);
        }
    }
}

/// Goal: messages queued for one flush are one call for the sender, and one for the receiver, by UDP and by multicast. They arrive
/// whole and in order, regardless of their sizes.
#[test]
fn a_run_costs_one_call_at_either_end() {
    const RUN: u64 = 16;
    let _alive = watchdog(60);
    let (a, b) = free_ports();
    let group = SocketAddr::new([239, 255, 80, 88].into(), free_ports().0.port());
    let multicast = Bus::multicast(group, [127, 0, 0, 1].into());
    for [here, there] in [[Bus::peers(a, &[b]), Bus::peers(b, &[a])], [multicast.clone(), multicast]] {
        let here = Node::open(&here, "here").unwrap();
        let there = Node::open(&there, "there").unwrap();
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let mut calls_of_each = [0; 2];
        for run in 0..200 {
            let began = calls::of_this_thread();
            for number in 0..RUN {
                // The last is shorter now and then: a run's may be.
                let size = if number == RUN - 1 { 8 + run % 3 * 100 } else { 700 };
                let message: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(size as usize).collect();
                sender.queue(Target::everyone_at(1), &message).unwrap();
            }
            sender.flush();
            let sent = calls::of_this_thread();
            for number in 0..RUN {
                let message = receiver.receive_timeout(PATIENCE).unwrap();
                assert_eq!(message.payload[..8], number.to_le_bytes());
                assert_eq!(
                    message.payload.len() as u64,
                    if number == RUN - 1 { 8 + run % 3 * 100 } else { 700 }
                );
            }
            let (Some(began), Some(sent), Some(ended)) = (began, sent, calls::of_this_thread()) else {
                return punctual_machine::skipped!("calls are counted in debug builds only");
            };
            calls_of_each = [calls_of_each[0] + sent - began, calls_of_each[1] + ended - sent];
        }
        eprintln!("{calls_of_each:?} calls for 200 runs");
        assert!(calls_of_each[0] < 2 * 200 && calls_of_each[1] < 2 * 200, "{calls_of_each:?}");
        let ledger = there.ledger();
        assert_eq!((ledger.arrived, ledger.lost(), ledger.bad_frames), (200 * RUN, 0, 0), "{ledger}");
    }
}

/// Goal: a look for many messages that found the end of a socket does not look there again, and looks once at the other one. A message
/// at the other one is found by the same look.
#[test]
fn a_look_ends_where_the_sockets_do() {
    const RUN: u64 = 4;
    let _alive = watchdog(60);
    let (a, b) = free_ports();
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let group = SocketAddr::new([239, 255, 80, 89].into(), free_ports().0.port());
    let multicast = Bus::multicast(group, [127, 0, 0, 1].into());
    let peers = [Bus::peers(a, &[b, nobody]), Bus::peers(b, &[a, nobody])];
    for ([here, there], sockets) in [(peers, 1), ([multicast.clone(), multicast], 2)] {
        let here = Node::open(&here, "here").unwrap();
        let there = Node::open(&there, "there").unwrap();
        let (mut sender, mut receiver) = (here.bind(2).unwrap(), there.bind(1).unwrap());
        let mut send = |target, number: u64| {
            // It hears where the other one is, and sends to its own socket.
            assert!(sender.try_receive().is_err());
            // Of other sizes, so that none is part of a run.
            let message = vec![number as u8; 8 + number as usize];
            sender.send_timeout(target, &message, PATIENCE).unwrap();
        };
        let mut look = || {
            let began = calls::of_this_thread();
            let mut numbers = Vec::new();
            receiver.poll(64, |_, payload| numbers.push(u64::from(payload[0])));
            (numbers, began.zip(calls::of_this_thread()).map(|(began, ended)| ended - began))
        };
        for round in 0..20 {
            (0..RUN).for_each(|number| send(Target::everyone_at(1), number));
            let (numbers, Some(calls)) = look() else {
                return punctual_machine::skipped!("calls are counted in debug builds only");
            };
            assert_eq!(numbers, [0, 1, 2, 3]);
            // First the socket learns that datagrams come in company.
            assert!(round < 10 || calls == sockets, "{calls} calls, not {sockets}");
        }
        // The socket that had something last is another one at its end.
        for (alone, many) in [
            (Target::everyone_at(1), Target::port("there", 1)),
            (Target::port("there", 1), Target::everyone_at(1)),
        ] {
            for round in 0..20 {
                assert_eq!(look().0, [], "{round}");
                (0..9).for_each(|number| send(many, number));
                send(alone, 9);
                let mut numbers = look().0;
                numbers.sort_unstable();
                assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "{round}: by either socket");
            }
        }
    }
}
