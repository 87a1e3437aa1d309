//! Joining of a node: it settles who comes in and who has the id, and says hello.

use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::Clock;
use punctual_proto::limits::NODES_MAX;

use super::super::segment::State;
use super::super::system;
use super::super::venue::Scope;
use super::{OpenError, Peer, Roster};
use crate::pause::TimeLimit;

/// Longest time that a joining node waits for another with the same id to make up its mind.
const TIE_WAIT_MAX: Duration = Duration::from_millis(200);

/// Longest time that a node that joins a nearly full bus waits for others that join just then: hundreds of processes that start at once
/// may need seconds for it.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);

/// Nodes that one that joins considers. More are not on an honest bus, even if all that it can have join at once, and fail.
const SEEN_MAX: usize = 4 * NODES_MAX;

impl Roster {
    pub(super) fn enter(&self) -> Result<(), OpenError> {
        self.take_ticket();
        // A node that took its ticket before us was there before, and is seen now.
        self.look_at_start()?;
        punctual_machine::label!("roster.settle");
        self.settle_room()?;
        self.settle_id()?;
        self.keep_the_first();
        Ok(())
    }

    /// Says when we came, once others can find us: so all agree who came before whom. Lamport's bakery (1974) would have us look at
    /// everybody for the highest ticket first; readings of one clock come in order by themselves. A node that reads another clock may
    /// come too early in that order: it has a time namespace of its own, where the processor has no counter. [`Self::settle_room`]
    /// therefore counts all who are ready.
    fn take_ticket(&self) {
        self.own.set_ticket(Clock::reading().0.max(1));
    }

    /// Everybody who is there, also those who join just now and may not come in.
    fn look_at_start(&self) -> Result<(), OpenError> {
        let mut list = self.lock();
        list.visits_seen = self.bells[0].visits();
        list.visits_begun = list.visits_seen;
        let sight = self.sight(&list, Scope::AtOnce);
        if let Some(error) = sight.failure {
            return Err(system(error));
        }
        for found in sight.found {
            let peer = Peer::new(found);
            if self.is_to_be_dropped(&peer) {
                continue;
            }
            if list.peers.len() == SEEN_MAX {
                return Err(OpenError::BusFull { nodes_max: NODES_MAX });
            }
            list.peers.push(Arc::new(peer));
        }
        self.changed();
        Ok(())
    }

    /// A table of fixed size has an entry for each node. Of those that join at once the first come in.
    fn settle_room(&self) -> Result<(), OpenError> {
        let own = self.own.order();
        let undecided = |peer: &Peer| peer.segment.state() == State::Joining && peer.segment.ticket() == 0;
        // Only where it matters is waited for those who are about to take theirs, and for the clock, which is still being checked.
        if self.lock().peers.len() >= NODES_MAX {
            let is_late = |peer: &Arc<Peer>| undecided(peer) && !peer.look_whether_gone(&*self.venue);
            let mut limit = TimeLimit::new(ROOM_WAIT_MAX);
            while self.peers().iter().any(is_late) && !limit.is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut list = self.lock();
        self.drop_gone(&mut list);
        if list.peers.iter().filter(|peer| is_before(peer, own)).count() >= NODES_MAX {
            return Err(OpenError::BusFull { nodes_max: NODES_MAX });
        }
        Ok(())
    }

    /// A node that joins after us might not come in. If it does, it has seen us and says so.
    fn keep_the_first(&self) {
        let own = self.own.order();
        let mut list = self.lock();
        list.peers.retain(|peer| is_before(peer, own));
        // Each is asked once: others draw their tickets meanwhile, and a sort whose keys change may panic.
        list.peers.sort_by_cached_key(|peer| peer.segment.order());
        list.left_out = list.peers.len().saturating_sub(NODES_MAX - 1);
        list.peers.truncate(NODES_MAX - 1);
    }

    /// Two lives with one id: the ready one keeps it; of two that join, the one with the smaller life.
    fn settle_id(&self) -> Result<(), OpenError> {
        let own = self.own.owner;
        let mut limit = TimeLimit::new(TIE_WAIT_MAX);
        loop {
            let peers = self.peers();
            let rival = peers
                .iter()
                .find(|peer| peer.segment.owner.node == own.node && !peer.look_whether_gone(&*self.venue));
            let Some(rival) = rival else { return Ok(()) };
            let theirs = rival.segment.owner;
            if rival.segment.state() == State::Ready || theirs.life < own.life || limit.is_over() {
                let pid = theirs.process.pid_here().unwrap_or(0);
                return Err(OpenError::NodeTaken { node: own.node, pid });
            }
            std::thread::yield_now();
        }
    }

    /// Tells all who are to know that we have come.
    pub(super) fn say_hello(&self) -> Result<(), OpenError> {
        let peers = self.attentive();
        for peer in &peers {
            // A node that did not hear of us would not hear us.
            peer.segment.open_bells().map_err(system)?;
        }
        let introduce = |peer: &Arc<Peer>| {
            punctual_machine::label!("roster.introduce");
            self.venue.introduce(&peer.segment.owner)
        };
        // Notes first: between the first visit and our following the visited, little is to be done.
        let noted: Vec<bool> = peers.iter().map(introduce).collect();
        punctual_machine::label!("roster.visit");
        for (peer, noted) in peers.iter().zip(noted) {
            self.visit(peer, noted);
        }
        Ok(())
    }
}

/// True if a node is on the bus, or may come onto it, before one that joins.
fn is_before(peer: &Peer, own: (u64, u64)) -> bool {
    peer.segment.state() == State::Ready || peer.segment.order() < own
}
