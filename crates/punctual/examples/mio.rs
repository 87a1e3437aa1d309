//! A communicator in mio's event loop, beside a UDP socket: messages that come by either are shown. `ping` may send to it at port 7400.
//!
//! mio is edge-triggered: everything is read until nothing is there, and the communicator is armed before the loop sleeps.

use std::io::{ErrorKind, Write, stdout};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::net::UdpSocket;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use punctual::{Bus, Communicator, Node};

const MESSAGES: Token = Token(0);
const DATAGRAMS: Token = Token(1);

/// Arming does what a node has to do from time to time: often enough for others to see that it lives.
const SLEEP_MAX: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::shared("demo");
    let mut communicator = Node::open(&bus, "pong")?.bind(7400)?;
    let mut socket = UdpSocket::bind("127.0.0.1:0".parse()?)?;
    writeln!(stdout(), "port 7400 of node pong, and udp {}", socket.local_addr()?)?;
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(8));
    let descriptor = communicator.as_fd().as_raw_fd();
    poll.registry().register(&mut SourceFd(&descriptor), MESSAGES, Interest::READABLE)?;
    poll.registry().register(&mut socket, DATAGRAMS, Interest::READABLE)?;
    loop {
        show_messages(&mut communicator)?;
        show_datagrams(&socket)?;
        if communicator.arm() {
            match poll.poll(&mut events, Some(SLEEP_MAX)) {
                // A program that was stopped and goes on is told of that, too.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => polled?,
            }
        }
    }
}

fn show_messages(communicator: &mut Communicator) -> std::io::Result<()> {
    while let Ok(message) = communicator.try_receive() {
        writeln!(stdout(), "message from {}: {} bytes", message.source, message.payload.len())?;
    }
    Ok(())
}

fn show_datagrams(socket: &UdpSocket) -> std::io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((size, from)) => writeln!(stdout(), "datagram from {from}: {size} bytes")?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
