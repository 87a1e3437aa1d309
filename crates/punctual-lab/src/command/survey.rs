//! `punctual survey`, and the responder that it starts.

use std::io::BufReader;
use std::path::Path;

use clap::Args;
use punctual_machine::host::HostFacts;
use punctual_machine::signal::{catch_all_interrupts, catch_interrupts, end_with_parent};
use serde_json::json;

use super::options::Common;
use super::progress::progress;
use super::{show, store_failure, write_file};
use crate::error::Failure;
use crate::facts;
use crate::store::{Header, Store};
use crate::summary::Summary;
use crate::survey::{self, Plan, PlanOptions, SurveyError};

/// Options of the survey.
#[derive(Debug, Default, Args)]
pub struct SurveyArguments {
    /// What all that measure have in common
    #[command(flatten)]
    pub common: Common,
    /// Messages of 64 B only, in about 15 s
    #[arg(long)]
    pub quick: bool,
    /// Only routes whose name contains this, such as shared/ or /spin
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

/// Measures, stores, recommends, reports.
///
/// # Errors
/// See [`Failure`].
pub fn survey(arguments: &SurveyArguments) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    let common = &arguments.common;
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    if let Some(file) = common.json.as_deref().filter(|file| *file != Path::new("-")) {
        // Found out now, not after a minute of measuring.
        write_file(file, "")?;
    }
    let host = HostFacts::read();
    let header = header(&host, &plan, common.seed);
    let mut store = Store::create(common.out.as_deref(), &header).map_err(|error| store_failure(&error))?;
    let bar = progress(common.quiet);
    let outcome = survey::run(&plan, &host, &mut store, &bar);
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| match error {
        SurveyError::Store(error) => store_failure(&error),
        SurveyError::Machine(text) => Failure::Machine(text),
    })?;
    let summary = survey::summarise(&store, outcome).map_err(|error| store_failure(&error))?;
    let path = store.finish(&summary).map_err(|error| store_failure(&error))?;
    conclude(&path, &summary, arguments)
}

fn plan(arguments: &SurveyArguments) -> Result<Plan, Failure> {
    let common = &arguments.common;
    let wishes = PlanOptions {
        quick: arguments.quick,
        duration: common.duration,
        count: common.count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
        gap_us: common.gap.map(|gap| u64::try_from(gap.as_micros()).unwrap_or(u64::MAX)),
        load: common.load.map(Into::into),
        only: arguments.only.clone(),
    };
    let plan = Plan::survey(&wishes);
    if plan.cells.is_empty() {
        let text = "nothing is left to measure: gaps are 0, 100us and 1ms, loads closed and open, routes as in the table";
        return Err(Failure::Usage(format!("{text} (--gap, --load, --only)")));
    }
    Ok(plan)
}

fn header(host: &HostFacts, plan: &Plan, seed: u64) -> Header {
    let pinned: Vec<usize> = survey::choose_cpus().into_iter().flatten().collect();
    Header {
        seed,
        warmup: survey::WARMUP,
        host: facts::host(host, &pinned),
        clock: facts::clock(),
        plan: json!({
            "cells": plan.cells.len(),
            "trials": plan.trials,
            "duration_s": plan.duration.as_secs_f64(),
            "messages_per_trial_max": plan.count_max,
            "order": "in turns",
            "client_cpu": pinned.first(),
            "responder_cpu": pinned.last(),
        }),
        ..Header::new("survey")
    }
}

/// Shows what came out, and where it is.
fn conclude(path: &Path, summary: &Summary, arguments: &SurveyArguments) -> Result<(), Failure> {
    show(path, summary, &arguments.common)?;
    if summary.results.is_empty() {
        // What was printed above may have been nothing (--quiet): the line stands for itself.
        let mut reasons: Vec<&str> = summary.skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
        reasons.dedup();
        return Err(Failure::Machine(format!("nothing could be measured here: {}", reasons.join("; "))));
    }
    if !summary.kept_promises() {
        let text =
            "a promise did not hold: messages were lost, doubled, out of order or wrong; see the doubts";
        return Err(Failure::Promise(text.to_owned()));
    }
    Ok(())
}

/// The other end of a measurement: reads trials from standard input, and ends with it or with its parent.
///
/// # Errors
/// When nobody listens.
pub fn respond() -> Result<(), Failure> {
    end_with_parent();
    catch_all_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    survey::serve(&mut input, &mut output).map_err(Failure::Machine)
}
