//! `punctual import`: what another tool measured, into a store of ours.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{print, write_file, write_json};
use crate::error::Failure;
use crate::experiment;
use crate::file::read;
use crate::report::text::Screen;
use crate::response::sockperf;
use crate::run::LoadArgument;
use crate::sample::Load;
use crate::store::{Header, Run, Store};
use crate::summary::Host;

/// What a log does not say.
const UNKNOWN: &str = "unknown";

/// Which tool.
#[derive(Debug, Args)]
pub struct ImportArguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// A full log of sockperf (--full-log FILE): round trips, not halved
    Sockperf(SockperfArguments),
}

/// Options of the import.
#[derive(Debug, Args)]
struct SockperfArguments {
    /// The log
    file: PathBuf,
    /// Directory of the run, new or empty [default: runs/TIME-sockperf/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Which load it was: closed for ping-pong, open for under-load
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
    let Tool::Sockperf(arguments) = &arguments.tool;
    let file = arguments.file.display();
    let bytes =
        read(&arguments.file, LOG_SIZE_MAX).map_err(|error| Failure::Usage(format!("{file}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let samples = sockperf::read_log(&text).map_err(|error| Failure::Usage(format!("{file}: {error}")))?;
    let cell = sockperf::imported_cell(&text, Load::from(arguments.load));
    let header = Header {
        // The log says nothing of where it was taken, nor by which clock.
        host: Host { cpu: UNKNOWN.to_owned(), kernel: UNKNOWN.to_owned(), ..Host::default() },
        plan: json!({ "imported": arguments.file, "by": "sockperf" }),
        ..Header::new("sockperf")
    };
    let mut store = Store::import(arguments.out.as_deref(), &header)?;
    store.append(&cell, 0, &samples)?;
    let mut summary = store.summary()?;
    summary.more.insert("imported".to_owned(), json!({ "tool": "sockperf", "file": arguments.file }));
    let path = store.finish(&summary)?;
    let run = Run::open(&path)?;
    let page = path.join("report.html");
    write_file(&page, &experiment::page(&run)?)?;
    if write_json(arguments.json.as_deref(), &summary.to_json())? {
        return Ok(());
    }
    let text = experiment::text(&summary, Screen::stdout());
    print(&format!("{text}page     {}\n", page.display()))
}
