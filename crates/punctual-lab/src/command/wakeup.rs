//! `punctual run wakeup`.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use punctual::Wake;
use punctual_machine::host::HostFacts;
use punctual_machine::signal::{catch_interrupts, end_with_parent};
use serde_json::json;

use super::options::{Common, LoadArgument};
use super::progress::progress;
use super::{print, show, store_failure, write_file};
use crate::error::Failure;
use crate::facts;
use crate::store::{Header, Store};
use crate::summary::Summary;
use crate::wakeup::{self, Mutation, Plan, PlanOptions, Route, SoakOptions};

/// Options of the experiment.
#[derive(Debug, Default, Args)]
pub struct WakeupArguments {
    /// What all that measure have in common
    #[command(flatten)]
    pub common: Common,
    /// A core each and an idle machine only, in about 20 s
    #[arg(long)]
    pub quick: bool,
    /// How often everything is measured, in turn [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Only ways whose name contains this, such as futex, uring, +fifo; several between commas
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Every gap and every way under all conditions: same core, SCHED_FIFO, every core busy
    #[arg(long)]
    pub all_conditions: bool,
    /// Instead: N messages there and back between two processes, with random delays, counting wake-ups that are lost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub soak: Option<u64>,
    /// How both ends of --soak wait: futex, eventfd, epoll, backoff, adaptive
    #[arg(long, alias = "mechanism", value_name = "WAY", default_value = "futex", requires = "soak")]
    pub wake: Option<Wake>,
    /// Spoil --soak, to see that it notices: take the sleeper's look too early or leave out the sender's notify (wake-ups are
    /// lost), or halt the sender halfway (none is). Needs a build with --cfg labelled_stores
    #[arg(long, value_name = "look|notify|halt", requires = "soak")]
    pub spoil: Option<Mutation>,
}

/// Measures, stores, compares, advises; or soaks.
///
/// # Errors
/// See [`Failure`].
pub fn wakeup(arguments: &WakeupArguments) -> Result<(), Failure> {
    if let Some(LoadArgument::Open) = arguments.common.load {
        let text = "--load open: a wake-up is measured one message at a time, which is a closed load";
        return Err(Failure::Usage(text.to_owned()));
    }
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    match arguments.soak {
        Some(count) => soak(arguments, count),
        None => measure(arguments),
    }
}

fn plan(arguments: &WakeupArguments) -> Result<Plan, Failure> {
    let common = &arguments.common;
    let wishes = PlanOptions {
        quick: arguments.quick,
        rounds: arguments.rounds,
        all_conditions: arguments.all_conditions,
        duration: common.duration,
        count: common.count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
        gap_us: common.gap.map(|gap| u64::try_from(gap.as_micros()).unwrap_or(u64::MAX)),
        only: arguments.only.clone(),
    };
    let plan = Plan::wakeup(&wishes);
    if plan.cells.is_empty() {
        return Err(Failure::Usage(nothing_left(&wishes)));
    }
    Ok(plan)
}

/// Which wish leaves nothing to measure.
fn nothing_left(wishes: &PlanOptions) -> String {
    let only = wishes.only.as_deref().unwrap_or_default();
    if Plan::wakeup(&PlanOptions { gap_us: None, ..wishes.clone() }).cells.is_empty() {
        let names: Vec<&str> = Route::all().iter().map(|route| route.name()).collect();
        return format!("--only {only}: no way has that in its name; there are {}", names.join(", "));
    }
    let gap_us = wishes.gap_us.unwrap_or_default();
    let of = if only.is_empty() { String::new() } else { format!(" of {only}") };
    format!("--gap {gap_us}us: not measured{of}; gaps are 0, 10us, 100us, 1ms and 10ms")
}

fn measure(arguments: &WakeupArguments) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    let common = &arguments.common;
    if let Some(file) = common.json.as_deref().filter(|file| *file != Path::new("-")) {
        // Found out now, not after a minute of measuring.
        write_file(file, "")?;
    }
    let cpus = punctual_machine::cpu::allowed();
    let header = header(&plan, &cpus, common.seed);
    let mut store = Store::create(common.out.as_deref(), &header).map_err(|error| store_failure(&error))?;
    let bar = progress(common.quiet);
    let outcomes = wakeup::run(&plan, &cpus, &mut store, &bar);
    bar.finish_and_clear();
    let outcomes = outcomes.map_err(|error| store_failure(&error))?;
    let summary = wakeup::summarise(&store, outcomes).map_err(|error| store_failure(&error))?;
    let path = store.finish(&summary).map_err(|error| store_failure(&error))?;
    conclude(&path, &summary, arguments)
}

fn header(plan: &Plan, cpus: &[usize], seed: u64) -> Header {
    Header {
        seed,
        warmup: wakeup::WARMUP,
        host: facts::host(&HostFacts::read(), cpus),
        clock: facts::clock(),
        plan: json!({
            "cells": plan.cells.len(),
            "trials": plan.trials,
            "duration_s": plan.duration.as_secs_f64(),
            "messages_per_trial_max": plan.count_max,
            "order": "in turns",
            "writer_cpu": cpus.first(),
            "reader_cpu": cpus.last(),
        }),
        ..Header::new("wakeup")
    }
}

fn conclude(path: &Path, summary: &Summary, arguments: &WakeupArguments) -> Result<(), Failure> {
    show(path, summary, &arguments.common)?;
    if summary.results.is_empty() {
        return Err(Failure::Machine("nothing could be measured here; the reasons are above".to_owned()));
    }
    if !summary.kept_promises() {
        return Err(Failure::Promise("wake-ups were lost; see the doubts".to_owned()));
    }
    Ok(())
}

fn soak(arguments: &WakeupArguments, count: u64) -> Result<(), Failure> {
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
        return Err(Failure::Usage(format!("--spoil {spoilt}: {text}")));
    }
    let bar = progress(arguments.common.quiet);
    bar.set_length(count);
    bar.set_style(
        ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} messages {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    let options = SoakOptions { wake, count, seed: arguments.common.seed, spoilt: arguments.spoil };
    let result = wakeup::soak(options, &cpus, &bar).map_err(Failure::Machine);
    finish(&bar);
    let result = result?;
    let json = serde_json::to_string_pretty(&result).expect("every key is a string") + "\n";
    match arguments.common.json.as_deref() {
        Some(file) if file == Path::new("-") => print(&json)?,
        Some(file) => write_file(file, &json)?,
        None => print(&json)?,
    }
    if result.lost > 0 || result.noticed != result.messages {
        let (lost, messages) = (result.lost, result.messages);
        return Err(Failure::Promise(format!("{lost} wake-ups of {messages} messages were lost")));
    }
    Ok(())
}

/// The reader in a process of its own.
///
/// # Errors
/// In words for people.
pub fn wakeup_reader() -> Result<(), Failure> {
    end_with_parent();
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let mut input = BufReader::new(std::io::stdin().lock());
    wakeup::serve_reader(&mut input, &mut std::io::stdout().lock()).map_err(Failure::Machine)
}

/// An end of a soak.
///
/// # Errors
/// In words for people.
pub fn soak_end() -> Result<(), Failure> {
    end_with_parent();
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let mut input = BufReader::new(std::io::stdin().lock());
    wakeup::serve_soak(&mut input, &mut std::io::stdout().lock()).map_err(Failure::Machine)
}

fn finish(bar: &ProgressBar) {
    bar.disable_steady_tick();
    bar.finish_and_clear();
}
