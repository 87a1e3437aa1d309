//! Answers every message that arrives at port 7400 with the same bytes.

use punctual::{Bus, Node, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::shared("demo");
    let mut pong = Node::open(&bus, "pong")?.bind(7400)?;
    loop {
        let message = pong.receive()?;
        let (source, payload) = (message.source, message.payload.to_vec());
        if let Err(error) = pong.send(Target::from(source), &payload) {
            println!("no answer to {source}: {error}");
        }
    }
}
