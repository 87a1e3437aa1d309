//! Says every 2 ms how far the pedal is down, 1,000 times.

use std::time::Duration;

use punctual::{Bus, Clock, CommunicatorOptions, Node, Target, Wake};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(&Bus::shared("late"), "pedal")?;
    // Stamped: each message carries when it was due and when it was sent.
    let mut pedal = node.bind_with(1, &CommunicatorOptions::waiting(Wake::Futex).stamped())?;
    let brake = Target::port("brake", 7400);
    // The brake may still be starting: `send` alone would wait for a second.
    pedal.send_timeout(brake, b"hello", Duration::from_secs(30))?;
    let clock = Clock::get();
    let start = clock.now();
    for number in 1..=1_000_u32 {
        let due = start.plus(clock.ticks(Duration::from_millis(2) * number));
        std::thread::sleep(clock.duration(due.since(clock.now())));
        if let Err(error) = pedal.try_send_due(brake, &number.to_le_bytes(), Some(due)) {
            println!("position {number} was not sent: {error}");
        }
    }
    pedal.send(brake, b"end")?;
    Ok(())
}
