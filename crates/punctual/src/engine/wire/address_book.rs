//! Where the other nodes are, as far as their frames have told.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_machine::counter::Counter;
use punctual_proto::NodeId;
use punctual_proto::limits::NODES_MAX;

/// What both halves know of the other nodes.
#[derive(Debug)]
pub(super) struct AddressBook<A> {
    entries: Mutex<Vec<Entry<A>>>,
    /// Changes whenever an address does.
    pub(super) version: Counter,
    /// Nodes that asked to be told that we are here.
    unanswered: Mutex<VecDeque<NodeId>>,
}

#[derive(Debug)]
struct Entry<A> {
    node: NodeId,
    address: A,
}

impl<A: Copy + PartialEq> AddressBook<A> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), version: Counter::default(), unanswered: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry<A>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn unanswered(&self) -> MutexGuard<'_, VecDeque<NodeId>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address_of(&self, node: NodeId) -> Option<A> {
        self.entries().iter().find(|entry| entry.node == node).map(|entry| entry.address)
    }

    #[cold]
    pub(super) fn learn(&self, node: NodeId, address: A) {
        let mut entries = self.entries();
        match entries.iter().position(|entry| entry.node == node) {
            // Who hears several nodes in turn is told of each at every frame.
            Some(index) if entries[index].address == address => return,
            Some(index) => entries[index].address = address,
            // A stranger too many: frames for it go to everybody, as before it was heard.
            None if entries.len() == NODES_MAX => return,
            None => entries.push(Entry { node, address }),
        }
        self.version.publish(self.version.get() + 1);
    }

    pub(super) fn forget(&self, node: NodeId) {
        self.entries().retain(|entry| entry.node != node);
        self.version.publish(self.version.get() + 1);
    }
}
