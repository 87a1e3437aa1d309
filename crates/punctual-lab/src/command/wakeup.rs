//! `punctual run wakeup`.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressStyle;
use punctual::Wake;
use punctual_machine::signal::catch_interrupts;

use super::progress::progress;
use super::{measure, try_json, write_json};
use crate::error::Failure;
use crate::load::wake::Route;
use crate::run::{Common, LoadArgument, hidden};
use crate::soak::{Mutation, SoakOptions, SoakTally, soak};
use crate::units::{OptionName, plural};
use crate::wakeup::{WakeupOptions, WakeupPlan};

/// Options of the experiment.
#[derive(Debug, Default, Args)]
#[command(mut_args(hidden(&["load"])))]
pub struct WakeupArguments {
    /// Options of the measurement
    #[command(flatten)]
    pub options: WakeupOptions,
    /// Instead: N messages there and back between two processes, with random delays, counting wake-ups that are lost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000), conflicts_with_all = ["out", "duration", "count", "gap", "load", "all", "rounds", "only", "quick", "all_conditions"])]
    pub soak: Option<u64>,
    /// Way in which both ends of --soak wait: futex, eventfd, epoll, backoff, adaptive
    #[arg(long, alias = "mechanism", value_name = "WAY", default_value = "futex", requires = "soak")]
    pub wake: Option<Wake>,
    /// Spoil --soak, to see that it notices: take the sleeper's look too early or leave out the sender's notify (wake-ups are
    /// lost), or halt the sender halfway (none is). Needs a build with --cfg labelled_stores
    #[arg(long, value_name = "look|notify|halt", hide_possible_values = true, requires = "soak")]
    pub spoil: Option<Mutation>,
}

/// Measures, stores, compares, advises; or soaks.
pub fn wakeup(arguments: &WakeupArguments) -> Result<(), Failure> {
    let common = &arguments.options.common;
    if let Some(LoadArgument::Open) = common.load {
        let text = "--load open: a wake-up is measured one message at a time, which is a closed load";
        return Err(Failure::Usage(text.to_owned()));
    }
    match arguments.soak {
        Some(count) => soak_messages(arguments, count),
        None => measure::make(&plan(&arguments.options)?, common, &progress(common.quiet)),
    }
}

fn plan(wishes: &WakeupOptions) -> Result<WakeupPlan, Failure> {
    let plan = WakeupPlan::wakeup(wishes);
    if plan.cells.is_empty() { Err(Failure::Usage(nothing_left(wishes))) } else { Ok(plan) }
}

/// The wish that leaves nothing to measure.
fn nothing_left(wishes: &WakeupOptions) -> String {
    let only = wishes.only.as_deref().unwrap_or_default();
    let any_gap = Common { gap: None, ..wishes.common.clone() };
    if WakeupPlan::wakeup(&WakeupOptions { common: any_gap, ..wishes.clone() }).cells.is_empty() {
        let names: Vec<&str> = Route::all().iter().map(|route| route.name()).collect();
        return format!("--only {only}: no way has that in its name; there are {}", names.join(", "));
    }
    let gap = wishes.common.gap.unwrap_or_default();
    let of = if only.is_empty() { String::new() } else { format!(" of {only}") };
    format!("--gap {gap:?}: not measured{of}; gaps are 0, 10us, 100us, 1ms and 10ms")
}

fn soak_messages(arguments: &WakeupArguments, count: u64) -> Result<(), Failure> {
    let cpus = punctual_machine::cpu::allowed();
    if cpus.len() < 2 {
        let text = "--soak: two processors are needed, and this process may use one only";
        return Err(Failure::Machine(text.to_owned()));
    }
    let wake = arguments.wake.unwrap_or(Wake::Futex);
    if wake == Wake::Spin || !wake.can_wait_for(true) {
        let text = "take one that sleeps over shared memory: futex, eventfd, epoll, backoff, adaptive";
        return Err(Failure::Usage(format!("--wake {wake}: {text}")));
    }
    if let (Some(spoilt), false) = (arguments.spoil, punctual_machine::label::is_labelled()) {
        let text = "nothing can be planted in this build; build it with RUSTFLAGS=\"--cfg labelled_stores\"";
        return Err(Failure::Usage(format!("--spoil {}: {text}", spoilt.name())));
    }
    catch_interrupts()?;
    let common = &arguments.options.common;
    try_json(common.json.as_deref())?;
    let bar = progress(common.quiet);
    bar.set_length(count);
    bar.set_style(
        ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} messages {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    let options = SoakOptions { wake, count, seed: common.seed, spoilt: arguments.spoil };
    let result = soak(options, &cpus, &bar);
    bar.disable_steady_tick();
    bar.finish_and_clear();
    let result = result?;
    let json = serde_json::to_string_pretty(&result).expect("every key is a string") + "\n";
    write_json(Some(common.json.as_deref().unwrap_or(Path::new("-"))), &json)?;
    let SoakTally { messages, noticed, lost, .. } = result.tally;
    if lost > 0 || noticed != messages {
        return Err(Failure::Promise(format!(
            "{} lost, of {}",
            plural(lost, "wake-up"),
            plural(messages, "message")
        )));
    }
    Ok(())
}
