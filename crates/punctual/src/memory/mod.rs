//! Memory of one host: a ring for each publication, which every subscription that it is for follows by itself.
//!
//! Nobody shares a lock with a peer. A node maps its peers' rings for reading only; it writes to their doorbells,
//! which carry no messages. Files, layout and life cycle: `docs/shared-memory.md`.

use std::path::PathBuf;

use punctual_machine::SystemError;
use punctual_machine::process::{ProcessIdentity, random};
use punctual_machine::ring::frame_size_max;
use punctual_proto::NodeId;
use punctual_proto::limits::{PAYLOAD_SIZE_MAX, PREFIX_SIZE_MAX};

use crate::engine::{NO_ADVICE, OpenError, check_name};
use folder::Folder;
use hall::Hall;
use roster::Roster;
pub(crate) use segment::SUBSCRIPTIONS_MAX;
use segment::{Owner, Segment};
use stream::ring_file::RingFile;
use venue::Venue;

mod folder;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod hall;
mod mail;
mod paths;
mod roster;
mod rows;
mod segment;
pub(crate) mod stream;
mod venue;

/// Behaviour when a reader is slower than a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The writer waits for nobody; the reader is told how many messages it lost.
    #[default]
    Overrun,
    /// The writer is told that there is no room until every live reader has read.
    HoldBack,
}

/// Processes that may join a bus of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Processes of the same user.
    #[default]
    Private,
    /// Processes of users in this group.
    Group(u32),
}

/// A bus of shared memory, or one inside this process (loopback). The latter always holds back, unless a publication says otherwise:
/// `when_full`, `sharing` and `directory` apply to shared memory only.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Its name: letters, digits, `-` and `_`, at most 32.
    pub name: String,
    /// Size of the ring that a communicator of this node has for each of its targets, bytes: a power of two, 4 KiB to 1 GiB.
    /// One frame carries at most a quarter of it less 64 bytes (88 on a sealed bus), and less than 16 MiB. Larger messages are cut where
    /// the node asks for them ([`crate::NodeOptions::message_size_max`]).
    pub ring_size: usize,
    /// Behaviour when a reader is too slow for what this node writes.
    pub when_full: WhenFull,
    /// Processes that may join.
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
fn payload_size_max(ring_size: usize) -> usize {
    (frame_size_max(ring_size) - PREFIX_SIZE_MAX).min(PAYLOAD_SIZE_MAX)
}

fn system(error: SystemError) -> OpenError {
    let advice = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "shared memory needs a memory file system: mount tmpfs on /dev/shm, or take a folder that is there"
        }
        std::io::ErrorKind::StorageFull => {
            "the memory file system is full: remove files or choose a smaller ring"
        }
        std::io::ErrorKind::PermissionDenied => {
            "this user may not: a private bus is its user's, a shared one is for its group"
        }
        std::io::ErrorKind::FileTooLarge => {
            "this process may make no file so large: raise the limit (ulimit -f) or choose a smaller ring"
        }
        _ if error.is_no_descriptor() => "nodes that cannot be seen would not be heard: see `ulimit -n`",
        std::io::ErrorKind::OutOfMemory => {
            "nodes that cannot be seen would not be heard: see `ulimit -v` and vm.max_map_count"
        }
        _ => NO_ADVICE,
    };
    OpenError::System { error, advice }
}

fn new_life(node: NodeId, options: &SharedOptions) -> Owner {
    let held_back = options.when_full == WhenFull::HoldBack;
    // Zero is no life.
    Owner { node, life: random().max(1), process: ProcessIdentity::of_self(), held_back }
}

/// A node that is on a bus of memory, before it can send.
#[derive(Debug)]
pub(crate) struct Entered {
    roster: Roster,
    pub(crate) incarnation: u16,
    /// Largest message of its communicators, bytes, without a seal.
    pub(crate) payload_size_max: usize,
    ring_size: usize,
}

/// Enters a bus of shared memory between processes.
pub(crate) fn open(options: &SharedOptions, node: NodeId, name: &str) -> Result<Entered, OpenError> {
    check(options)?;
    let owner = new_life(node, options);
    let (venue, segment) = Folder::enter(options, owner, name).map_err(system)?;
    // A node without memory for a ring learns it now, not from its first message.
    if let Err(error) = venue.look_for_room(RingFile::size(options.ring_size)) {
        venue.leave();
        return Err(system(error));
    }
    join(segment, Box::new(venue), options.ring_size)
}

/// Enters a bus inside this process. Slow readers hold writers back: nothing is lost there.
pub(crate) fn open_in_process(
    options: &SharedOptions,
    node: NodeId,
    name: &str,
) -> Result<Entered, OpenError> {
    check(options)?;
    let owner = new_life(node, &SharedOptions { when_full: WhenFull::HoldBack, ..options.clone() });
    let segment = Segment::private(owner, name).map_err(system)?;
    let venue = Hall::enter(&options.name, &segment);
    join(segment, Box::new(venue), options.ring_size)
}

fn join(segment: Segment, venue: Box<dyn Venue>, ring_size: usize) -> Result<Entered, OpenError> {
    let (incarnation, payload_size_max) = (segment.owner.incarnation(), payload_size_max(ring_size));
    let roster = Roster::join(segment, venue)?;
    Ok(Entered { roster, incarnation, payload_size_max, ring_size })
}
