//! For counting instructions: one thread sends messages of 64 bytes and receives each, N times. Under valgrind:
//!
//! ```sh
//! cargo build --release -p punctual --example instructions
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/instructions udp 12800
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/instructions udp 25600
//! ```
//!
//! The difference of the two, divided by 12,800, is what one message takes at both ends together. Routes are `loopback` (memory of
//! this process), `shared` and `udp`, which needs the ports 42101 and 42102 of this host. They go through a `Communicator`.
//!
//! Through a `Publication` and a `Subscription` over shared memory: `offer` only sends, `offer-receive` receives each too, and so do
//! `run` and `run-poll` with runs of 64. The difference is the cost of receiving. `-sealed`, `-stamped` (both ends) and
//! `-stages` (all) behind a name. There N is a multiple of 64.
//!
//! Each route has a warm-up before, of as many messages for every N.
use std::error::Error;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use punctual::memory::WhenFull;
use punctual::publication::StampChoice;
use punctual::{Bus, CommunicatorOptions, Keys, Node, PublicationOptions, SubscriptionOptions, Target, Wake};

const PORTS: [u16; 2] = [42101, 42102];
const RUN: u32 = 64;
const WARM_UP_RUNS: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [route, count] = &arguments[..] else { return Err("instructions ROUTE COUNT".into()) };
    let count: u32 = count.parse()?;
    if route.starts_with("offer") || route.starts_with("run") {
        return publish(route, count);
    }
    let (way, stamps) = route.strip_suffix("-stages").map_or((&route[..], false), |way| (way, true));
    let [ping, pong] = buses(way)?;
    let options = CommunicatorOptions { stamps, ..CommunicatorOptions::waiting(Wake::Spin) };
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

/// Sends, and receives if the route says so.
fn publish(route: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let bus = Bus::shared(&format!("instructions-{}", std::process::id()));
    let bus = if route.contains("sealed") { bus.sealed(&Keys::random(1)) } else { bus };
    let stamps = match route {
        _ if route.contains("stamped") => StampChoice::Ends,
        _ if route.contains("stages") => StampChoice::All,
        _ => StampChoice::Never,
    };
    let (ping, pong) = (Node::open(&bus, "ping")?, Node::open(&bus, "pong")?);
    let mut to = pong.subscription(7, &SubscriptionOptions { wake: Wake::Spin })?;
    let options =
        PublicationOptions { when_full: Some(WhenFull::Overrun), stamps, ..PublicationOptions::default() };
    let mut from = ping.publication(Target::port("pong", 7), &options)?;
    let (message, mut buffer) = ([3; 64], [0; 64]);
    let receives = route.contains("receive") || route.contains("poll");
    if !count.is_multiple_of(RUN) {
        return Err(format!("{count}: {route} sends {RUN} at a time, and takes a multiple of that").into());
    }
    // The first open what is opened late.
    for _ in 0..WARM_UP_RUNS + count / RUN {
        if route.starts_with("run") {
            let mut run = from.run();
            (0..RUN).try_for_each(|_| run.offer(&message))?;
            drop(run);
            if receives {
                to.poll(RUN as usize, |shown| {
                    let _not_overrun = black_box(shown.copy_to(&mut buffer));
                });
            }
        } else {
            for _ in 0..RUN {
                from.offer(&message)?;
                if receives {
                    black_box(to.receive(&mut buffer)?);
                }
            }
        }
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
        _ => Err(format!("{route}: loopback, shared, udp, offer, offer-receive, run or run-poll").into()),
    }
}
