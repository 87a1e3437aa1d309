//! `punctual run oneway`, and `punctual node`, which is its other end.

use std::io::{BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use punctual::Wake;
use punctual_machine::counter::Flag;
use punctual_machine::host::HostFacts;
use punctual_machine::signal::{catch_interrupts, end_with_parent, interrupted};
use serde_json::json;

use super::options::Common;
use super::progress::progress_of_whole;
use super::{print, show, store_failure};
use crate::error::Failure;
use crate::oneway::{self, BusPlan, Outcome, RESPONDER, Responder, Settings};
use crate::store::{Header, Store};
use crate::summary::Summary;
use crate::worker::{Worker, send};
use crate::{doubt, facts};

/// Requests, if nothing else is asked for, and the idle time before each.
const COUNT: u64 = 5_000;
const GAP: Duration = Duration::from_millis(1);
/// Longest that a run takes.
const DURATION: Duration = Duration::from_secs(60);
const DURATION_QUICK: Duration = Duration::from_secs(3);
/// Trips that count as warm-up: clocks and caches settle.
const WARMUP: u64 = 20;

/// Options of the one-way latency.
#[derive(Debug, Args)]
pub struct OnewayArguments {
    #[command(flatten)]
    common: Common,
    /// The bus: udp:OWN:PORT,PEER:PORT, multicast:GROUP:PORT@INTERFACE-ADDRESS, ethernet:INTERFACE [default: loopback,
    /// with a responder of this run's own]
    #[arg(long, value_name = "BUS")]
    bus: Option<BusPlan>,
    /// The responder's name there
    #[arg(long, value_name = "NAME", default_value = RESPONDER)]
    to: String,
    /// How both ends wait
    #[arg(long, value_name = "WAKE", default_value_t = Wake::Epoll)]
    wake: Wake,
    /// In 3 s
    #[arg(long)]
    quick: bool,
}

/// Options of the far end.
#[derive(Debug, Args)]
pub struct NodeArguments {
    /// The bus: udp:OWN:PORT,PEER:PORT, multicast:GROUP:PORT@INTERFACE-ADDRESS, ethernet:INTERFACE
    #[arg(long, value_name = "BUS")]
    bus: BusPlan,
    /// Its name there
    #[arg(long, value_name = "NAME", default_value = RESPONDER)]
    name: String,
    /// How it waits
    #[arg(long, value_name = "WAKE", default_value_t = Wake::Epoll)]
    wake: Wake,
    /// End with standard input; started by the command itself
    #[arg(long, hide = true)]
    attached: bool,
}

/// Keeps time and answers until Ctrl-C.
///
/// # Errors
/// See [`Failure`].
pub fn node(arguments: &NodeArguments) -> Result<(), Failure> {
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let mut responder =
        Responder::open(&arguments.bus, &arguments.name, arguments.wake).map_err(Failure::Machine)?;
    if arguments.attached {
        end_with_parent();
        send(&mut std::io::stdout().lock(), &true).map_err(|error| Failure::Machine(error.to_string()))?;
        let over = end_of_input();
        responder.serve(&|| over.is_raised());
        return Ok(());
    }
    print(&format!("{} keeps time and answers on {}; Ctrl-C ends it\n", arguments.name, arguments.bus))?;
    let answered = responder.serve(&interrupted);
    print(&format!("{answered} requests answered\n"))
}

/// Raised when standard input has ended.
fn end_of_input() -> Arc<Flag> {
    let over = Arc::new(Flag::default());
    let raised = Arc::clone(&over);
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        // However it ends, there is nobody left to answer to.
        let _ended = BufReader::new(std::io::stdin()).take(1 << 16).read_to_end(&mut rest);
        raised.raise();
    });
    over
}

/// Measures, stores, shows.
///
/// # Errors
/// See [`Failure`].
pub fn oneway(arguments: &OnewayArguments) -> Result<(), Failure> {
    let common = &arguments.common;
    if common.load.is_some_and(|load| crate::sample::Load::from(load) == crate::sample::Load::Open) {
        return Err(Failure::Usage("--load open: one trip at a time is measured, a closed load".to_owned()));
    }
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let (bus, _role) = ends(arguments)?;
    let settings = Settings {
        bus,
        to: arguments.to.clone(),
        gap: common.gap.unwrap_or(GAP),
        count: usize::try_from(common.count.unwrap_or(COUNT)).unwrap_or(usize::MAX),
        duration: common.duration.unwrap_or(if arguments.quick { DURATION_QUICK } else { DURATION }),
        wake: arguments.wake,
    };
    let header = header(&settings, common.seed);
    let mut store = Store::create(common.out.as_deref(), &header).map_err(|error| store_failure(&error))?;
    let bar = progress_of_whole(common.quiet);
    let outcome = oneway::run(&settings, &mut store, &bar);
    bar.finish_and_clear();
    if outcome.is_err() {
        store.discard_if_empty();
    }
    let outcome = outcome.map_err(Failure::Machine)?;
    let outcome = outcome.map_err(|error| store_failure(&error))?;
    let summary = summarise(&settings, &outcome, &store)?;
    let path = store.finish(&summary).map_err(|error| store_failure(&error))?;
    show(&path, &summary, common)?;
    if outcome.held < outcome.checked {
        let out = outcome.checked - outcome.held;
        return Err(Failure::Promise(format!(
            "the truth lies outside of the bound {out} times: report it as a bug"
        )));
    }
    if !summary.kept_promises() {
        return Err(Failure::Promise("requests or answers were lost; see the doubts".to_owned()));
    }
    Ok(())
}

/// The bus, and the far end where that is this run's own.
fn ends(arguments: &OnewayArguments) -> Result<(BusPlan, Option<Worker>), Failure> {
    if let Some(bus) = &arguments.bus {
        return Ok((bus.clone(), None));
    }
    let [here, there] = oneway::loopback().map_err(Failure::Machine)?;
    let (there, wake) = (there.to_string(), arguments.wake.to_string());
    let options = ["node", "--attached", "--bus", &there, "--name", &arguments.to, "--wake", &wake];
    let mut worker = Worker::start(&options).map_err(Failure::Machine)?;
    worker.recv::<bool>().map_err(Failure::Machine)?;
    Ok((here, Some(worker)))
}

fn header(settings: &Settings, seed: u64) -> Header {
    Header {
        seed,
        warmup: WARMUP,
        host: facts::host(&HostFacts::read(), &[]),
        clock: facts::clock(),
        plan: json!({
            "bus": settings.bus.to_string(),
            "to": settings.to,
            "count": settings.count,
            "wake": settings.wake.name(),
        }),
        ..Header::new("oneway")
    }
}

fn summarise(settings: &Settings, outcome: &Outcome, store: &Store) -> Result<Summary, Failure> {
    let mut summary = store.summary().map_err(|error| store_failure(&error))?;
    if interrupted() {
        summary.doubt(doubt::Cause::CutShort { trials: 1 });
    }
    let oneway = json!({
        "bus": settings.bus.to_string(),
        "to": settings.to,
        "reference": outcome.reference,
        "unknown": outcome.unknown,
        "below_zero": outcome.below_zero,
        "checked": outcome.checked,
        "held": outcome.held,
    });
    summary.more.insert("oneway".to_owned(), oneway);
    Ok(summary)
}
