//! What stamps and seals cost a publication: 64 bytes there and back over shared memory, each kind in turn. Run:
//! `cargo run --release --example publication_cost`
//!
//! Two threads of one process, spinning, each on a CPU of its own. Every opening has new files and pages, and its rounds measure
//! every kind. Prints the median round trip of each kind, and what it takes beside plain messages: the median of the openings,
//! and the least and largest. One way is half of that.
use punctual::memory::WhenFull;
use punctual::publication::StampChoice;
use punctual::{
    Bus, Clock, Keys, Node, Publication, PublicationOptions, Subscription, SubscriptionOptions, Target, Wake,
};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{allowed, pin_to};

const TRIPS: usize = 20_000;
const ROUNDS: usize = 9;
const OPENINGS: usize = 7;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const KINDS: [(&str, StampChoice, bool); 4] = [
    ("plain", StampChoice::Never, false),
    ("stamped at the ends", StampChoice::Ends, false),
    ("stamped at all stages", StampChoice::All, false),
    ("sealed", StampChoice::Never, true),
];

struct End {
    publication: Publication,
    subscription: Subscription,
}

impl End {
    fn send(&mut self, message: &[u8; 64]) {
        while self.publication.offer(message).is_err() {}
    }

    /// Reads what it received, as an application does.
    fn receive(&mut self, buffer: &mut [u8; 64]) -> bool {
        let received = self.subscription.try_receive(buffer).is_ok();
        received && std::hint::black_box(buffer.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte))) == 64
    }
}

fn pair(name: &str, stamps: StampChoice, keys: Option<&Keys>) -> Outcome<[End; 2]> {
    let bus = Bus::shared(name);
    let bus = keys.map_or(bus.clone(), |keys| bus.sealed(keys));
    let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
    let spin = SubscriptionOptions { wake: Wake::Spin };
    let options =
        PublicationOptions { stamps, when_full: Some(WhenFull::HoldBack), ..PublicationOptions::default() };
    let end = |node: &Node, subscription, other| -> Outcome<End> {
        Ok(End { publication: node.publication(Target::port(other, 1), &options)?, subscription })
    };
    let [heard_here, heard_there] = [here.subscription(1, &spin)?, there.subscription(1, &spin)?];
    Ok([end(&here, heard_here, "there")?, end(&there, heard_there, "here")?])
}

/// The median of one round's trips, nanoseconds.
fn round([client, server]: &mut [End; 2], cpus: (usize, usize)) -> f64 {
    let (done, clock) = (Flag::default(), Clock::get());
    let mut trips = Vec::with_capacity(TRIPS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _unpinned_is_slower = pin_to(cpus.1);
            let mut message = [1; 64];
            while !done.is_raised() {
                if server.receive(&mut message) {
                    server.send(&message);
                }
            }
        });
        let _unpinned_is_slower = pin_to(cpus.0);
        let mut message = [1; 64];
        for trip in 0..TRIPS + TRIPS / 10 {
            let begin = clock.now();
            client.send(&message);
            while !client.receive(&mut message) {}
            if trip >= TRIPS / 10 {
                trips.push(clock.nanos(clock.now().since(begin)));
            }
        }
        done.raise();
    });
    trips.sort_unstable();
    trips[TRIPS / 2] as f64
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn main() -> Outcome<()> {
    let cpus = allowed();
    let (&first, &second) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    let keys = Keys::random(1);
    // By kind: the medians of the openings, and how much more than plain ones they took, in nanoseconds and as a ratio.
    let mut all = KINDS.map(|_| [const { Vec::new() }; 3]);
    for opening in 0..OPENINGS {
        let mut pairs = Vec::new();
        for (kind, (_, stamps, sealed)) in KINDS.iter().enumerate() {
            let name = format!("publication-cost-{}-{opening}-{kind}", std::process::id());
            pairs.push(pair(&name, *stamps, Some(&keys).filter(|_| *sealed))?);
        }
        let mut rounds = KINDS.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (pair, rounds) in pairs.iter_mut().zip(&mut rounds) {
                rounds.push(round(pair, (first, second)));
            }
        }
        let medians = rounds.map(|mut rounds| median(&mut rounds));
        for (figures, trip) in all.iter_mut().zip(medians) {
            let figure = [trip, trip - medians[0], trip / medians[0]];
            figures.iter_mut().zip(figure).for_each(|(list, figure)| list.push(figure));
        }
    }
    for ((name, ..), [mut trips, mut more, mut ratios]) in KINDS.into_iter().zip(all) {
        let (trip, extra, ratio) = (median(&mut trips), median(&mut more), median(&mut ratios));
        let last = OPENINGS - 1;
        println!(
            "{name:21} {trip:5.0} ns; {extra:+4.0} ns ({:+.0} to {:+.0}); ratio {ratio:.2} ({:.2} to {:.2})",
            more[0], more[last], ratios[0], ratios[last]
        );
    }
    println!("{OPENINGS} openings of {ROUNDS} rounds of {TRIPS} trips");
    Ok(())
}
