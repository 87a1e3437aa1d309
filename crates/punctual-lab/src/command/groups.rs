//! `punctual run groups`: vehicles drive from cell to cell, in the group of the cell that each is in.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use punctual_machine::signal::catch_interrupts;

use super::progress::progress_of_whole;
use super::{print, write_file};
use crate::error::Failure;
use crate::file::read_text;
use crate::groups::{Medium, Scenario, run};
use crate::report::text::{self, Screen};

/// Largest scenario that is read, bytes.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// What is run if nothing else was asked for.
const EXAMPLE: &str = include_str!("../../../../docs/groups-scenario.txt");

/// Options of the experiment.
#[derive(Debug, Args)]
pub struct GroupsArguments {
    /// Where vehicles drive: lines `cell METRES`, `period TIME`, `at TIME VEHICLE X Y`, `end TIME` [default: docs/groups-scenario.txt]
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// What carries the messages
    #[arg(long, value_enum, default_value_t = EngineArgument::Shared)]
    pub engine: EngineArgument,
    /// Write what came of it as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No table
    #[arg(long)]
    pub quiet: bool,
}

/// [`Medium`] as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineArgument {
    /// Shared memory
    Shared,
    /// UDP over the loopback interface
    Datagram,
}

fn scenario(file: Option<&Path>) -> Result<Scenario, Failure> {
    let Some(file) = file else { return Ok(Scenario::parse(EXAMPLE).expect("a test runs it")) };
    let usage =
        |what: &dyn std::fmt::Display| Failure::Usage(format!("--scenario {}: {what}", file.display()));
    let text = read_text(file, FILE_SIZE_MAX).map_err(|error| usage(&error))?;
    Scenario::parse(&text).map_err(|error| usage(&error))
}

/// Runs a scenario.
///
/// # Errors
/// See [`Failure`].
pub fn groups(arguments: &GroupsArguments) -> Result<(), Failure> {
    let scenario = scenario(arguments.scenario.as_deref())?;
    let medium = match arguments.engine {
        EngineArgument::Shared => Medium::Shared,
        EngineArgument::Datagram => Medium::Datagram,
    };
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    let bar = progress_of_whole(arguments.quiet);
    let outcome = run(&scenario, medium, &bar);
    bar.finish_and_clear();
    let outcome = outcome.map_err(Failure::Machine)?;
    let to_output = arguments.json.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if !arguments.quiet && !to_output {
        print(&text::page(&outcome.sections(scenario.period), Screen::stdout()))?;
    }
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&outcome.json()).expect("every key is a string") + "\n";
        if to_output { print(&text)? } else { write_file(file, &text)? }
    }
    outcome.broken().map_or(Ok(()), |promise| Err(Failure::Promise(promise)))
}
