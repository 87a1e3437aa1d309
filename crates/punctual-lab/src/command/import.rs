//! `punctual import`: measurements of another tool, into a store or a trace of ours.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{print, write_json, write_page};
use crate::error::Failure;
use crate::experiment;
use crate::explain::perf::{self, PERF_SIZE_MAX};
use crate::explain::trace_file::{ENDING, TraceFile};
use crate::file::read;
use crate::report::text::Screen;
use crate::run::LoadArgument;
use crate::sample::{Load, sockperf as log};
use crate::store::{Header, Store};
use crate::summary::Host;
use crate::units::count;

/// Text for facts that a log does not tell.
const UNKNOWN: &str = "unknown";

/// Choice of the tool.
#[derive(Debug, Args)]
pub struct ImportArguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// A full log of sockperf (--full-log FILE): round trips, not halved
    Sockperf(SockperfArguments),
    /// A recording of perf (perf sched record -o FILE): a trace for punctual explain
    Perf(PerfArguments),
}

/// Options of the import of a trace.
#[derive(Debug, Args)]
struct PerfArguments {
    /// The recording
    file: PathBuf,
    /// The trace [default: FILE.trace.json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Options of the import.
#[derive(Debug, Args)]
struct SockperfArguments {
    /// The log
    file: PathBuf,
    /// Directory of the run, new or empty [default: runs/TIME-sockperf/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Load of the log: closed for ping-pong, open for under-load
    #[arg(long, value_enum, default_value = "closed")]
    load: LoadArgument,
    /// Write the summary as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Largest log that is read, bytes: some four million packets.
const LOG_SIZE_MAX: u64 = 256 << 20;

/// Reads it, stores it, shows it.
pub fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    match &arguments.tool {
        Tool::Sockperf(arguments) => sockperf(arguments),
        Tool::Perf(arguments) => perf_sched(arguments),
    }
}

fn perf_sched(arguments: &PerfArguments) -> Result<(), Failure> {
    let shown = arguments.file.display();
    let off = |reason: String| Failure::Usage(format!("{shown}: {reason}"));
    let bytes = read(&arguments.file, PERF_SIZE_MAX).map_err(|error| off(error.to_string()))?;
    let trace = perf::read(&bytes).map_err(off)?;
    let known = trace.known();
    let span = known.first().zip(known.last()).map_or((0, 0), |(first, last)| (first.0, last.1));
    let events: usize = trace.cpus.iter().map(|cpu| cpu.events.len()).sum();
    let (lost, tasks) = (trace.lost(), trace.tasks.len());
    let path = arguments.out.clone().unwrap_or_else(|| {
        let mut path = arguments.file.clone().into_os_string();
        path.push(format!(".{ENDING}"));
        path.into()
    });
    let name = arguments.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    TraceFile { program: name, log: None, span, trace }.write(&path)?;
    print(&format!(
        "{:.3} s, {} threads, {} events, {} lost\nexplain  punctual explain {}\n",
        (span.1 - span.0) as f64 / 1e9,
        count(tasks as u64),
        count(events as u64),
        count(lost),
        path.display(),
    ))
}

fn sockperf(arguments: &SockperfArguments) -> Result<(), Failure> {
    let file = arguments.file.display();
    let bytes =
        read(&arguments.file, LOG_SIZE_MAX).map_err(|error| Failure::Usage(format!("{file}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let samples = log::read_log(&text).map_err(|error| Failure::Usage(format!("{file}: {error}")))?;
    let cell = log::imported_cell(&text, Load::from(arguments.load));
    let header = Header {
        // The log says nothing of where it was taken, nor by which clock.
        host: Host { cpu: UNKNOWN.to_owned(), kernel: UNKNOWN.to_owned(), ..Host::default() },
        plan: json!({ "imported": file.to_string(), "by": "sockperf" }),
        ..Header::new("sockperf")
    };
    let mut store = Store::import(arguments.out.as_deref(), &header)?;
    store.append(&cell, 0, &samples)?;
    let mut summary = store.summary()?;
    summary.more.insert("imported".to_owned(), json!({ "tool": "sockperf", "file": file.to_string() }));
    let run = store.finish_run(&summary)?;
    let page = run.path.join("report.html");
    write_page(&page, &experiment::page(&run)?)?;
    if write_json(arguments.json.as_deref(), &summary.to_json())? {
        return Ok(());
    }
    let text = experiment::text(&summary, Screen::stdout());
    print(&format!("{text}page     {}\n", page.display()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Goal: a log of any name is imported.
    #[test]
    fn a_log_of_any_bytes_is_imported() {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join(OsStr::from_bytes(b"log-\xff"));
        let log = "packet, txTime(sec), rxTime(sec), latency(usec)\n0, 2.412097376, 2.412215576, 59.100\n";
        std::fs::write(&file, log).expect("room");
        let [out, json] = ["run", "summary.json"].map(|name| Some(folder.path().join(name)));
        sockperf(&SockperfArguments { file, out, load: LoadArgument::Closed, json: json.clone() })
            .expect("a log");
        let written = std::fs::read_to_string(json.expect("a name")).expect("it is there");
        assert!(written.contains("log-\u{fffd}"), "{written}");
    }
}
