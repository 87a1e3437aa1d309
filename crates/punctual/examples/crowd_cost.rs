//! Cost of a crowd on a bus of shared memory: the time to open for the first node, for the last one, and for all of them; the memory of
//! one more node; and a round trip beside idle nodes. Run:
//! `cargo run --release -p punctual --example crowd_cost -- [NODES ROUNDS [NODES OF A PROCESS]]`
//!
//! A node may have to do later the work that it does not do when it opens. So nine more then open, bind and send a first message to
//! everybody, one after the other. They say how long it took from the start of the opening. All do so beside idle nodes, and beside as
//! many that have a communicator each.
//!
//! Nodes open one after the other, each in a process of its own unless said otherwise; the process's start is not counted. Memory is the
//! growth in `/proc/self/smaps_rollup` and `/proc/self/status` by the opening, in a process with one node: its
//! proportional share of all pages, all pages that it sees, and page tables. Two processes that spin, each on a CPU of its own,
//! take turns on a bus that is theirs alone and on the crowded one; every round opens them anew.
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use punctual::{Bus, Clock, Communicator, CommunicatorOptions, Node, PublicationOptions, Target, Wake};
use punctual_machine::cpu::{allowed, pin_to};

const TRIPS: usize = 20_000;
const TURNS: usize = 5;
/// Nodes that come after the crowd and say how long their first steps take.
const PROBES: usize = 9;
const PATIENCE: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["part", bus, kind, first, count] => part(bus, kind == "bound", first.parse()?, count.parse()?),
        ["probe", bus, name] => probe(bus, name),
        ["weigh", bus] => weigh(bus),
        ["pong", alone, crowded] => pong(alone, crowded),
        ["ping", alone, crowded] => ping(alone, crowded),
        [] => measure(200, 5, 1),
        [nodes, rounds] => measure(nodes.parse()?, rounds.parse()?, 1),
        [nodes, rounds, of_process] => measure(nodes.parse()?, rounds.parse()?, of_process.parse()?),
        _ => Err("crowd_cost [NODES ROUNDS [NODES OF A PROCESS]]".into()),
    }
}

/// Nodes that do nothing, or only have a communicator: says how long each took to open, microseconds, the latter with that.
fn part(bus: &str, is_bound: bool, first: usize, count: usize) -> Result<(), Failure> {
    let (mut nodes, mut ends) = (Vec::new(), Vec::new());
    for number in first..first + count {
        let before = Instant::now();
        let node = Node::open(&Bus::shared(bus), &format!("node-{number}"))?;
        if is_bound {
            ends.push(node.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin))?);
        }
        println!("{:.1}", micros_since(before));
        nodes.push(node);
    }
    stay()
}

/// A node's first steps: says how long it was until each was done, microseconds.
fn probe(bus: &str, name: &str) -> Result<(), Failure> {
    let before = Instant::now();
    let node = Node::open(&Bus::shared(bus), name)?;
    let opened = micros_since(before);
    let _end = node.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin))?;
    let bound = micros_since(before);
    let mut publication = node.publication(Target::EVERYONE, &PublicationOptions::default())?;
    match publication.offer(&[0; 64]) {
        // Idle nodes read nothing. The publication found that out by looking at all of them.
        Ok(()) | Err(punctual::publication::OfferError::NotConnected) => {}
        Err(error) => return Err(error.into()),
    }
    let sent = micros_since(before);
    for figure in [opened, bound, sent] {
        println!("{figure:.1}");
    }
    stay()
}

fn micros_since(before: Instant) -> f64 {
    before.elapsed().as_nanos() as f64 / 1e3
}

/// Waits until the process that started this one closes its standard input.
fn stay() -> Result<(), Failure> {
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// One node and nothing else in a process: KiB of proportional share, of pages seen, of page tables.
fn weigh(bus: &str) -> Result<(), Failure> {
    let before =
        [memory("smaps_rollup", "Pss:")?, memory("smaps_rollup", "Rss:")?, memory("status", "VmPTE:")?];
    let _node = Node::open(&Bus::shared(bus), "weighed")?;
    let after =
        [memory("smaps_rollup", "Pss:")?, memory("smaps_rollup", "Rss:")?, memory("status", "VmPTE:")?];
    for (after, before) in after.iter().zip(before) {
        println!("{}", after - before);
    }
    stay()
}

fn memory(file: &str, what: &str) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/self/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(what)).ok_or("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn end_of(bus: &str, name: &str) -> Result<Communicator, Failure> {
    let node = Node::open(&Bus::shared(bus), name)?;
    Ok(node.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin))?)
}

fn pin(index: usize) -> Result<(), Failure> {
    let cpus = allowed();
    Ok(pin_to(cpus[index % cpus.len()])?)
}

fn pong(alone: &str, crowded: &str) -> Result<(), Failure> {
    pin(1)?;
    let mut ends = [end_of(alone, "pong")?, end_of(crowded, "pong")?];
    println!("ready");
    for turn in 0..2 * TURNS {
        let end = &mut ends[turn % 2];
        for _ in 0..TRIPS {
            let message = end.receive_timeout(PATIENCE)?;
            let (back, payload) = (message.source.into(), <[u8; 64]>::try_from(message.payload)?);
            end.send_timeout(back, &payload, PATIENCE)?;
        }
    }
    stay()
}

/// Says the medians of the turns, alone and crowded by turns, nanoseconds there and back.
fn ping(alone: &str, crowded: &str) -> Result<(), Failure> {
    pin(0)?;
    let mut ends = [end_of(alone, "ping")?, end_of(crowded, "ping")?];
    let clock = Clock::get();
    for turn in 0..2 * TURNS {
        let end = &mut ends[turn % 2];
        let mut trips = Vec::with_capacity(TRIPS);
        for trip in 0..TRIPS {
            let begin = clock.now();
            end.send_timeout(Target::port("pong", 1), &[trip as u8; 64], PATIENCE)?;
            let message = end.receive_timeout(PATIENCE)?;
            if message.payload != [trip as u8; 64] {
                return Err("another payload came back".into());
            }
            trips.push(clock.nanos(clock.now().since(begin)));
        }
        // The first tenth warms up.
        println!("{}", median(trips[TRIPS / 10..].iter().map(|&ns| ns as f64)));
    }
    stay()
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Another process of this program; it ends when its standard input closes.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    fn start(words: &[&str]) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, said })
    }

    /// The figures that it says until it is ready.
    fn figures(&mut self) -> Result<Vec<f64>, Failure> {
        let mut figures = Vec::new();
        for line in self.said.by_ref().lines() {
            match line?.as_str() {
                "ready" => return Ok(figures),
                figure => figures.push(figure.parse()?),
            }
        }
        Err("it ended".into())
    }

    fn end(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// Nodes of a bus that stay, and how long each took to come.
struct Crowd {
    parts: Vec<Other>,
    times: Vec<f64>,
}

impl Crowd {
    fn gather(bus: &str, kind: &str, nodes: usize, of_process: usize) -> Result<Self, Failure> {
        let (mut parts, mut times) = (Vec::new(), Vec::new());
        while times.len() < nodes {
            let count = of_process.min(nodes - times.len());
            let mut part = Other::start(&["part", bus, kind, &times.len().to_string(), &count.to_string()])?;
            times.extend(part.figures()?);
            parts.push(part);
        }
        Ok(Self { parts, times })
    }

    /// Milliseconds: the first, the last nine in the middle, and all.
    fn figures(&self) -> [f64; 3] {
        let last = median(self.times[self.times.len().saturating_sub(9)..].iter().copied());
        [self.times[0], last, self.times.iter().sum()].map(|micros| micros / 1e3)
    }

    fn end(self) -> Result<(), Failure> {
        self.parts.into_iter().try_for_each(Other::end)
    }
}

/// Nodes that come and leave one after the other: until they were open, had bound, had sent, each in the middle; milliseconds.
fn first_steps(bus: &str) -> Result<[f64; 3], Failure> {
    let mut steps: [Vec<f64>; 3] = Default::default();
    for number in 0..PROBES {
        let mut other = Other::start(&["probe", bus, &format!("probe-{number}")])?;
        for (step, micros) in steps.iter_mut().zip(other.figures()?) {
            step.push(micros / 1e3);
        }
        other.end()?;
    }
    Ok(steps.map(median))
}

const ROWS: [&str; 12] = [
    "first node, ms",
    "last nodes (median of nine), ms",
    "all one after the other, ms",
    "beside idle ones: open, ms",
    "... open and bind, ms",
    "... and first message to all, ms",
    "first node that binds, ms",
    "last nodes that bind, ms",
    "all that bind, ms",
    "beside bound ones: open, ms",
    "... open and bind, ms",
    "... and first message to all, ms",
];

fn measure(nodes: usize, rounds: usize, of_process: usize) -> Result<(), Failure> {
    let (mut rows, mut weights) = (vec![Vec::new(); ROWS.len()], Vec::new());
    let (mut alone_ns, mut crowded_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let bus = |what: &str| format!("crowd-{what}-{}-{round}", std::process::id());
        let (alone, crowded, bound) = (bus("alone"), bus("all"), bus("bound"));
        let crowd = Crowd::gather(&crowded, "idle", nodes, of_process)?;
        let idle = [crowd.figures(), first_steps(&crowded)?];
        let mut weighed = Other::start(&["weigh", &crowded])?;
        weights.push(weighed.figures()?);
        weighed.end()?;
        let mut pong = Other::start(&["pong", &alone, &crowded])?;
        pong.figures()?;
        let mut ping = Other::start(&["ping", &alone, &crowded])?;
        for pair in ping.figures()?.chunks_exact(2) {
            alone_ns.push(pair[0]);
            crowded_ns.push(pair[1]);
            ratios.push(pair[1] / pair[0]);
        }
        ping.end()?;
        pong.end()?;
        crowd.end()?;
        let crowd = Crowd::gather(&bound, "bound", nodes, of_process)?;
        let bound = [crowd.figures(), first_steps(&bound)?];
        crowd.end()?;
        for (row, figure) in rows.iter_mut().zip([idle, bound].into_iter().flatten().flatten()) {
            row.push(figure);
        }
    }
    println!("{nodes} nodes, {of_process} to a process, {rounds} rounds; median (least to most)");
    ROWS.iter().zip(rows).for_each(|(what, values)| show(what, values));
    for (at, what) in ["proportional share, KiB", "pages seen, KiB", "page tables, KiB"].iter().enumerate() {
        show(what, weights.iter().map(|weight| weight[at]).collect());
    }
    show("round trip on a bus of two, ns", alone_ns);
    show("round trip beside the idle, ns", crowded_ns);
    show("ratio", ratios);
    Ok(())
}

fn show(what: &str, values: Vec<f64>) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    println!("{what:32} {:10.2} ({least:.2} to {most:.2})", median(values));
}
