//! A communicator in somebody else's edge-triggered event loop: nothing is lost, and nothing is woken for nothing.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::net::UdpSocket;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use punctual::{Bus, Node, Target};

/// Longer than any wake-up takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(20);
const MESSAGES: u64 = 5_000;

/// Goal: every message over the bus and over a socket wakes mio's loop, though mio reports edges only.
/// Method: a lost wake-up is a wait that ends by the clock.
#[test]
fn no_message_is_slept_over_in_an_edge_triggered_loop() {
    let bus = Bus::loopback("mio-edges");
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut receiver = there.bind(1).unwrap();
    let mut socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    let descriptor = receiver.as_fd().as_raw_fd();
    poll.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE).unwrap();
    poll.registry().register(&mut socket, Token(1), Interest::READABLE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sender = here.bind(1).unwrap();
            let plain = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut random = 11_u64;
            for number in 0..MESSAGES {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                std::thread::sleep(Duration::from_micros((random >> 33) % 40));
                if number % 10 == 9 {
                    // A full socket drops: its messages wake, and are not counted.
                    plain.send_to(&[0; 8], address).unwrap();
                }
                sender.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
            }
        });
        let (mut seen, mut wake_ups, mut datagrams) = (0, 0, 0);
        while seen < MESSAGES {
            while let Ok(message) = receiver.try_receive() {
                assert_eq!(message.payload, seen.to_le_bytes());
                seen += 1;
            }
            while socket.recv(&mut [0; 8]).is_ok() {
                datagrams += 1;
            }
            if seen < MESSAGES && receiver.arm() {
                poll.poll(&mut events, Some(PATIENCE)).unwrap();
                assert!(!events.is_empty(), "a wake-up was lost after {seen} messages");
                wake_ups += 1;
            }
        }
        assert!(datagrams > 0 && wake_ups > 0, "{datagrams} datagrams, {wake_ups} wake-ups");
        assert!(wake_ups <= 2 * (MESSAGES + MESSAGES / 10), "{wake_ups} wake-ups");
    });
}
