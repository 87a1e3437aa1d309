//! Where the other nodes are, as far as their frames have told.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_proto::NodeId;
use punctual_proto::limits::NODES_MAX;

/// A newcomer may have the place of a node that was silent for so long, in a full table: as long as ten hellos take. Neither UDP nor
/// Ethernet tells of a death.
const SILENCE: Duration = Duration::from_secs(10);

/// Whether a node that was heard then may have died by now.
pub(super) fn is_long_silent(heard: Ticks, now: Ticks) -> bool {
    now.since(heard) >= Clock::get().ticks(SILENCE)
}

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
    /// When the last row of its frames began.
    heard: Ticks,
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

    /// When the last row of a node's frames began. Who has the least has been silent for longest: all others were heard since.
    pub(super) fn heard(&self, node: NodeId) -> Option<Ticks> {
        self.entries().iter().find(|entry| entry.node == node).map(|entry| entry.heard)
    }

    /// A row of frames begins that come from this node, and from there.
    #[cold]
    pub(super) fn learn(&self, node: NodeId, address: A, now: Ticks) {
        let new = Entry { node, address, heard: now };
        let mut entries = self.entries();
        match entries.iter().position(|entry| entry.node == node) {
            Some(index) => {
                let earlier = std::mem::replace(&mut entries[index], new);
                // Who hears several nodes in turn is told of each at every frame.
                if earlier.address == address {
                    return;
                }
            }
            None if entries.len() < NODES_MAX => entries.push(new),
            None => match entries.iter_mut().min_by_key(|entry| entry.heard) {
                Some(silent) if is_long_silent(silent.heard, now) => *silent = new,
                // A stranger too many: frames for it go to everybody, as before it was heard.
                _ => return,
            },
        }
        self.version.publish(self.version.get() + 1);
    }

    pub(super) fn forget(&self, node: NodeId) {
        self.entries().retain(|entry| entry.node != node);
        self.version.publish(self.version.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: in a full book a newcomer has the place of who was silent for longest, once that was long, and of nobody else.
    #[test]
    fn a_newcomer_has_the_place_of_who_is_long_silent() {
        let book = AddressBook::new();
        let at = |seconds| Clock::get().ticks(Duration::from_secs(seconds));
        let nodes: Vec<_> = (0..NODES_MAX).map(|number| NodeId::named(&number.to_string())).collect();
        nodes.iter().for_each(|&node| book.learn(node, 1, at(0)));
        book.learn(nodes[0], 1, at(9));
        let newcomer = NodeId::named("newcomer");
        for (seconds, address) in [(9, None), (10, Some(2))] {
            book.learn(newcomer, 2, at(seconds));
            assert_eq!(book.address_of(newcomer), address, "after {seconds} s");
        }
        let forgotten: Vec<_> = nodes.iter().filter(|&&node| book.address_of(node).is_none()).collect();
        assert_eq!(forgotten, [&nodes[1]]);
    }
}
