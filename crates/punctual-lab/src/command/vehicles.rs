//! `punctual run vehicles`, and the processes that it starts.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use punctual::Wake;
use punctual_machine::host::HostFacts;
use punctual_machine::signal::{
    catch_all_interrupts, catch_interrupts, count_continuations, end_with_parent, interrupted,
};
use serde_json::json;

use super::options::Common;
use super::progress::progress;
use super::response::in_a_thread;
use super::{show, store_failure, write_file};
use crate::error::Failure;
use crate::link::Medium;
use crate::scheduling::Urgency;
use crate::store::{Header, Run, Store};
use crate::summary::{Ledger, Skipped, Summary};
use crate::units::duration;
use crate::vehicles::experiment::{self, Made, RunError};
use crate::vehicles::ledger::Sums;
use crate::vehicles::option::{Interfaces, Mode, OWN_ROW, Settings};
use crate::vehicles::overview::Overall;
use crate::vehicles::process::serve;
use crate::vehicles::protocol::Facts;
use crate::vehicles::published::standings;
use crate::vehicles::stalls;
use crate::vehicles::testbed::Place;
use crate::vehicles::value::RECORD_SIZE;
use crate::{doubt, facts};

/// Whether messages carry a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Seal {
    On,
    Off,
}

/// Options of the vehicles.
#[derive(Debug, Args)]
pub struct VehiclesArguments {
    #[command(flatten)]
    common: Common,
    /// Processes that publish and subscribe
    #[arg(long, value_name = "N", default_value_t = 15)]
    vehicles: usize,
    /// Time between two messages of a component
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    period: Duration,
    /// Where the instant of reception is taken
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// What carries messages between vehicles
    #[arg(long, value_enum, default_value_t)]
    engine: Medium,
    /// How a receiver waits: spin, backoff, adaptive, futex, eventfd, epoll, signal [default: eventfd; async: signal,
    /// over shared memory futex]
    #[arg(long, value_name = "WAY")]
    wake: Option<Wake>,
    /// Whether messages carry a tag
    #[arg(long, value_enum, default_value = "off")]
    seal: Seal,
    /// Processes beside the road, which listen and say once a second that they are there [default: 9 in application mode, else 0]
    #[arg(long, value_name = "N")]
    roadside: Option<usize>,
    /// Components of each vehicle, each with a value of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    components: usize,
    /// How often all is measured, with fresh processes each time
    #[arg(long, alias = "runs", value_name = "N", default_value_t = 5, default_value_if("quick", ArgPredicate::IsPresent, "2"), value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Two rounds of 3 s
    #[arg(long)]
    quick: bool,
    /// Messages of each component in a run [default: 30 s of them; callback: 1,000 to each vehicle; engine, async: 100]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    messages: Option<usize>,
    /// Let each process begin as soon as it is open, not at a barrier, as the original's did whose first messages took 31 ms
    #[arg(long, conflicts_with_all = ["awake", "spread"])]
    no_barrier: bool,
    /// Let vehicles publish one after the other over the period, not all at once as the barrier leaves them
    #[arg(long)]
    spread: bool,
    /// Urgency of the vehicles' threads: other, nice:N, fifo:N, rr:N
    #[arg(long, value_name = "CLASS", default_value = "other")]
    sched: Urgency,
    /// Let each process stay on one processor, one after the other
    #[arg(long)]
    pin: bool,
    /// Keep all processors awake for so long before and after each value is due: a virtual one that sleeps comes back late
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::units::gap)]
    awake: Duration,
    /// Whether all processes share one Ethernet interface, as the original's did, or have one each, in a namespace each
    #[arg(long, value_enum, default_value_t, conflicts_with = "interface")]
    interfaces: Interfaces,
    /// A bridge of this host (packet), or an interface with an address (datagram) [default: a bridge of our own]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

/// The original's roadside processes.
const ROADSIDE: usize = 9;
/// How long the original's application test took.
const APPLICATION_RUN: Duration = Duration::from_secs(30);
/// How long a quick run takes.
const QUICK_RUN: Duration = Duration::from_secs(3);
/// Messages to each vehicle in the original's callback test.
const CALLBACK_MESSAGES: usize = 1_000;
/// Messages of each sender in the original's other tests.
const SENDER_MESSAGES: usize = 100;
/// Processes on one medium, with room for the roadside in the table of nodes.
const PROCESSES_MAX: usize = 200;
const COMPONENTS_MAX: usize = 60;
/// What all records of one process may take, bytes.
const RECORDS_MAX: usize = 1 << 29;

/// Measures, stores, compares with the published tables.
///
/// # Errors
/// See [`Failure`].
pub fn vehicles(arguments: &VehiclesArguments) -> Result<(), Failure> {
    let settings = settings(arguments)?;
    let common = &arguments.common;
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    if let Some(file) = common.json.as_deref().filter(|file| *file != Path::new("-")) {
        write_file(file, "")?;
    }
    let header = header(&settings, common.seed);
    let mut store = Store::create(common.out.as_deref(), &header).map_err(|error| store_failure(&error))?;
    let bar = progress(common.quiet);
    let made = in_a_thread(|| experiment::run(&settings, &mut store, &bar))?;
    bar.finish_and_clear();
    if made.is_err() {
        store.discard_if_empty();
    }
    let made = made.map_err(|error| match error {
        RunError::Store(error) => store_failure(&error),
        RunError::Machine(text) => Failure::Machine(text),
    })?;
    let summary = summarise(&settings, made, &store)?;
    let path = store.finish(&summary).map_err(|error| store_failure(&error))?;
    conclude(&path, &summary, common)
}

fn settings(arguments: &VehiclesArguments) -> Result<Settings, Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    let (mode, medium, wake) = (arguments.mode, arguments.engine, wake(arguments));
    for (name, value, from, to) in [
        ("vehicles", arguments.vehicles, if mode.is_mutual() { 2 } else { 1 }, PROCESSES_MAX),
        ("components", arguments.components, 1, COMPONENTS_MAX),
        ("roadside", arguments.roadside.unwrap_or(0), 0, 50),
        ("messages", arguments.messages.unwrap_or(1), 1, 10_000_000),
    ] {
        if !(from..=to).contains(&value) {
            return usage(format!("--{name} {value}: from {from} to {to}"));
        }
    }
    combination(arguments)?;
    let period = arguments.period;
    let count = arguments.messages.unwrap_or_else(|| messages(arguments));
    let settings = Settings {
        mode,
        medium,
        wake,
        seal: arguments.seal == Seal::On,
        vehicles: arguments.vehicles,
        roadside: arguments.roadside.unwrap_or(if mode == Mode::Application { ROADSIDE } else { 0 }),
        components: arguments.components,
        period,
        count,
        runs: arguments.rounds,
        barrier: !arguments.no_barrier,
        spread: arguments.spread,
        urgency: arguments.sched,
        pin: arguments.pin,
        awake: arguments.awake,
        interfaces: arguments.interfaces,
        interface: arguments.interface.clone(),
    };
    let bytes = settings.vehicles.saturating_mul(settings.components).saturating_mul(count) * RECORD_SIZE;
    if bytes > RECORDS_MAX {
        let (mib, most) = (bytes >> 20, RECORDS_MAX >> 20);
        return usage(format!(
            "--messages {count}: the records of each vehicle would take {mib} MiB, where {most} are the most; take fewer, or a \
             shorter --duration"
        ));
    }
    Ok(settings)
}

/// As it was asked for, or as the mode is meant.
fn wake(arguments: &VehiclesArguments) -> Wake {
    arguments.wake.unwrap_or(match (arguments.mode, arguments.engine) {
        (Mode::Async, Medium::Shared) => Wake::Futex,
        (Mode::Async, _) => Wake::Signal,
        _ => Wake::EventFd,
    })
}

/// Options that do not go together.
fn combination(arguments: &VehiclesArguments) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    let (mode, medium, wake) = (arguments.mode, arguments.engine, wake(arguments));
    let period = arguments.period;
    for (name, given) in [
        ("--count", arguments.common.count.is_some()),
        ("--gap", arguments.common.gap.is_some()),
        ("--load", arguments.common.load.is_some()),
    ] {
        if given {
            return usage(format!("{name}: vehicles publish by --period, --messages or --duration"));
        }
    }
    if !mode.is_mutual() && (arguments.components > 1 || arguments.roadside.unwrap_or(0) > 0) {
        let name = mode.name();
        return usage(format!("--mode {name}: it has no components and no roadside; leave them out"));
    }
    if !wake.can_wait_for(medium == Medium::Shared) {
        let name = medium.name();
        let others = if medium == Medium::Shared { "futex, eventfd" } else { "epoll, signal" };
        return usage(format!(
            "--wake {wake}: it cannot wait for --engine {name}; take {others}, backoff or spin"
        ));
    }
    if mode == Mode::Async && medium == Medium::Packet && matches!(wake, Wake::Backoff | Wake::Adaptive) {
        return usage(format!("--wake {wake}: plain sockets are waited for by signal, epoll or spin"));
    }
    let spins = mode == Mode::Engine || matches!(wake, Wake::Spin | Wake::Backoff | Wake::Adaptive);
    match arguments.sched {
        Urgency::Deadline { .. } => {
            return usage(format!(
                "--sched {}: its threads cannot start others; take fifo:1",
                arguments.sched
            ));
        }
        urgency if urgency.is_real_time() && spins => {
            return usage(format!(
                "--sched {urgency}: processes that spin would take every processor from everybody; take other, or a --wake that \
                 sleeps"
            ));
        }
        _ => {}
    }
    if arguments.seal == Seal::On && !mode.is_mutual() {
        let name = mode.name();
        return usage(format!("--seal on: --mode {name} is about what is below the seal; leave one out"));
    }
    if period < Duration::from_micros(10) || period > Duration::from_secs(60) {
        return usage(format!("--period {period:?}: from 10us to 60s"));
    }
    if !period.as_nanos().is_multiple_of(1_000) {
        return usage(format!("--period {period:?}: whole microseconds"));
    }
    Ok(())
}

/// As many as the original, if nothing else was asked for.
fn messages(arguments: &VehiclesArguments) -> usize {
    let during = |duration: Duration| {
        usize::try_from(duration.as_nanos() / arguments.period.as_nanos().max(1)).unwrap_or(usize::MAX).max(1)
    };
    match (arguments.common.duration, arguments.mode) {
        (Some(duration), _) => during(duration),
        (None, _) if arguments.quick => during(QUICK_RUN),
        (None, Mode::Application) => during(APPLICATION_RUN),
        (None, Mode::Callback) => CALLBACK_MESSAGES.div_ceil(arguments.vehicles),
        (None, Mode::Engine | Mode::Async) => SENDER_MESSAGES,
    }
}

fn header(settings: &Settings, seed: u64) -> Header {
    Header {
        seed,
        warmup: 0,
        host: facts::host(&HostFacts::read(), &[]),
        clock: facts::clock(),
        plan: json!({
            "mode": settings.mode,
            "engine": settings.medium,
            "wake": settings.wake.name(),
            "sealed": settings.seal,
            "vehicles": settings.vehicles,
            "roadside": settings.roadside,
            "components": settings.components,
            "period_us": settings.period.as_secs_f64() * 1e6,
            "messages_per_component": settings.count,
            "runs": settings.runs,
            "trials": "run × receivers + receiver",
            "barrier": settings.barrier,
            "spread": settings.spread,
            "interfaces": settings.interfaces,
            "sched": settings.urgency.to_string(),
            "pinned": settings.pin,
            "awake_us": settings.awake.as_secs_f64() * 1e6,
        }),
        ..Header::new("vehicles")
    }
}

fn summarise(settings: &Settings, made: Made, store: &Store) -> Result<Summary, Failure> {
    let mut summary = store.summary().map_err(|error| store_failure(&error))?;
    if let Place::Loopback { reason } = &made.place {
        let what = "a road of our own (measured over loopback instead)".to_owned();
        summary.skipped.push(Skipped { what, reason: reason.clone() });
    }
    // Also in the midst of the last run.
    if interrupted() {
        summary.doubt(doubt::Cause::CutShort { trials: made.runs.len() });
    }
    let mut account = Sums::default();
    made.runs.iter().for_each(|run| account.add(&run.account));
    for result in &mut summary.results {
        // First messages have their own figures; one each would be a long list.
        result.first_ns.clear();
        let lost = result.lost;
        let is_own = result.cell.engine == OWN_ROW;
        let rows = made.runs.iter().flat_map(|run| &run.rows).filter(|row| (row.name == OWN_ROW) == is_own);
        let delivered = rows.map(|row| row.count).sum::<u64>() - result.duplicated;
        result.ledger = Some(Ledger {
            taken: result.figures.count + first_messages(store, &result.cell)?,
            delivered,
            counters: [("lost".to_owned(), lost), ("skipped".to_owned(), result.unfinished)].into(),
        });
    }
    doubt_circumstances(&mut summary, &made);
    let run = Run::open(store.path()).map_err(|error| store_failure(&error))?;
    let found = stalls::all(&run, settings.receivers()).map_err(|error| store_failure(&error))?;
    let (stall_count, stalls) = found;
    let period = settings.period.as_secs_f64();
    let all = Overall {
        stall_count,
        stalls,
        place: made.place.describe(),
        mode: settings.mode,
        medium: settings.medium,
        wake: settings.wake.to_string(),
        seal: settings.seal,
        urgency: format!("{}{}", settings.urgency, if settings.pin { ", pinned" } else { "" }),
        awake_us: settings.awake.as_secs_f64() * 1e6,
        barrier: settings.barrier,
        vehicles: settings.vehicles,
        roadside: settings.roadside,
        components: settings.components,
        period_us: settings.period.as_micros() as u64,
        messages: settings.count,
        frames_per_second: (settings.vehicles * settings.components) as f64 / period,
        standings: standings(&made.runs),
        account,
        runs: made.runs,
    };
    let all = serde_json::to_value(all).expect("every key is a string");
    summary.more.insert("vehicles".to_owned(), all);
    Ok(summary)
}

fn doubt_circumstances(summary: &mut Summary, made: &Made) {
    let sum = |of: fn(&Facts) -> u64| made.runs.iter().map(|run| of(&run.facts)).sum::<u64>();
    let (throttled, faults) = (sum(|facts| facts.throttled), sum(|facts| facts.faults));
    let messages: u64 = made.runs.iter().flat_map(|run| &run.rows).map(|row| row.count).sum();
    if throttled > 0 {
        summary.doubt(doubt::Cause::Throttled { subject: "vehicles".to_owned(), times: throttled });
    }
    if let Some(cause) = doubt::page_faults("vehicles", faults, messages) {
        summary.doubt(cause);
    }
}

/// Those that the steady state leaves out.
fn first_messages(store: &Store, cell: &crate::sample::CellId) -> Result<u64, Failure> {
    let run = Run::open(store.path()).map_err(|error| store_failure(&error))?;
    let trials = run.load(cell).map_err(|error| store_failure(&error))?;
    Ok(trials.iter().flat_map(|trial| &trial.index).filter(|&&index| index == 0).count() as u64)
}

fn conclude(path: &Path, summary: &Summary, common: &Common) -> Result<(), Failure> {
    show(path, summary, common)?;
    promises(summary)
}

fn promises(summary: &Summary) -> Result<(), Failure> {
    let broken = |text: String| Err(Failure::Promise(text));
    let Some(all) = crate::vehicles::overview::overall(summary) else { return Ok(()) };
    let died: Vec<&str> = all.runs.iter().flat_map(|run| &run.died).map(String::as_str).collect();
    if !died.is_empty() {
        return broken(format!("a process died, and none may: {}", died.join(", ")));
    }
    if !all.account.is_balanced() {
        return broken("a frame is in no counter or in two: report it as a bug".to_owned());
    }
    if all.runs.iter().any(|run| run.facts.mismatched > 0) {
        return broken("a value arrived that was not as it was sent; see the summary".to_owned());
    }
    if !summary.kept_promises() {
        return broken(
            "a promise did not hold: messages were lost, doubled or out of order; see the doubts".to_owned(),
        );
    }
    Ok(())
}

/// A process of the experiment: does as it is told, and ends with its input or with its parent.
///
/// # Errors
/// When nobody listens.
pub fn vehicle() -> Result<(), Failure> {
    end_with_parent();
    catch_all_interrupts()
        .and_then(|()| count_continuations())
        .map_err(|error| Failure::Machine(error.to_string()))?;
    let mut input = BufReader::new(std::io::stdin().lock());
    serve(&mut input, &mut std::io::stdout().lock()).map_err(Failure::Machine)
}
