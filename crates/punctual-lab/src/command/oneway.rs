//! `punctual run oneway`, and `punctual node`, which is its other end.

use std::time::Duration;

use clap::Args;
use punctual::Wake;
use punctual_machine::signal::{catch_interrupts, interrupted};

use super::progress::progress_of_whole;
use super::{measure, print};
use crate::endpoint::{self, BusPlan};
use crate::error::Failure;
use crate::oneway::{NodeOrder, OnewaySettings, RESPONDER, Responder};
use crate::run::{Common, Worker, hidden};
use crate::units::plural;

/// Requests, if nothing else is asked for, and the idle time before each.
const COUNT: u64 = 5_000;
const GAP: Duration = Duration::from_millis(1);
/// Longest that a run takes.
const DURATION: Duration = Duration::from_secs(60);
const DURATION_QUICK: Duration = Duration::from_secs(3);

/// Options of the one-way latency.
#[derive(Debug, Args)]
#[command(mut_args(hidden(&["load"])))]
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
    /// Way in which both ends wait
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
    /// Way of waiting
    #[arg(long, value_name = "WAKE", default_value_t = Wake::Epoll)]
    wake: Wake,
}

/// Keeps time and answers until Ctrl-C.
pub fn node(arguments: &NodeArguments) -> Result<(), Failure> {
    catch_interrupts()?;
    let mut responder = Responder::open(&arguments.bus, &arguments.name, arguments.wake)?;
    print(&format!("{} keeps time and answers on {}; Ctrl-C ends it\n", arguments.name, arguments.bus))?;
    let answered = responder.serve(&interrupted);
    print(&format!("{} answered\n", plural(answered, "request")))
}

/// Measures, stores, shows.
pub fn oneway(arguments: &OnewayArguments) -> Result<(), Failure> {
    let common = &arguments.common;
    if common.load.is_some_and(|load| crate::sample::Load::from(load) == crate::sample::Load::Open) {
        return Err(Failure::Usage("--load open: one trip at a time is measured, a closed load".to_owned()));
    }
    let (bus, _worker) = ends(arguments)?;
    let settings = OnewaySettings {
        bus,
        is_alone: arguments.bus.is_none(),
        to: arguments.to.clone(),
        gap: common.gap.unwrap_or(GAP),
        count: usize::try_from(common.count.unwrap_or(COUNT)).unwrap_or(usize::MAX),
        duration: common.duration.unwrap_or(if arguments.quick { DURATION_QUICK } else { DURATION }),
        wake: arguments.wake,
    };
    measure::make(&settings, common, &progress_of_whole(common.quiet))
}

/// The bus, and the far end where that is this run's own.
fn ends(arguments: &OnewayArguments) -> Result<(BusPlan, Option<Worker>), Failure> {
    if let Some(bus) = &arguments.bus {
        return Ok((bus.clone(), None));
    }
    let ends = endpoint::loopback(2)?;
    let mut worker = Worker::start("node")?;
    let (name, wake) = (arguments.to.clone(), arguments.wake.to_string());
    worker.ask::<()>(&NodeOrder { bus: ends[1].clone(), name, wake })?;
    Ok((ends[0].clone(), Some(worker)))
}
