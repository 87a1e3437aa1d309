//! What each verb does.

mod compare;
mod echo;
mod groups;
mod host;
mod import;
mod interleave;
mod manual;
mod oneway;
mod options;
mod peel;
mod progress;
mod report;
mod response;
mod run;
mod sim;
mod stat;
mod survey;
mod tasks;
mod vehicles;
mod wakeup;

pub use compare::{CompareArguments, calibrate, compare};
pub use echo::{EchoArguments, echo};
pub use groups::{GroupsArguments, groups};
pub use host::{HostArguments, host};
pub use import::{ImportArguments, import};
pub use manual::{CompletionsArguments, ManArguments, completions, man};
pub use oneway::{NodeArguments, OnewayArguments, node, oneway};
pub use peel::{PeelArguments, peel, peel_respond, peel_start};
pub use report::{ReportArguments, report};
pub use response::{ResponseArguments, response};
pub use run::{Experiment, RunArguments, run};
pub use sim::{SimArguments, sim};
pub use stat::{StatArguments, stat};
pub use survey::{SurveyArguments, respond, survey};
pub use tasks::tasks;
pub use vehicles::{VehiclesArguments, vehicle, vehicles};
pub use wakeup::{WakeupArguments, soak_end, wakeup, wakeup_reader};

use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::error::Failure;
use crate::report::parts;
use crate::report::text::{self, Screen};
use crate::store::{Run, StoreError};
use crate::summary::Summary;
use options::Common;

/// A store that cannot be read is a wrong argument; one that cannot be written is the machine's.
fn store_failure(error: &StoreError) -> Failure {
    match error {
        StoreError::Occupied { .. } | StoreError::NotARun { .. } | StoreError::UnknownVersion { .. } => {
            Failure::Usage(error.to_string())
        }
        _ => Failure::Machine(error.to_string()),
    }
}

/// Prints to standard output; a reader that went away ends the command quietly, as it does for others.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Machine(format!("standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Writes the page of a finished run, and its summary where that is asked for; prints what came out, and where it is.
fn show(path: &Path, summary: &Summary, common: &Common) -> Result<(), Failure> {
    let run = Run::open(path).map_err(|error| store_failure(&error))?;
    let page = path.join("report.html");
    write_file(&page, &crate::experiment::page(&run).map_err(|error| store_failure(&error))?)?;
    let to_stdout = common.json.as_deref() == Some(Path::new("-"));
    match &common.json {
        Some(_) if to_stdout => print(&summary.to_json())?,
        Some(file) => write_file(file, &summary.to_json())?,
        None => {}
    }
    if common.quiet || to_stdout {
        return Ok(());
    }
    let mut sections = crate::experiment::sections(summary);
    if common.all {
        sections.extend(parts::results(&summary.results));
    }
    print(&text::page(&sections, Screen::stdout()))?;
    print(&format!("page     {}\nsamples  {}\n", page.display(), path.join("samples").display()))
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        let advice =
            if error.kind() == ErrorKind::FileTooLarge { "; raise the limit (ulimit -f)" } else { "" };
        Failure::Machine(format!("cannot write {}: {error}{advice}", path.display()))
    })
}
