//! Large messages as fast as they go, between two processes: ours, Aeron's and Zenoh's, in turn.
//!
//! `punctual-zenoh-large [--rounds N] [--sizes 1,16,64] [--mebibytes N] [--kinds KIND,KIND]`. Aeron needs Java 17 and Maven, and is
//! left out, loudly, without them. A turn is so many mebibytes in messages of one size. It lasts from the first `send` until the
//! receiver has looked at all of the last message, in one piece of memory.

mod aeron;
mod end;

use std::process::Command;

use punctual_zenoh::rig::free_port;
use punctual_zenoh::told::Told;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const KINDS: [&str; 7] =
    ["punctual shared", "punctual udp", "aeron ipc", "aeron udp", "zenoh shm", "zenoh tcp", "zenoh udp"];

struct Plan {
    rounds: usize,
    sizes: Vec<usize>,
    mebibytes: usize,
    kinds: Vec<String>,
}

impl Plan {
    fn of(words: &[String]) -> Outcome<Self> {
        let kinds = KINDS.map(str::to_owned).to_vec();
        let mut plan = Self { rounds: 5, sizes: vec![1, 16, 64], mebibytes: 256, kinds };
        for pair in words.chunks(2) {
            match pair.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["--rounds", value] => plan.rounds = value.parse()?,
                ["--mebibytes", value] => plan.mebibytes = value.parse()?,
                ["--sizes", value] => {
                    plan.sizes = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                ["--kinds", value] => plan.kinds = value.split(',').map(str::to_owned).collect(),
                _ => return Err(format!("{pair:?} is not known").into()),
            }
        }
        Ok(plan)
    }
}

/// Two processes that are open.
struct Pair {
    kind: String,
    there: Told,
    here: Told,
    rates: Vec<f64>,
    sent: u64,
    came: u64,
}

impl Pair {
    fn open(kind: &str, aeron: Option<&aeron::Aeron>) -> Outcome<Option<Self>> {
        let port = free_port().to_string();
        let program = std::env::current_exe()?;
        let mut ends = [(); 2].map(|()| Command::new(&program));
        match kind.split_once(' ') {
            Some(("aeron", link)) => {
                let Some(aeron) = aeron else { return Ok(None) };
                ends = aeron.ends(if link == "ipc" { "ipc" } else { &port });
            }
            Some((system @ ("punctual" | "zenoh"), link)) => {
                for (command, role) in ends.iter_mut().zip(["there", "here"]) {
                    command.args(["end", role, system, link, &port]);
                }
            }
            _ => return Err(format!("{kind:?} is none of {KINDS:?}").into()),
        }
        let [mut there, mut here] = ends;
        let (mut there, mut here) = (Told::start(&mut there)?, Told::start(&mut here)?);
        there.hear()?;
        here.hear()?;
        Ok(Some(Self { kind: kind.to_owned(), there, here, rates: Vec::new(), sent: 0, came: 0 }))
    }

    /// Plays a turn: MB/s, and how many of the messages came.
    fn turn(&mut self, size: usize, count: usize) -> Outcome<(f64, u64)> {
        let line = format!("{size} {count}");
        self.there.tell(&line)?;
        self.here.tell(&line)?;
        let words = |line: String| -> Outcome<(u64, u64)> {
            let (when, what) = line.split_once(' ').ok_or_else(|| format!("not an answer: {line:?}"))?;
            Ok((when.parse()?, what.parse()?))
        };
        let ((began, _), (last, came)) = (words(self.here.hear()?)?, words(self.there.hear()?)?);
        let seconds = last.saturating_sub(began) as f64 / 1e9;
        Ok((if came == 0 { 0.0 } else { came as f64 * size as f64 / seconds / 1e6 }, came))
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["end", role, system, link, port] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return end::play(role == "here", system, link, port);
    }
    let plan = Plan::of(&words)?;
    let aeron = aeron::Aeron::build().map_err(|error| eprintln!("SKIPPED: Aeron: {error}")).ok();
    let pairs = plan.kinds.iter().map(|kind| Pair::open(kind, aeron.as_ref()));
    let mut pairs: Vec<Pair> = pairs.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    for size in &plan.sizes {
        measure(&mut pairs, &plan, size << 20)?;
        println!("messages of {size} MiB, {} rounds of {} MiB", plan.rounds, plan.mebibytes);
        for pair in &mut pairs {
            pair.rates.sort_by(f64::total_cmp);
            let [least, median, largest] = [0, plan.rounds / 2, plan.rounds - 1].map(|at| pair.rates[at]);
            let Pair { kind, sent, came, .. } = pair;
            println!(
                "  {kind:16} {median:6.0} MB/s ({least:.0} to {largest:.0}), {came} of {sent} messages came"
            );
            (pair.rates, pair.sent, pair.came) = (Vec::new(), 0, 0);
        }
    }
    Ok(())
}

fn measure(pairs: &mut [Pair], plan: &Plan, size: usize) -> Outcome<()> {
    let count = ((plan.mebibytes << 20) / size).max(1);
    for round in 0..=plan.rounds {
        for at in 0..pairs.len() {
            // Each comes behind others from round to round.
            let at = if round % 2 == 0 { at } else { pairs.len() - 1 - at };
            let at = (at + round) % pairs.len();
            let (rate, came) = pairs[at].turn(size, count)?;
            // The first is for warming up.
            if round > 0 {
                let pair = &mut pairs[at];
                pair.rates.push(rate);
                pair.sent += count as u64;
                pair.came += came;
            }
        }
    }
    Ok(())
}
