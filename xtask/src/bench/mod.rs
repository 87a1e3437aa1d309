//! Every promise about speed, measured in one run: Punctual, the floors and its peers take turns in `peers/`.
//!
//! For what is compared with what, and how, see `docs/speed.md`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::command::{Run, how};
use crate::step::Outcome;
use crate::workspace;
use host::Host;
use promise::{PROMISES, Verdict};
use turns::Turns;

mod host;
mod promise;
mod table;
mod turns;

const MANIFEST: &str = "peers/Cargo.toml";

/// Rounds of everything, over all openings: the number for a figure, and the number for a glance.
const ROUNDS: u32 = 30;
const ROUNDS_QUICK: u32 = 5;

/// Number of times that everything is opened anew. Where memory lies moves a bare slot by half, so one opening is one sample.
const OPENINGS: u32 = 5;

/// Some five minutes for thirty rounds on an idle machine, most of it Java's starts; this is for a busy one.
const DEADLINE: Duration = Duration::from_secs(1_800);

/// The machine cannot: as the exit codes of `punctual`.
const EXIT_CANNOT: u8 = 3;

#[derive(clap::Args, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Five rounds instead of thirty
    #[arg(long)]
    quick: bool,
    /// Judges what the last run measured, and measures nothing
    #[arg(long)]
    again: bool,
    /// Stores tables and turns there, from the root of the repository
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs it. A promise that does not hold is a result, not a failure: it stands in the table.
pub(crate) fn run(options: &Options) -> ExitCode {
    // Mechanisms that were not measured stand in the table.
    let outcome = bench(options, |_| Outcome::Passed);
    match &outcome {
        Outcome::Passed | Outcome::Partly(_) => ExitCode::SUCCESS,
        Outcome::Skipped(_) => {
            eprintln!("bench: {outcome}");
            ExitCode::from(EXIT_CANNOT)
        }
        Outcome::Failed(_) => {
            eprintln!("bench: {outcome}");
            ExitCode::FAILURE
        }
    }
}

/// Five rounds, to see whether everything can still be measured.
pub(crate) fn quick() -> Outcome {
    bench(&Options { quick: true, again: false, out: None }, Turns::completeness)
}

fn bench(options: &Options, judge: fn(&Turns) -> Outcome) -> Outcome {
    match std::thread::available_parallelism() {
        Ok(cpus) if cpus.get() < 2 && !options.again => {
            Outcome::Skipped("two processes that spin need two processors, and here is one".into())
        }
        _ => measure(options).map_or_else(Outcome::Failed, |turns| judge(&turns)),
    }
}

fn measure(options: &Options) -> Result<Turns, String> {
    let file = workspace::target("xtask").join("bench.jsonl");
    if !options.again {
        build()?;
        Host::look()?;
        play(if options.quick { ROUNDS_QUICK } else { ROUNDS }, &file)?;
    }
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    // From what was stored, as every report: `--again` makes the same one.
    let (host, figures) = (Host::read()?, read(&file.with_extension("txt"))?);
    let turns = Turns::parse(&read(&file)?)?;
    let verdicts: Vec<Verdict> = PROMISES.iter().map(|promise| promise.judge(&turns)).collect();
    say!("{}\n\n{}\n", figures.trim(), host.line);
    say!("{}\n{}", table::promises(&verdicts), table::placements(&verdicts));
    if let Some(folder) = &options.out {
        store(&workspace::root().join(folder), &host, &turns, &verdicts, &figures)?;
    }
    Ok(turns)
}

/// Runs the peers; their turns are in `file` then, and their figures beside it.
fn play(rounds: u32, file: &Path) -> Result<(), String> {
    let run = Run::new(program())
        .args(&["--rounds", &rounds.to_string(), "--openings", &OPENINGS.to_string(), "--json"])
        .arg(file)
        .within(DEADLINE);
    match run.output_to(&file.with_extension("txt"))?.0 {
        Some(0) => Ok(()),
        ended => Err(format!("punctual-peers {}", how(ended, DEADLINE))),
    }
}

/// Builds the peers: with libzmq where that can be built.
fn build() -> Result<(), String> {
    let build = || Run::cargo(&["build", "--quiet", "--release", "--manifest-path", MANIFEST]);
    match build().args(&["--features", "zmq"]).status() {
        Ok(()) => Ok(()),
        Err(_) => {
            eprintln!("again, without libzmq: it needs cmake and a C++ compiler");
            build().status()
        }
    }
}

/// Where cargo puts it. Run by itself, and not by cargo, so that the deadline ends it.
fn program() -> PathBuf {
    let own = || workspace::root().join("peers/target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(own, PathBuf::from);
    workspace::root().join(target).join("release/punctual-peers")
}

fn store(
    folder: &Path,
    host: &Host,
    turns: &Turns,
    verdicts: &[Verdict],
    figures: &str,
) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = [
        ("table.md", table::page(host, turns, verdicts, figures)),
        ("summary.json", table::summary(host, turns, verdicts)),
        ("turns.csv", turns.to_csv()),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    say!("stored in {}", folder.display());
    Ok(())
}
