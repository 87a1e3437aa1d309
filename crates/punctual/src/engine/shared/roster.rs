//! Who is on the bus: found once, shared by both halves of the engine.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::doorbell::{Doorbell, Notification};
use punctual_machine::event_fd::EventFd;
use punctual_proto::limits::NODES_MAX;

use super::OpenError;
use super::segment::{Segment, State};
use super::venue::{Found, Venue};
use crate::engine::Bell;

/// How long a node that joins waits for another with the same id to make up its mind.
const TIE_WAIT_MAX: Duration = Duration::from_millis(200);

/// Peers whose process is looked up at a time, in turn. Each costs opening and reading a file of /proc: two hundred nodes that
/// looked up all others four times a second would read 159,200 files a second. Who finds a death tells all others.
const LOOKUPS_MAX: usize = 8;

/// Another node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) segment: Segment,
    /// It was there before us: it reads our ring from the start. Who came later reads from where it found us.
    pub(super) was_here: bool,
    event: OnceLock<Arc<EventFd>>,
    /// It left or died.
    pub(super) gone: Flag,
    /// It died.
    pub(super) died: Flag,
}

impl Peer {
    fn new(found: Found, was_here: bool) -> Self {
        let event = found.event.map_or_else(OnceLock::new, OnceLock::from);
        Self { segment: found.segment, was_here, event, gone: Flag::default(), died: Flag::default() }
    }

    /// Whether it is known to be gone, or says so itself: a load.
    fn has_left(&self) -> bool {
        if !self.gone.is_raised() && self.segment.state() == State::Closed {
            self.gone.raise();
        }
        self.gone.is_raised()
    }

    /// Whether it left, or its process is no more: reads a file of /proc.
    fn look_whether_gone(&self) -> bool {
        if !self.has_left() && !self.segment.owner.process.is_alive() {
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
    /// Nodes that the last look found and the list has no room for.
    left_out: usize,
    /// Whose process is looked up next.
    lookup_next: usize,
}

impl List {
    /// Looks up the next few processes.
    fn look_up_some(&mut self) {
        let (first, count) = (self.lookup_next, self.peers.len());
        let end = first + count.min(LOOKUPS_MAX);
        for index in first..end {
            self.peers[index % count].look_whether_gone();
        }
        self.lookup_next = if count == 0 { 0 } else { end % count };
    }
}

/// Our own segment and everybody else's.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) own: Segment,
    pub(super) event: Arc<EventFd>,
    pub(super) venue: Box<dyn Venue>,
    list: Mutex<List>,
    /// Changes whenever the list does.
    version: Counter,
}

impl Roster {
    /// Looks around, settles who has the id, and says hello.
    pub(super) fn join(own: Segment, event: Arc<EventFd>, venue: Box<dyn Venue>) -> Result<Self, OpenError> {
        let roster = Self { own, event, venue, list: Mutex::default(), version: Counter::default() };
        punctual_machine::label!("roster.scan");
        roster.scan(true);
        punctual_machine::label!("roster.settle");
        if let Err(error) = roster.check_room().and_then(|()| roster.settle_id()) {
            roster.venue.leave();
            return Err(error);
        }
        punctual_machine::label!("roster.ready");
        roster.own.set_state(State::Ready);
        punctual_machine::label!("roster.visit");
        for peer in roster.peers() {
            roster.visit(&peer);
        }
        punctual_machine::label!("roster.joined");
        Ok(roster)
    }

    /// A table of fixed size has an entry for each node. Of those that join at once the ones with the smaller lives come in.
    fn check_room(&self) -> Result<(), OpenError> {
        let own_life = self.own.owner.life;
        let list = self.lock();
        let before_us = list
            .peers
            .iter()
            .filter(|peer| peer.segment.state() == State::Ready || peer.segment.owner.life < own_life);
        if before_us.count() + list.left_out >= NODES_MAX {
            return Err(OpenError::BusFull { nodes_max: NODES_MAX });
        }
        Ok(())
    }

    /// Two lives with one id: the ready one keeps it; of two that join, the one with the smaller life.
    fn settle_id(&self) -> Result<(), OpenError> {
        let own = self.own.owner;
        let clock = Clock::get();
        let give_up = clock.now().plus(clock.ticks(TIE_WAIT_MAX));
        loop {
            let peers = self.peers();
            let rival =
                peers.iter().find(|peer| peer.segment.owner.node == own.node && !peer.look_whether_gone());
            let Some(rival) = rival else { return Ok(()) };
            let theirs = rival.segment.owner;
            if rival.segment.state() == State::Ready || theirs.life < own.life || clock.now() > give_up {
                return Err(OpenError::NodeTaken { node: own.node, pid: theirs.process.pid });
            }
            std::thread::yield_now();
        }
    }

    /// Everybody else, as of now.
    pub(super) fn peers(&self) -> Vec<Arc<Peer>> {
        self.lock().peers.clone()
    }

    /// Changes when [`Self::peers`] may have.
    pub(super) fn version(&self) -> u64 {
        self.version.get_published()
    }

    /// Whether somebody announced himself since the last look. One load of our own cache line.
    #[inline]
    pub(super) fn is_visited(&self, visits_seen: u32) -> bool {
        self.own.doorbell().visits() != visits_seen
    }

    /// Visits that the last look covers.
    pub(super) fn visits_seen(&self) -> u32 {
        self.lock().visits_seen
    }

    /// Looks who is new; returns the number of visits that this look covers.
    pub(super) fn handle_visits(&self) -> u32 {
        self.venue.drain();
        self.scan(false)
    }

    /// Looks who has left, and of a few peers in turn, whether they have died. The first to find a death tells all others, so
    /// that it is everybody's as soon as it is one's.
    pub(super) fn handle_housekeeping(&self) {
        let mut list = self.lock();
        list.look_up_some();
        if self.drop_gone(&mut list) {
            list.peers.iter().for_each(|peer| self.visit(peer));
        }
    }

    /// Drops who is known to be gone; returns whether one of them died.
    fn drop_gone(&self, list: &mut List) -> bool {
        let (before, mut died) = (list.peers.len(), false);
        list.peers.retain(|peer| {
            let gone = self.is_to_be_dropped(peer);
            died |= gone && peer.died.is_raised();
            !gone
        });
        if list.peers.len() != before {
            self.changed();
        }
        died
    }

    fn is_to_be_dropped(&self, peer: &Peer) -> bool {
        let gone = peer.has_left();
        if gone {
            punctual_machine::label!("roster.forget");
            self.venue.forget(&peer.segment.owner, peer.died.is_raised());
        }
        gone
    }

    fn scan(&self, at_start: bool) -> u32 {
        let mut list = self.lock();
        list.visits_seen = self.own.doorbell().visits();
        let found = self.newcomers(&list);
        list.left_out = 0;
        let mut has_news = at_start;
        for found in found {
            let peer = Peer::new(found, at_start);
            peer.look_whether_gone();
            if self.is_to_be_dropped(&peer) {
                continue;
            }
            if list.peers.len() + 1 >= NODES_MAX {
                list.left_out += 1;
                continue;
            }
            punctual_machine::label!("roster.introduce");
            self.venue.introduce(&peer.segment.owner);
            list.peers.push(Arc::new(peer));
            has_news = true;
        }
        if has_news {
            self.changed();
        }
        // A peer that left may have visited to say so.
        self.drop_gone(&mut list);
        list.visits_seen
    }

    /// Who is there and not in the list. Those in the list who are there no more, or whose id a newcomer has, have left or
    /// died: nobody else's process need be looked up.
    fn newcomers(&self, list: &List) -> Vec<Found> {
        let present = vec![Cell::new(false); list.peers.len()];
        let known = |node, life| {
            let is_it = |peer: &Arc<Peer>| {
                let owner = &peer.segment.owner;
                owner.life == life && owner.node == node
            };
            let index = list.peers.iter().position(is_it);
            index.inspect(|&index| present[index].set(true)).is_some()
        };
        let found = self.venue.newcomers(&known);
        for (peer, present) in list.peers.iter().zip(present) {
            let node = peer.segment.owner.node;
            if !present.get() || found.iter().any(|found| found.segment.owner.node == node) {
                peer.look_whether_gone();
            }
        }
        found
    }

    /// Rings the bell of a node for which something was stored.
    #[inline]
    pub(super) fn ring(&self, peer: &Peer) {
        match peer.segment.doorbell().ring(self.own.owner.node.get() as u32) {
            None => {}
            Some(Notification::Futex) => peer.segment.doorbell().wake_futex(),
            Some(Notification::Descriptor) => self.ring_descriptor(peer),
        }
    }

    #[cold]
    fn ring_descriptor(&self, peer: &Peer) {
        let owner = &peer.segment.owner;
        if peer.event.get().is_none()
            && let Some(event) = self.venue.event_of(owner)
        {
            let _set_meanwhile = peer.event.set(event);
        }
        match peer.event.get() {
            Some(event) => event.ring(),
            None => self.venue.wake(owner),
        }
    }

    /// Asks a node to look around.
    fn visit(&self, peer: &Peer) {
        peer.segment.doorbell().announce_visit();
        self.ring(peer);
    }

    fn changed(&self) {
        self.version.publish(self.version.get() + 1);
        // The other half of the engine, if it sleeps, has somebody to follow or to leave.
        crate::engine::ring(self);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell for Roster {
    fn doorbell(&self) -> &Doorbell {
        self.own.doorbell()
    }

    fn event(&self) -> &EventFd {
        &self.event
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        punctual_machine::label!("roster.close");
        self.own.set_state(State::Closed);
        punctual_machine::label!("roster.farewell");
        for peer in self.peers() {
            self.visit(&peer);
        }
        punctual_machine::label!("roster.leave");
        self.venue.leave();
        punctual_machine::label!("roster.left");
    }
}

/// When something was last done that has to be done from time to time.
#[derive(Debug)]
pub(super) struct Pace {
    every: Ticks,
    next: Ticks,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Self {
        Self { every: Clock::get().ticks(every), next: Ticks(0) }
    }

    /// Whether it is time again; if so, the next time is set.
    pub(super) fn is_due(&mut self, now: Ticks) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now.plus(self.every);
        }
        due
    }
}
