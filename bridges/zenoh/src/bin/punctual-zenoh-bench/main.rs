//! Ours beside bare Zenoh, in turn, over the same two routers: round trips one after the other, and messages as fast as they go.
//!
//! `punctual-zenoh-bench [--link loopback|udp|tcp] [--openings N] [--rounds N] [--trips N] [--messages N] [--size N] [--wake W]`.
//! With `udp` and `tcp` the routers are in namespaces of their own, with 20 ms and 1 % loss between (root).

mod end;
mod figures;

use std::process::Command;
use std::time::Duration;

use punctual_machine::process::fill_with_secrets;
use punctual_zenoh::place::{Place, two_sites};
use punctual_zenoh::rig::{Router, free_port};
use punctual_zenoh::told::Told;

use figures::{Figures, Round};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NAMES: [&str; 3] = ["bare Zenoh", "ours", "ours, sealed"];
const KEYS: &str = "PUNCTUAL_ZENOH_BENCH_KEYS";
const DELAY: Duration = Duration::from_millis(20);
const LOSS_PPM: u32 = 10_000;
const OPENINGS_MAX: u32 = 10;

struct Plan {
    link: String,
    openings: usize,
    rounds: usize,
    trips: u64,
    messages: u64,
    size: u64,
    wake: String,
}

impl Plan {
    fn of(words: &[String]) -> Outcome<Self> {
        let named = |name: &str| words.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1));
        let known = ["--link", "--openings", "--rounds", "--trips", "--messages", "--size", "--wake"];
        if let Some(pair) = words.chunks(2).find(|pair| pair.len() < 2 || !known.contains(&&*pair[0])) {
            return Err(format!("{pair:?} is none of {known:?} with a value").into());
        }
        let link = named("--link").cloned().unwrap_or_else(|| "loopback".to_owned());
        if !["loopback", "udp", "tcp"].contains(&&*link) {
            return Err(format!("--link loopback, udp or tcp, not {link}").into());
        }
        // A round trip takes a hundred times as long where there are sites.
        let is_far = link != "loopback";
        let number = |name: &str, default: u64| named(name).map_or(Ok(default), |value| value.parse());
        Ok(Self {
            openings: number("--openings", 6)? as usize,
            rounds: number("--rounds", if is_far { 3 } else { 5 })? as usize,
            trips: number("--trips", if is_far { 20 } else { 1_000 })?,
            messages: number("--messages", if link == "tcp" { 1_000 } else { 20_000 })?,
            size: number("--size", 64)?,
            wake: named("--wake").cloned().unwrap_or_else(|| "futex".to_owned()),
            link,
        })
    }

    /// Only datagrams are lost for good.
    fn patience_ms(&self) -> u64 {
        if self.link == "udp" { 300 } else { 20_000 }
    }
}

/// Routers and ends that are open.
struct Opening {
    _routers: [Router; 2],
    _places: Option<[Place; 2]>,
    ends: [Told; 2],
    games: u64,
}

impl Opening {
    fn new(plan: &Plan) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let router = program.with_file_name("punctual-zenoh-router");
        let (places, near, far) = if plan.link == "loopback" {
            let near = [(); 2].map(|()| format!("tcp/127.0.0.1:{}", free_port()));
            (None, near.clone(), near[0].clone())
        } else {
            let places = two_sites(["10.77.20.1", "10.77.20.2"], DELAY, LOSS_PPM)?;
            let near = [(); 2].map(|()| "tcp/127.0.0.1:7447".to_owned());
            (Some(places), near, format!("{}/10.77.20.1:7448", plan.link))
        };
        let mut secret = [0; 16];
        fill_with_secrets(&mut secret);
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let start = |site: usize| -> Outcome<(Router, Told)> {
            let (router, program, near, far) =
                (router.clone(), program.clone(), near[site].clone(), far.clone());
            let (wake, keys) = (plan.wake.clone(), format!("1 1 {secret}"));
            let both = move || -> Outcome<(Router, Told)> {
                let mut listen = vec![&*near];
                listen.extend((site == 0 && far != near).then_some(&*far));
                let router = Router::start(&router, &listen, (site == 1).then_some(&*far))?;
                std::thread::sleep(Duration::from_secs(1));
                let role = if site == 0 { "here" } else { "there" };
                let mut command = Command::new(program);
                command.args(["end", role, &near, &wake]).env(KEYS, keys);
                Ok((router, Told::start(&mut command)?))
            };
            match &places {
                Some(places) => places[site].within(both),
                None => both(),
            }
        };
        let ((first, mut here), (second, mut there)) = (start(0)?, start(1)?);
        here.hear()?;
        there.hear()?;
        // Declarations go from router to router.
        std::thread::sleep(Duration::from_secs(1));
        Ok(Self { _routers: [first, second], _places: places, ends: [here, there], games: 0 })
    }

    /// An opening in which all three hear each other: the routers' declarations to each other may be lost over UDP, and are not
    /// repeated.
    fn heard(plan: &Plan) -> Outcome<Self> {
        for _ in 1..OPENINGS_MAX {
            let mut opening = Self::new(plan)?;
            match (0..NAMES.len()).try_for_each(|which| opening.play(which, "trips", 5, plan).map(drop)) {
                Ok(()) => return Ok(opening),
                Err(error) => eprintln!("opened again: {error}"),
            }
        }
        Self::new(plan)
    }

    /// Answers of both ends after a game.
    fn play(&mut self, which: usize, what: &str, messages: u64, plan: &Plan) -> Outcome<[[f64; 2]; 2]> {
        self.games += 1;
        let line = format!("{which} {what} {} {messages} {} {}", self.games, plan.size, plan.patience_ms());
        let [here, there] = &mut self.ends;
        there.tell(&line)?;
        here.tell(&line)?;
        let numbers = |line: String| -> Outcome<[f64; 2]> {
            let numbers: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
            Ok(numbers?.try_into().map_err(|_| format!("not an answer: {line:?}"))?)
        };
        Ok([numbers(here.hear()?)?, numbers(there.hear()?)?])
    }

    fn round(&mut self, which: usize, plan: &Plan) -> Outcome<Round> {
        let [[trip_ns, unanswered], _] = self.play(which, "trips", plan.trips, plan)?;
        let [[began, _], [last, came]] = self.play(which, "flow", plan.messages, plan)?;
        let thousand_s = came / (last - began) * 1e6;
        let lost = plan.messages as f64 - came;
        Ok(Round { trip_us: trip_ns / 1e3, thousand_s, unanswered, lost })
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["end", role, router, wake] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return end::play(role, router, wake);
    }
    let plan = Plan::of(&words)?;
    let mut figures = Figures::default();
    for _ in 0..plan.openings {
        let mut opening = Opening::heard(&plan)?;
        for round in 0..=plan.rounds {
            // Each comes behind each of the others.
            let mut rounds = [None; 3];
            for which in (0..3).map(|at| (at + round) % 3) {
                rounds[which] = Some(opening.round(which, &plan)?);
            }
            // The first is for warming up.
            if round > 0 {
                figures.add(rounds.map(|round| round.expect("each had a turn")));
            }
        }
        figures.end_of_opening();
    }
    print!("{figures}");
    Ok(())
}
