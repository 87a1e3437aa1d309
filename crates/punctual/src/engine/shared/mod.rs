//! Shared memory between processes of one host: one publication ring per node, one writer, many readers.
//!
//! Nobody shares a lock with a peer. A node maps its peers' rings for reading only; it writes to their doorbells,
//! which carry no messages. Files, layout and life cycle: `docs/shared-memory.md`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_machine::SystemError;
use punctual_machine::event_fd::EventFd;
use punctual_machine::process::{ProcessIdentity, random};
use punctual_machine::ring::frame_size_max;
use punctual_proto::NodeId;
use punctual_proto::limits::{NAME_SIZE_MAX, PAYLOAD_SIZE_MAX, PREFIX_SIZE_MAX};

use super::Engine;
use folder::Folder;
use hall::Hall;
pub(crate) use receive::{Likeness, SharedReceive};
use roster::Roster;
use segment::{Owner, Segment};
use stream::Streams;
pub(crate) use transmit::SharedTransmit;
use venue::Venue;

mod folder;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod hall;
mod mail;
mod paths;
mod receive;
mod roster;
mod segment;
pub(crate) mod stream;
mod transmit;
mod venue;

/// What happens when a reader is slower than a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The writer waits for nobody; the reader is told how many messages it lost.
    #[default]
    Overrun,
    /// The writer is told that there is no room until every live reader has read.
    HoldBack,
}

/// Who may join a bus of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Processes of the same user.
    #[default]
    Private,
    /// Processes of users in this group.
    Group(u32),
}

/// A bus of shared memory.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Its name: letters, digits, `-` and `_`, at most 32.
    pub name: String,
    /// Size of this node's ring, bytes: a power of two, 4 KiB to 1 GiB. A message is at most a quarter of it,
    /// and 16 MiB.
    pub ring_size: usize,
    /// What happens when a reader is too slow for what this node writes.
    pub when_full: WhenFull,
    /// Who may join.
    pub sharing: Sharing,
    /// The memory file system.
    pub directory: PathBuf,
}

impl SharedOptions {
    /// The bus of that name with a ring of 1 MiB, in `/dev/shm`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ring_size: 1 << 20,
            when_full: WhenFull::default(),
            sharing: Sharing::default(),
            directory: PathBuf::from("/dev/shm"),
        }
    }
}

impl SharedOptions {
    /// The bus's folder in that file system: two processes that say the same are on one bus.
    pub(crate) fn folder_name(&self) -> String {
        match self.sharing {
            Sharing::Private => format!("punctual.{}.{}", punctual_machine::process::user(), self.name),
            Sharing::Group(group) => format!("punctual.g{group}.{}", self.name),
        }
    }
}

/// Why an engine could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A name, size or number that cannot be: the text says which and what can.
    Invalid(String),
    /// Another live node has this id: take another name.
    NodeTaken {
        /// The id.
        node: NodeId,
        /// Its process; 0 where it is not known, or of another pid namespace.
        pid: u32,
    },
    /// There are as many nodes on the bus as a bus can have: take another bus for some of them.
    BusFull {
        /// How many that is.
        nodes_max: usize,
    },
    /// The machine refused. The text names the object and what to do.
    System {
        /// What it said.
        error: SystemError,
        /// What may help.
        advice: &'static str,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => f.write_str(text),
            Self::NodeTaken { node, pid: 0 } => {
                write!(f, "node {node} is already on the bus (in another container): take another name")
            }
            Self::NodeTaken { node, pid } => {
                write!(f, "node {node} is already on the bus (process {pid}): take another name")
            }
            Self::BusFull { nodes_max } => {
                write!(
                    f,
                    "the bus has {nodes_max} nodes already, which is the most: take another bus for some"
                )
            }
            Self::System { error, advice } => write!(f, "{error} ({advice})"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What a node learns of itself when it joins.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// Which life of the node this is, as it stands in its frames.
    pub incarnation: u16,
}

/// Whether a name can be a part of a file name.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), OpenError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if plain && (1..=NAME_SIZE_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(OpenError::Invalid(format!(
        "{what} {name:?}: 1 to {NAME_SIZE_MAX} letters, digits, hyphens and underscores are needed"
    )))
}

fn check(options: &SharedOptions) -> Result<(), OpenError> {
    check_name("bus", &options.name)?;
    let size = options.ring_size;
    if !size.is_power_of_two() || !(1 << 12..=1 << 30).contains(&size) {
        let text = format!("ring of {size} bytes: a power of two from 4096 to 1073741824 is needed");
        return Err(OpenError::Invalid(text));
    }
    Ok(())
}

/// Largest payload in a ring of this size, bytes.
pub(crate) fn payload_size_max(ring_size: usize) -> usize {
    (frame_size_max(ring_size) - PREFIX_SIZE_MAX).min(PAYLOAD_SIZE_MAX)
}

fn system(error: SystemError) -> OpenError {
    let advice = match error.kind() {
        std::io::ErrorKind::NotFound => "shared memory needs a memory file system: mount tmpfs on /dev/shm",
        std::io::ErrorKind::StorageFull => {
            "the memory file system is full: remove files or choose a smaller ring"
        }
        std::io::ErrorKind::PermissionDenied => {
            "this user may not: a private bus is its user's, a shared one is for its group"
        }
        std::io::ErrorKind::FileTooLarge => {
            "this process may make no file so large: raise the limit (ulimit -f) or choose a smaller ring"
        }
        _ if error.is_exhaustion() => "nodes that cannot be seen would not be heard: see `ulimit -n`",
        _ => "see the text before",
    };
    OpenError::System { error, advice }
}

fn new_life(node: NodeId, options: &SharedOptions) -> Owner {
    let held_back = options.when_full == WhenFull::HoldBack;
    // Zero marks an empty entry in the tables of cursors.
    Owner { node, life: random().max(1), process: ProcessIdentity::of_self(), held_back }
}

/// Opens a node on a bus of shared memory between processes.
pub(crate) fn open(options: &SharedOptions, node: NodeId, name: &str) -> Result<(Engine, Joined), OpenError> {
    check(options)?;
    let owner = new_life(node, options);
    let event = Arc::new(EventFd::new().map_err(system)?);
    let (venue, segment) = Folder::enter(options, owner, name, &event).map_err(system)?;
    assemble(segment, event, Box::new(venue))
}

/// Opens a node on a bus inside this process.
pub(crate) fn open_in_process(
    options: &SharedOptions,
    node: NodeId,
    name: &str,
) -> Result<(Engine, Joined), OpenError> {
    check(options)?;
    let options = SharedOptions { when_full: WhenFull::HoldBack, ..options.clone() };
    let owner = new_life(node, &options);
    let event = Arc::new(EventFd::new().map_err(system)?);
    let segment = Segment::private(owner, name, options.ring_size).map_err(system)?;
    let venue = Hall::enter(&options.name, &segment, &event);
    assemble(segment, event, Box::new(venue))
}

fn assemble(
    segment: Segment,
    event: Arc<EventFd>,
    venue: Box<dyn Venue>,
) -> Result<(Engine, Joined), OpenError> {
    let joined = Joined { incarnation: segment.owner.incarnation() };
    let roster = Arc::new(Roster::join(segment, event, venue)?);
    // The receiving half first: it follows the rings of those who were here before anybody can say that we are.
    let receive = Box::new(SharedReceive::new(Arc::clone(&roster)));
    let streams = Some(Streams::new(Arc::clone(&roster)));
    let transmit = Box::new(SharedTransmit::new(roster));
    Ok((Engine { transmit, receive, streams }, joined))
}
