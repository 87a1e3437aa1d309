//! One node's part: the choice of the master, the times of messages, and the consequences for its clock and those of others.

use alloc::collections::{BTreeMap, VecDeque};

use super::estimate::{ClockModel, Estimate, Exchange, Exchanges, Track};
use super::message::{Saying, StampClock, Status, TimeMessage};
use crate::address::NodeId;
use crate::limits::NODES_MAX;
use crate::time::Nanos;

/// The priority of a node that is never master.
pub const PRIORITY_NEVER: u8 = 255;

/// Requests that wait to be answered: one of each node.
const ANSWERS_MAX: usize = NODES_MAX;

/// Requests that may be under way. Where a round trip takes more intervals between syncs, the syncs between are not used.
const REQUESTS_MAX: usize = 8;

/// A request that has waited for so long makes room: it or its answer is lost. By satellite a round trip takes 0.6 s. Where all requests
/// are lost, no exchange is completed for as long: a quarter of the window's time by default.
const ANSWER_WAIT_MAX: Nanos = Nanos::from_millis(1_000);

/// The least time between two exchanges or statuses: with none at all there would always be one more to send.
const EVERY_MIN: Nanos = Nanos::from_millis(1);

/// Statuses that are lost in a row before their sender counts as silent, and one.
const STATUSES_IN_SILENCE: u64 = 4;

/// Options of a node's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncOptions {
    /// The lower, the rather it is master; [`PRIORITY_NEVER`] never. Of equals, the smaller node id is.
    pub priority: u8,
    /// Interval at which the master begins exchanges, and at which every node says where its clock is. Less than a millisecond is one.
    pub every: Nanos,
    /// Silence after which a node is no candidate any more: four times `every` at least.
    pub silence: Nanos,
    /// Behaviour of clocks that are not slewed. Nodes know and say which are.
    pub model: ClockModel,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            priority: 128,
            every: Nanos::from_millis(125),
            silence: Nanos::from_millis(500),
            model: ClockModel::default(),
        }
    }
}

/// Role of a node at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It waits whether there is a master, or nobody can be.
    Listening,
    /// Its clock is the reference.
    Master,
    /// It follows this node's clock.
    Follower(NodeId),
}

/// Outcomes of exchanges, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// Exchanges completed with a master.
    pub exchanges: u64,
    /// Exchanges that contradicted those before: a clock was set.
    pub steps: u64,
    /// Changes of master, as seen here.
    pub elections: u64,
    /// Messages that belong to no exchange under way: late, doubled, of a former master.
    pub stale: u64,
    /// Requests that were not answered because too many waited, and nodes beyond [`NODES_MAX`].
    pub refused: u64,
    /// Messages of another version of the protocol, and bytes that are no message about time.
    pub foreign: u64,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver; `None` is everybody.
    pub to: Option<NodeId>,
    /// The message itself.
    pub message: TimeMessage,
}

/// Time that a message took from one node to another, by the reference's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// The estimate, nanoseconds. Below zero it may be, within its bound.
    pub nanos: i64,
    /// Bound of its error, nanoseconds.
    pub bound: u64,
}

impl OneWay {
    /// Nothing arrives before it was sent.
    fn can_be(&self) -> bool {
        i128::from(self.nanos) + i128::from(self.bound) >= 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    life: u32,
    /// When it first spoke of this life, by its clock. Earlier readings may be another clock's.
    since: Nanos,
    heard: Nanos,
    status: Status,
}

/// An exchange that begins, at the follower.
#[derive(Clone, Copy, Debug)]
enum Open {
    Synced { number: u32, received: Nanos },
    ToRequest { number: u32, sync_sent: Nanos, sync_received: Nanos },
}

/// An exchange whose answer is under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u32,
    sync_sent: Nanos,
    sync_received: Nanos,
    sent: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    to: NodeId,
    number: u32,
    asker: u32,
    received: Nanos,
}

/// One node's clock among others.
#[derive(Clone, Debug)]
pub struct Synchroniser {
    own: NodeId,
    life: u32,
    clock: StampClock,
    options: SyncOptions,
    /// When this life of the clock began. Earlier readings are another clock's.
    began: Nanos,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    master: Option<NodeId>,
    master_life: u32,
    exchanges: Exchanges,
    track: Option<Track>,
    open: Option<Open>,
    /// In the order of their numbers.
    requests: VecDeque<Request>,
    /// The number of the last request.
    requested: Option<u32>,
    pub(super) number: u32,
    follow_up: Option<(u32, Nanos)>,
    answers: VecDeque<Answer>,
    next_sync: Nanos,
    next_status: Nanos,
    counts: SyncCounts,
}

impl Synchroniser {
    /// For the node `own` with this clock. Draw `life` at random: it tells this clock from those that the node had before.
    pub fn new(own: NodeId, life: u32, clock: StampClock, options: SyncOptions, now: Nanos) -> Self {
        let every = options.every.max(EVERY_MIN);
        let silence = options.silence.max(Nanos(every.0.saturating_mul(STATUSES_IN_SILENCE)));
        let options = SyncOptions { every, silence, ..options };
        Self {
            own,
            life,
            clock,
            options,
            began: now,
            peers: BTreeMap::new(),
            master: None,
            master_life: 0,
            exchanges: Exchanges::default(),
            track: None,
            open: None,
            requests: VecDeque::new(),
            requested: None,
            number: 0,
            follow_up: None,
            answers: VecDeque::new(),
            next_sync: now,
            next_status: now,
            counts: SyncCounts::default(),
        }
    }

    /// Its role.
    pub fn role(&self) -> Role {
        match self.master {
            None => Role::Listening,
            Some(master) if master == self.own => Role::Master,
            Some(master) => Role::Follower(master),
        }
    }

    /// Outcomes of exchanges, counted.
    pub fn counts(&self) -> SyncCounts {
        self.counts
    }

    /// Where the own clock is against the reference's.
    pub fn track(&self) -> Option<Track> {
        self.track
    }

    /// Amount to add to a reading of the own clock for one of the reference's.
    pub fn offset(&self, at: Nanos) -> Option<Estimate> {
        self.track.map(|track| track.at(at, &self.model()))
    }

    /// A node's last statement about itself, if it was heard lately.
    pub fn peer(&self, node: NodeId) -> Option<&Status> {
        self.peers.get(&node).map(|peer| &peer.status)
    }

    /// Travel time of a message that `source` sent at an instant of its clock, and that was here at an instant of ours. `None` until
    /// both clocks follow one reference, and know how far they are from it; and for instants before one of the clocks began, or was
    /// first heard of. `None` also where it ends before it begins even at its bound's end: then the instant is no reading of that clock,
    /// as stamps are none that go on where a clock began anew.
    pub fn one_way(&self, source: NodeId, sent: Nanos, here: Nanos) -> Option<OneWay> {
        self.any_one_way(source, sent, here).filter(OneWay::can_be)
    }

    /// The same, also where it cannot be.
    pub(crate) fn any_one_way(&self, source: NodeId, sent: Nanos, here: Nanos) -> Option<OneWay> {
        let (reference, life, own) = self.following()?;
        let Peer { since, status, .. } = self.peers.get(&source)?;
        if here < self.began || sent < *since {
            return None;
        }
        let (other_reference, other_life, other) = status.following?;
        if (other_reference, other_life) != (reference, life) {
            return None;
        }
        let own = own.at(here, &self.model());
        let other = other.at(sent, &self.model_of(status.clock));
        let steps = self.clock.step_ns() + status.clock.step_ns();
        let there = i128::from(sent.0) + i128::from(other.nanos);
        let nanos = i128::from(here.0) + i128::from(own.nanos) - there;
        Some(OneWay {
            nanos: i64::try_from(nanos).ok()?,
            bound: own.bound.saturating_add(other.bound).saturating_add(steps),
        })
    }

    /// Behaviour of the own clock and the reference.
    fn model(&self) -> ClockModel {
        self.model_of(self.clock)
    }

    /// Behaviour of this clock and the reference.
    fn model_of(&self, clock: StampClock) -> ClockModel {
        let is_slewed = clock.is_slewed || self.reference_clock().is_slewed;
        if is_slewed { self.options.model.or(ClockModel::SLEWED) } else { self.options.model }
    }

    /// The clock that it follows; its own while it follows none.
    fn reference_clock(&self) -> StampClock {
        let master = self.master.filter(|&master| master != self.own);
        master.and_then(|master| self.peer(master)).map_or(self.clock, |status| status.clock)
    }

    /// The clock that it follows, with its life and its track.
    fn following(&self) -> Option<(NodeId, u32, Track)> {
        let master = self.master?;
        let life = if master == self.own { self.life } else { self.master_life };
        self.track.map(|track| (master, life, track))
    }

    /// The own clock was set, stood still while the machine slept, or began anew: nothing holds that was known of it, here or by
    /// others. Draw `life` at random, as for [`Self::new`].
    pub fn handle_clock_changed(&mut self, life: u32, now: Nanos) {
        let Self { own, clock, options, number, mut counts, .. } = *self;
        counts.elections += u64::from(self.master.is_some());
        *self = Self { number, counts, ..Self::new(own, life, clock, options, now) };
    }

    fn forget(&mut self) {
        self.exchanges.clear();
        self.track = None;
        self.open = None;
        self.requests.clear();
        self.requested = None;
    }

    /// A message came from another node; `now` as near to its arrival as can be, never before.
    pub fn handle_message(&mut self, source: NodeId, message: &TimeMessage, now: Nanos) {
        if source == self.own {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&source).filter(|peer| peer.life == message.life) {
            peer.heard = peer.heard.max(now);
        }
        let of_master = self.master == Some(source) && self.master_life == message.life;
        match message.saying {
            Saying::Status(status) => self.handle_status(source, message.life, status, now),
            Saying::Sync { number } if of_master && self.is_new(number) => {
                self.open = Some(Open::Synced { number, received: now });
            }
            Saying::FollowUp { number, sent } if of_master => self.handle_follow_up(number, sent),
            Saying::DelayRequest { number } if self.role() == Role::Master => {
                self.handle_request(Answer { to: source, number, asker: message.life, received: now });
            }
            Saying::DelayResponse { number, asker, received } if of_master && asker == self.life => {
                self.handle_response(number, received, now);
            }
            _ => self.counts.stale += 1,
        }
    }

    /// Bytes came that are no message of this version.
    pub fn handle_foreign(&mut self) {
        self.counts.foreign += 1;
    }

    fn handle_status(&mut self, source: NodeId, life: u32, status: Status, now: Nanos) {
        if self.peers.len() >= NODES_MAX && !self.peers.contains_key(&source) {
            self.counts.refused += 1;
            return;
        }
        let known = self.peers.get(&source).filter(|peer| peer.life == life);
        let since = known.map_or(status.now, |peer| peer.since);
        self.peers.insert(source, Peer { life, since, heard: now, status });
        self.elect(now);
    }

    /// True if no request had this number, nor a later one: two requests under one number could not be told apart by their answers.
    fn is_new(&self, number: u32) -> bool {
        self.requested.is_none_or(|last| number.wrapping_sub(last).cast_signed() > 0)
    }

    fn handle_follow_up(&mut self, number: u32, sent: Nanos) {
        match self.open {
            Some(Open::Synced { number: open, received }) if open == number => {
                self.open = Some(Open::ToRequest { number, sync_sent: sent, sync_received: received });
            }
            _ => self.counts.stale += 1,
        }
    }

    fn handle_request(&mut self, answer: Answer) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(answer);
        } else {
            self.counts.refused += 1;
        }
    }

    fn handle_response(&mut self, number: u32, request_received: Nanos, now: Nanos) {
        let Some(place) = self.requests.iter().position(|request| request.number == number) else {
            self.counts.stale += 1;
            return;
        };
        let Request { sync_sent, sync_received, sent: request_sent, .. } = self.requests[place];
        // Exchanges count in their order: older answers are not waited for any more.
        self.requests.drain(..=place);
        self.counts.exchanges += 1;
        let exchange = Exchange {
            sync_sent,
            sync_received,
            request_sent,
            request_received,
            own_step_ns: self.clock.step_ns(),
            reference_step_ns: self.reference_clock().step_ns(),
        };
        let model = self.model();
        self.track = match self.exchanges.note(exchange, &model) {
            Ok(track) => Some(track),
            Err(track) => {
                self.counts.steps += 1;
                track
            }
        };
        self.next_status = now;
    }

    /// Notices who has fallen silent.
    pub fn handle_timeout(&mut self, now: Nanos) {
        let silence = self.options.silence;
        self.peers.retain(|_, peer| now.since(peer.heard) < silence);
        self.elect(now);
    }

    /// The best of those who are not known to be silent and can be master: by priority, then by node id.
    fn elect(&mut self, now: Nanos) {
        let may_be_master = now >= self.began.plus(self.options.silence);
        let own = may_be_master.then_some((self.options.priority, self.own, self.life));
        let others = self.peers.iter().map(|(&node, peer)| (peer.status.priority, node, peer.life));
        let best = others.chain(own).filter(|&(priority, ..)| priority != PRIORITY_NEVER).min();
        let elected = best.map(|(_, node, life)| (node, life));
        let current = self.master.map(|master| (master, self.master_life));
        if elected == current {
            return;
        }
        self.counts.elections += 1;
        self.forget();
        self.answers.clear();
        self.follow_up = None;
        self.master = elected.map(|(node, _)| node);
        self.master_life = elected.map_or(0, |(_, life)| life);
        if self.role() == Role::Master {
            self.track = Some(Track::reference(now));
            self.next_sync = now;
        }
        self.next_status = now;
    }

    /// The next message to be sent. `now` is read just before it is sent: once per message.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        let (to, saying) = self.poll_saying(now)?;
        Some(Transmit { to, message: TimeMessage { life: self.life, saying } })
    }

    fn poll_saying(&mut self, now: Nanos) -> Option<(Option<NodeId>, Saying)> {
        if let Some((number, sent)) = self.follow_up.take() {
            return Some((None, Saying::FollowUp { number, sent }));
        }
        if let Some(Answer { to, number, asker, received }) = self.answers.pop_front() {
            return Some((Some(to), Saying::DelayResponse { number, asker, received }));
        }
        if let Some(Open::ToRequest { number, sync_sent, sync_received }) = self.open {
            self.open = None;
            if self.make_room(now) {
                self.requested = Some(number);
                self.requests.push_back(Request { number, sync_sent, sync_received, sent: now });
                return Some((self.master, Saying::DelayRequest { number }));
            }
        }
        if self.role() == Role::Master && now >= self.next_sync {
            self.number = self.number.wrapping_add(1);
            self.next_sync = now.plus(self.options.every);
            self.follow_up = Some((self.number, now));
            return Some((None, Saying::Sync { number: self.number }));
        }
        if now >= self.next_status {
            self.next_status = now.plus(self.options.every);
            return Some((None, Saying::Status(self.status(now))));
        }
        None
    }

    /// Returns true if there is room for a request. One that may still be answered is not given up for it: where a round trip takes
    /// long, none would ever be answered.
    fn make_room(&mut self, now: Nanos) -> bool {
        if self.requests.len() < REQUESTS_MAX {
            return true;
        }
        // A clock that was set back does not tell how long that was.
        let is_lost = |oldest: &mut Request| now < oldest.sent || now.since(oldest.sent) >= ANSWER_WAIT_MAX;
        self.requests.pop_front_if(is_lost).is_some()
    }

    fn status(&self, now: Nanos) -> Status {
        let model = self.model();
        let following = self.following().map(|(node, life, track)| {
            // As of now, so that one instant stands for both.
            let Estimate { nanos, bound } = track.at(now, &model);
            let bound = i64::try_from(bound).unwrap_or(i64::MAX);
            let (low, high) = (nanos.saturating_sub(bound), nanos.saturating_add(bound));
            let wander = model.wander_over(now.since(track.at));
            let is_reference = node == self.own;
            let wander = if is_reference { 0 } else { wander };
            let (drift_low, drift_high) =
                (track.drift_low.saturating_sub(wander), track.drift_high.saturating_add(wander));
            (node, life, Track { at: now, low, high, drift_low, drift_high })
        });
        Status { priority: self.options.priority, clock: self.clock, now, following }
    }

    /// When there is something to do next, if nothing comes before.
    pub fn next_timeout(&self) -> Nanos {
        let has_something = self.follow_up.is_some()
            || !self.answers.is_empty()
            || matches!(self.open, Some(Open::ToRequest { .. }));
        if has_something {
            return Nanos(0);
        }
        let mut next = self.next_status;
        if self.role() == Role::Master {
            next = next.min(self.next_sync);
        }
        if let Some(soonest) = self.peers.values().map(|peer| peer.heard).min() {
            next = next.min(soonest.plus(self.options.silence));
        }
        next
    }
}
