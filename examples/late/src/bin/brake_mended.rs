//! Follows the pedal; another thread keeps the log.

use std::sync::mpsc;
use std::time::Duration;

use punctual::{Bus, CommunicatorOptions, Node, Wake};

/// A file on a slow disk: stands still for 10 ms.
fn write_to_log(_position: u32) {
    std::thread::sleep(Duration::from_millis(10));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A disk that hangs does not fill the memory.
    let (to_log, positions) = mpsc::sync_channel(1_000);
    let log = std::thread::spawn(move || positions.into_iter().for_each(write_to_log));
    let node = Node::open(&Bus::shared("late"), "brake")?;
    let options = CommunicatorOptions::waiting(Wake::Futex).recording(1_002);
    let mut brake = node.bind_with(7400, &options)?;
    println!("the brake waits for the pedal");
    let mut unlogged = 0;
    loop {
        let message = brake.receive()?;
        match message.payload.try_into().map(u32::from_le_bytes) {
            Ok(position) if position % 100 == 0 => unlogged += u32::from(to_log.try_send(position).is_err()),
            Ok(_position) => {} // Here it would brake.
            Err(_) if message.payload == b"end" => break,
            Err(_) => println!("the pedal is there"),
        }
    }
    late::report(&mut brake);
    // The program's end would cut off what the log still has to write.
    drop(to_log);
    log.join().map_err(|_panicked| "the log failed")?;
    if unlogged > 0 {
        println!("the log had no room for {unlogged} positions");
    }
    Ok(())
}
