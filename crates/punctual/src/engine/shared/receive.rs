//! The receiving half: a reader of every peer's ring.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::Ticks;
use punctual_machine::ring::{Next, RingReader, SharedBytes};
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::NODES_MAX;
use punctual_proto::{FrameError, Header, NodeId, Stamps};

use super::roster::{Pace, Peer, Roster};
use super::segment::{NODE_BELL, State};
use crate::engine::{Arrival, Bell, Descriptors, Event, Flow, Identity, Payload, Progress, Receive, Trouble};

mod alike;

pub(crate) use alike::Likeness;

/// How often a few peers are asked whether they still live.
const LIVENESS_EVERY: Duration = Duration::from_millis(250);

/// Peers whose rings are mapped whole when they are found. Of more, in a crowd, the rings of those who have said something.
const MAPPED_AT_ONCE: usize = 8;

/// Peers that are looked at before the one who spoke last is looked at again: in a crowd it would wait until all were.
const LOOKS_IN_BETWEEN: usize = 4;

/// One peer's ring, as far as we have read it.
#[derive(Debug)]
struct Follower {
    peer: Arc<Peer>,
    ring: RingReader,
    /// Our entry in our table of cursors.
    slot: usize,
    /// Its writer waits for us.
    held_back: bool,
    /// Where we began, until the ring's pages are mapped: of one who says nothing they are not needed.
    unmapped_from: Option<u64>,
    /// Bytes that no honest writer leaves were found.
    corrupt: bool,
    /// Its writer's count of what was sent is to be compared with what arrived.
    behind: bool,
}

#[derive(Debug)]
pub(crate) struct SharedReceive {
    roster: Arc<Roster>,
    followers: Vec<Follower>,
    /// Where the next poll begins, so that a busy peer does not starve the others.
    first: usize,
    /// Whose frame stopped the last poll.
    last: usize,
    /// Peers that joined and were not yet told of, with whether their progress is exact.
    joined: VecDeque<(Arc<Peer>, Progress, bool)>,
    /// Peers that were told of as gone by the last poll.
    departed: Vec<Arc<Peer>>,
    /// A peer found no free entry in our table of cursors: those of peers that are gone are not all told of yet.
    awaits_slot: bool,
    version_seen: u64,
    visits_seen: u32,
    liveness: Pace,
}

/// What reading one record came to.
enum Step {
    Nothing,
    Skipped,
    Shown(Flow),
}

impl SharedReceive {
    pub(super) fn new(roster: Arc<Roster>) -> Self {
        let visits_seen = roster.visits_seen();
        let mut receive = Self {
            followers: Vec::with_capacity(NODES_MAX),
            first: 0,
            last: 0,
            joined: VecDeque::with_capacity(NODES_MAX),
            departed: Vec::with_capacity(NODES_MAX),
            awaits_slot: false,
            version_seen: roster.version(),
            visits_seen,
            liveness: Pace::new(LIVENESS_EVERY),
            roster,
        };
        receive.follow_newcomers();
        receive
    }

    #[inline]
    fn look_around(&mut self) {
        if self.roster.is_visited(self.visits_seen) {
            self.visits_seen = self.roster.handle_visits();
        }
        if self.roster.version() != self.version_seen {
            self.version_seen = self.roster.version();
            self.follow_newcomers();
        }
    }

    #[cold]
    fn follow_newcomers(&mut self) {
        for peer in self.roster.peers() {
            let life = peer.segment.owner.life;
            if self.followers.iter().any(|follower| follower.peer.segment.owner.life == life) {
                continue;
            }
            self.follow(peer);
        }
    }

    fn follow(&mut self, peer: Arc<Peer>) {
        let cursors = self.roster.own.cursors();
        let Some(slot) = cursors.chunks(2).position(|entry| entry[0].get() == 0) else {
            self.awaits_slot = true;
            return;
        };
        // Who was here before us has sent things that were not for us; who came later, everything.
        let memory = peer.segment.ring().clone();
        let mut ring =
            if peer.was_here { RingReader::from_now(memory) } else { RingReader::from_start(memory) };
        punctual_machine::label!("cursor.position");
        cursors[2 * slot + 1].publish(ring.position());
        punctual_machine::label!("cursor.life");
        cursors[2 * slot].publish(peer.segment.owner.life);
        let mut progress = Progress { unicast: Some(0), broadcast: 0 };
        if peer.was_here {
            // Between the look at the end and the cursor the writer may have gone on: from here on it waits for us. Its
            // count is read after its end, so that our streams begin there or earlier, never later.
            punctual_machine::label!("cursor.join");
            ring.move_to_now();
            punctual_machine::label!("cursor.now");
            cursors[2 * slot + 1].publish(ring.position());
            punctual_machine::label!("cursor.now.done");
            progress = progress_of(&peer, self.roster.own.owner.node);
        }
        let exact = !peer.was_here;
        self.joined.push_back((Arc::clone(&peer), progress, exact));
        let unmapped_from = if self.followers.len() < MAPPED_AT_ONCE {
            peer.segment.populate();
            None
        } else {
            Some(ring.position())
        };
        let held_back = peer.segment.owner.held_back;
        self.followers.push(Follower {
            peer,
            ring,
            slot,
            held_back,
            unmapped_from,
            corrupt: false,
            behind: false,
        });
    }

    /// Tells of one that joined or left, if there is one.
    fn show_membership(&mut self, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> Option<Flow> {
        if let Some((peer, progress, exact)) = self.joined.pop_front() {
            let owner = peer.segment.owner;
            return Some(visit(Event::Joined {
                node: owner.node,
                incarnation: owner.incarnation(),
                progress,
                exact,
            }));
        }
        let left = self.followers.iter().position(|follower| {
            follower.peer.gone.is_raised() && (follower.corrupt || !follower.ring.has_news())
        })?;
        let follower = self.followers.swap_remove(left);
        let cursors = self.roster.own.cursors();
        punctual_machine::label!("cursor.free");
        cursors[2 * follower.slot].publish(0);
        punctual_machine::label!("cursor.free.done");
        // The list of peers may stay as it is from now on: nothing else would make us look again.
        if std::mem::take(&mut self.awaits_slot) {
            self.follow_newcomers();
        }
        let owner = follower.peer.segment.owner;
        let flow = visit(Event::Left {
            node: owner.node,
            incarnation: owner.incarnation(),
            // Nothing that a corrupt peer says is believed.
            progress: (!follower.corrupt).then(|| progress_of(&follower.peer, self.roster.own.owner.node)),
            died: follower.peer.died.is_raised(),
        });
        self.departed.push(follower.peer);
        Some(flow)
    }

    /// Reads the next record of one peer.
    #[inline]
    fn step(&mut self, index: usize, visit: &mut impl FnMut(Event<'_>) -> Flow) -> Step {
        let own = self.roster.own.owner.node;
        let follower = &mut self.followers[index];
        if follower.corrupt {
            return Step::Nothing;
        }
        // Who it is lies in memory of its own, which of one who is silent need not be asked for.
        let who = |follower: &Follower| {
            let owner = follower.peer.segment.owner;
            (owner.node, owner.incarnation())
        };
        match follower.ring.peek() {
            Next::Empty if follower.behind => follower.compare(own, visit),
            Next::Empty => Step::Nothing,
            Next::Frame => follower.show_frame(own, visit),
            Next::Overrun => {
                follower.behind = true;
                // Its count is read after its end, at which we stand now: our next frame is one of those counted, or the next.
                let progress = progress_of(&follower.peer, own);
                let (node, incarnation) = who(follower);
                tell(visit, Trouble::Overrun { node, incarnation, progress })
            }
            Next::Corrupt => {
                follower.corrupt = true;
                tell(visit, Trouble::Corrupt { node: who(follower).0 })
            }
        }
    }

    /// Reads what one peer has, until the visitor says stop or `limit` events have been shown.
    #[inline]
    fn read(
        &mut self,
        index: usize,
        limit: usize,
        shown: &mut usize,
        visit: &mut impl FnMut(Event<'_>) -> Flow,
    ) -> Flow {
        let mut flow = Flow::Continue;
        // Frames for others cost time too: a batch is bounded in all that was looked at.
        for _ in 0..limit {
            match self.step(index, visit) {
                Step::Nothing => break,
                Step::Skipped => {}
                Step::Shown(next) => {
                    *shown += 1;
                    flow = next;
                }
            }
            if flow == Flow::Stop || *shown == limit {
                break;
            }
        }
        self.followers[index].publish_cursor(&self.roster);
        flow
    }

    /// Maps the ring of one who has begun to speak: one at a time, as that takes as long as some messages.
    fn map_some(&mut self) {
        let has_spoken = |follower: &&mut Follower| {
            follower.unmapped_from.is_some_and(|at| at != follower.ring.position())
        };
        if let Some(follower) = self.followers.iter_mut().find(has_spoken) {
            follower.unmapped_from = None;
            follower.peer.segment.populate();
        }
    }

    /// [`Receive::poll`] for a visitor whose type is known.
    #[inline]
    pub(crate) fn poll_with(&mut self, limit: usize, visit: &mut impl FnMut(Event<'_>) -> Flow) -> usize {
        self.look_around();
        self.departed.clear();
        let mut shown = 0;
        let mut flow = Flow::Continue;
        // A peer's streams begin before its frames are shown, and end after the last of them.
        while !self.joined.is_empty() && shown < limit && flow == Flow::Continue {
            flow = self.show_membership(visit).unwrap_or(flow);
            shown += 1;
        }
        let count = if shown < limit && flow == Flow::Continue { self.followers.len() } else { 0 };
        let mut next = self.first;
        for looked in 0..count {
            if looked != 0 && looked.is_multiple_of(LOOKS_IN_BETWEEN) && self.last < count {
                flow = self.read(self.last, limit, &mut shown, visit);
                if flow == Flow::Stop || shown == limit {
                    self.first = next;
                    return shown;
                }
            }
            let index = if next < count { next } else { 0 };
            next = index + 1;
            flow = self.read(index, limit, &mut shown, visit);
            if flow == Flow::Stop || shown == limit {
                (self.first, self.last) = (next, index);
                return shown;
            }
        }
        while shown < limit && flow == Flow::Continue {
            match self.show_membership(visit) {
                Some(next) => flow = next,
                None => break,
            }
            shown += 1;
        }
        shown
    }
}

impl Follower {
    #[inline]
    fn show_frame(&mut self, own: NodeId, visit: &mut impl FnMut(Event<'_>) -> Flow) -> Step {
        let bytes = self.ring.frame();
        let parsed = read_prefix(bytes).and_then(|(header, stamps)| {
            let owner = self.peer.segment.owner;
            let genuine = header.source.node == owner.node && header.incarnation == owner.incarnation();
            if genuine { Ok((header, stamps)) } else { Err(FrameError::BadAddress) }
        });
        if !self.ring.is_intact() {
            // The next look finds the overrun and says so.
            return Step::Skipped;
        }
        let step = match parsed {
            Ok((header, _)) if !header.target.includes_node(own) => Step::Skipped,
            Ok((header, stamps)) => {
                let payload = bytes.skip(header.prefix_size()).expect("the sizes were compared");
                let payload = Payload::Shared { bytes: payload, reader: &self.ring };
                Step::Shown(visit(Event::Frame(&Arrival {
                    header,
                    stamps,
                    payload,
                    kernel_ns: None,
                    sealed_in: None,
                })))
            }
            Err(error) => tell(visit, Trouble::BadFrame(error)),
        };
        if self.ring.is_intact() {
            self.ring.consume();
        }
        step
    }

    /// Everything counted before the ring was found empty has arrived or is lost.
    #[cold]
    fn compare(&mut self, own: NodeId, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> Step {
        let progress = progress_of(&self.peer, own);
        if self.ring.peek() != Next::Empty {
            return Step::Skipped;
        }
        self.behind = false;
        let owner = self.peer.segment.owner;
        Step::Shown(visit(Event::Progressed { node: owner.node, incarnation: owner.incarnation(), progress }))
    }

    /// Lets the writer know how far we are, where it waits for that.
    #[inline]
    fn publish_cursor(&self, roster: &Roster) {
        if !self.held_back {
            return;
        }
        let cursor = &roster.own.cursors()[2 * self.slot + 1];
        if cursor.get() != self.ring.position() {
            punctual_machine::label!("cursor.update");
            cursor.publish(self.ring.position());
            punctual_machine::label!("cursor.update.done");
        }
    }
}

/// Header and stamps, taken from private copies of a frame's first bytes.
#[inline]
fn read_prefix(frame: SharedBytes<'_>) -> Result<(Header, Option<Stamps>), FrameError> {
    let short = |needed| FrameError::Short { present: frame.len(), needed };
    let words = frame.first_words().ok_or(short(HEADER_SIZE))?;
    let header = Header::from_words(words)?;
    if header.frame_size() != frame.len() {
        return Err(short(header.frame_size()));
    }
    let stamps = if header.stamped {
        let rest = frame.skip(HEADER_SIZE).and_then(|rest| rest.first_words());
        Some(Stamps::from_words(rest.ok_or(short(header.frame_size()))?))
    } else {
        None
    };
    Ok((header, stamps))
}

/// Out of the way of the frames.
#[cold]
fn tell(visit: &mut dyn FnMut(Event<'_>) -> Flow, trouble: Trouble) -> Step {
    Step::Shown(visit(Event::Trouble(trouble)))
}

fn progress_of(peer: &Peer, own: NodeId) -> Progress {
    Progress { unicast: Some(peer.segment.sent_to(own)), broadcast: peer.segment.broadcast().get_published() }
}

impl Receive for SharedReceive {
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
        self.poll_with(limit, &mut |event| visit(event))
    }

    #[inline]
    fn is_ready(&self) -> bool {
        let news = |follower: &Follower| !follower.corrupt && (follower.behind || follower.ring.has_news());
        !self.joined.is_empty()
            || self.roster.is_visited(self.visits_seen)
            || self.roster.version() != self.version_seen
            || self.followers.iter().any(news)
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn identity_of(&self, node: NodeId, incarnation: u16) -> Option<Identity> {
        // The newest first: of two lives with one number it is the one that came.
        let followed = self.followers.iter().rev().map(|follower| &follower.peer);
        let peers = followed.chain(self.departed.iter().rev());
        let is_it = |peer: &&Arc<Peer>| {
            let owner = &peer.segment.owner;
            owner.node == node && owner.incarnation() == incarnation
        };
        peers.into_iter().find(is_it).map(|peer| Identity {
            life: peer.segment.owner.life,
            name: peer.segment.name(),
            has_left: peer.segment.state() == State::Closed,
        })
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::clone(&self.roster) as Arc<dyn Bell>
    }

    fn rings_doorbell(&self) -> bool {
        true
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.roster.venue.descriptor(), None]
    }

    fn handle_awake(&mut self) {
        if !self.roster.event.drain() {
            self.roster.venue.drain(NODE_BELL);
        }
    }

    fn housekeep(&mut self, now: Ticks) {
        if self.liveness.is_due(now) {
            self.roster.handle_housekeeping();
            // A layer above us may have lost the last frames before a pause.
            self.followers.iter_mut().for_each(|follower| follower.behind = true);
        }
        self.map_some();
        self.look_around();
    }
}

#[cfg(test)]
mod tests {
    use punctual_machine::event_fd::EventFd;
    use punctual_machine::process::{ProcessIdentity, random};

    use super::*;
    use crate::engine::shared::hall::Hall;
    use crate::engine::shared::segment::{Owner, Segment, State};
    use crate::engine::shared::venue::Venue;

    /// A node that does nothing.
    fn stand_by(bus: &str, node: u64) -> (Segment, Arc<EventFd>, Hall) {
        let process = ProcessIdentity { pid: 1, namespace: 1 };
        let owner = Owner { node: NodeId::new(node).unwrap(), life: node, process, held_back: false };
        let segment = Segment::private(owner, "node", 4096).unwrap();
        let event = Arc::new(EventFd::new().unwrap());
        let hall = Hall::enter(bus, &segment, &event);
        (segment, event, hall)
    }

    /// Goal: who comes in for somebody who left is followed, also where the bus is full and both are learnt of at once.
    #[test]
    fn who_replaces_others_on_a_full_bus_is_followed() {
        const REPLACED: usize = 3;
        let bus = format!("replaced-{:x}", random());
        let ready = |node| {
            let (segment, _, hall) = stand_by(&bus, node);
            segment.set_state(State::Ready);
            (segment, hall)
        };
        let full = NODES_MAX as u64;
        let others: Vec<_> = (1..full).map(ready).collect();
        let (own, event, hall) = stand_by(&bus, full);
        let mut receive = SharedReceive::new(Arc::new(Roster::join(own, event, Box::new(hall)).unwrap()));
        while receive.poll(NODES_MAX, &mut |_| Flow::Continue) > 0 {}
        for (segment, hall) in &others[..REPLACED] {
            segment.set_state(State::Closed);
            hall.leave();
        }
        let newcomers: Vec<_> = (full + 1..).take(REPLACED).map(ready).collect();
        receive.roster.own.doorbell().announce_visit(true);
        receive.housekeep(Ticks(0));
        let (mut joined, mut left) = (Vec::new(), Vec::new());
        let mut visit = |event: Event<'_>| {
            match event {
                Event::Joined { node, .. } => joined.push(node),
                Event::Left { node, .. } => left.push(node),
                _ => {}
            }
            Flow::Continue
        };
        while receive.poll(NODES_MAX, &mut visit) > 0 {}
        joined.sort_unstable();
        left.sort_unstable();
        let nodes =
            |who: &[(Segment, Hall)]| who.iter().map(|(segment, _)| segment.owner.node).collect::<Vec<_>>();
        assert_eq!(left, nodes(&others[..REPLACED]));
        assert_eq!(joined, nodes(&newcomers));
        others[REPLACED..].iter().chain(&newcomers).for_each(|(_, hall)| hall.leave());
    }
}
