//! Asks `pong` once a second, and says how long each answer took.

use std::thread::sleep;
use std::time::{Duration, Instant};

use punctual::{Bus, Node, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::shared("demo");
    let mut ping = Node::open(&bus, "ping")?.bind(1)?;
    loop {
        while ping.try_receive().is_ok() {} // late answers
        let asked = Instant::now();
        if let Err(error) = ping.send(Target::port("pong", 7400), b"hello") {
            println!("{error}"); // after a second
            continue;
        }
        match ping.receive_timeout(Duration::from_secs(1)) {
            Ok(answer) => println!("{} bytes after {:?}", answer.payload.len(), asked.elapsed()),
            Err(nothing) => println!("{nothing} after {:?}", asked.elapsed()),
        }
        sleep(Duration::from_secs(1));
    }
}
