//! `punctual run peel`, and the processes that it starts.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use punctual::Wake;
use punctual_machine::host::HostFacts;
use punctual_machine::signal::{catch_all_interrupts, catch_interrupts, end_with_parent, interrupted};
use serde_json::json;

use super::options::Common;
use super::progress::progress;
use super::response::in_a_thread;
use super::{show, store_failure, write_file};
use crate::error::Failure;
use crate::link::{Medium, VALUE_SIZE};
use crate::peel::experiment::{self, Made, RunError, Settings, WARMUP};
use crate::peel::layer::InjectedFault;
use crate::peel::overview::overall;
use crate::peel::{startup, testbed};
use crate::store::{Header, Store};
use crate::summary::Summary;
use crate::{doubt, facts, survey};

/// Options of the peel.
#[derive(Debug, Args)]
pub struct PeelArguments {
    #[command(flatten)]
    common: Common,
    /// What carries the ping
    #[arg(long, value_enum, default_value_t)]
    engine: Medium,
    /// How the layer of asynchronous reception sleeps [default: futex over shared memory, else epoll]
    #[arg(long, value_name = "WAY")]
    wake: Option<Wake>,
    /// How often all layers are measured, in turn
    #[arg(long, value_name = "N", default_value_t = 24, default_value_if("quick", ArgPredicate::IsPresent, "6"), value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Starts of fresh processes, without each mistake and with it
    #[arg(long, value_name = "N", default_value_t = 10, default_value_if("quick", ArgPredicate::IsPresent, "3"), value_parser = clap::value_parser!(u32).range(2..=1000))]
    starts: u32,
    /// A quarter of the rounds, and three starts
    #[arg(long)]
    quick: bool,
    /// Mistakes to make on purpose, to see them found
    #[arg(long, value_enum, value_name = "MISTAKE", value_delimiter = ',')]
    with: Vec<InjectedFault>,
}

/// Time of all trials of the layers, if nothing else was asked for.
const DURATION: Duration = Duration::from_secs(15);
const DURATION_QUICK: Duration = Duration::from_secs(4);
/// Messages of a trial, if nothing else was asked for.
const COUNT: u64 = 5_000;
/// A trial of fewer says nothing of its median.
const COUNT_MIN: u64 = 2 * WARMUP;

/// Measures, stores, peels.
///
/// # Errors
/// See [`Failure`].
pub fn peel(arguments: &PeelArguments) -> Result<(), Failure> {
    let settings = settings(arguments)?;
    let common = &arguments.common;
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    if let Some(file) = common.json.as_deref().filter(|file| *file != Path::new("-")) {
        write_file(file, "")?;
    }
    let mut store =
        Store::create(common.out.as_deref(), &header(&settings)).map_err(|e| store_failure(&e))?;
    let bar = progress(common.quiet);
    let made = in_a_thread(|| experiment::run(&settings, &mut store, &bar))?;
    bar.finish_and_clear();
    if made.is_err() {
        store.discard_if_empty();
    }
    let made = made.map_err(|error| match error {
        RunError::Store(error) => store_failure(&error),
        RunError::Machine(text) => Failure::Machine(hint(&settings, text)),
    })?;
    let summary = summarise(&settings, made, &store)?;
    let path = store.finish(&summary).map_err(|error| store_failure(&error))?;
    conclude(&path, &summary, common)
}

/// What works without root.
fn hint(settings: &Settings, text: String) -> String {
    match settings.medium {
        Medium::Packet => format!("{text}. Without root: --engine datagram, --engine shared"),
        Medium::Datagram | Medium::Shared => text,
    }
}

fn settings(arguments: &PeelArguments) -> Result<Settings, Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    let (common, medium) = (&arguments.common, arguments.engine);
    if common.gap.is_some() || common.load.is_some() {
        return usage(
            "--gap, --load: the ping is a closed load without a gap, the same at every layer".to_owned(),
        );
    }
    let count = common.count.unwrap_or(COUNT);
    if count < COUNT_MIN {
        return usage(format!("--count {count}: from {COUNT_MIN}, of which {WARMUP} are warm-up"));
    }
    let asleep = if medium == Medium::Shared { Wake::Futex } else { Wake::EventFd };
    let wake = arguments.wake.unwrap_or(asleep);
    if medium != Medium::Shared && !wake.can_wait_for(false) {
        return usage(format!("--wake {wake}: it cannot wait for --engine {}; take epoll", medium.name()));
    }
    if wake == Wake::Spin {
        return usage("--wake spin: asynchronous reception sleeps; take another way".to_owned());
    }
    let mut with = arguments.with.clone();
    with.sort_unstable();
    with.dedup();
    let cpus = survey::choose_cpus();
    if cpus[0] == cpus[1] {
        let text =
            "two processors are needed, as both ends poll, and this process may use one only: see taskset";
        return Err(Failure::Machine(text.to_owned()));
    }
    Ok(Settings {
        medium,
        wake,
        rounds: arguments.rounds,
        starts: arguments.starts,
        duration: common.duration.unwrap_or(if arguments.quick { DURATION_QUICK } else { DURATION }),
        count: usize::try_from(count).unwrap_or(usize::MAX),
        with,
        seed: common.seed,
        cpus,
    })
}

fn header(settings: &Settings) -> Header {
    let pinned: Vec<usize> = settings.cpus.into_iter().flatten().collect();
    Header {
        seed: settings.seed,
        warmup: WARMUP,
        host: facts::host(&HostFacts::read(), &pinned),
        clock: facts::clock(),
        plan: json!({
            "engine": settings.medium,
            "wake": settings.wake.name(),
            "rounds": settings.rounds,
            "starts": settings.starts,
            "duration_s": settings.duration.as_secs_f64(),
            "messages_per_trial_max": settings.count,
            "size": VALUE_SIZE,
            "with": settings.with,
            "order": "all layers in turn, round by round",
        }),
        ..Header::new("peel")
    }
}

fn summarise(settings: &Settings, made: Made, store: &Store) -> Result<Summary, Failure> {
    let mut summary = store.summary().map_err(|error| store_failure(&error))?;
    for result in &mut summary.results {
        // A fresh link in every trial: as many first messages as rounds, which the starts measure better.
        result.first_ns.clear();
    }
    summary.skipped.extend(made.skipped);
    if made.rounds < settings.rounds && interrupted() {
        summary.doubt(doubt::Cause::CutShort { trials: made.rounds as usize });
    }
    let all = serde_json::to_value(&made.overall).expect("every key is a string");
    summary.more.insert("peel".to_owned(), all);
    Ok(summary)
}

fn conclude(path: &Path, summary: &Summary, common: &Common) -> Result<(), Failure> {
    show(path, summary, common)?;
    let lost: u64 = overall(summary).map_or(0, |all| all.starts.iter().map(|start| start.lost).sum());
    if !summary.kept_promises() || lost > 0 {
        return Err(Failure::Promise(
            "a promise did not hold: messages were lost; see the doubts".to_owned(),
        ));
    }
    Ok(())
}

/// The other end of the peel.
///
/// # Errors
/// When nobody listens.
pub fn peel_respond() -> Result<(), Failure> {
    end_with_parent();
    catch_all_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let mut input = BufReader::new(std::io::stdin().lock());
    testbed::serve(&mut input, &mut std::io::stdout().lock()).map_err(Failure::Machine)
}

/// A fresh process of the peel.
///
/// # Errors
/// When nobody listens.
pub fn peel_start() -> Result<(), Failure> {
    end_with_parent();
    // Killed, it would leave its bus's files behind.
    catch_all_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let mut input = BufReader::new(std::io::stdin().lock());
    startup::serve(&mut input, &mut std::io::stdout().lock()).map_err(Failure::Machine)
}
