//! `punctual report`.

use super::{print, store_failure, write_file};
use crate::cli::{Failure, ReportArguments};
use crate::experiment;
use crate::report::text::Screen;
use crate::store::Run;

/// Writes a run's page again, from its store.
///
/// # Errors
/// See [`Failure`].
pub fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let run = Run::open(&arguments.run).map_err(|error| store_failure(&error))?;
    if arguments.text {
        let summary = run.summarise().map_err(|error| store_failure(&error))?;
        return print(&experiment::text(&summary, Screen::stdout()));
    }
    let page = arguments.out.clone().unwrap_or_else(|| arguments.run.join("report.html"));
    write_file(&page, &experiment::page(&run).map_err(|error| store_failure(&error))?)?;
    print(&format!("{}\n", page.display()))
}
