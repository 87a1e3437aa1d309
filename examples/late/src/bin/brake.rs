//! Follows the pedal, and keeps a log of every hundredth position.

use std::time::Duration;

use punctual::{Bus, CommunicatorOptions, Node, Wake};

/// A file on a slow disk: stands still for 10 ms.
fn write_to_log(_position: u32) {
    std::thread::sleep(Duration::from_millis(10));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(&Bus::shared("late"), "brake")?;
    let options = CommunicatorOptions::waiting(Wake::Futex).recording(1_002);
    let mut brake = node.bind_with(7400, &options)?;
    println!("the brake waits for the pedal");
    loop {
        let message = brake.receive()?;
        match message.payload.try_into().map(u32::from_le_bytes) {
            Ok(position) if position % 100 == 0 => write_to_log(position),
            Ok(_position) => {} // Here it would brake.
            Err(_) if message.payload == b"end" => break,
            Err(_) => println!("the pedal is there"),
        }
    }
    late::report(&mut brake);
    Ok(())
}
