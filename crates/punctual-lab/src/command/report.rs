//! `punctual report`.

use std::path::PathBuf;

use clap::Args;

use super::{print, write_page};
use crate::error::Failure;
use crate::experiment;
use crate::report::text::Screen;
use crate::store::Run;
use crate::terminal::say;

/// Options of the report.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The run
    pub run: PathBuf,
    /// Where to write the page [default: report.html in the run]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Instead: print what the run printed
    #[arg(long, conflicts_with = "out")]
    pub text: bool,
}

/// Writes a run's page again, from its store.
pub fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let run = Run::open(&arguments.run)?;
    if arguments.text {
        let summary = run.summarise()?;
        return print(&experiment::text(&summary, Screen::stdout()));
    }
    let page = arguments.out.clone().unwrap_or_else(|| arguments.run.join("report.html"));
    write_page(&page, &experiment::page(&run)?).map_err(|failure| match (failure, &arguments.out) {
        // A user who does not own the run may have the page elsewhere.
        (Failure::Machine(text), None) => Failure::Machine(format!("{text} (--out FILE)")),
        (failure, _) => failure,
    })?;
    for doubt in &run.doubts {
        say(format_args!("punctual: {}", doubt.what));
    }
    print(&format!("{}\n", page.display()))
}
