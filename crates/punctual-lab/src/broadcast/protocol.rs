//! Messages between the experiment and its members, a JSON line at a time; nothing is said while messages travel.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::kv::option::KvPlan;
use super::option::{
    BroadcastKind, Datagrams, FaultProfile, FrameSize, OtherSystem, PACED_MAX, Paced, Planted,
};
use crate::endpoint::BusPlan;
use crate::explain::kept::ThreadWindows;
use crate::run::rows::{self, Row as _, rows_of};

/// One trial, as one member sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MemberPlan {
    /// Its place in the roster; the first founds the group and orders the messages.
    pub(super) place: usize,
    /// Places of the roster.
    pub(super) members: usize,
    /// So many of the first places broadcast.
    pub(super) senders: usize,
    /// Messages of each of these.
    pub(super) each: u64,
    /// When they are due, where not as fast as the group takes them.
    pub(super) paced: Option<Paced>,
    /// Size of a message.
    pub(super) message: usize,
    /// Payload of a frame.
    pub(super) frame: FrameSize,
    /// Frames of one sender that not all have taken, where it is not the library's.
    pub(super) window: Option<usize>,
    /// The guarantee.
    pub(super) kind: BroadcastKind,
    /// Faults of everything that arrives here.
    pub(super) faults: FaultProfile,
    /// Of faults and content.
    pub(super) seed: u64,
    /// The medium that carries messages.
    pub(super) medium: Medium,
    /// The kernel computes and checks the checksums of sent data: they reveal a flipped bit, regardless of the sender.
    pub(super) has_checksums: bool,
    /// The planted error here.
    pub(super) planted: Option<Planted>,
}

/// The medium that carries messages of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Medium {
    /// Frames on a bus.
    Bus(BusPlan),
    /// A system of others.
    Other(OtherPlan),
}

/// A member of another system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OtherPlan {
    pub(super) system: OtherSystem,
    /// The program that makes it.
    pub(super) program: PathBuf,
    /// Of all members, by their places.
    pub(super) addresses: Vec<Ipv4Addr>,
}

/// One trial, as a process sees it that may be killed or stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessPlan {
    /// Its part in common with other members. It broadcasts until it is told to stop.
    pub(super) member: MemberPlan,
    /// Processes that were at this place before.
    pub(super) incarnation: u64,
    /// Where it writes down what it is told, and where it is told to stop.
    pub(super) folder: PathBuf,
    /// Silence after which it suspects another member.
    pub(super) suspect_after: Duration,
    /// It serves a store; it broadcasts if this is none.
    pub(super) kv: Option<KvPlan>,
}

/// Multicast without a group, as one process sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FloorPlan {
    /// The group, and the address of the interface.
    pub(super) group: SocketAddr,
    pub(super) interface: Ipv4Addr,
    /// True if it sends; otherwise it receives.
    pub(super) sends: bool,
    /// Datagrams, and the bytes of each.
    pub(super) count: u64,
    pub(super) size: usize,
    /// Maker of the datagrams.
    pub(super) datagrams: Datagrams,
}

/// A request to a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum MemberRequest {
    /// Open a node, join, and wait until all have.
    Open(Box<MemberPlan>),
    /// From this instant of `CLOCK_MONOTONIC` on, broadcast and deliver until all messages are there.
    Go { at_ns: u64 },
    /// Join, broadcast, deliver, and write all of it down, until the folder says that it is over.
    Live(Box<ProcessPlan>),
    /// Leave.
    Close,
    /// Open a socket for bare datagrams; they travel at the next `Go`.
    Floor(FloorPlan),
}

/// A member's answer when it has joined.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Joined {
    /// Payload of a frame.
    pub(super) frame: usize,
}

/// A member's result. Rows of its messages follow as bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct MemberEnd {
    /// When it had delivered everything, on `CLOCK_MONOTONIC`.
    pub(super) ended_ns: u64,
    /// Payload that it delivered.
    pub(super) bytes: u64,
    /// Messages that it did not deliver, though it waited.
    pub(super) missing: u64,
    /// Of all that it delivered, regardless of the order.
    pub(super) content: [u64; 2],
    /// Of all that it delivered, in its order.
    pub(super) order: [u64; 2],
    /// Messages that it delivered behind a later one of their sender.
    pub(super) out_of_turn: u64,
    /// As `content`, of all that it broadcast.
    pub(super) sent: [u64; 2],
    /// CPU time of its process.
    pub(super) cpu_ns: u64,
    /// Bus messages that it sent, and that arrived here.
    pub(super) frames_sent: u64,
    pub(super) frames_arrived: u64,
    /// Bus messages that were lost or altered on the way here.
    pub(super) frames_lost: u64,
    /// Frames that it got as repairs.
    pub(super) repaired: u64,
    /// Times that it asked for what it lacked.
    pub(super) questions: u64,
    /// Views that began meanwhile.
    pub(super) views: u64,
    /// Packets that came here, and of these those that a program in the kernel lost, and those that it altered.
    pub(super) packets_damaged: [u64; 3],
    /// Sizes of what follows: rows, and hashes of what it broadcast.
    pub(super) rows: usize,
    pub(super) hashes: usize,
}

/// A member's result, and the history of its thread.
pub(super) type MemberAnswer = (MemberEnd, Option<ThreadWindows>);

/// A process's result from multicast without a group.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct FloorEnd {
    /// When the last datagram was sent or came.
    pub(super) ended_ns: u64,
    /// Datagrams.
    pub(super) count: u64,
    /// True if runs were sent as one.
    pub(super) merged: bool,
}

/// One delivered message, of the first so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) sender: u64,
    pub(super) number: u64,
    pub(super) hash: u64,
    pub(super) sent_ns: u64,
    pub(super) at_ns: u64,
}

/// Half a trial is none: a member that is interrupted says so in place of what it has.
pub(super) fn check_interrupt(done: u64, all: u64) -> Result<(), String> {
    if interrupted() { Err(format!("interrupted after {done} of {all} messages")) } else { Ok(()) }
}

/// Messages of which rows are kept: the digests are of all.
pub(super) const ROWS_MAX: usize = 50_000;
const _: () = assert!(PACED_MAX <= ROWS_MAX as u64);

impl rows::Row<5> for Row {
    fn words(&self) -> [u64; 5] {
        [self.sender, self.number, self.hash, self.sent_ns, self.at_ns]
    }

    fn of_words([sender, number, hash, sent_ns, at_ns]: [u64; 5]) -> Self {
        Self { sender, number, hash, sent_ns, at_ns }
    }
}

/// Reads the data behind an answer: rows, then hashes. `None` if there are not so many.
pub(super) fn read_rows(bytes: &[u8], rows: usize) -> Option<(Vec<Row>, Vec<u64>)> {
    let (rows, hashes) = bytes.split_at_checked(rows * Row::SIZE)?;
    Some((rows_of(rows), rows_of(hashes)))
}

/// Bytes that follow an end.
pub(super) fn size_behind(end: &MemberEnd) -> usize {
    end.rows * Row::SIZE + end.hashes * u64::SIZE
}
