//! Where the nodes of a bus find each other.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use punctual_machine::SystemError;
use punctual_machine::event_fd::EventFd;
use punctual_machine::memory::Mapping;
use punctual_proto::NodeId;

use super::segment::{Owner, Segment};

/// A node that was found.
pub(super) struct Found {
    pub(super) segment: Segment,
    /// It is certainly dead.
    pub(super) has_died: bool,
}

/// Extent of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Everybody at once, however long it takes: before a node is on the bus.
    AtOnce,
    /// A few of the nodes of which others told.
    News,
    /// A few of everybody: the next looks go on until all have been seen.
    All,
}

/// Result of a look.
#[derive(Default)]
pub(super) struct Sight {
    /// Nodes that are there and were not known, dead or alive.
    pub(super) found: Vec<Found>,
    /// Lives of nodes of which somebody says that they have ended.
    pub(super) doubtful: Vec<u64>,
    /// The lives of all who are there, once all have been seen.
    pub(super) present: Option<Vec<u64>>,
    /// There is more to look at.
    pub(super) incomplete: bool,
    /// This process has no descriptor or memory left to look at somebody.
    pub(super) failure: Option<SystemError>,
}

/// Where the nodes of a bus find each other, and how they reach each other's descriptors.
pub(super) trait Venue: Send + Sync + fmt::Debug {
    /// Looks who is there.
    fn look(&self, scope: Scope, is_known: &dyn Fn(NodeId, u64) -> bool) -> Sight;

    /// True if a node is certainly dead.
    fn has_died(&self, owner: &Owner) -> bool;

    /// Tells a node to look at us. Returns true if that reached it.
    fn introduce(&self, to: &Owner) -> bool;

    /// Tells a node to look whether another has died. Returns true if that reached it.
    fn report(&self, to: &Owner, dead: &Owner) -> bool;

    /// Gives a node the descriptor of one of our subscriptions, by its bell and when it began. Returns true if that reached it.
    fn introduce_bell(&self, _to: &Owner, _place: (usize, u64), _event: &EventFd) -> bool {
        true
    }

    /// One of our subscriptions sleeps on this descriptor from now on; on none, once it has gone.
    fn keep_bell(&self, _bell: usize, _event: Option<&Arc<EventFd>>) {}

    /// The descriptor of one of a node's subscriptions, by its bell and when it began, which that sent since it was found.
    fn event_of(&self, _owner: &Owner, _place: (usize, u64)) -> Option<Arc<EventFd>> {
        None
    }

    /// Makes a node's descriptor readable although its bell is not here.
    fn wake(&self, owner: &Owner);

    /// Takes in what others sent, for the thread that is awake at one of our bells.
    fn drain(&self, _awake: usize) {}

    /// Forgets a node that is gone; removes what it left behind if it died.
    fn forget(&self, owner: &Owner, died: bool);

    /// Sees to it that a step of our table of rows can be written to: it is not there before it is needed.
    fn reserve_rows(&self, _step: usize) -> Result<(), SystemError> {
        Ok(())
    }

    /// The part of our file in which the further rows are, as far as it will ever grow.
    fn map_rows(&self, part: Range<usize>) -> Result<Mapping, SystemError> {
        Mapping::anonymous(part.len())
    }

    /// Memory for the ring of a publication of ours, zeroed.
    fn create_stream(&self, id: u64, size: usize) -> Result<Arc<Mapping>, SystemError>;

    /// The ring of a node's publication, for reading. `None` if it is gone.
    ///
    /// # Errors
    /// If this process has no descriptor or no memory left for it.
    fn open_stream(&self, owner: &Owner, id: u64) -> Result<Option<Arc<Mapping>>, SystemError>;

    /// Removes a ring of ours. A subscription that follows it reads it to its end.
    fn remove_stream(&self, id: u64);

    /// Removes ourselves.
    fn leave(&self);

    /// The descriptor that becomes readable when others wake us without our bell.
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>>;
}
