//! Where the other nodes are, as far as their frames have told.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_proto::NodeId;
use punctual_proto::limits::NODES_MAX;
use punctual_proto::recency::elapsed_ns;

/// A newcomer may have the place of a node that was silent for so long, in a full table: as long as ten hellos take. Neither UDP nor
/// Ethernet tells of a death.
const SILENCE: Duration = Duration::from_secs(10);

/// True if a node that was heard then, and not since, may have died.
pub(super) fn is_long_ago(then: Ticks, now: Ticks) -> bool {
    let clock = Clock::get();
    u128::from(elapsed_ns(clock.nanos(now), clock.nanos(then))) >= SILENCE.as_nanos()
}

/// Common knowledge of both halves about the other nodes.
#[derive(Debug)]
pub(super) struct AddressBook<A> {
    entries: Mutex<Entries<A>>,
    /// Changes whenever an address does.
    pub(super) version: Counter,
    /// Nodes that asked to be told that we are here.
    unanswered: Mutex<VecDeque<NodeId>>,
}

#[derive(Debug)]
struct Entries<A> {
    list: Vec<Entry<A>>,
    /// The node whose row of frames began last: it may go on, and nothing is said of that here.
    talking: Option<usize>,
}

#[derive(Debug)]
struct Entry<A> {
    node: NodeId,
    incarnation: u16,
    address: A,
    former: Option<Former>,
    /// Latest time at which the last row of its frames ended; for the node that talks, the time at which that row began.
    heard: Ticks,
    /// It said goodbye, and nothing since.
    has_left: bool,
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts<A> {
    /// Nobody has told, or the place in the book is another's by now.
    Unknown,
    /// There.
    Here(A),
    /// Gone: it said goodbye.
    Left,
}

/// The life of a node that had its place before.
#[derive(Clone, Copy, Debug)]
struct Former {
    incarnation: u16,
    /// When the next one said that it had just opened, once it did.
    over_since: Option<Ticks>,
}

impl<A> Entry<A> {
    /// True if this life is over, and was not for long: frames of it that are read late tell nothing. Of 65,536 lives of a node two have
    /// one incarnation, so a life that comes later may be another one.
    fn is_over(&self, life: u16, now: Ticks) -> bool {
        let Some(Former { incarnation, over_since: Some(since) }) = self.former else { return false };
        incarnation == life && !is_long_ago(since, now)
    }
}

impl<A: Copy + PartialEq> Entries<A> {
    fn position(&self, node: NodeId) -> Option<usize> {
        self.list.iter().position(|entry| entry.node == node)
    }

    /// Latest time at which a node was heard: a node that talks is heard now.
    fn heard(&self, index: usize, now: Ticks) -> Ticks {
        if self.talking == Some(index) { now } else { self.list[index].heard }
    }

    /// The place of a newcomer: in a full book that of a node that has left, or was silent for longest, if that is long.
    fn place(&self, now: Ticks) -> Option<usize> {
        if self.list.len() < NODES_MAX {
            return Some(self.list.len());
        }
        let entries = self.list.iter().enumerate();
        let key = |entry: &Entry<A>| (!entry.has_left, !is_long_ago(entry.heard, now), entry.heard);
        let (index, least) = entries.min_by_key(|(_, entry)| key(entry))?;
        (least.has_left || is_long_ago(least.heard, now)).then_some(index)
    }
}

impl<A: Copy + PartialEq> AddressBook<A> {
    pub(super) fn new() -> Self {
        let entries = Mutex::new(Entries { list: Vec::new(), talking: None });
        Self { entries, version: Counter::default(), unanswered: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries<A>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn unanswered(&self) -> MutexGuard<'_, VecDeque<NodeId>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn whereabouts(&self, node: NodeId) -> Whereabouts<A> {
        let entries = self.entries();
        match entries.position(node).map(|index| &entries.list[index]) {
            None => Whereabouts::Unknown,
            Some(entry) if entry.has_left => Whereabouts::Left,
            Some(entry) => Whereabouts::Here(entry.address),
        }
    }

    pub(super) fn address_of(&self, node: NodeId) -> Option<A> {
        match self.whereabouts(node) {
            Whereabouts::Here(address) => Some(address),
            Whereabouts::Unknown | Whereabouts::Left => None,
        }
    }

    /// Of these nodes, each with an instant from which on it can be silent, which has been for longest, and since when.
    pub(super) fn silent_longest(
        &self,
        nodes: impl Iterator<Item = (NodeId, Ticks)>,
        now: Ticks,
    ) -> Option<(Ticks, usize)> {
        let entries = self.entries();
        let silent = |(index, (node, begin)): (usize, (NodeId, Ticks))| {
            let heard = entries.position(node).map(|index| entries.heard(index, now));
            (heard.map_or(begin, |heard| heard.max(begin)), index)
        };
        nodes.enumerate().map(silent).min_by_key(|&(heard, index)| (!is_long_ago(heard, now), heard, index))
    }

    /// A row of frames begins that come from this life of a node, and from there. The row before ends. Returns false if the life is over:
    /// then it may not be for long.
    #[cold]
    pub(super) fn learn(&self, (node, incarnation): (NodeId, u16), address: A, now: Ticks) -> bool {
        let mut entries = self.entries();
        if let Some(before) = entries.talking.take() {
            entries.list[before].heard = now;
        }
        // A stranger too many: frames for it go to everybody, as before it was heard.
        let Some(index) = entries.position(node).or_else(|| entries.place(now)) else { return true };
        let mut new = Entry { node, incarnation, address, former: None, heard: now, has_left: false };
        match entries.list.get_mut(index) {
            Some(place) => {
                let is_same = place.node == node;
                if is_same && place.is_over(incarnation, now) {
                    return false;
                }
                if is_same {
                    let before = Former { incarnation: place.incarnation, over_since: None };
                    new.former = if before.incarnation == incarnation { place.former } else { Some(before) };
                }
                let earlier = std::mem::replace(place, new);
                entries.talking = Some(index);
                // A receiver that hears several nodes in turn learns of each at every frame.
                if is_same && earlier.address == address && !earlier.has_left {
                    return true;
                }
            }
            None => {
                entries.list.push(new);
                entries.talking = Some(index);
            }
        }
        self.version.publish(self.version.get() + 1);
        true
    }

    /// A life of a node has just opened: the one that had its place is over. Frames alone do not tell which of two lives is the later.
    pub(super) fn handle_opening(&self, (node, incarnation): (NodeId, u16), now: Ticks) {
        let mut entries = self.entries();
        let is_it = |entry: &&mut Entry<A>| (entry.node, entry.incarnation) == (node, incarnation);
        let former = entries.list.iter_mut().find(is_it).and_then(|entry| entry.former.as_mut());
        if let Some(former) = former {
            former.over_since.get_or_insert(now);
        }
    }

    /// A life of a node has said goodbye. Another one may be there by now.
    pub(super) fn handle_goodbye(&self, (node, incarnation): (NodeId, u16)) {
        let mut entries = self.entries();
        let is_it = |entry: &&mut Entry<A>| (entry.node, entry.incarnation) == (node, incarnation);
        if let Some(entry) = entries.list.iter_mut().find(is_it) {
            entry.has_left = true;
        }
        self.version.publish(self.version.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: in a full book a newcomer takes the place of a node that has left, or that was silent for longest, once that was long. It
    /// takes no other place.
    #[test]
    fn a_newcomer_has_the_place_of_who_is_long_silent() {
        let book = AddressBook::new();
        let at = |seconds| Clock::get().ticks(Duration::from_secs(seconds));
        let nodes: Vec<_> = (0..NODES_MAX).map(|number| NodeId::named(&number.to_string())).collect();
        nodes.iter().for_each(|&node| assert!(book.learn((node, 1), 1, at(0))));
        // Talks until the newcomer does.
        book.learn((nodes[0], 1), 1, at(1));
        let newcomer = NodeId::named("newcomer");
        for (seconds, address) in [(9, None), (11, Some(2))] {
            book.learn((newcomer, 1), 2, at(seconds));
            assert_eq!(book.address_of(newcomer), address, "after {seconds} s");
        }
        book.handle_goodbye((nodes[7], 1));
        assert_eq!(book.whereabouts(nodes[7]), Whereabouts::Left);
        let next = NodeId::named("next");
        book.learn((next, 1), 2, at(15));
        assert_eq!(book.address_of(next), Some(2));
        let unknown = |&&node: &&NodeId| book.whereabouts(node) == Whereabouts::Unknown;
        assert_eq!(nodes.iter().filter(unknown).collect::<Vec<_>>(), [&nodes[1], &nodes[7]]);
    }

    /// Goal: after a suspend with which the counter began anew a newcomer has a place at once, that of a node of before.
    #[test]
    fn a_newcomer_has_a_place_after_the_counter_began_anew() {
        let book = AddressBook::new();
        let at = |seconds| Clock::get().ticks(Duration::from_secs(seconds));
        let nodes: Vec<_> = (0..NODES_MAX).map(|number| NodeId::named(&number.to_string())).collect();
        nodes.iter().for_each(|&node| assert!(book.learn((node, 1), 1, at(3_600))));
        book.learn((nodes[0], 1), 1, at(1));
        let newcomer = NodeId::named("newcomer");
        book.learn((newcomer, 1), 2, at(2));
        assert_eq!(book.address_of(newcomer), Some(2));
        assert_eq!(book.address_of(nodes[0]), Some(1), "it was heard since");
    }

    /// Goal: frames and goodbyes of a life that is over, read late, neither take the address of the next life nor end it. Much later the
    /// same incarnation is of a new life.
    #[test]
    fn a_life_that_is_over_tells_nothing() {
        let book = AddressBook::new();
        let at = |seconds| Clock::get().ticks(Duration::from_secs(seconds));
        let node = NodeId::named("node");
        book.learn((node, 7), 1, at(0));
        book.learn((node, 8), 2, at(20));
        book.handle_opening((node, 8), at(20));
        let version = book.version.get();
        assert!(!book.learn((node, 7), 1, at(21)));
        assert_eq!((book.address_of(node), book.version.get()), (Some(2), version));
        book.handle_goodbye((node, 7));
        assert_eq!(book.whereabouts(node), Whereabouts::Here(2));
        assert!(book.learn((node, 7), 3, at(31)));
        assert_eq!(book.address_of(node), Some(3), "more than 10 s later it is another one");
        book.handle_goodbye((node, 7));
        assert_eq!(book.whereabouts(node), Whereabouts::Left);
        book.learn((node, 9), 4, at(32));
        book.handle_opening((node, 9), at(32));
        book.learn((node, 9), 5, at(33));
        book.learn((node, 7), 3, at(34));
        assert_eq!(book.whereabouts(node), Whereabouts::Here(5), "a life that moves is one");
    }

    /// Goal: a life that was heard first, and opened after, is never taken to be over by frames of one before it.
    #[test]
    fn frames_alone_end_no_life() {
        let book = AddressBook::new();
        let at = |seconds| Clock::get().ticks(Duration::from_secs(seconds));
        let node = NodeId::named("node");
        book.learn((node, 8), 2, at(0));
        book.handle_opening((node, 8), at(0));
        book.learn((node, 7), 1, at(0));
        assert_eq!(book.address_of(node), Some(1), "nobody can tell yet");
        book.learn((node, 8), 2, at(1));
        assert_eq!(book.address_of(node), Some(2));
    }
}
