//! Cost of stamps, seals and idle publications: 64 bytes there and back over shared memory, each kind in turn. Run: `cargo run
//! --release -p punctual --example publication_cost`
//!
//! Two threads of one process, spinning, each on a CPU of its own. Every opening has new files and pages, and its rounds measure
//! every kind. Prints the round trip of each kind, and what it takes beside plain messages: the median of the openings, and the
//! least and largest. One way is half of that.
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

/// Of a publication that says nothing, bytes.
const IDLE_RING_SIZE: usize = 1 << 12;

struct Kind {
    name: &'static str,
    stamps: StampChoice,
    sealed: bool,
    /// Publications that each end follows, of which one is busy.
    followed: usize,
}

impl Kind {
    const fn of(name: &'static str, stamps: StampChoice, sealed: bool, followed: usize) -> Self {
        Self { name, stamps, sealed, followed }
    }
}

const KINDS: [Kind; 7] = [
    Kind::of("plain", StampChoice::Never, false, 1),
    Kind::of("stamped at the ends", StampChoice::Ends, false, 1),
    Kind::of("stamped at all stages", StampChoice::All, false, 1),
    Kind::of("sealed", StampChoice::Never, true, 1),
    Kind::of("15 followed", StampChoice::Never, false, 15),
    Kind::of("64 followed", StampChoice::Never, false, 64),
    Kind::of("200 followed", StampChoice::Never, false, 200),
];

struct End {
    publication: Publication,
    _idle: Vec<Publication>,
    subscription: Subscription,
}

impl End {
    fn send(&mut self, message: &[u8; 64]) {
        while self.publication.offer(message).is_err() {}
    }

    /// Waits for a message, and reads it as an application does.
    fn receive(&mut self, buffer: &mut [u8; 64]) {
        self.subscription.receive(buffer).expect("a message of 64 bytes fits");
        assert_eq!(buffer.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)), 64);
    }
}

fn pair(name: &str, kind: &Kind, keys: &Keys) -> Outcome<[End; 2]> {
    let bus = Bus::shared(name);
    let bus = if kind.sealed { bus.sealed(keys) } else { bus };
    let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
    let spin = SubscriptionOptions { wake: Wake::Spin };
    let (stamps, when_full) = (kind.stamps, Some(WhenFull::HoldBack));
    let options = PublicationOptions { stamps, when_full, ..PublicationOptions::default() };
    let idle = PublicationOptions { ring_size: IDLE_RING_SIZE, ..options.clone() };
    let end = |node: &Node, subscription, other| -> Outcome<End> {
        let target = Target::port(other, 1);
        let others = (1..kind.followed).map(|_| node.publication(target, &idle));
        let _idle = others.collect::<Result<_, _>>()?;
        Ok(End { publication: node.publication(target, &options)?, _idle, subscription })
    };
    let [heard_here, heard_there] = [here.subscription(1, &spin)?, there.subscription(1, &spin)?];
    Ok([end(&here, heard_here, "there")?, end(&there, heard_there, "here")?])
}

/// The mean of one round's trips but the slowest tenth, nanoseconds: some hosts' clocks count in tens of nanoseconds, so that a
/// median has their steps.
fn round([client, server]: &mut [End; 2], cpus: (usize, usize)) -> f64 {
    let (done, clock) = (Flag::default(), Clock::get());
    let mut trips = Vec::with_capacity(TRIPS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _unpinned_is_slower = pin_to(cpus.1);
            let mut message = [1; 64];
            loop {
                server.receive(&mut message);
                if done.is_raised() {
                    break;
                }
                server.send(&message);
            }
        });
        let _unpinned_is_slower = pin_to(cpus.0);
        let mut message = [1; 64];
        for trip in 0..TRIPS + TRIPS / 10 {
            let begin = clock.now();
            client.send(&message);
            client.receive(&mut message);
            if trip >= TRIPS / 10 {
                trips.push(clock.nanos(clock.now().since(begin)));
            }
        }
        done.raise();
        client.send(&message);
    });
    trips.sort_unstable();
    let fastest = &trips[..TRIPS * 9 / 10];
    fastest.iter().sum::<u64>() as f64 / fastest.len() as f64
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
    let mut all = [const { [const { Vec::new() }; 3] }; KINDS.len()];
    for opening in 0..OPENINGS {
        let mut pairs = Vec::new();
        for (number, kind) in KINDS.iter().enumerate() {
            let name = format!("publication-cost-{}-{opening}-{number}", std::process::id());
            pairs.push(pair(&name, kind, &keys)?);
        }
        let mut rounds = [const { Vec::new() }; KINDS.len()];
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
    for (Kind { name, .. }, [mut trips, mut more, mut ratios]) in KINDS.iter().zip(all) {
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
