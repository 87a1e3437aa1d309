//! `punctual run groups`: vehicles drive from cell to cell, in the group of the cell that each is in.

use std::path::{Path, PathBuf};

use clap::Args;
use punctual_machine::signal::catch_interrupts;

use super::progress::progress_of_whole;
use super::{print, try_json, write_json};
use crate::error::Failure;
use crate::file::read_text;
use crate::groups::{GroupsMedium, Scenario, run};
use crate::report::text::{self, Screen};

/// Largest scenario that is read, bytes.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// The scenario that is run if nothing else was asked for.
const EXAMPLE: &str = include_str!("../../../../docs/groups-scenario.txt");

/// Options of the experiment.
#[derive(Debug, Args)]
pub struct GroupsArguments {
    /// Where vehicles drive: lines `cell METRES`, `period TIME`, `at TIME VEHICLE X Y`, `end TIME` [default: docs/groups-scenario.txt]
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Medium that carries the messages
    #[arg(long, value_enum, default_value_t)]
    pub engine: GroupsMedium,
    /// Write what came of it as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No table
    #[arg(long)]
    pub quiet: bool,
}

fn scenario(file: Option<&Path>) -> Result<Scenario, Failure> {
    let Some(file) = file else { return Ok(Scenario::parse(EXAMPLE).expect("a test runs it")) };
    let usage =
        |what: &dyn std::fmt::Display| Failure::Usage(format!("--scenario {}: {what}", file.display()));
    let text = read_text(file, FILE_SIZE_MAX).map_err(|error| usage(&error))?;
    Scenario::parse(&text).map_err(|error| usage(&error))
}

/// Runs a scenario.
pub fn groups(arguments: &GroupsArguments) -> Result<(), Failure> {
    let scenario = scenario(arguments.scenario.as_deref())?;
    let json = arguments.json.as_deref();
    catch_interrupts()?;
    try_json(json)?;
    let bar = progress_of_whole(arguments.quiet);
    let outcome = run(&scenario, arguments.engine, &bar);
    bar.finish_and_clear();
    let outcome = outcome?;
    // Before the file, which may fail after all: the disk may be full by now.
    if !arguments.quiet && json != Some(Path::new("-")) {
        print(&text::page(&outcome.sections(scenario.period), Screen::stdout()))?;
    }
    write_json(json, &format!("{:#}\n", outcome.json()))?;
    outcome.broken().map_or(Ok(()), |promise| Err(Failure::Promise(promise)))
}
