//! Cost of a seal: 64 bytes there and back over shared memory, sealed and not in turn. Run: `cargo run --release -p punctual --example seal_cost`
//!
//! Two threads of one process, spinning, each on a CPU of its own; every round measures both. Prints the median round trip of
//! each, and the ratio of the two with the interval that holds nine tenths of the rounds' ratios.
use punctual::{Bus, Clock, Communicator, CommunicatorOptions, Keys, Node, Target, Wake};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{allowed, pin_to};

const TRIPS: usize = 20_000;
const ROUNDS: usize = 31;

struct Pair {
    client: Communicator,
    server: Communicator,
}

fn pair(bus: &Bus) -> Result<Pair, Box<dyn std::error::Error>> {
    let spin = CommunicatorOptions::waiting(Wake::Spin);
    let client = Node::open(bus, "client")?.bind_with(1, &spin)?;
    let server = Node::open(bus, "server")?.bind_with(1, &spin)?;
    Ok(Pair { client, server })
}

/// The median of one round's trips, nanoseconds.
fn round(pair: &mut Pair, cpus: (usize, usize)) -> f64 {
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
    trips[TRIPS / 2] as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpus = allowed();
    let (&first, &second) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    let name = format!("seal-cost-{}", std::process::id());
    let mut bare = pair(&Bus::shared(&format!("{name}-a")))?;
    let mut sealed = pair(&Bus::shared(&format!("{name}-b")).sealed(&Keys::random(1)))?;
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(round(&mut bare, (first, second)));
        with.push(round(&mut sealed, (first, second)));
        ratios.push(with[with.len() - 1] / without[without.len() - 1]);
    }
    for list in [&mut without, &mut with, &mut ratios] {
        list.sort_by(f64::total_cmp);
    }
    let at = |list: &[f64], share: f64| list[(share * (list.len() - 1) as f64).round() as usize];
    println!("not sealed {:.0} ns, sealed {:.0} ns", at(&without, 0.5), at(&with, 0.5));
    println!(
        "ratio {:.2} ({:.2} to {:.2}), {ROUNDS} rounds of {TRIPS} trips in turn",
        at(&ratios, 0.5),
        at(&ratios, 0.05),
        at(&ratios, 0.95)
    );
    Ok(())
}
