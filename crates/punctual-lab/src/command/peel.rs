//! `punctual run peel`, and the processes that it starts.

use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use punctual::Wake;

use super::measure;
use super::progress::progress;
use crate::endpoint::Medium;
use crate::error::Failure;
use crate::peel::experiment::{PeelSettings, WARMUP};
use crate::peel::layer::InjectedFault;
use crate::peel::start_fix::StartFix;
use crate::run::{Common, choose_cpus, hidden};

/// Options of the peel.
#[derive(Debug, Args)]
#[command(mut_args(hidden(&["gap", "load"])))]
pub struct PeelArguments {
    #[command(flatten)]
    common: Common,
    /// Medium that carries the ping
    #[arg(long, value_enum, default_value_t)]
    engine: Medium,
    /// Way in which the layer of asynchronous reception sleeps: backoff, adaptive, eventfd, epoll; over shared memory also futex, else
    /// also signal [default: futex over shared memory, else eventfd]
    #[arg(long, value_name = "WAY")]
    wake: Option<Wake>,
    /// Rounds of measuring all layers, in turn
    #[arg(long, value_name = "N", default_value_t = 24, default_value_if("quick", ArgPredicate::IsPresent, "6"), value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Starts of fresh processes, without each mistake and with it
    #[arg(long, value_name = "N", default_value_t = 10, default_value_if("quick", ArgPredicate::IsPresent, "3"), value_parser = clap::value_parser!(u32).range(2..=1000))]
    starts: u32,
    /// A quarter of the rounds, and three starts, which have no verdict
    #[arg(long)]
    quick: bool,
    /// Mistakes to make on purpose, to see them found
    #[arg(long, value_enum, value_name = "MISTAKE", value_delimiter = ',')]
    with: Vec<InjectedFault>,
    /// Fix to try against each mistake, in starts that alternate with those without it
    #[arg(long, value_enum, requires = "with")]
    fix: Option<StartFix>,
}

/// Time of all trials of the layers, if nothing else was asked for.
const DURATION: Duration = Duration::from_secs(15);
const DURATION_QUICK: Duration = Duration::from_secs(4);
/// Messages of a trial, if nothing else was asked for.
const COUNT: u64 = 5_000;
/// A trial of fewer says nothing of its median.
const COUNT_MIN: u64 = 2 * WARMUP;

/// Measures, stores, peels.
pub fn peel(arguments: &PeelArguments) -> Result<(), Failure> {
    measure::make(&settings(arguments)?, &arguments.common, &progress(arguments.common.quiet))
}

fn settings(arguments: &PeelArguments) -> Result<PeelSettings, Failure> {
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
    if !wake.can_wait_for(medium == Medium::Shared) {
        return usage(format!("--wake {wake}: it cannot wait for --engine {}; take epoll", medium.name()));
    }
    if wake == Wake::Spin {
        return usage("--wake spin: asynchronous reception sleeps; take another way".to_owned());
    }
    let mut with = arguments.with.clone();
    with.sort_unstable();
    with.dedup();
    let cpus = choose_cpus();
    if cpus[0] == cpus[1] {
        let text =
            "two processors are needed, as both ends poll, and this process may use one only: see taskset";
        return Err(Failure::Machine(text.to_owned()));
    }
    Ok(PeelSettings {
        medium,
        wake,
        rounds: arguments.rounds,
        starts: arguments.starts,
        duration: common.duration.unwrap_or(if arguments.quick { DURATION_QUICK } else { DURATION }),
        count: usize::try_from(count).unwrap_or(usize::MAX),
        with,
        fix: arguments.fix,
        seed: common.seed,
        cpus,
    })
}
