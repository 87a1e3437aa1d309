//! All kinds in turns, round after round.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::process::Command;

use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};

use crate::Outcome;
use crate::aeron::{Aeron, Unbuilt};
use crate::pair::INTERFACES;
use crate::report::{Figures, print};
use crate::rounds::{AERON, Game, KINDS, Kind, ZMQ};
use crate::session::Session;

/// Options of a comparison.
#[derive(Debug)]
pub(crate) struct Options {
    /// Of all openings together.
    rounds: usize,
    /// Number of times that everything is opened anew: new processes, files, pages.
    openings: usize,
    games: Vec<Game>,
    sizes: Vec<usize>,
    kinds: Vec<Kind>,
    json: Option<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Outcome<Self> {
        let mut options = Self {
            rounds: 30,
            openings: 5,
            games: Game::ALL.to_vec(),
            sizes: vec![64, 1024, 8192],
            kinds: KINDS.to_vec(),
            json: None,
        };
        let mut arguments = arguments.iter();
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--rounds" => {
                    options.rounds = value.parse().map_err(|_| format!("--rounds {value}: no number"))?
                }
                "--openings" => {
                    options.openings = match value.parse() {
                        Ok(openings @ 1..=100) => openings,
                        _ => return Err(format!("--openings {value}: 1 to 100").into()),
                    }
                }
                "--games" => options.games = value.split(',').map(Game::parse).collect::<Outcome<_>>()?,
                "--sizes" => options.sizes = value.split(',').map(size).collect::<Outcome<_>>()?,
                "--kinds" => options.kinds = value.split(',').map(kind).collect::<Outcome<_>>()?,
                "--json" => options.json = Some(value.clone()),
                _ => return Err(format!("no option {option}").into()),
            }
        }
        Ok(options)
    }
}

fn size(text: &str) -> Outcome<usize> {
    match text.parse() {
        Ok(size @ (64 | 1024 | 8192)) => Ok(size),
        _ => Err(format!("--sizes {text}: 64, 1024 or 8192").into()),
    }
}

fn kind(text: &str) -> Outcome<Kind> {
    let found = KINDS.into_iter().find(|kind| kind.name == text);
    let names = || KINDS.map(|kind| kind.name).join(", ");
    found.ok_or_else(|| format!("no kind {text:?}; there are: {}", names()).into())
}

/// Abilities of this machine, and in words its limits.
struct Machine {
    cpus: [usize; 2],
    aeron: Option<Aeron>,
    skipped: Vec<Skip>,
}

/// A mechanism that does not play.
struct Skip {
    kind: &'static str,
    reason: String,
    /// True if it should play: everything that it needs is here.
    broken: bool,
}

impl Machine {
    fn prepare(kinds: &[Kind]) -> Outcome<Self> {
        let mut machine = Self { cpus: cpus()?, aeron: None, skipped: Vec::new() };
        if kinds.iter().any(|kind| kind.name == AERON) {
            match Aeron::build() {
                Ok(aeron) => machine.aeron = Some(aeron),
                Err(Unbuilt { reason, broken }) => machine.skip(kinds, AERON, &reason, broken),
            }
        }
        if kinds.iter().any(|kind| kind.name.contains("packet"))
            && let Err(error) = make_segment()
        {
            machine.skip(kinds, "packet", &error.to_string(), false);
        }
        if !cfg!(feature = "zmq") {
            let needed = ["cmake", "c++"];
            let broken = needed.iter().all(|tool| is_here(tool));
            machine.skip(
                kinds,
                ZMQ,
                "built without `--features zmq`, which needs cmake and a C++ compiler",
                broken,
            );
        }
        Ok(machine)
    }

    fn skip(&mut self, kinds: &[Kind], what: &str, reason: &str, broken: bool) {
        for kind in kinds.iter().filter(|kind| kind.name.contains(what)) {
            eprintln!("SKIPPED, NOT MEASURED: {}: {reason}", kind.name);
            self.skipped.push(Skip { kind: kind.name, reason: reason.to_owned(), broken });
        }
    }
}

/// True if a program that builds others is installed.
fn is_here(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|ended| ended.status.success())
}

fn cpus() -> Outcome<[usize; 2]> {
    let allowed = punctual_machine::cpu::allowed();
    match (allowed.first(), allowed.last()) {
        (Some(first), Some(last)) if first != last => Ok([*first, *last]),
        _ => Err("two processors are needed".into()),
    }
}

/// A namespace of our own with a loopback and a veth pair: nothing of the host is touched, nothing stays.
fn make_segment() -> Outcome<()> {
    unshare_network()?;
    bring_up("lo")?;
    create_veth(INTERFACES[0], INTERFACES[1], thread_id())?;
    for interface in INTERFACES {
        bring_up(interface)?;
    }
    Ok(())
}

/// Plays everything that can be played here, and prints what came out.
pub(crate) fn compare(options: &Options) -> Outcome<()> {
    let machine = Machine::prepare(&options.kinds)?;
    let can = |kind: &&Kind| !machine.skipped.iter().any(|skip| skip.kind == kind.name);
    let kinds: Vec<Kind> = options.kinds.iter().filter(can).copied().collect();
    let mut figures = Vec::new();
    let mut store = options.json.as_ref().map(|path| Store::create(path, &machine)).transpose()?;
    let rounds = options.rounds.div_ceil(options.openings);
    for opening in 0..options.openings {
        let numbers = opening * rounds..(opening + 1) * rounds;
        for (game, size) in
            options.games.iter().flat_map(|&game| options.sizes.iter().map(move |&size| (game, size)))
        {
            if !kinds.iter().any(|kind| kind.plays(game, size)) {
                continue;
            }
            eprintln!(
                "{} of {size} B, opening {} of {}, {rounds} rounds",
                game.name(),
                opening + 1,
                options.openings
            );
            let turns = Turns { opening, numbers: numbers.clone(), game, size };
            let play = || play(turns, &kinds, &machine).map_err(|error| error.to_string());
            // In a thread of its own: it is pinned, and what it starts would be too.
            let played = std::thread::scope(|scope| scope.spawn(play).join());
            let played = played.map_err(|_| "the thread that plays died")??;
            // Before the next session, regardless of its outcome.
            store.as_mut().map(|store| store.add(&played)).transpose()?;
            figures.extend(played);
        }
    }
    print(&figures);
    Ok(())
}

/// The rounds of one opening.
struct Turns {
    opening: usize,
    numbers: Range<usize>,
    game: Game,
    size: usize,
}

fn play(turns: Turns, kinds: &[Kind], machine: &Machine) -> Outcome<Vec<Figures>> {
    let Turns { opening, numbers, game, size } = turns;
    let mut session = Session::open(game, size, kinds, machine.aeron.as_ref(), machine.cpus)?;
    let mut figures = Vec::new();
    for number in numbers {
        let turn = [opening, number];
        session
            .round(number, |kind, outcomes| figures.push(Figures::of(turn, kind, game, size, outcomes)))?;
    }
    Ok(figures)
}

/// A line of JSON for each mechanism that does not play, and for each turn.
struct Store<'a> {
    path: &'a str,
    file: BufWriter<File>,
}

impl<'a> Store<'a> {
    fn create(path: &'a str, machine: &Machine) -> Outcome<Self> {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        let mut store = Self { path, file: BufWriter::new(file) };
        let lines = machine.skipped.iter().map(|Skip { kind, reason, broken }| {
            format!(r#"{{"skipped":"{kind}","reason":{reason:?},"broken":{broken}}}"#)
        });
        store.lines(lines)?;
        Ok(store)
    }

    fn add(&mut self, figures: &[Figures]) -> Outcome<()> {
        self.lines(figures.iter().map(Figures::to_string))
    }

    fn lines(&mut self, mut lines: impl Iterator<Item = String>) -> Outcome<()> {
        let Self { path, file } = self;
        let written = lines.try_for_each(|line| writeln!(file, "{line}")).and_then(|()| file.flush());
        Ok(written.map_err(|error| format!("{path}: {error}"))?)
    }
}
