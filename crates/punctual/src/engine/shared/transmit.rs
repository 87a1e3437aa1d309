//! The sending half: one ring that all peers read.

use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::ring::{ClaimError, RingWriter};
use punctual_proto::NodeId;
use punctual_proto::limits::PREFIX_SIZE_MAX;

use super::payload_size_max;
use super::roster::{Pace, Peer, Roster};
use super::segment::SENT_CHANGING;
use crate::engine::{SendError, Transmit};

/// How often a few of a full ring's readers are asked whether they still live.
const LIVENESS_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct SharedTransmit {
    roster: Arc<Roster>,
    writer: RingWriter,
    peers: Vec<Arc<Peer>>,
    version_seen: u64,
    visits_seen: u32,
    claimed: Claimed,
    /// Committed frames that nobody was rung for yet: for one peer, or for all.
    unrung: Unrung,
    liveness: Pace,
}

/// Whom the claimed frame is for: found once, and then known for as long as the peers stay the same.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    target: Option<NodeId>,
    /// The target's entry in the table of frames sent; the broadcast counter has none.
    entry: usize,
    /// Its place among the peers; anything where it is everybody.
    peer: usize,
    /// The version of the roster with which it was found.
    version: u64,
}

impl Claimed {
    /// Frames sent to whom this one is for.
    #[inline]
    fn counter<'r>(&self, roster: &'r Roster) -> &'r Counter {
        match self.target {
            None => roster.own.broadcast(),
            Some(_) => &roster.own.sent()[2 * self.entry + 1],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unrung {
    Nobody,
    One(NodeId),
    Everybody,
}

impl SharedTransmit {
    pub(super) fn new(roster: Arc<Roster>) -> Self {
        let writer = RingWriter::new(roster.own.ring().clone());
        let (version_seen, peers) = (roster.version(), roster.peers());
        let visits_seen = roster.visits_seen();
        let liveness = Pace::new(LIVENESS_EVERY);
        let unrung = Unrung::Nobody;
        let claimed = Claimed { target: None, entry: 0, peer: 0, version: version_seen };
        Self { roster, writer, peers, version_seen, visits_seen, claimed, unrung, liveness }
    }

    #[inline]
    fn look_around(&mut self) {
        if self.roster.is_visited(self.visits_seen) {
            self.visits_seen = self.roster.handle_visits();
        }
        if self.roster.version() != self.version_seen {
            self.version_seen = self.roster.version();
            self.peers = self.roster.peers();
        }
    }

    /// Looks who is meant.
    fn find(&self, target: Option<NodeId>) -> Result<Claimed, SendError> {
        let (peer, entry) = target.map_or(Ok((0, 0)), |node| self.places_of(node))?;
        Ok(Claimed { target, entry, peer, version: self.version_seen })
    }

    /// The places of a target among the peers and in the table of frames sent.
    fn places_of(&self, target: NodeId) -> Result<(usize, usize), SendError> {
        let peer = self.peers.iter().position(|peer| peer.segment.owner.node == target);
        let peer = peer.ok_or(SendError::Unreachable)?;
        let table = self.roster.own.sent();
        let entry = table.chunks(2).position(|entry| entry[0].get() == target.get());
        Ok((peer, entry.map_or_else(|| self.new_entry(table, target), Ok)?))
    }

    #[cold]
    fn new_entry(&self, table: &[Counter], target: NodeId) -> Result<usize, SendError> {
        let is_free = |entry: &[Counter]| match NodeId::new(entry[0].get()) {
            None => true,
            Some(node) => !self.peers.iter().any(|peer| peer.segment.owner.node == node),
        };
        let entry = table.chunks(2).position(|entry| entry[0].get() == 0);
        let entry = entry.or_else(|| table.chunks(2).position(is_free)).ok_or(SendError::TooManyNodes)?;
        punctual_machine::label!("sent.free");
        if table[2 * entry].get() != 0 {
            table[2 * entry].set(SENT_CHANGING);
        }
        punctual_machine::label!("sent.zero");
        table[2 * entry + 1].set(0);
        punctual_machine::label!("sent.target");
        table[2 * entry].publish(target.get());
        punctual_machine::label!("sent.target.done");
        Ok(entry)
    }

    fn claim_record(&mut self, size: usize) -> Result<(), ClaimError> {
        if !self.roster.own.owner.held_back {
            return self.writer.claim(size);
        }
        let (peers, life) = (&self.peers, self.roster.own.owner.life);
        let (roster, visits_seen) = (&self.roster, self.visits_seen);
        let slowest = || match roster.is_visited(visits_seen) {
            // Somebody joins just now, and we do not know him yet: nothing is written over until we do.
            true => 0,
            false => peers.iter().map(|peer| position_of(peer, life)).min().unwrap_or(u64::MAX),
        };
        self.writer.claim_held(size, &mut { slowest })
    }

    /// A reader that died holds nothing: forget the dead, then try once more.
    #[cold]
    fn claim_without_the_dead(&mut self, size: usize) -> Result<(), ClaimError> {
        let joining = self.roster.is_visited(self.visits_seen);
        if self.liveness.is_due(Clock::get().now()) {
            self.roster.handle_housekeeping();
        } else if !joining {
            return Err(ClaimError::Full);
        }
        self.look_around();
        self.claim_record(size)
    }
}

/// Up to where a peer has read our ring. Only asked where readers hold the writer back.
fn position_of(peer: &Peer, life: u64) -> u64 {
    match peer.segment.cursor_of(life) {
        Some(position) => position,
        // It was there before us and will read from the start, as soon as it looks.
        None if peer.was_here && !peer.gone.is_raised() => 0,
        None => u64::MAX,
    }
}

impl Transmit for SharedTransmit {
    fn payload_size_max(&self) -> usize {
        payload_size_max(self.roster.own.ring().capacity())
    }

    #[inline]
    fn claim(&mut self, target: Option<NodeId>, size: usize) -> Result<u32, SendError> {
        self.look_around();
        if self.claimed.target != target || self.claimed.version != self.version_seen {
            self.claimed = self.find(target)?;
        }
        let claimed = match self.claim_record(size) {
            Err(ClaimError::Full) => self.claim_without_the_dead(size),
            claimed => claimed,
        };
        claimed.map_err(|error| match error {
            ClaimError::Full => SendError::Full,
            ClaimError::TooLong { .. } => {
                let size_max = self.payload_size_max();
                SendError::TooLong { size: size.saturating_sub(PREFIX_SIZE_MAX), size_max }
            }
        })?;
        Ok(self.claimed.counter(&self.roster).get() as u32)
    }

    #[inline]
    fn claimed(&mut self) -> &mut [u8] {
        self.writer.claimed_bytes()
    }

    #[inline]
    fn commit(&mut self) {
        let counter = self.claimed.counter(&self.roster);
        // Counted as soon as readers can see it: a frame that its writer dies over before that was never sent.
        self.writer.commit_counting(|| counter.publish(counter.get() + 1));
        self.unrung = match (self.unrung, self.claimed.target) {
            (Unrung::Nobody, Some(node)) => Unrung::One(node),
            (Unrung::One(first), Some(node)) if first == node => Unrung::One(node),
            _ => Unrung::Everybody,
        };
    }

    #[inline]
    fn flush(&mut self) {
        punctual_machine::label!("send.ring");
        match std::mem::replace(&mut self.unrung, Unrung::Nobody) {
            Unrung::Nobody => {}
            Unrung::One(node) => {
                let is_it = |peer: &&Arc<Peer>| peer.segment.owner.node == node;
                // Mostly the last one claimed for: in a crowd a search takes longer than the message.
                let known = self.peers.get(self.claimed.peer).filter(is_it);
                if let Some(peer) = known.or_else(|| self.peers.iter().find(is_it)) {
                    self.roster.ring(peer);
                }
            }
            Unrung::Everybody => {
                for peer in &self.peers {
                    self.roster.ring(peer);
                }
            }
        }
    }

    fn housekeep(&mut self, _now: Ticks) {
        self.look_around();
    }

    fn sent_to(&self, target: Option<NodeId>) -> u64 {
        match target {
            None => self.roster.own.broadcast().get(),
            Some(node) => self.roster.own.sent_to(node),
        }
    }
}
