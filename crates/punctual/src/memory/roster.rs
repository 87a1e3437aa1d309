//! Nodes on the bus: found once, shared by all publications and subscriptions of a node.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_machine::counter::{Counter, Flag};
use punctual_machine::doorbell::{Doorbell, Notification, sender_fence};
use punctual_machine::event_fd::EventFd;
use punctual_machine::process::Maker;
use punctual_proto::limits::NODES_MAX;

use super::segment::{Bells, Owner, READERS_BELL, Segment, State, WATCHER};
use super::venue::{Found, Scope, Sight, Venue};
use crate::engine::OpenError;

mod joining;

/// Peers that are looked up at a time, in turn. Each costs opening a file: two hundred nodes that looked up all others ten times a
/// second would open 398,000 files a second. A node that finds a death tells all others.
const LOOKUPS_MAX: usize = 8;

/// Steps of a look at everybody, a few names or nodes each. Only a folder with half a million names needs more.
pub(super) const STEPS_MAX: usize = 4096;

/// Deaths that are remembered, to answer how a node went.
const DEATHS_MAX: usize = 2 * NODES_MAX;

/// Event on which one of a node's subscriptions sleeps, once that is known, and the time at which that subscription began. A bell
/// belongs to one subscription after the other.
pub(super) type KnownEvent = RefCell<Option<(u64, Arc<EventFd>)>>;

/// Another node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) segment: Segment,
    /// It left or died.
    pub(super) gone: Flag,
    /// It died.
    pub(super) died: Flag,
}

impl Peer {
    fn new(found: Found) -> Self {
        let peer = Self { segment: found.segment, gone: Flag::default(), died: Flag::default() };
        if found.has_died {
            peer.died.raise();
            peer.gone.raise();
        }
        peer
    }

    /// Ourselves, as one of those whose publications are followed.
    pub(super) fn own(segment: Segment) -> Arc<Self> {
        Arc::new(Self::new(Found { segment, has_died: false }))
    }

    /// True if it is known to be gone, or says so itself: a load.
    pub(super) fn has_left(&self) -> bool {
        if !self.gone.is_raised() && self.segment.state() == State::Closed {
            self.gone.raise();
        }
        self.gone.is_raised()
    }

    /// True if it left, or its process is no more: opens a file.
    fn look_whether_gone(&self, venue: &dyn Venue) -> bool {
        // One that leaves says so before its ring is gone.
        if !self.has_left() && venue.has_died(&self.segment.owner) && !self.has_left() {
            self.died.raise();
            self.gone.raise();
        }
        self.gone.is_raised()
    }
}

#[derive(Debug, Default)]
struct List {
    peers: Vec<Arc<Peer>>,
    visits_seen: u32,
    /// Visits for which a look at everybody, where they need one, has begun.
    visits_begun: u32,
    /// Nodes that were found and the list has no room for.
    left_out: usize,
    /// Somebody could not be looked at for want of descriptors or memory.
    failed: bool,
    /// The last look has not seen everything yet.
    unfinished: bool,
    /// The peer whose process is looked up next.
    lookup_next: usize,
    /// Lives that have ended without a word, the newest last.
    dead: VecDeque<u64>,
}

impl List {
    /// Looks up the next few processes.
    fn look_up_some(&mut self, venue: &dyn Venue) {
        let (first, count) = (self.lookup_next, self.peers.len());
        let end = first + count.min(LOOKUPS_MAX);
        for index in first..end {
            self.peers[index % count].look_whether_gone(venue);
        }
        self.lookup_next = if count == 0 { 0 } else { end % count };
    }
}

/// Our own segment and everybody else's.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) own: Segment,
    /// Our own.
    pub(super) bells: Bells,
    pub(super) venue: Box<dyn Venue>,
    list: Mutex<List>,
    /// We are idle no more, and others tell us what there is.
    attends: Flag,
    /// Changes whenever the list does.
    version: Counter,
    /// Nodes that came, went, and of those died, since we are here. Stored under the list's lock.
    pub(super) came: Counter,
    pub(super) went: Counter,
    pub(super) died: Counter,
    maker: Maker,
}

impl Roster {
    /// Looks around, settles who comes in and who has the id, and says hello.
    pub(super) fn join(own: Segment, venue: Box<dyn Venue>) -> Result<Self, OpenError> {
        let roster = Self {
            bells: own.bells().expect("a node's own are mapped").clone(),
            own,
            venue,
            list: Mutex::default(),
            attends: Flag::default(),
            version: Counter::default(),
            came: Counter::default(),
            went: Counter::default(),
            died: Counter::default(),
            maker: Maker::this_process(),
        };
        punctual_machine::label!("roster.scan");
        if let Err(error) = roster.enter() {
            roster.own.set_state(State::Closed);
            roster.venue.leave();
            return Err(error);
        }
        punctual_machine::label!("roster.ready");
        roster.own.set_state(State::Ready);
        // Those that went while we joined had not come, for us.
        roster.went.set(0);
        roster.died.set(0);
        roster.came.set(roster.lock().peers.len() as u64);
        roster.say_hello()?;
        punctual_machine::label!("roster.joined");
        Ok(roster)
    }

    /// Everybody else who is not idle. A node that is still idle, by its memory, looks at everybody after the fence of its
    /// [`Self::attend`]. It then sees what was stored before the fence here.
    fn attentive(&self) -> Vec<Arc<Peer>> {
        sender_fence();
        self.lock().peers.iter().filter(|peer| !peer.segment.is_idle()).cloned().collect()
    }

    /// Our table says that we send, read or watch, and a fence was passed since: others tell us from now on what there is. The
    /// first time, looks at everybody who has come or gone before.
    pub(super) fn attend(&self) {
        if !self.attends.is_raised() {
            self.bells[0].announce_visit(false);
            self.attends.raise();
        }
        let mut seen = self.visits_seen();
        for _ in 0..STEPS_MAX {
            if !self.is_visited(seen) {
                break;
            }
            seen = self.handle_visits();
        }
    }

    /// Does something with everybody else.
    pub(super) fn for_each(&self, work: impl FnMut(&Arc<Peer>)) {
        self.lock().peers.iter().for_each(work);
    }

    /// True if `is_so` holds for somebody else.
    pub(super) fn any(&self, is_so: impl FnMut(&Arc<Peer>) -> bool) -> bool {
        self.lock().peers.iter().any(is_so)
    }

    /// True if this life of a node has ended without a word.
    pub(super) fn is_among_the_dead(&self, life: u64) -> bool {
        self.lock().dead.contains(&life)
    }

    /// Everybody else, as of now.
    pub(super) fn peers(&self) -> Vec<Arc<Peer>> {
        self.lock().peers.clone()
    }

    /// Changes when [`Self::peers`] may have.
    pub(super) fn version(&self) -> u64 {
        self.version.get_published()
    }

    /// True if a node announced itself since the last look. One load of our own cache line.
    #[inline]
    pub(super) fn is_visited(&self, visits_seen: u32) -> bool {
        self.bells[0].visits() != visits_seen
    }

    /// Visits that the last look covers.
    pub(super) fn visits_seen(&self) -> u32 {
        self.lock().visits_seen
    }

    /// Looks who is new, a few at a time; returns the number of visits that are settled by that.
    pub(super) fn handle_visits(&self) -> u32 {
        self.look_around(&mut self.lock(), false)
    }

    /// Looks who has left, and of a few peers in turn, whether they have died. The first to find a death tells all others, so
    /// that it is everybody's as soon as it is one's.
    pub(super) fn handle_housekeeping(&self) {
        let mut list = self.lock();
        list.look_up_some(&*self.venue);
        let dead = self.drop_gone(&mut list);
        if !dead.is_empty() {
            // A node that is still idle, and looks at everybody later, does not find their files.
            sender_fence();
        }
        for peer in list.peers.iter().filter(|peer| !dead.is_empty() && !peer.segment.is_idle()) {
            let noted = dead.iter().all(|dead| self.venue.report(&peer.segment.owner, dead));
            self.visit(peer, noted);
        }
        let has_room = list.left_out > 0 && list.peers.len() + 1 < NODES_MAX;
        if list.failed || has_room {
            self.look_around(&mut list, true);
        } else if list.unfinished {
            self.look_around(&mut list, false);
        }
    }

    /// Drops who is known to be gone; returns who of them died.
    fn drop_gone(&self, list: &mut List) -> Vec<Owner> {
        let (before, mut dead) = (list.peers.len(), Vec::new());
        list.peers.retain(|peer| {
            let gone = self.is_to_be_dropped(peer);
            if gone && peer.died.is_raised() {
                dead.push(peer.segment.owner);
            }
            !gone
        });
        let gone = before - list.peers.len();
        list.dead.extend(dead.iter().map(|owner| owner.life));
        while list.dead.len() > DEATHS_MAX {
            list.dead.pop_front();
        }
        if gone > 0 {
            self.went.set(self.went.get() + gone as u64);
            self.died.set(self.died.get() + dead.len() as u64);
            self.changed();
        }
        dead
    }

    fn is_to_be_dropped(&self, peer: &Peer) -> bool {
        let gone = peer.has_left();
        if gone {
            punctual_machine::label!("roster.forget");
            self.venue.forget(&peer.segment.owner, peer.died.is_raised());
        }
        gone
    }

    /// One bounded step of a look around.
    fn look_around(&self, list: &mut List, at_everybody: bool) -> u32 {
        let visits = self.bells[0].visits();
        let noted = Doorbell::are_noted(list.visits_begun, visits);
        list.visits_begun = visits;
        let scope = if noted && !at_everybody { Scope::News } else { Scope::All };
        if at_everybody {
            (list.left_out, list.failed) = (0, false);
        }
        let sight = self.sight(list, scope);
        list.failed |= sight.failure.is_some();
        list.unfinished = sight.incomplete;
        if sight.incomplete {
            // A writer that readers hold back writes over nothing while readers may be among those who are left.
            self.bells[READERS_BELL].announce_visit(true);
        }
        let mut has_news = false;
        for found in sight.found {
            let peer = Peer::new(found);
            // A node that is still joining might not come in. If it does, it says so.
            if self.is_to_be_dropped(&peer) || peer.segment.state() == State::Joining {
                continue;
            }
            if list.peers.len() + 1 >= NODES_MAX {
                list.left_out += 1;
                continue;
            }
            punctual_machine::label!("roster.answer");
            list.peers.push(Arc::new(peer));
            self.came.set(self.came.get() + 1);
            has_news = true;
        }
        if has_news {
            self.changed();
        }
        // A peer that left may have visited to say so.
        self.drop_gone(list);
        if !sight.incomplete {
            list.visits_seen = visits;
        }
        list.visits_seen
    }

    /// Nodes that are there and not in the list. A node in the list has left or died if it is there no more, if a newcomer has its id,
    /// or others say so. No other node need be looked up.
    fn sight(&self, list: &List, scope: Scope) -> Sight {
        let is_known = |node, life| {
            let is_it = |peer: &Arc<Peer>| {
                let owner = &peer.segment.owner;
                owner.life == life && owner.node == node
            };
            list.peers.iter().any(is_it)
        };
        let sight = self.venue.look(scope, &is_known);
        for peer in &list.peers {
            let owner = &peer.segment.owner;
            let is_missing = sight.present.as_ref().is_some_and(|present| !present.contains(&owner.life));
            let is_doubtful = sight.doubtful.contains(&owner.life);
            let is_replaced = || sight.found.iter().any(|found| found.segment.owner.node == owner.node);
            if is_missing || is_doubtful || is_replaced() {
                peer.look_whether_gone(&*self.venue);
            }
        }
        sight
    }

    /// Wakes who sleeps at one of a node's bells, if it is to be woken. `event` keeps the descriptor, once that is known.
    #[inline]
    pub(super) fn notify(
        &self,
        notification: Option<Notification>,
        node: &Segment,
        bell: usize,
        event: &KnownEvent,
    ) {
        match notification {
            None => {}
            Some(Notification::Futex) => node.bell(bell).wake_futex(),
            Some(Notification::Descriptor) => self.ring_descriptor(node, bell, event),
        }
    }

    #[cold]
    fn ring_descriptor(&self, node: &Segment, bell: usize, event: &KnownEvent) {
        let owner = &node.owner;
        // The thread that armed the bell stored that before.
        let began = node.subscription(bell)[1].get_published();
        let mut event = event.borrow_mut();
        if event.as_ref().is_none_or(|(of, _)| *of != began) {
            *event = self.venue.event_of(owner, (bell, began)).map(|found| (began, found));
        }
        match &*event {
            Some((_, event)) => event.ring(),
            None => self.venue.wake(owner),
        }
    }

    /// Rings one of a node's bells.
    pub(super) fn ring(&self, node: &Segment, bell: usize) {
        self.notify(node.bell(bell).ring(), node, bell, &KnownEvent::default());
    }

    /// Asks a node to look around, and wakes those of it who watch for nodes.
    fn visit(&self, peer: &Peer, noted: bool) {
        let Some(bells) = peer.segment.bells() else { return };
        bells[0].announce_visit(noted);
        self.ring_watchers(&peer.segment);
    }

    fn changed(&self) {
        self.version.publish(self.version.get() + 1);
        // Publications look for their readers again.
        self.bells[READERS_BELL].announce_visit(true);
        self.ring_watchers(&self.own);
    }

    fn ring_watchers(&self, node: &Segment) {
        for bell in node.bells_used() {
            if node.subscription(bell)[0].get_published() == WATCHER {
                self.ring(node, bell);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        // In a forked child: the node is its parent's, and stays.
        if !self.maker.is_this_process() {
            return;
        }
        punctual_machine::label!("roster.close");
        self.own.set_state(State::Closed);
        punctual_machine::label!("roster.farewell");
        for peer in self.attentive() {
            // Its departure is seen in its own memory.
            self.visit(&peer, true);
        }
        punctual_machine::label!("roster.leave");
        self.venue.leave();
        punctual_machine::label!("roster.left");
    }
}

#[cfg(test)]
mod tests {
    use punctual_machine::SystemError;
    use punctual_machine::memory::Mapping;
    use punctual_machine::process::ProcessIdentity;
    use punctual_proto::NodeId;

    use super::*;
    use std::time::Duration;

    /// A place with some nodes, one of which dies, that counts what is asked of it.
    #[derive(Debug, Default)]
    struct Square {
        others: Vec<Segment>,
        deaths_looked_up: Counter,
        dead: Counter,
        reports: Counter,
    }

    fn segment(node: u64) -> Segment {
        let process = ProcessIdentity { pid: 1, namespace: 1 };
        let owner = Owner { node: NodeId::new(node).unwrap(), life: node, process, held_back: false };
        let segment = Segment::private(owner, "node").unwrap();
        // It reads, and is told of others.
        segment.free_subscription().unwrap();
        segment
    }

    impl Venue for Arc<Square> {
        fn look(&self, _scope: Scope, is_known: &dyn Fn(NodeId, u64) -> bool) -> Sight {
            let is_new = |segment: &&Segment| !is_known(segment.owner.node, segment.owner.life);
            let found = |segment: &Segment| Found { segment: segment.clone(), has_died: false };
            Sight { found: self.others.iter().filter(is_new).map(found).collect(), ..Sight::default() }
        }

        fn has_died(&self, owner: &Owner) -> bool {
            self.deaths_looked_up.add(1);
            owner.life == self.dead.get()
        }

        fn introduce(&self, _to: &Owner) -> bool {
            true
        }

        fn report(&self, _to: &Owner, _dead: &Owner) -> bool {
            self.reports.add(1);
            true
        }

        fn wake(&self, _owner: &Owner) {}

        fn forget(&self, _owner: &Owner, _died: bool) {}

        fn create_stream(&self, _id: u64, size: usize) -> Result<Arc<Mapping>, SystemError> {
            Mapping::anonymous(size).map(Arc::new)
        }

        fn open_stream(&self, _owner: &Owner, _id: u64) -> Result<Option<Arc<Mapping>>, SystemError> {
            Ok(None)
        }

        fn remove_stream(&self, _id: u64) {}

        fn leave(&self) {}

        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }
    }

    fn join(square: &Arc<Square>) -> Result<Roster, OpenError> {
        Roster::join(segment(9_999), Box::new(Arc::clone(square)))
    }

    fn square(others: impl Iterator<Item = Segment>) -> Arc<Square> {
        Arc::new(Square { others: others.collect(), ..Square::default() })
    }

    /// Goal: a node that waits looks up its peers in turn, a few at a time, not all of them all the time; it tells all others
    /// of the one that has died.
    #[test]
    fn peers_are_looked_up_in_turn() {
        const OTHERS: usize = 199;
        let square = square((1..=OTHERS as u64).map(segment));
        let roster = join(&square).unwrap();
        let at_start = square.deaths_looked_up.get();
        for turn in 1..=100 {
            roster.handle_housekeeping();
            assert_eq!(square.deaths_looked_up.get() - at_start, turn * LOOKUPS_MAX as u64);
        }
        square.dead.set(77);
        for _ in 0..OTHERS.div_ceil(LOOKUPS_MAX) {
            roster.handle_housekeeping();
        }
        assert_eq!(roster.peers().len(), OTHERS - 1);
        assert_eq!(square.reports.get(), OTHERS as u64 - 1);
    }

    /// Goal: of nodes that join at once the first come in: tickets count, then lives, and a node without a ticket is waited for.
    #[test]
    fn a_node_that_is_too_late_is_refused() {
        let joining = |ticket| {
            move |node| {
                let segment = segment(node);
                segment.set_ticket(ticket);
                segment
            }
        };
        let full = NODES_MAX as u64;
        assert!(join(&square((1..full).map(joining(1)))).is_ok());
        // All have come before us.
        let refused = join(&square((1..=full).map(joining(1)))).unwrap_err();
        assert!(matches!(refused, OpenError::BusFull { .. }), "{refused}");
        // A ready node is there, regardless of its clock.
        let ready = |node| {
            let segment = segment(node);
            segment.set_ticket(u64::MAX);
            segment.set_state(State::Ready);
            segment
        };
        let refused = join(&square((1..=full).map(ready))).unwrap_err();
        assert!(matches!(refused, OpenError::BusFull { .. }), "{refused}");
        // One of them has chosen nothing yet: it will come after us.
        let undecided = square((1..full).map(joining(1)).chain([segment(full)]));
        std::thread::scope(|scope| {
            let ours = scope.spawn(|| join(&undecided));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!ours.is_finished(), "it waits for the one that has no ticket");
            undecided.others[NODES_MAX - 1].set_ticket(u64::MAX);
            let roster = ours.join().unwrap().unwrap();
            assert_eq!(roster.peers().len(), NODES_MAX - 1);
            assert!(roster.peers().iter().all(|peer| peer.segment.owner.life != full));
        });
    }

    /// Goal: others that draw their tickets while a node sorts them, or that say another one at every look, do it no harm.
    #[test]
    fn tickets_may_change_while_they_are_sorted() {
        let square = square((1..NODES_MAX as u64).map(segment));
        square.others.iter().for_each(|other| other.set_state(State::Ready));
        let is_over = Flag::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut ticket = 1_u64;
                while !is_over.is_raised() {
                    for other in &square.others {
                        ticket = ticket.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        other.set_ticket(ticket >> 40);
                    }
                }
            });
            let joined = std::panic::catch_unwind(|| (0..200).all(|_| join(&square).is_ok()));
            is_over.raise();
            assert!(joined.expect("no panic"));
        });
    }
}
