//! Communicators at a node, and their waits for each other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::counter::{Counter, Flag};
use punctual_proto::limits::COMMUNICATORS_MAX;

use super::inbox::Inbox;

/// The communicators of a node.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    inboxes: Mutex<Vec<Arc<Inbox>>>,
    /// Changes whenever the list does.
    version: Counter,
    waiting: Mutex<Waiting>,
    /// Somebody has used an event loop of his own.
    pub(super) has_event_loops: Flag,
}

/// Communicators that wait while nobody drives the engine, or somebody else does.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Followers that wait for the leader to leave.
    pub(super) followers: Vec<Arc<Inbox>>,
    /// Communicators that wait in event loops of their users, for the engine's bell and their own.
    pub(super) armed: usize,
}

impl Registry {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Arc<Inbox>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever a communicator comes or goes.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.get_published()
    }

    /// The list, which is locked, has changed.
    pub(super) fn note_change(&self) {
        self.version.publish(self.version.get() + 1);
    }

    /// Somebody watches, who stands in no list.
    pub(super) fn note_watcher(&self) {
        let _inboxes = self.lock();
        self.note_change();
    }

    /// Following allocates nothing from now on, whenever a communicator first does.
    pub(super) fn reserve(&self) {
        self.waiting().followers.reserve(COMMUNICATORS_MAX);
    }

    /// Puts a follower into the list of those who wait for the leader to leave.
    pub(crate) fn enlist(&self, inbox: &Arc<Inbox>) {
        let mut waiting = self.waiting();
        if !inbox.is_listed() {
            inbox.set_listed(true);
            waiting.followers.push(Arc::clone(inbox));
        }
    }

    /// Takes a follower off the list; `false` if a leader that left has done so, and means it to take over.
    pub(crate) fn delist(&self, inbox: &Arc<Inbox>) -> bool {
        let mut waiting = self.waiting();
        waiting.followers.retain(|other| !Arc::ptr_eq(other, inbox));
        let listed = inbox.is_listed();
        inbox.set_listed(false);
        listed
    }

    /// True if somebody may wait for the leader to leave.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        // The version counts binds and closes: one bind and no close is one communicator.
        self.version() > 1 || self.has_event_loops.is_raised()
    }
}

/// A copy of the registry's list, renewed when it has changed.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    /// Some of them take every message.
    pub(crate) has_monitors: bool,
    version_seen: u64,
}

impl Default for Ports {
    fn default() -> Self {
        // Renewed by the receiving thread, which is to allocate nothing.
        Self { inboxes: Vec::with_capacity(COMMUNICATORS_MAX), has_monitors: false, version_seen: 0 }
    }
}

impl Ports {
    #[inline]
    pub(crate) fn renew(&mut self, registry: &Registry) {
        let version = registry.version();
        if version != self.version_seen {
            self.inboxes.clone_from(&registry.lock());
            self.has_monitors = self.inboxes.iter().any(|inbox| inbox.monitors);
            self.version_seen = version;
        }
    }
}
