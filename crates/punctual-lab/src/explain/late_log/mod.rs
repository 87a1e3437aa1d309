//! A log of late messages that a program left (`docs/explain.md`): read and checked here, explained as messages of runs are.

mod explained;
pub mod text;

use punctual::late::FILE_SIZE_MAX;
use std::fmt;

use punctual_machine::window::Evidence;
use serde::Deserialize;

pub use explained::explain;

/// Bytes of a log that are read: twice what the library writes.
pub const LOG_SIZE_MAX: u64 = 2 * FILE_SIZE_MAX;

const SCHEMA: &str = "punctual.late.v1";

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LogHead {
    /// The version of the format.
    pub schema: String,
    /// Name of the program.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// When the log was made, nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// Duration of a page fault there.
    pub fault_ns: u64,
    /// True if ends of stops were noticed.
    pub counts_continuations: bool,
    /// True if the kernel counts how long its control group was frozen; logs of before do not say.
    #[serde(default)]
    pub counts_frozen: Option<bool>,
}

/// A late message.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LateRecord {
    /// Its place in the log, from 0.
    pub number: u64,
    /// The receiver.
    pub receiver: String,
    /// The sender.
    pub source: String,
    /// Its number among those of its sender.
    pub sequence: u32,
    /// Its latency.
    pub total_ns: u64,
    /// It took as long at least: it was due too long before it was sent for stamps to tell.
    #[serde(default)]
    pub at_least: bool,
    /// Usual latency of messages in time.
    pub usual_ns: u64,
    /// The kernel said when it had it.
    pub kernel_stamp: bool,
    /// In the order of time.
    pub stages: Vec<LateStageRecord>,
    /// The receiver's thread; 0 where it was not known.
    pub thread: u32,
    /// Urgency of that thread.
    pub urgency: String,
    /// The tracer of that thread when it looked, if there was one.
    #[serde(default)]
    pub tracer: Option<String>,
    /// False if the program had taken SIGCONT by then: nobody noticed ends of stops.
    #[serde(default = "was_counted")]
    pub counts_continuations: bool,
    /// That thread's windows, in the order of time.
    pub windows: Vec<LateWindow>,
    /// Late messages that were left out until then.
    pub skipped: u64,
    /// Those that the disk did not take.
    pub unwritten: u64,
    /// Messages until then whose time nobody knows; logs of before do not say.
    #[serde(default)]
    pub untimed: u64,
}

/// The line that says that there were messages whose time nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct UntimedLine {
    untimed: Untimed,
}

/// Ends of one of those.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Untimed {
    /// The receiver.
    pub receiver: String,
    /// The sender.
    pub source: String,
}

/// A record says only where nobody counted.
fn was_counted() -> bool {
    true
}

/// A stage of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LateStageRecord {
    /// Its name.
    pub stage: String,
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Its usual time.
    pub usual_ns: u64,
}

/// A window of the thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LateWindow {
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// The evidence in it.
    #[serde(flatten)]
    pub evidence: Evidence,
}

/// A line that is none.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Which, from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// A log, as far as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The head, about the process.
    pub head: LogHead,
    /// In the order in which they were written.
    pub records: Vec<LateRecord>,
    /// One of the messages whose time nobody knows, if there were any.
    pub untimed: Option<Untimed>,
    /// Its last line has no end: the process was killed, or the disk was full, while it was written.
    pub is_cut: bool,
    /// The library writes no more into it.
    pub is_full: bool,
}

/// Reads a log; an empty file is that of a program in which nothing was late.
///
/// # Errors
/// The first whole line that is not as the format says.
pub fn parse(bytes: &[u8]) -> Result<Option<Log>, BadLine> {
    let bad = |line: usize, reason: String| BadLine { line, reason };
    let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else {
        let reason = "no log of late messages: it has no whole line".to_owned();
        return if bytes.is_empty() { Ok(None) } else { Err(bad(1, reason)) };
    };
    let mut lines = bytes[..end].split(|&byte| byte == b'\n');
    let head: LogHead = serde_json::from_slice(lines.next().unwrap_or_default())
        .map_err(|error| bad(1, format!("no log of late messages: {error}")))?;
    if head.schema != SCHEMA {
        return Err(bad(1, format!("its schema is {:?}, and {SCHEMA} is known", head.schema)));
    }
    let is_full = bytes.len() as u64 >= FILE_SIZE_MAX;
    let (mut records, mut untimed) = (Vec::new(), None);
    for (place, text) in lines.enumerate() {
        match serde_json::from_slice::<LateRecord>(text) {
            Ok(record) => {
                record.check(records.len()).map_err(|reason| bad(place + 2, reason.to_owned()))?;
                records.push(record);
            }
            Err(error) => {
                let line: UntimedLine =
                    serde_json::from_slice(text).map_err(|_| bad(place + 2, error.to_string()))?;
                untimed.get_or_insert(line.untimed);
            }
        }
    }
    Ok(Some(Log { head, records, untimed, is_cut: end + 1 < bytes.len(), is_full }))
}

fn in_order(mut spans: impl Iterator<Item = (u64, u64)>) -> bool {
    let mut at = 0;
    spans.all(|(from, to)| std::mem::replace(&mut at, to) <= from && from <= to)
}

impl LateRecord {
    fn check(&self, place: usize) -> Result<(), &'static str> {
        if self.number != place as u64 {
            return Err("its number is not its place");
        }
        if !in_order(self.stages.iter().map(|stage| (stage.from_ns, stage.to_ns))) {
            return Err("its stages are not in the order of time");
        }
        if !in_order(self.windows.iter().map(|window| (window.from_ns, window.to_ns))) {
            return Err("its windows are not in the order of time");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
