//! For counting instructions of a broadcast: three members on UDP multicast, in one thread. The first broadcasts N messages of 30,000
//! bytes, 23 frames each, and all deliver each. Under valgrind:
//!
//! ```sh
//! cargo build --release -p punctual --example instructions_broadcast
//! valgrind --tool=callgrind --callgrind-out-file=/tmp/50 target/release/examples/instructions_broadcast 50
//! valgrind --tool=callgrind --callgrind-out-file=/tmp/150 target/release/examples/instructions_broadcast 150
//! ```
//!
//! The difference of the two, function by function, divided by 2,300, is what a frame takes at all three together. Counts of the whole vary
//! by some hundredths, with how many frames the kernel hands over at a time; those of functions do not.
use std::error::Error;
use std::net::Ipv4Addr;

use punctual::broadcast::{Delivery, Group, GroupOptions};
use punctual::{Bus, Node};

fn main() -> Result<(), Box<dyn Error>> {
    let count: u32 = std::env::args().nth(1).ok_or("instructions_broadcast COUNT")?.parse()?;
    let names = ["one", "two", "three"];
    let options = GroupOptions::new("instructions", &names);
    let mut nodes = Vec::new();
    for name in names {
        let at = (Ipv4Addr::new(239, 255, 42, 42), 42101);
        nodes.push(Node::open(&Bus::multicast(at.into(), Ipv4Addr::LOCALHOST), name)?);
    }
    let mut groups = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let options = options.clone();
        groups.push(Group::join(node, &if place == 0 { options.founding() } else { options })?);
    }
    while groups.iter_mut().any(|group| group.view().members.len() < 3) {
        groups.iter_mut().for_each(|group| drop(group.try_deliver()));
    }
    let message = vec![3; 30_000];
    let (mut sent, mut delivered) = (0, [0; 3]);
    while delivered.iter().any(|&messages| messages < count) {
        while sent < count && groups[0].try_broadcast(&message).is_ok() {
            sent += 1;
        }
        for (group, delivered) in groups.iter_mut().zip(&mut delivered) {
            while let Ok(event) = group.try_deliver() {
                *delivered += u32::from(matches!(event, Delivery::Message(_)));
            }
        }
    }
    Ok(())
}
