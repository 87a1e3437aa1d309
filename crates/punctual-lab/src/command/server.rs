//! `punctual run server`: threads against tasks in classes.

use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use punctual_machine::signal::count_continuations;

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::run::{Common, LoadArgument, choose_cpus};
use crate::server::experiment::{ServerSettings, Wanted};
use crate::server::model::ServerModel;
use crate::units::duration;

/// Options of the server.
#[derive(Debug, Args)]
pub struct ServerArguments {
    #[command(flatten)]
    common: Common,
    /// Who serves [default: all, in turn]
    #[arg(long, value_enum, value_name = "MODEL", value_delimiter = ',')]
    model: Vec<ServerModel>,
    /// Connections, one trial for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,16,64,128", default_value_if("quick", ArgPredicate::IsPresent, "4,32"), value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: Vec<u16>,
    /// Sides of the matrix that a request holds
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,20", default_value_if("quick", ArgPredicate::IsPresent, "20"), value_parser = clap::value_parser!(u8).range(1..=64))]
    matrix: Vec<u8>,
    /// Classes of requests; connections belong to one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    classes: u8,
    /// Workers of the model with classes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Time between reply and next request (closed load)
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    think: Duration,
    /// Open load, in hundredths of what one processor can do
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..=500))]
    rho: u16,
    /// Open load at random instants (Poisson)
    #[arg(long)]
    poisson: bool,
    /// The work as fast as this processor does it, not as slow as the original's
    #[arg(long)]
    native: bool,
    /// How often all trials are made, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Two numbers of connections, one matrix, a second for each trial
    #[arg(long)]
    quick: bool,
    /// Record which thread each processor ran, for punctual explain (root)
    #[arg(long)]
    trace: bool,
}

/// Of one trial, if nothing else was asked for.
const DURATION: Duration = Duration::from_secs(5);
const DURATION_QUICK: Duration = Duration::from_secs(1);

/// Measures, stores, shows.
pub fn server(arguments: &ServerArguments) -> Result<(), Failure> {
    count_continuations()?;
    measure::make(&settings(arguments)?, &arguments.common, &progress(arguments.common.quiet))
}

fn settings(arguments: &ServerArguments) -> Result<ServerSettings, Failure> {
    let common = &arguments.common;
    if common.gap.is_some() || common.count.is_some() {
        let text = "--gap, --count: a trial lasts --duration, and its load is said by --think or --rho";
        return Err(Failure::Usage(text.to_owned()));
    }
    let is_open = matches!(common.load, Some(LoadArgument::Open)) || arguments.poisson;
    if arguments.poisson && matches!(common.load, Some(LoadArgument::Closed)) {
        return Err(Failure::Usage("--poisson: an open load, not --load closed".to_owned()));
    }
    let think_ns = u64::try_from(arguments.think.as_nanos()).unwrap_or(u64::MAX / 4);
    let open = Wanted::Open { percent: arguments.rho.into(), is_random: arguments.poisson };
    let models = if arguments.model.is_empty() { ServerModel::ALL.to_vec() } else { arguments.model.clone() };
    let usual = if arguments.quick { DURATION_QUICK } else { DURATION };
    Ok(ServerSettings {
        models,
        connections: arguments.connections.iter().map(|&count| count.into()).collect(),
        matrices: arguments.matrix.iter().map(|&matrix| matrix.into()).collect(),
        classes: arguments.classes.into(),
        workers: arguments.workers.into(),
        wanted: if is_open { open } else { Wanted::Closed { think_ns } },
        duration: common.duration.unwrap_or(usual),
        rounds: arguments.rounds,
        dilates: !arguments.native,
        seed: common.seed,
        cpus: choose_cpus(),
        trace: arguments.trace,
    })
}
