//! Media that somebody else made: any medium that carries frames to one node or to everybody can carry a bus.
//!
//! An [`Adapter`] moves bytes. Everything that a bus promises stands above it, as above UDP and Ethernet: check values, seals,
//! stages, and accounts of what was sent and lost. A bridge between two buses would end each of these; an adapter ends none.
//!
//! An example is in the repository, over Zenoh's routers (`bridges/zenoh`); the smallest is the medium of the conformance suite
//! (`tests/common/in_memory.rs`).

mod queue;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use punctual_proto::NodeId;
use punctual_proto::frame::SOURCE_NODE_AT;
use punctual_proto::limits::{CHECK_SIZE, PAYLOAD_SIZE_MAX, PREFIX_SIZE_MAX};

pub use queue::{Inlet, Outlet, queue};

use super::wire::{self, MediumReceive, MediumTransmit, Own, RawFrame, WireBell};
use super::{Bell, Descriptors, Drops, Engine, Flow, Joined, OpenError, PrivateBell, check_name, ring};
use crate::seal::Seals;

/// Smallest frame that an adapter must carry, bytes: the largest prefix, a check value and something to say.
const FRAME_SIZE_MIN: usize = 128;
const _: () = assert!(FRAME_SIZE_MIN > PREFIX_SIZE_MAX + CHECK_SIZE);

/// A medium to which nodes can be opened.
pub trait Adapter: Send + Sync + fmt::Debug + 'static {
    /// Kind of the medium, in letters, digits, `-` and `_`: every seal is bound to it.
    fn kind(&self) -> &str;

    /// Name of the medium that all nodes of the bus share, in the same letters: every seal is bound to that too.
    fn name(&self) -> &str;

    /// Joins the medium for a node. When this returns, everything that others send to the node from now on will arrive, as far as the
    /// medium keeps its promises. Nodes that are there already are known.
    ///
    /// # Errors
    /// [`OpenError::Medium`], [`OpenError::Invalid`] and [`OpenError::NodeTaken`] are for adapters.
    fn open(&self, presence: Presence, ringer: Ringer) -> Result<AdapterEnds, OpenError>;
}

/// A node, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The node.
    pub node: NodeId,
    /// Life of the node.
    pub incarnation: u16,
}

/// Both ends of a medium that is open for a node.
#[derive(Debug)]
pub struct AdapterEnds {
    /// The sending half.
    pub transmit: Box<dyn AdapterTransmit>,
    /// The receiving half.
    pub receive: Box<dyn AdapterReceive>,
}

/// The sending half of an adapter. Never blocks, unless its user has chosen so; never retries.
pub trait AdapterTransmit: Send + fmt::Debug {
    /// Largest frame, bytes. At least 128; each communicator has buffers for it.
    fn frame_size_max(&self) -> usize;

    /// True if a node can be reached. A message for one that cannot is refused before it has a number; where the medium does not know,
    /// it is sent, and lost if nobody is there.
    fn is_there(&self, _node: NodeId) -> bool {
        true
    }

    /// True if a frame of that size for this node, or for everybody, would be taken now.
    fn has_room(&mut self, _target: Option<NodeId>, _size: usize) -> bool {
        true
    }

    /// Takes a frame for this node, or for all others; it has room. `false` if it is refused for good: that is counted.
    fn send(&mut self, target: Option<NodeId>, frame: &[u8]) -> bool;

    /// Hands over what waits for more, if anything does.
    fn flush(&mut self) {}
}

/// The receiving half of an adapter.
pub trait AdapterReceive: Send + fmt::Debug {
    /// Shows at most `limit` of what has come, oldest first per sender, until told to stop. Returns how many.
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Heard<'_>) -> Flow) -> usize;

    /// True if a poll would find something. A thread that makes it true rings afterwards ([`Ringer`]): [`queue`] does both.
    fn is_ready(&self) -> bool;

    /// Counter of the frames for which there was no room at this end. Asked for once.
    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        None
    }
}

/// An item that has come to a node. Frames are believed only if check value, and seal, say so; the rest is the medium's word.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// A frame.
    Frame(&'a [u8]),
    /// This node cannot be reached any more: it is gone, or the way to it. Its account ends for now.
    Gone(Presence),
    /// This node can be reached again, in the same life: its account goes on.
    Back(Presence),
}

/// Wakes who waits at the node. From any thread, after [`AdapterReceive::is_ready`] has become true. Costs a fence and a load
/// while the receiver is awake.
#[derive(Clone, Debug)]
pub struct Ringer(Arc<WireBell>);

impl Ringer {
    /// Once.
    #[inline]
    pub fn ring(&self) {
        let bell: &dyn Bell = &*self.0;
        ring(bell);
    }
}

/// Opens a node on a medium that somebody else made.
pub(crate) fn open(
    adapter: &dyn Adapter,
    node: NodeId,
    seals: Option<&Seals>,
) -> Result<(Engine, Joined), OpenError> {
    check_name("kind of bus", adapter.kind())?;
    check_name("bus", adapter.name())?;
    let own = Own::new(node);
    let incarnation = own.incarnation;
    let system =
        |error| OpenError::System { error, advice: "most likely for want of descriptors: see `ulimit -n`" };
    let bell = Arc::new(WireBell::new(PrivateBell::new().map_err(system)?, None));
    let ends = adapter.open(Presence { node, incarnation }, Ringer(Arc::clone(&bell)))?;
    let frame_size_max = ends.transmit.frame_size_max();
    let size_max = PAYLOAD_SIZE_MAX + PREFIX_SIZE_MAX + CHECK_SIZE;
    if !(FRAME_SIZE_MIN..=size_max).contains(&frame_size_max) {
        let text = format!("frames of {frame_size_max} bytes: {FRAME_SIZE_MIN} to {size_max} are needed");
        return Err(OpenError::Invalid(text));
    }
    let frame = vec![0; frame_size_max];
    let transmit = AdaptedTransmit { ends: ends.transmit, frame, claimed: 0, target: None, refused: 0 };
    let receive = AdaptedReceive { ends: ends.receive, own: node, noticed: VecDeque::with_capacity(1) };
    let engine = wire::open_with(bell, own, transmit, receive, seals);
    Ok((engine, Joined { incarnation }))
}

#[derive(Debug)]
struct AdaptedTransmit {
    ends: Box<dyn AdapterTransmit>,
    /// The frame in the making.
    frame: Vec<u8>,
    claimed: usize,
    target: Option<NodeId>,
    refused: u64,
}

impl MediumTransmit for AdaptedTransmit {
    type Address = NodeId;

    fn frame_size_max(&self) -> usize {
        self.frame.len()
    }

    fn address_of(&self, node: NodeId) -> Option<NodeId> {
        Some(node)
    }

    fn is_there(&self, node: NodeId) -> bool {
        self.ends.is_there(node)
    }

    fn claim(&mut self, size: usize, to: Option<NodeId>) -> bool {
        if size > self.frame.len() || !self.ends.has_room(to, size) {
            return false;
        }
        (self.claimed, self.target) = (size, to);
        true
    }

    fn claimed(&mut self) -> &mut [u8] {
        &mut self.frame[..self.claimed]
    }

    fn commit(&mut self) {
        self.refused += u64::from(!self.ends.send(self.target, &self.frame[..self.claimed]));
    }

    fn flush(&mut self) -> bool {
        self.ends.flush();
        false
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

#[derive(Debug)]
struct AdaptedReceive {
    ends: Box<dyn AdapterReceive>,
    own: NodeId,
    /// Notices of the medium behind the frames that were shown last: one, as it ends a batch.
    noticed: VecDeque<(Presence, bool)>,
}

impl MediumReceive for AdaptedReceive {
    type Address = NodeId;

    fn poll(&mut self, limit: usize, visit: &mut impl FnMut(RawFrame<'_, NodeId>) -> Flow) -> usize {
        let Self { ends, own, noticed } = self;
        ends.poll(limit, &mut |heard| {
            let (presence, is_back) = match heard {
                Heard::Frame(bytes) => {
                    let source = &source_of(bytes).unwrap_or(*own);
                    return visit(RawFrame { bytes, source, truncated: false, kernel_ns: None });
                }
                Heard::Gone(presence) => (presence, false),
                Heard::Back(presence) => (presence, true),
            };
            noticed.push_back((presence, is_back));
            Flow::Stop
        })
    }

    fn noticed(&mut self) -> Option<(Presence, bool)> {
        self.noticed.pop_front()
    }

    fn is_ready(&self) -> bool {
        self.ends.is_ready()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        self.ends.drops()
    }

    fn looks_suffice(&self) -> bool {
        true
    }

    fn rings_doorbell(&self) -> bool {
        true
    }

    fn handle_woken(&mut self) {}

    fn descriptors(&self) -> Descriptors<'_> {
        [None, None]
    }
}

/// The node that this frame names as its sender: that is where it can be reached.
fn source_of(frame: &[u8]) -> Option<NodeId> {
    let bytes = frame.get(SOURCE_NODE_AT..)?.first_chunk()?;
    NodeId::new(u64::from_le_bytes(*bytes))
}
