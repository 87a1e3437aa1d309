//! For counting instructions: one thread sends messages of 64 bytes and receives each, N times. Under valgrind:
//!
//! ```sh
//! cargo build --release -p punctual --example instructions
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/instructions udp 10000
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/instructions udp 20000
//! ```
//!
//! The difference of the two, divided by 10,000, is what one message takes at both ends together. Routes are `loopback` (memory of
//! this process), `shared` and `udp`, which needs the ports 42101 and 42102 of this host.
use std::error::Error;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use punctual::{Bus, CommunicatorOptions, Node, Target, Wake};

const PORTS: [u16; 2] = [42101, 42102];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [route, count] = &arguments[..] else { return Err("instructions loopback|shared|udp COUNT".into()) };
    let count: u32 = count.parse()?;
    let [ping, pong] = buses(route)?;
    let options = CommunicatorOptions::waiting(Wake::Spin);
    let mut from = Node::open(&ping, "ping")?.bind_with(1, &options)?;
    let mut to = Node::open(&pong, "pong")?.bind_with(7, &options)?;
    let (target, message) = (Target::port("pong", 7), [3; 64]);
    // Until both know where the other is, frames go to everybody.
    for _ in 0..100 {
        from.send(target, &message)?;
        to.receive_timeout(Duration::from_secs(1))?;
    }
    for _ in 0..count {
        from.send(target, &message)?;
        black_box(to.receive_timeout(Duration::from_secs(1))?.payload);
    }
    Ok(())
}

/// Both ends' way to each other.
fn buses(route: &str) -> Result<[Bus; 2], Box<dyn Error>> {
    let name = format!("instructions-{}", std::process::id());
    let [here, there] = PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match route {
        "loopback" => Ok([Bus::loopback(&name), Bus::loopback(&name)]),
        "shared" => Ok([Bus::shared(&name), Bus::shared(&name)]),
        "udp" => Ok([Bus::peers(here, &[there]), Bus::peers(there, &[here])]),
        _ => Err(format!("{route}: loopback, shared or udp").into()),
    }
}
