//! Engines move frames over one medium.
//!
//! An engine never blocks, never allocates once open, never retries, and knows nothing of ports, waiting policies
//! or other engines. It comes in two halves, so that a thread that waits for frames does not hold up one that sends.
//! Faults and capture are layers around an engine ([`faulty`], [`tap`]), never flags inside one.
//!
//! Programs that measure an engine alone use its halves. These are hidden from the documentation, and promised to nobody.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::Ticks;
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::event_fd::EventFd;
use punctual_machine::slept::Slept;
use punctual_proto::seal::Refusal;
use punctual_proto::{FrameError, Header, NodeId, Stamps};

pub mod adapter;
pub mod datagram;
pub mod faulty;
mod layer;
mod open;
pub mod packet;
pub mod tap;
pub(crate) mod wire;

pub use open::{Joined, OpenError};
pub(crate) use open::{NO_ADVICE, check_name};

/// Both halves of an open engine.
#[derive(Debug)]
#[doc(hidden)]
pub struct Engine {
    /// The sending half.
    pub transmit: Box<dyn Transmit>,
    /// The receiving half.
    pub receive: Box<dyn Receive>,
}

/// Why a frame was not taken. Every variant asks for a different reaction; the message stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No room now. Retry after the receivers have read, or drop it. In memory also: the first message to a target needs a ring, and
    /// others at the node have all of its 256.
    Full,
    /// No such node is on the bus (only media that know their members say so), or no such port at this node.
    Unreachable,
    /// A bug in the caller: the limit is known before the send ([`Transmit::payload_size_max`]). A message for one port of its own node
    /// also has to fit that one's [`crate::CommunicatorOptions::inbox_size`].
    TooLong {
        /// Bytes that were to be sent, or those of a part of a large message.
        size: usize,
        /// Largest payload of this medium, or of that inbox, bytes.
        size_max: usize,
    },
    /// Not in memory: [`punctual_proto::limits::NODES_MAX`] nodes have been sent to, and none of them has left, or was silent for long.
    TooManyNodes,
    /// The bus is sealed, and there is no key to seal with: none was inserted, or its time has not come.
    NoKey,
    /// There is no memory for the ring that a first message to a target needs: the memory file system is full, or this process may
    /// have no more files, mappings or larger files.
    NoMemory,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room now"),
            Self::Unreachable => f.write_str("nobody there by that address"),
            Self::TooLong { size, size_max } => {
                write!(
                    f,
                    "message of {size} bytes where {size_max} is the most: open the nodes with `message_size_max` for \
                     more, and send it by `send`, as claims, groups and interest take what goes in one frame; a receiver of \
                     the same node may need a larger `inbox_size`"
                )
            }
            Self::TooManyNodes => f.write_str("sent to more nodes than a bus has room for"),
            Self::NoKey => f.write_str("no key to seal with: insert one, or wait until its time has come"),
            Self::NoMemory => f.write_str(
                "no memory for a ring to this target: free some of /dev/shm, or see `ulimit -n`, `-f` and `-l`",
            ),
        }
    }
}

impl std::error::Error for SendError {}

/// Longest time that a communicator or a node that closes waits for a medium without room. A link of 10 Mbit/s empties a usual
/// socket's buffer (212,992 bytes) within it.
pub(crate) const FAREWELL_MAX: Duration = Duration::from_millis(200);

/// The sending half of an engine.
///
/// `claim`, write, `commit`, `flush`. A frame that was committed was taken: it is delivered, or it stands in a counter.
#[doc(hidden)]
pub trait Transmit: Any + Send + fmt::Debug {
    /// Largest payload that one frame of this medium carries, bytes.
    fn payload_size_max(&self) -> usize;

    /// Room for a frame of `size` bytes (header, stamps, payload) for one node, or for all others; returns the sequence
    /// number that its header must have. A claim that is not committed has no effect.
    fn claim(&mut self, target: Option<NodeId>, size: usize) -> Result<u32, SendError>;

    /// Where the claimed frame is written.
    fn claimed(&mut self) -> &mut [u8];

    /// Takes the claimed frame.
    fn commit(&mut self);

    /// Hands what was committed to the medium, as far as it goes now. The rest goes with a later call. Returns true if there is a rest
    /// for which the kernel will have room soon.
    fn flush(&mut self) -> bool;

    /// Does periodic work even if nothing is sent: notices the dead, says that one is alive.
    fn housekeep(&mut self, now: Ticks);

    /// Frames committed so far for this node, or for everybody: the number to which the receivers' accounts must sum.
    fn sent_to(&self, target: Option<NodeId>) -> u64;

    /// Frames that the medium refused for good after they were taken, such as with the interface down.
    fn refused(&self) -> u64 {
        0
    }

    /// Copies that the medium makes of a frame for everybody, each by a call or a part of one: where it reaches nobody but one by one, as
    /// many as there are peers.
    fn copies(&self) -> usize {
        1
    }
}

/// Progress of a node's streams: the number after the last frame sent. A frame carries the lower half of its number only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct Progress {
    /// To this node alone; unknown where the announcement was for everybody.
    pub unicast: Option<u64>,
    /// To everybody.
    pub broadcast: u64,
    /// True if this came in order with frames to everybody, so that all before it are here or lost. An announcement to this node alone
    /// may have overtaken some.
    pub in_order: bool,
    /// Number of the node's life, drawn at random: two lives of a node with one incarnation differ in it. 0 if the node does not tell.
    pub life: u32,
}

/// An event of an engine.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Event<'a> {
    /// A frame arrived.
    Frame(&'a Arrival<'a>),
    /// A node is there, and its streams begin here for us.
    Joined {
        /// The node.
        node: NodeId,
        /// Life of the node.
        incarnation: u16,
        /// Where its streams stood.
        progress: Progress,
        /// True if that is exact. If not, a stream begins there or a little earlier: its first frame says where.
        exact: bool,
    },
    /// A node says how far it is, so that the loss of the last frames before a pause is noticed.
    Progressed {
        /// The node.
        node: NodeId,
        /// Life of the node.
        incarnation: u16,
        /// Progress of its streams.
        progress: Progress,
    },
    /// A node left or died; nothing more will come of this life of it.
    Left {
        /// The node.
        node: NodeId,
        /// Life of the node.
        incarnation: u16,
        /// Where its streams ended, where that is known.
        progress: Option<Progress>,
        /// True if it died without saying so.
        died: bool,
    },
    /// The medium says that a node cannot be reached any more, or can again, in the same life.
    Noticed {
        /// The node.
        node: NodeId,
        /// Life of the node.
        incarnation: u16,
        /// True if it can be reached.
        is_back: bool,
    },
    /// Something that explains losses which the sequence numbers will show.
    Trouble(Trouble),
}

/// Why frames of an engine go missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Trouble {
    /// Bytes arrived that are no frame.
    BadFrame(FrameError),
    /// A frame whose check value does not match its bytes.
    BadCheck,
    /// A frame that the seal, or its lack, forbids to believe.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Header that the frame has. Nothing of it is to be believed.
        header: Header,
    },
}

/// A frame that arrived, in place.
#[derive(Debug)]
#[doc(hidden)]
pub struct Arrival<'a> {
    /// Its header.
    pub header: &'a Header,
    /// The sender's stages.
    pub stamps: Option<Stamps>,
    /// The message, and behind it the seal where the frame has one.
    pub payload: &'a [u8],
    /// When the kernel received it, `CLOCK_REALTIME` nanoseconds, where it says.
    pub kernel_ns: Option<u64>,
    /// In which group it was sealed, where the medium has looked behind the seal.
    pub sealed_in: Option<u32>,
}

/// The descriptors of a medium: at most two.
pub type Descriptors<'a> = [Option<BorrowedFd<'a>>; 2];

/// Wake-up of a sleeping receiver, from any thread.
#[doc(hidden)]
pub trait Bell: Send + Sync + fmt::Debug {
    /// The handshake.
    fn doorbell(&self) -> &Doorbell;

    /// The descriptor that becomes readable when the armed doorbell is rung for a descriptor.
    fn event(&self) -> &EventFd;

    /// Wakes who armed the doorbell for a descriptor, or for the call that receives.
    fn wake(&self) {
        self.event().ring();
    }
}

/// Rings a bell of this process.
#[doc(hidden)]
pub fn ring(bell: &dyn Bell) {
    match bell.doorbell().ring() {
        None => {}
        Some(Notification::Futex) => bell.doorbell().wake_futex(),
        Some(Notification::Descriptor) => bell.wake(),
    }
}

/// A bell in memory of this process.
#[derive(Debug)]
#[doc(hidden)]
pub struct PrivateBell {
    doorbell: Doorbell,
    event: EventFd,
}

impl PrivateBell {
    /// A new bell.
    ///
    /// # Errors
    /// If the process has no more descriptors.
    pub fn new() -> Result<Self, SystemError> {
        Ok(Self { doorbell: Doorbell::default(), event: EventFd::new()? })
    }
}

impl Bell for PrivateBell {
    fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    fn event(&self) -> &EventFd {
        &self.event
    }
}

/// Count of the frames for which the kernel had no room. A call of the kernel: asked when something is missing.
#[doc(hidden)]
pub trait Drops: Send + fmt::Debug {
    /// Number of drops since this was last asked: frames, or runs that the kernel had as one; 0 where it does not say.
    fn take(&mut self) -> u64;

    /// Most frames that were one for the kernel.
    fn frames_max(&self) -> u64 {
        1
    }
}

/// Decision to go on or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Flow {
    /// With the next event.
    Continue,
    /// Not now: the batch is over.
    Stop,
}

/// Longest sleep in the call that receives: then housekeeping is due.
pub const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Assumed room of a medium that does not state its room, bytes.
pub(crate) const ROOM_UNKNOWN: usize = 256 << 10;

/// The receiving half of an engine.
#[doc(hidden)]
pub trait Receive: Any + Send + fmt::Debug {
    /// Shows at most `limit` events to `visit`, oldest first per source, until it says stop. Returns how many.
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize;

    /// True if a poll would find something that rings no descriptor. Looked at between arming and sleeping.
    fn is_ready(&self) -> bool;

    /// When something will be there that rings nothing, if that is known.
    fn next_due(&self) -> Option<Ticks> {
        None
    }

    /// Count of the frames for which the kernel had no room, where there is a kernel between. Asked for once.
    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        None
    }

    /// Bytes of frames for which the medium has room before they are read, as far as it says.
    fn room(&self) -> usize {
        ROOM_UNKNOWN
    }

    /// The bell that the node's own components ring.
    fn bell(&self) -> Arc<dyn Bell>;

    /// True if [`Self::is_ready`] sees everything, so that a poll that follows a `false` finds nothing. Where it does not, a poll is a
    /// call of the kernel.
    fn looks_suffice(&self) -> bool;

    /// True if senders ring the bell ([`Self::bell`]), so that any sleep on it ends when something has come.
    fn rings_doorbell(&self) -> bool {
        false
    }

    /// Descriptors of the medium that become readable when there is something.
    fn descriptors(&self) -> Descriptors<'_>;

    /// Returns true if the next sleep is to be one in the call that receives ([`Self::sleep`]). That is for a thread that is `alone`:
    /// others of its node wake it at a price. The bell rings accordingly from now on, so this is asked before it is armed.
    fn prepare_sleep(&mut self, _alone: bool) -> bool {
        false
    }

    /// Sleeps in the call that receives, with the bell armed, until something is there; for [`SLEEP_MAX`] at most.
    fn sleep(&mut self) -> Slept {
        Slept::Less
    }

    /// The waiter is awake again after sleeping on descriptors. Takes back what the bell left behind.
    fn handle_awake(&mut self);

    /// The next polls look everywhere, also where they usually look less often.
    fn look_everywhere(&mut self) {}

    /// True if polls since [`Self::look_everywhere`] found the end of all that the medium has: another one would find what came since.
    fn has_seen_all(&self) -> bool {
        false
    }

    /// A sleep on the medium's descriptors has ended: the next poll looks everywhere, and what woke without a frame is cleared.
    fn handle_woken(&mut self) {
        self.look_everywhere();
    }

    /// Does periodic work even if nothing arrives.
    fn housekeep(&mut self, now: Ticks);
}
