//! A communicator in an event loop of one's own, beside standard input: typed text goes to `pong`, answers are shown.

use std::fs::File;
use std::io::{Read, Write, stdin, stdout};
use std::os::fd::AsFd;

use punctual::{Bus, Node, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Arming does what a node has to do from time to time: often enough for others to see that it lives.
const SLEEP_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::shared("demo");
    let mut communicator = Node::open(&bus, "event-loop")?.bind(1)?;
    let mut typed = File::from(stdin().as_fd().try_clone_to_owned()?);
    loop {
        // Receive until nothing is there, arm, sleep: messages that come in between make `arm` say no.
        while let Ok(message) = communicator.try_receive() {
            stdout().write_all(message.payload)?;
        }
        if !communicator.arm() {
            continue;
        }
        let mut watched = [PollFd::new(&communicator, PollFlags::IN), PollFd::new(&typed, PollFlags::IN)];
        poll(&mut watched, Some(&SLEEP_MAX))?;
        if !watched[1].revents().is_empty() {
            let mut line = [0; 256];
            let size = typed.read(&mut line)?;
            if size == 0 {
                return Ok(());
            }
            // `send` would wait for a peer or for room, and nothing else would be served meanwhile.
            if let Err(error) = communicator.try_send(Target::port("pong", 7400), &line[..size]) {
                eprintln!("not sent: {error}");
            }
        }
    }
}
