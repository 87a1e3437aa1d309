//! Cost of awaiting a message: 64 bytes there and back over shared memory, the responder awaiting or blocking. Run: `cargo run
//! --release -p punctual --features tokio --example await_cost`
//!
//! The client spins on a CPU of its own; the responder is a thread that blocks, a task of one worker of the runtime, or a task of
//! tokio. Every opening has new files and pages, and measures each kind in turn. Prints the median round trip of each kind, and its
//! ratio to the blocking one of the same wait: the median of the openings, and the least and largest.
use std::sync::mpsc;
use std::time::Duration;

use punctual::runtime::{Awaited, Runtime, RuntimeOptions, TaskOptions};
use punctual::{Bus, Clock, Communicator, CommunicatorOptions, Node, Target, Wake};
use punctual_machine::cpu::{allowed, pin_to};

const TRIPS: u64 = 4_000;
const OPENINGS: usize = 11;
/// The client's pause before each message: none, and long enough for the responder to sleep.
const GAPS: [Duration; 2] = [Duration::ZERO, Duration::from_micros(300)];
/// Says that no more will come.
const END: &[u8] = b"end";
/// Longest time for an answer: a responder that could not start gives none.
const PATIENCE: Duration = Duration::from_secs(20);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Blocking(Wake),
    OwnThreads,
    #[cfg(feature = "tokio")]
    Tokio,
}

/// Each with the names of what it is compared with, that waits as it does: while messages come at once, and when it has slept.
const KINDS: &[(&str, Kind, [&str; 2])] = &[
    ("receive, adaptive", Kind::Blocking(Wake::Adaptive), ["receive, adaptive"; 2]),
    ("receive, epoll", Kind::Blocking(Wake::Epoll), ["receive, epoll"; 2]),
    ("awaited, own threads", Kind::OwnThreads, ["receive, adaptive", "receive, epoll"]),
    #[cfg(feature = "tokio")]
    ("awaited, tokio", Kind::Tokio, ["receive, adaptive", "receive, epoll"]),
];

/// Sends the reply: nothing at the end.
fn reply(inbox: &mut Communicator, source: punctual::Address, bytes: &[u8]) -> bool {
    bytes != END && inbox.send(Target::from(source), bytes).is_ok()
}

fn block(mut inbox: Communicator) {
    let mut bytes = Vec::new();
    loop {
        let Ok(message) = inbox.receive() else { return };
        let source = message.source;
        bytes.clear();
        bytes.extend_from_slice(message.payload);
        if !reply(&mut inbox, source, &bytes) {
            return;
        }
    }
}

async fn respond(mut inbox: Awaited<Communicator>) {
    let mut bytes = Vec::new();
    loop {
        let message = inbox.receive().await;
        let source = message.source;
        bytes.clear();
        bytes.extend_from_slice(message.payload);
        if !reply(inbox.get_mut(), source, &bytes) {
            return;
        }
    }
}

fn serve(kind: Kind, inbox: Communicator) -> Outcome<()> {
    match kind {
        Kind::Blocking(_) => block(inbox),
        Kind::OwnThreads => {
            let runtime = Runtime::start(&RuntimeOptions::default())?;
            let inbox = Awaited::new(runtime.handle(), inbox)?;
            let task = runtime.spawn(TaskOptions::of_class(0), respond(inbox))?;
            runtime.block_on(task)?;
        }
        #[cfg(feature = "tokio")]
        Kind::Tokio => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                respond(Awaited::in_tokio(inbox)?).await;
                Ok::<(), std::io::Error>(())
            })?;
        }
    }
    Ok(())
}

/// The median round trip, nanoseconds.
fn measure(kind: Kind, gap: Duration, name: &str, cpus: (usize, usize)) -> Outcome<f64> {
    let bus = Bus::shared(name);
    let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
    let wake = if let Kind::Blocking(wake) = kind { wake } else { Wake::Adaptive };
    let inbox = there.bind_with(1, &CommunicatorOptions::waiting(wake))?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let _unpinned_is_slower = pin_to(cpus.1);
        let _nobody_asks = tell.send(serve(kind, inbox).map_err(|error| error.to_string()));
    });
    let _unpinned_is_slower = pin_to(cpus.0);
    let mut client = here.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin))?;
    let target = Target::port("there", 1);
    let trips = round_trips(&mut client, target, gap);
    let _not_there = client.send(target, END);
    let mut trips = match told.recv_timeout(PATIENCE) {
        // Its error comes first: that of the client follows from it.
        Ok(ended) => {
            ended?;
            trips?
        }
        Err(_) => {
            trips?;
            return Err("the responder panicked, or does not end".into());
        }
    };
    trips.sort_unstable();
    Ok(trips[trips.len() / 2] as f64)
}

/// Each round trip, nanoseconds.
fn round_trips(client: &mut Communicator, target: Target, gap: Duration) -> Outcome<Vec<u64>> {
    let clock = Clock::get();
    let mut trips = Vec::new();
    for trip in 0..TRIPS + TRIPS / 10 {
        let due = clock.now().plus(clock.ticks(gap));
        while clock.now() < due {}
        let begin = clock.now();
        client.send(target, &[7; 64])?;
        client.receive_timeout(PATIENCE)?;
        if trip >= TRIPS / 10 {
            trips.push(clock.nanos(clock.now().since(begin)));
        }
    }
    Ok(trips)
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn main() -> Outcome<()> {
    let cpus = allowed();
    let (&first, &second) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    for (gap_at, gap) in GAPS.into_iter().enumerate() {
        let mut all = vec![(Vec::new(), Vec::new()); KINDS.len()];
        for opening in 0..OPENINGS {
            let name = |kind: usize| format!("await-cost-{}-{opening}-{kind}", std::process::id());
            let of_kind = |(at, (_, kind, _)): (usize, &(&str, Kind, [&str; 2]))| {
                measure(*kind, gap, &name(at), (first, second))
            };
            let trips = KINDS.iter().enumerate().map(of_kind).collect::<Outcome<Vec<f64>>>()?;
            for (at, (figures, (_, _, beside))) in all.iter_mut().zip(KINDS).enumerate() {
                let base = KINDS.iter().position(|(name, ..)| *name == beside[gap_at]).expect("listed");
                figures.0.push(trips[at]);
                figures.1.push(trips[at] / trips[base]);
            }
        }
        println!("a message each round trip and {} µs:", gap.as_micros());
        for ((name, _, beside), (mut trips, mut ratios)) in KINDS.iter().zip(all) {
            let (trip, ratio) = (median(&mut trips), median(&mut ratios));
            let (least, most) = (ratios[0], ratios[OPENINGS - 1]);
            println!("{name:21} {trip:6.0} ns; {ratio:.2} ({least:.2} to {most:.2}) × {}", beside[gap_at]);
        }
    }
    println!("{OPENINGS} openings of {TRIPS} trips");
    Ok(())
}
