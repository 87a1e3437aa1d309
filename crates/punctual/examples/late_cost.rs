//! Cost of a log of late messages: 64 bytes there and back over shared memory, with stamps, with a log and without in turn. Run: `cargo
//! run --release -p punctual --example late_cost`
//!
//! Two threads of one process, spinning, each on a CPU of its own; each opening has new files and measures both. Prints quantiles of
//! the round trip, and the ratio of the two with the interval that holds nine tenths of the openings' ratios.
use std::time::Duration;

use punctual::{Bus, Clock, Communicator, CommunicatorOptions, LateLog, Node, Target, Wake};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{allowed, pin_to};

const TRIPS: usize = 100_000;
const OPENINGS: usize = 21;
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

struct Pair {
    client: Communicator,
    server: Communicator,
}

fn pair(bus: &Bus, log: Option<&LateLog>) -> Result<Pair, Box<dyn std::error::Error>> {
    let mut options = CommunicatorOptions::waiting(Wake::Spin).stamped();
    options.late = log.cloned();
    let client = Node::open(bus, "client")?.bind_with(1, &options)?;
    let server = Node::open(bus, "server")?.bind_with(1, &options)?;
    Ok(Pair { client, server })
}

/// Quantiles of the trips, nanoseconds.
fn quantiles(pair: &mut Pair, cpus: (usize, usize)) -> [f64; 3] {
    let Pair { client, server } = pair;
    let done = Flag::default();
    let clock = Clock::get();
    let mut trips = Vec::with_capacity(TRIPS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _unpinned_is_slower = pin_to(cpus.1);
            while !done.is_raised() {
                let Ok(message) = server.try_receive() else { continue };
                let mut copy = [0; 64];
                copy.copy_from_slice(message.payload);
                while server.try_send(Target::port("client", 1), &copy).is_err() {}
            }
        });
        let _unpinned_is_slower = pin_to(cpus.0);
        for trip in 0..TRIPS + TRIPS / 10 {
            let begin = clock.now();
            while client.try_send(Target::port("server", 1), &[7; 64]).is_err() {}
            while client.try_receive().is_err() {}
            if trip >= TRIPS / 10 {
                trips.push(clock.nanos(clock.now().since(begin)));
            }
        }
        done.raise();
    });
    trips.sort_unstable();
    QUANTILES.map(|share| trips[(share * (TRIPS - 1) as f64) as usize] as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpus = allowed();
    let (&first, &second) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    let file = std::env::temp_dir().join(format!("late-cost-{}.jsonl", std::process::id()));
    let log = LateLog::create(&file, Duration::from_secs(60))?;
    let mut readings = Vec::new();
    for opening in 0..OPENINGS {
        let name = |which| format!("late-cost-{}-{opening}{which}", std::process::id());
        let mut without = pair(&Bus::shared(&name('a')), None)?;
        let mut with = pair(&Bus::shared(&name('b')), Some(&log))?;
        readings.push((quantiles(&mut without, (first, second)), quantiles(&mut with, (first, second))));
    }
    std::fs::remove_file(&file)?;
    for (place, share) in QUANTILES.into_iter().enumerate() {
        let sorted = |figure: fn(f64, f64) -> f64| {
            let mut list: Vec<f64> = readings.iter().map(|(a, b)| figure(a[place], b[place])).collect();
            list.sort_by(f64::total_cmp);
            [0.5, 0.05, 0.95].map(|share| list[(share * (OPENINGS - 1) as f64).round() as usize])
        };
        let ([without, ..], [with, ..]) = (sorted(|a, _| a), sorted(|_, b| b));
        let [ratio, from, to] = sorted(|a, b| b / a);
        println!(
            "p{}: {without:.0} ns without, {with:.0} ns with: {ratio:.2} ({from:.2} to {to:.2})",
            share * 100.0
        );
    }
    println!("{OPENINGS} openings of {TRIPS} trips each, in turn");
    Ok(())
}
