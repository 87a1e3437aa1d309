//! Where the nodes of a bus find each other.

use std::fmt;
use std::sync::Arc;

use punctual_machine::event_fd::EventFd;
use punctual_proto::NodeId;

use super::segment::{Owner, Segment};

/// A node that was found.
pub(super) struct Found {
    pub(super) segment: Segment,
    /// Its descriptor bell, where it is already here. Otherwise it is sent later, or never.
    pub(super) event: Option<Arc<EventFd>>,
}

/// Where the nodes of a bus find each other, and how they reach each other's descriptors.
pub(super) trait Venue: Send + Sync + fmt::Debug {
    /// Everybody who is there and not yet known, dead or alive.
    fn newcomers(&self, is_known: &dyn Fn(NodeId, u64) -> bool) -> Vec<Found>;

    /// Gives a node that was found our descriptor bell.
    fn introduce(&self, to: &Owner);

    /// The descriptor bell of a node that sent it since it was found.
    fn event_of(&self, owner: &Owner) -> Option<Arc<EventFd>>;

    /// Makes a node's descriptor readable although its bell is not here.
    fn wake(&self, owner: &Owner);

    /// Takes in what others sent.
    fn drain(&self);

    /// Forgets a node that is gone; removes what it left behind if it died.
    fn forget(&self, owner: &Owner, died: bool);

    /// Removes ourselves.
    fn leave(&self);

    /// What becomes readable when others wake us without our bell.
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>>;
}
