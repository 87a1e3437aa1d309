//! Configuration of a member, and reasons why it cannot join.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_proto::broadcast::{DATA_PREFIX_SIZE, Guarantee, OptionsError};
use punctual_proto::{Nanos, NodeId, Port, broadcast};

use crate::engine::wire::crc32c_append;
use crate::node::{BindError, Node};
use crate::wake::Wake;

/// The port at which the members of a group meet, unless its options say otherwise.
pub const GROUP_PORT: u16 = 65_533;

/// Payload of a frame where the network does not cut datagrams, bytes: Ethernet's 1,500 less all heads.
const FRAME_SIZE_WIRE: usize = 1_328;

/// Payload of a frame in memory, bytes: the work that follows from each frame costs more than its bytes. Half as large ones were a
/// sixth slower, with 4 % of them lost or damaged a fifth.
const FRAME_SIZE_MEMORY: usize = 8_192;

/// Bytes of one sender that not all have taken. On a wire a third of a socket's buffer, by which a sender seldom waits for members that
/// are heard at once; in memory half of a ring.
const WINDOW_WIRE: usize = 512 * FRAME_SIZE_WIRE;
const WINDOW_MEMORY: usize = 512 << 10;

/// Frames of a window that is not given: never too few to keep going, nor more than what is said of them fits a frame.
const WINDOW_FRAMES: RangeInclusive<usize> = 16..=512;

/// A group, and how a node takes part. All but `founds`, `guarantee` and `wake` must be equal at all members. Of these
/// the group compares roster, frame size, window and largest message ([`DeliverError::Mismatch`](super::DeliverError::Mismatch)).
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Name of the group: members of others at the same port are ignored.
    pub name: String,
    /// All who may be members, at most 32, in the same order everywhere. The first that is there orders the messages.
    pub roster: Vec<NodeId>,
    /// Makes the first view, alone, which the others join. Exactly one node does. One that comes back while the others go on
    /// joins them; where a majority is lost the group has ended, and founding makes another one.
    pub founds: bool,
    /// The port of the group at every node.
    pub port: u16,
    /// Guarantee of a message, unless it is broadcast with another one.
    pub guarantee: Guarantee,
    /// Payload of a frame, bytes. By default what Ethernet carries uncut, 8 KiB in memory, and never more than the bus carries.
    pub frame_size: Option<usize>,
    /// Frames of one sender that not all have taken. By default the power of two that has 680 kB at most, in memory 512 KiB;
    /// 16 to 512.
    pub window: Option<usize>,
    /// Largest message, bytes.
    pub message_size_max: usize,
    /// A member that has nothing to say says so this often. After a quarter of it the caretaker takes over from a user that
    /// does something else.
    pub heartbeat: Duration,
    /// Silence after which a member is suspected; up to eight times as long where that was wrong.
    pub suspect_after: Duration,
    /// The round trip until one was measured.
    pub round_trip: Duration,
    /// A member whose user takes nothing for so long, while those of a majority do, is expelled. Two heartbeats at least. Without it the
    /// others wait for ever.
    pub expel_slow_after: Option<Duration>,
    /// Way in which the driver of the group waits. Amid a stream it yields before it sleeps, unless it is to spin.
    pub wake: Wake,
}

impl GroupOptions {
    /// The group of that name among the nodes of these names. It must be [founded](Self::founding) by one of them.
    ///
    /// Messages have up to 1 MiB, and are uniform. A member that is silent for 100 ms is suspected; one whose user takes nothing for 10
    /// s is expelled.
    pub fn new(name: &str, roster: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            roster: roster.iter().map(|name| NodeId::named(name)).collect(),
            founds: false,
            port: GROUP_PORT,
            guarantee: Guarantee::default(),
            frame_size: None,
            window: None,
            message_size_max: 1 << 20,
            heartbeat: Duration::from_millis(10),
            suspect_after: Duration::from_millis(100),
            round_trip: Duration::from_micros(200),
            expel_slow_after: Some(Duration::from_secs(10)),
            wake: Wake::default(),
        }
    }

    /// The same for the one node that founds the group.
    #[must_use]
    pub fn founding(mut self) -> Self {
        self.founds = true;
        self
    }

    /// Options of the protocol, at this node.
    pub(super) fn of_member(&self, node: &Node) -> Result<broadcast::GroupOptions, JoinError> {
        let size_max = node.payload_size_max();
        let most = size_max.saturating_sub(DATA_PREFIX_SIZE);
        let (usual, usual_window) = if node.is_in_memory() {
            (FRAME_SIZE_MEMORY, WINDOW_MEMORY)
        } else {
            (FRAME_SIZE_WIRE, WINDOW_WIRE)
        };
        let frame_size = self.frame_size.unwrap_or(usual.min(most));
        if frame_size > most {
            return Err(JoinError::FrameSize { wanted: frame_size, most });
        }
        let window = self.window.unwrap_or_else(|| frames_of(usual_window, frame_size));
        let group = NodeId::named(&self.name).get();
        let member = broadcast::GroupOptions {
            founds: self.founds,
            frame_size,
            window,
            message_size_max: self.message_size_max,
            heartbeat: nanos(self.heartbeat),
            suspect_after: nanos(self.suspect_after),
            round_trip: nanos(self.round_trip),
            expel_slow_after: self.expel_slow_after.map(nanos),
            // The kernel's media have a check value in every frame, and so has every seal.
            check: (!node.has_check()).then_some(crc32c_append),
            ..broadcast::GroupOptions::new(group, self.roster.clone(), node.id(), Port::from(self.port))
        };
        let size = member.datagram_size();
        if size > size_max {
            return Err(JoinError::Window { window, size, size_max });
        }
        Ok(member)
    }
}

/// Number of frames of a window of so many bytes: a power of two, which wastes no slot of the ring that holds it.
fn frames_of(window: usize, frame_size: usize) -> usize {
    let frames = (window / frame_size.max(1)).clamp(*WINDOW_FRAMES.start(), *WINDOW_FRAMES.end());
    1 << frames.ilog2()
}

/// A duration as the protocol takes it; one that does not fit is for ever.
pub(super) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).map_or(Nanos::NEVER, Nanos)
}

/// Why a node cannot join a group.
#[derive(Debug)]
pub enum JoinError {
    /// The options make no group.
    Options {
        /// The group's name.
        group: String,
        /// The fault.
        error: OptionsError,
    },
    /// The bus carries no frame so large: choose a smaller one, at all members.
    FrameSize {
        /// Size in the options, bytes.
        wanted: usize,
        /// Largest possible size, bytes.
        most: usize,
    },
    /// The report of members on so large a window fits no message of this bus: choose a smaller one, at all members.
    Window {
        /// Window in the options.
        window: usize,
        /// The largest message that this makes, bytes.
        size: usize,
        /// Largest message that the bus carries, bytes.
        size_max: usize,
    },
    /// A replicated state whose commands have no order: choose [`Guarantee::Uniform`] or [`Guarantee::Agreed`].
    Unordered,
    /// Messages so small carry no transfer of a replicated state: allow larger ones, at all members.
    MessageSize {
        /// Size in the options, bytes.
        size_max: usize,
        /// Least size for this roster, bytes.
        least: usize,
    },
    /// The group's port, most likely because the node is in a group at this port already.
    Bind(BindError),
    /// The machine has no thread or no descriptor left.
    System(SystemError),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options { group, error: OptionsError::Stranger } => write!(
                f,
                "group {group}: this node is not in the roster: give all members one roster that has its name"
            ),
            Self::Options { group, error } => write!(f, "group {group}: {error}"),
            Self::FrameSize { wanted, most } => {
                write!(f, "frames of {wanted} bytes: this bus carries at most {most}, at all members alike")
            }
            Self::Window { window, size, size_max } => write!(
                f,
                "window of {window} frames: messages about it have {size} bytes, where {size_max} is the most of this bus: \
                 choose a smaller one at all members"
            ),
            Self::Unordered => f.write_str(
                "a replicated state needs commands in one order: choose the guarantee uniform or agreed",
            ),
            Self::MessageSize { size_max, least } => write!(
                f,
                "messages of at most {size_max} bytes: to give a replicated state to a member of this roster takes {least}, \
                 at all members alike"
            ),
            Self::Bind(BindError::PortTaken(port)) => write!(
                f,
                "port {port} of this node is taken: give each group of a node a port of its own, at all members alike"
            ),
            Self::Bind(error) => write!(f, "{error}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for JoinError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a window has as many bytes for any size of a frame, within what members can say of it.
    #[test]
    fn a_window_is_of_bytes() {
        assert_eq!(frames_of(WINDOW_MEMORY, FRAME_SIZE_MEMORY), 64);
        assert_eq!(frames_of(WINDOW_WIRE, FRAME_SIZE_WIRE), 512);
        assert_eq!(
            [64, 1_024, 30_000, 60_000].map(|size| frames_of(WINDOW_MEMORY, size)),
            [512, 512, 16, 16]
        );
    }
}
