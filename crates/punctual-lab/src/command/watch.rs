//! `punctual watch`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use punctual_machine::signal::{catch_interrupts, interrupted};

use super::{make_out, print};
use crate::error::Failure;
use crate::explain::watcher::Watcher;
use crate::units::{count, duration};

/// Options of the watch.
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// Folder for the traces; a folder beside each log if not given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// End after so long; else at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
}

/// Interval between its looks. The rings hold seconds: the spans of a burst must not be overwritten.
const LOOKS_EVERY: Duration = Duration::from_millis(2);

/// Holds the kernel's trace for the programs of this host that keep a log of late messages, until Ctrl-C.
pub fn watch(arguments: &WatchArguments) -> Result<(), Failure> {
    catch_interrupts()?;
    if let Some(out) = &arguments.out {
        make_out(out)?;
    }
    let mut watcher = Watcher::start(arguments.out.as_deref()).map_err(Failure::Machine)?;
    let begin = Instant::now();
    let is_over = || interrupted() || arguments.duration.is_some_and(|duration| begin.elapsed() >= duration);
    print("recording; programs with a log of late messages are found as they start\n")?;
    while !is_over() {
        say(&watcher.turn())?;
        std::thread::sleep(LOOKS_EVERY);
    }
    say(&watcher.finish())?;
    let account = watcher.account();
    print(&format!(
        "{} late messages of {} logs are in {} traces; {} are there only in part, {} came too fast, {} could not be kept\n",
        count(account.covered),
        count(account.logs),
        count(account.traces),
        count(account.partly),
        count(account.missed),
        count(account.failed),
    ))
}

fn say(lines: &[String]) -> Result<(), Failure> {
    lines.iter().try_for_each(|line| print(&format!("{line}\n")))
}
