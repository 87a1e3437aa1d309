//! Recordings that are read: bytes from outside, of which never more is believed or kept than a recording can have.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use punctual_proto::limits::NAME_SIZE_MAX;
use punctual_proto::{Address, NodeId, Target, pcapng};

use super::mcap_file::McapReader;
use super::pcapng_file::PcapngReader;
use super::{Entry, SOURCES_MAX};

/// Why a file cannot be played.
#[derive(Debug)]
pub enum RecordingError {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is something else.
    NotARecording,
    /// From a place on it is not what a recorder writes.
    Damaged {
        /// Bytes before that place.
        at: u64,
        /// What is there.
        what: String,
    },
    /// It has more pairs of source and target than can be played.
    TooManySources,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "{error}"),
            Self::NotARecording => f.write_str(
                "not a recording: pcapng or MCAP that punctual record, or a capture, wrote is needed",
            ),
            Self::Damaged { at, what } => {
                write!(f, "not a recording of ours, or damaged at byte {at}: {what}")
            }
            Self::TooManySources => {
                write!(f, "more than {SOURCES_MAX} pairs of source and target, which are the most")
            }
        }
    }
}

impl std::error::Error for RecordingError {}

impl From<io::Error> for RecordingError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// What a recording says besides its messages, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Names of nodes.
    pub names: HashMap<NodeId, String>,
    /// The bus that was recorded.
    pub bus: Option<String>,
    /// Messages of which the capture kept a part only.
    pub incomplete: u64,
    /// It ends in the middle of something: its recorder was killed, or the file was cut.
    pub is_cut: bool,
}

impl Told {
    /// A node has this name.
    pub(super) fn name(&mut self, node: NodeId, name: String) {
        if self.names.len() < SOURCES_MAX && is_name(&name) {
            self.names.insert(node, name);
        }
    }
}

/// Whether a node can have this name.
fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME_SIZE_MAX).contains(&name.len()) && name.bytes().all(is_of_name)
}

/// A recording that is read, message by message.
#[derive(Debug)]
pub struct Recording {
    reader: Reader,
    /// What it said so far.
    pub told: Told,
}

#[derive(Debug)]
enum Reader {
    Pcapng(PcapngReader<BufReader<File>>),
    Mcap(Box<McapReader<BufReader<File>>>),
}

impl Recording {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or begins as no recording does.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let mut file = File::open(path)?;
        let mut start = Vec::new();
        (&mut file).take(mcap::MAGIC.len() as u64).read_to_end(&mut start)?;
        file.seek(SeekFrom::Start(0))?;
        let input = BufReader::with_capacity(1 << 20, file);
        let reader = match () {
            () if pcapng::is_start(&start) => Reader::Pcapng(PcapngReader::new(input)),
            () if start == mcap::MAGIC => Reader::Mcap(Box::new(McapReader::new(input))),
            () => return Err(RecordingError::NotARecording),
        };
        Ok(Self { reader, told: Told::default() })
    }

    /// The next message, whose bytes are put into `bytes`; none at the end.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Entry>, RecordingError> {
        match &mut self.reader {
            Reader::Pcapng(reader) => reader.next(&mut self.told, bytes),
            Reader::Mcap(reader) => reader.next(&mut self.told, bytes),
        }
    }
}

/// What is in a recording, after one reading of all of it.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Messages.
    pub messages: u64,
    /// Who sent to whom, in the order of their first messages.
    pub routes: Vec<(Address, Target)>,
    /// Bytes of the largest.
    pub size_max: usize,
    /// Messages that the recording says are missing.
    pub missed: u64,
    /// From the first instant to the last, nanoseconds.
    pub span_ns: u64,
    /// The first instant, nanoseconds since 1970.
    pub first_ns: u64,
    /// What else it says.
    pub told: Told,
}

impl Contents {
    /// Reads all of a recording.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn of(path: &Path) -> Result<Self, RecordingError> {
        let mut recording = Recording::open(path)?;
        let (mut contents, mut bytes, mut known) = (Self::default(), Vec::new(), HashSet::new());
        while let Some(entry) = recording.next(&mut bytes)? {
            let instant = entry.instant_ns();
            if contents.messages == 0 {
                contents.first_ns = instant;
            }
            contents.messages += 1;
            contents.missed = contents.missed.saturating_add(entry.missed);
            contents.span_ns = contents.span_ns.max(instant.saturating_sub(contents.first_ns));
            contents.size_max = contents.size_max.max(entry.message_size());
            let route = (entry.source, entry.target);
            if known.insert(route) {
                if contents.routes.len() == SOURCES_MAX {
                    return Err(RecordingError::TooManySources);
                }
                contents.routes.push(route);
            }
        }
        contents.told = recording.told;
        Ok(contents)
    }

    /// The nodes that sent, in the order of their first messages.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = Vec::new();
        for (source, _) in &self.routes {
            if !nodes.contains(&source.node) {
                nodes.push(source.node);
            }
        }
        nodes
    }
}
