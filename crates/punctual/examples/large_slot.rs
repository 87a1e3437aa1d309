//! Shows why a slot of 8 KiB is no floor: a message goes there and back through one slot each way, and through several slots in turn.
//! It also goes through the library, whose ring goes on to other lines with every message. Run:
//! `cargo run --release -p punctual --example large_slot`
//!
//! Two threads of one process, polling, each on a CPU of its own; every round measures all, the last in front every other time. Prints
//! two medians over rounds for each one: of its median round trip, and of the ratio of that to one slot's in the same round. The latter
//! comes with the interval that holds nine tenths of the rounds' ratios.
use std::error::Error;

use punctual::{Bus, Clock, Communicator, CommunicatorOptions, Node, Target, Wake};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{allowed, pin_to};
use punctual_machine::slot::SlotPair;

const TRIPS: usize = 2_000;
const ROUNDS: usize = 41;
const SIZES: [usize; 3] = [64, 1024, 8192];
const SLOTS: [usize; 5] = [1, 2, 4, 16, 64];

/// An end that sends and receives messages of one size.
trait End: Send {
    fn send(&mut self, bytes: &[u8]);
    fn try_get(&mut self, bytes: &mut [u8]) -> bool;
}

struct Slots {
    pairs: Vec<SlotPair>,
    sent: usize,
    received: usize,
}

impl End for Slots {
    fn send(&mut self, bytes: &[u8]) {
        let count = self.pairs.len();
        self.pairs[self.sent % count].put(bytes);
        self.sent += 1;
    }

    fn try_get(&mut self, bytes: &mut [u8]) -> bool {
        let count = self.pairs.len();
        let is_there = self.pairs[self.received % count].try_get(bytes);
        self.received += usize::from(is_there);
        is_there
    }
}

struct Ours {
    communicator: Communicator,
    target: Target,
}

impl End for Ours {
    fn send(&mut self, bytes: &[u8]) {
        while self.communicator.try_send(self.target, bytes).is_err() {}
    }

    fn try_get(&mut self, bytes: &mut [u8]) -> bool {
        let Ok(message) = self.communicator.try_receive() else { return false };
        bytes.copy_from_slice(message.payload);
        true
    }
}

/// Two ends and what they are called.
struct Way {
    name: String,
    ends: [Box<dyn End>; 2],
    medians: Vec<f64>,
}

fn slots(count: usize) -> Result<Way, Box<dyn Error>> {
    let mut ends = [(); 2].map(|()| Slots { pairs: Vec::new(), sent: 0, received: 0 });
    for number in 0..count {
        let path = format!("/dev/shm/large-slot-{}-{count}-{number}", std::process::id());
        let path = std::path::Path::new(&path);
        ends[0].pairs.push(SlotPair::create(path)?);
        ends[1].pairs.push(SlotPair::open(path)?);
        std::fs::remove_file(path)?;
    }
    let [here, there] = ends;
    let ends: [Box<dyn End>; 2] = [Box::new(here), Box::new(there)];
    Ok(Way { name: format!("{count} slots in turn"), ends, medians: Vec::new() })
}

fn library() -> Result<Way, Box<dyn Error>> {
    let bus = Bus::shared(&format!("large-slot-{}", std::process::id()));
    let spin = CommunicatorOptions::waiting(Wake::Spin);
    let end = |name, other| -> Result<Box<dyn End>, Box<dyn Error>> {
        let communicator = Node::open(&bus, name)?.bind_with(1, &spin)?;
        Ok(Box::new(Ours { communicator, target: Target::port(other, 1) }))
    };
    let ends = [end("client", "server")?, end("server", "client")?];
    Ok(Way { name: "the library".to_owned(), ends, medians: Vec::new() })
}

/// The median of one round's trips, nanoseconds.
fn round(ends: &mut [Box<dyn End>; 2], size: usize, cpus: (usize, usize)) -> f64 {
    let [client, server] = ends;
    let (done, clock) = (Flag::default(), Clock::get());
    let mut trips = Vec::with_capacity(TRIPS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _unpinned_is_slower = pin_to(cpus.1);
            let mut bytes = vec![0; size];
            while !done.is_raised() {
                if server.try_get(&mut bytes) {
                    server.send(&bytes);
                }
            }
        });
        let _unpinned_is_slower = pin_to(cpus.0);
        let (message, mut answer) = (vec![7; size], vec![0; size]);
        for trip in 0..TRIPS + TRIPS / 10 {
            let begin = clock.now();
            client.send(&message);
            while !client.try_get(&mut answer) {}
            if trip >= TRIPS / 10 {
                trips.push(clock.nanos(clock.now().since(begin)));
            }
        }
        done.raise();
    });
    trips.sort_unstable();
    trips[TRIPS / 2] as f64
}

struct Spread(Vec<f64>);

impl Spread {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        Self(all)
    }

    fn at(&self, share: f64) -> f64 {
        self.0[(share * (self.0.len() - 1) as f64).round() as usize]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = allowed();
    let (&first, &second) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    for size in SIZES {
        let mut ways = vec![library()?];
        for count in SLOTS {
            ways.push(slots(count)?);
        }
        for _ in 0..ROUNDS {
            for way in &mut ways {
                way.medians.push(round(&mut way.ends, size, (first, second)));
            }
            ways.reverse();
        }
        // As often reversed as not: they stand the other way round.
        ways.reverse();
        println!(
            "{size} bytes, {ROUNDS} rounds of {TRIPS} trips in turn, ns there and back, and by one slot:"
        );
        let one = ways[1].medians.clone();
        for way in &ways {
            let ratios = way.medians.iter().zip(&one).map(|(median, one)| median / one).collect();
            let (all, ratios) = (Spread::of(way.medians.clone()), Spread::of(ratios));
            println!(
                "  {:<18}{:>7.0}   {:.2} ({:.2} to {:.2})",
                way.name,
                all.at(0.5),
                ratios.at(0.5),
                ratios.at(0.05),
                ratios.at(0.95)
            );
        }
    }
    Ok(())
}
