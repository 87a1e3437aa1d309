//! Recording of the messages of a bus into a file, and playback from there.
//!
//! The way out of a bus: `recorder` (a thread that only reads) → `queue` (bounded) → `written` (a thread that only writes) → a file.
//! The way back: `reading` (with `whole`, which puts fragments together) → `player` → a bus. The formats are `pcapng_file` and
//! `mcap_file`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use punctual::OpenError;
use punctual_proto::limits::{NODES_MAX, PAYLOAD_SIZE_MAX};
use punctual_proto::seal::SEAL_SIZE;
use punctual_proto::{Address, Stamps, Target};
use serde::Serialize;

pub mod mcap_file;
pub mod pcapng_file;
pub mod player;
pub mod queue;
pub mod reading;
pub mod recorder;
pub mod sink;
mod whole;
pub mod written;

/// Sources and nodes of one recording are as many as a bus has, and the lives of some that came and went.
pub const SOURCES_MAX: usize = 16 * NODES_MAX;

/// Largest message of a recording, bytes, with the seal that nobody has looked at.
pub const MESSAGE_SIZE_MAX: usize = PAYLOAD_SIZE_MAX + SEAL_SIZE;

/// Largest message that is put together to be recorded, bytes: a frame cannot say of more how many there are.
pub const WHOLE_SIZE_MAX: usize = PAYLOAD_SIZE_MAX;

/// A message of a recording; its bytes stand elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Its sender.
    pub source: Address,
    /// Its target.
    pub target: Target,
    /// Its number.
    pub sequence: u64,
    /// Messages that are missing just before it.
    pub missed: u64,
    /// When it was sent, as its sender says; nanoseconds since 1970.
    pub sent_ns: Option<u64>,
    /// When it was seen; nanoseconds since 1970.
    pub seen_ns: u64,
    /// Its sender's stamps.
    pub stamps: Option<Stamps>,
    /// Its bytes end with a seal that nobody has looked at.
    pub is_unopened: bool,
    /// It is a part of a message that is larger than a frame.
    pub is_fragment: bool,
    /// Amount by which the clock of all instants was set since the message before, nanoseconds.
    pub clock_set_ns: i64,
    /// Its bytes, the seal included.
    pub size: usize,
}

impl Entry {
    /// The first of so many bytes, of which nothing else is known.
    pub fn new(source: Address, target: Target, size: usize) -> Self {
        Self {
            source,
            target,
            sequence: 0,
            missed: 0,
            sent_ns: None,
            seen_ns: 0,
            stamps: None,
            is_unopened: false,
            is_fragment: false,
            clock_set_ns: 0,
            size,
        }
    }

    /// The instant that counts: when it was sent, where that is known, else when it was seen.
    pub fn instant_ns(&self) -> u64 {
        self.sent_ns.unwrap_or(self.seen_ns)
    }

    /// Bytes of the message without its seal.
    pub fn message_size(&self) -> usize {
        if self.is_unopened { self.size.saturating_sub(SEAL_SIZE) } else { self.size }
    }
}

/// Format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// For Wireshark, as captures are.
    Pcapng,
    /// For tools of robotics.
    Mcap,
}

impl Format {
    /// By the ending of a file's name.
    pub fn of(path: &Path) -> Option<Self> {
        path.extension()?.to_str()?.parse().ok()
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pcapng" => Ok(Self::Pcapng),
            "mcap" => Ok(Self::Mcap),
            _ => Err("pcapng or mcap".to_owned()),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcapng => "pcapng",
            Self::Mcap => "mcap",
        })
    }
}

/// Totals of a recording up to some instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Messages that were seen and kept.
    pub recorded: u64,
    /// Messages that were sent to the bus and are missing, by cause; causes without any are not among them.
    pub missed: Vec<Missed>,
    /// Publications that were not read at all, for want of places.
    pub left_out: u64,
}

/// Why messages are missing, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// A counter of the ledger, or one of the recorder's own.
    pub cause: &'static str,
    /// Number of missing messages.
    pub messages: u64,
}

impl Totals {
    /// So many that were kept are missing all the same.
    fn leave_out(&mut self, cause: &'static str, messages: u64) {
        if messages > 0 {
            self.recorded -= messages;
            self.missed.push(Missed { cause, messages });
        }
    }

    /// All that are missing.
    pub fn missed(&self) -> u64 {
        self.missed.iter().map(|missed| missed.messages).sum()
    }

    /// The same in words.
    pub fn words(&self) -> String {
        let mut words = format!("{} messages, {} missed", self.recorded, self.missed());
        let causes: Vec<String> =
            self.missed.iter().map(|missed| format!("{} {}", missed.cause, missed.messages)).collect();
        if !causes.is_empty() {
            words = format!("{words}: {}", causes.join(", "));
        }
        if self.left_out > 0 {
            words = format!("{words}; {} publications not read", self.left_out);
        }
        words
    }
}

/// Beginning of the text in a file that names the recorded bus.
const RECORDING_OF: &str = "punctual record of ";

/// Why a node did not open, by its name: that of a node that is there already says nothing to a reader as a number.
pub fn why_not_open(error: &OpenError, name: &str, advice: &str) -> String {
    let place = match error {
        OpenError::NodeTaken { pid: 0, .. } => "a process that cannot be seen from here".to_owned(),
        OpenError::NodeTaken { pid, .. } => format!("process {pid}"),
        other => return other.to_string(),
    };
    format!("node {name} is already on the bus ({place}): {advice}")
}

#[cfg(test)]
mod tests {
    use punctual_proto::NodeId;

    use super::*;

    /// Goal: a node that is there already is told by its name, with what can be done.
    #[test]
    fn a_node_that_is_there_is_named() {
        let taken = |pid| OpenError::NodeTaken { node: NodeId::named("vehicle-0"), pid };
        let said = |pid| why_not_open(&taken(pid), "vehicle-0", "end it");
        assert_eq!(said(7), "node vehicle-0 is already on the bus (process 7): end it");
        assert_eq!(
            said(0),
            "node vehicle-0 is already on the bus (a process that cannot be seen from here): end it"
        );
        assert_eq!(why_not_open(&OpenError::Invalid("a name".to_owned()), "x", "end it"), "a name");
    }
}
