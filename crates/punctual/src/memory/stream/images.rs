//! All rings that are for one port, as one subscription reads them.

use std::collections::{HashSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Pace, Ticks};
use punctual_machine::doorbell::{Doorbell, sender_fence};
use punctual_machine::event_fd::EventFd;
use punctual_proto::seal::Refusal;
use punctual_proto::{Address, NodeId};

use crate::ledger::Page;
use crate::node::count_of;

use super::super::roster::Peer;
use super::super::segment::RINGS_BELL;
use super::faulty::Faulty;
use super::followed::Followed;
use super::gathering::{Gathering, WholeMessages};
use super::image::{Image, ImageAccount};
use super::message::{MessageHandler, StreamMessage};
use super::reads::Reads;
use super::ring_file::RingFile;
use super::sealing::{Belief, Opening};
use super::{StreamError, Streams};

/// Interval at which a waiting thread looks after everything else: nodes that have left, nodes that have died, rings that were missed.
pub(crate) const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// Accounts of publications that have ended which are kept.
const ENDED_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Images {
    streams: Arc<Streams>,
    reads: Reads,
    bell: usize,
    /// When it began, in ticks.
    began: u64,
    followed: Followed,
    /// Faults made on purpose.
    faulty: Option<Box<Faulty>>,
    gathering: Gathering,
    rings_seen: u32,
    visits_seen: u32,
    /// All nodes, our own included, as of a version of the roster.
    members: Vec<Arc<Peer>>,
    version_seen: u64,
    /// Rings, by whose they are said to be, whose page says that they are not for us, or nothing: looked at once.
    refused: HashSet<(NodeId, u64, u64)>,
    ended: VecDeque<ImageAccount>,
    /// Publications that are for us, and for which this process has no memory left.
    left_out: usize,
    /// The descriptor that it sleeps on, if it sleeps on one.
    event: Arc<EventFd>,
    /// The lives that know that descriptor; none before it is slept on.
    introduced: Option<HashSet<u64>>,
    housekeeping: Pace,
    /// It is no reader any more.
    has_ended: bool,
}

impl Images {
    pub(super) fn new(
        streams: Arc<Streams>,
        reads: Reads,
        bell: usize,
        (mut opening, event): (Option<Opening>, Arc<EventFd>),
    ) -> Self {
        let visits_seen = streams.roster.visits_seen();
        let faults = streams.layers.faults.as_ref();
        if let Some((opening, faults)) = opening.as_mut().zip(faults) {
            opening.corrupt_by(faults);
        }
        let faulty = faults.map(|faults| Box::new(Faulty::new(faults, opening.is_some())));
        let belief = Belief { opening: opening.map(Box::new), was_delayed: false, was_refused: false };
        Self {
            followed: Followed::new(belief),
            faulty,
            gathering: Gathering::new(&streams.about),
            streams,
            reads,
            bell,
            began: 0,
            rings_seen: 0,
            visits_seen,
            members: Vec::new(),
            // Of no roster.
            version_seen: u64::MAX,
            refused: HashSet::new(),
            ended: VecDeque::new(),
            left_out: 0,
            event,
            introduced: None,
            housekeeping: Pace::new(HOUSEKEEPING_EVERY),
            has_ended: false,
        }
    }

    /// It is listed: follows all publications that are there.
    ///
    /// # Errors
    /// If one of them cannot be read, or its writer would not know of it.
    pub(super) fn begin(&mut self, began: u64) -> Result<(), StreamError> {
        self.began = began;
        self.find_rings()
    }

    pub(crate) fn address(&self) -> Address {
        Address { node: self.streams.own.segment.owner.node, port: self.reads.port() }
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = ImageAccount> {
        self.ended.iter().copied().chain(self.followed.images.iter().map(Image::account))
    }

    /// Publications that are for it, and are not read: its process has no memory left for them.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// On a sealed bus: looks behind the seals of what it reads.
    pub(super) fn opening(&mut self) -> Option<&mut Opening> {
        self.followed.belief.opening.as_deref_mut()
    }

    /// The name of a node whose rings it reads, or that is on the bus.
    pub(crate) fn name_of(&self, node: NodeId) -> Option<String> {
        let images = &self.followed.images;
        let read = images.iter().find(|image| image.file.about.node == node);
        let present = || self.streams.present().into_iter().find(|present| present.node == node)?.name;
        read.and_then(|image| image.peer.segment.name()).or_else(present)
    }

    pub(crate) fn page(&self) -> &Page {
        &self.streams.about.page
    }

    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Ends: no writer takes it for a reader any more. Returns the number of messages it leaves that are there, or held back, and that
    /// nobody has had. One call of each sender that has begun before may take one more, and messages queued untold are not there yet.
    pub(crate) fn close(&mut self) -> u64 {
        if self.has_changed() {
            self.look_for_rings();
        }
        let held = self.faulty.as_ref().map_or(0, |faulty| faulty.waiting());
        let left: Vec<_> = self.followed.images.iter().filter_map(Image::place).collect();
        self.end();
        // Behind the visits: a sender does not see them in a later call than that whose message is not seen here.
        sender_fence();
        left.iter().map(|(ring, read)| ring.sent_since(*read)).fold(held, u64::saturating_add)
    }

    /// Gives back all that others see of it. Its rows go first: its bell may be another's as soon as it is not listed.
    fn end(&mut self) {
        self.gathering.close(&self.streams.about);
        self.followed.images.clear();
        if self.introduced.is_some() {
            self.streams.roster.venue.keep_bell(self.bell, None);
        }
        self.streams.delist(self.bell);
        self.has_ended = true;
    }

    /// True if something may be there at an instant for which no bell rings.
    pub(crate) fn has_instants(&self) -> bool {
        self.faulty.is_some()
    }

    /// When something is there that rings nothing.
    pub(crate) fn next_due(&self) -> Option<Ticks> {
        self.faulty.as_ref().and_then(|faulty| faulty.next_due())
    }

    /// Wakes the thread that waits at this bell of our own node.
    pub(crate) fn ring(streams: &Streams, bell: usize) {
        streams.roster.ring(&streams.own.segment, bell);
    }

    pub(crate) fn bell_index(&self) -> usize {
        self.bell
    }

    /// The doorbell that our senders ring.
    pub(crate) fn bell(&self) -> &Doorbell {
        &self.streams.roster.bells[self.bell]
    }

    /// From now on it may sleep on its descriptor, and on [`Self::post`]: tells all who may have something for it.
    pub(crate) fn introduce(&mut self) {
        if self.introduced.is_some() {
            return;
        }
        self.introduced = Some(HashSet::new());
        self.streams.roster.venue.keep_bell(self.bell, Some(&self.event));
        for member in self.streams.members() {
            self.introduce_to(&member);
        }
    }

    /// Sends our descriptor to a member. A member that does not get it, because its box is full, wakes us by a note instead.
    fn introduce_to(&mut self, member: &Peer) {
        let Some(introduced) = &mut self.introduced else { return };
        let owner = &member.segment.owner;
        if owner.life != self.streams.own.segment.owner.life
            && !introduced.contains(&owner.life)
            && self.streams.roster.venue.introduce_bell(owner, (self.bell, self.began), &self.event)
        {
            introduced.insert(owner.life);
        }
    }

    /// The descriptor that becomes readable when a node without our descriptor wakes us.
    pub(crate) fn post(&self) -> Option<BorrowedFd<'_>> {
        self.streams.roster.venue.descriptor()
    }

    /// Awake after sleeping on descriptors: takes back what woke us.
    #[cold]
    pub(crate) fn handle_awake(&self) {
        if !self.event.drain() {
            self.streams.roster.venue.drain(self.bell);
        }
    }

    /// True if there may be a message, or something else to look after.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.followed.has_busy_news()
            || self.has_news()
            || self.has_changed()
            || self.next_due().is_some_and(|due| due <= Clock::get().now())
    }

    /// True if a full look takes much longer than a glance.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.followed.are_many()
    }

    /// True if a short look finds a message: [`Followed::glance`].
    #[inline]
    pub(crate) fn glance(&self, from: &mut usize) -> bool {
        self.followed.glance(from)
    }

    /// True if there may be a message.
    pub(crate) fn has_news(&self) -> bool {
        self.followed.images.iter().any(Image::has_news)
    }

    /// True if there is a message for which its sender rings. Observers are rung for none, and what is seen of an open run is told of at
    /// its end.
    pub(crate) fn has_told_news(&self) -> bool {
        self.reads != Reads::Everything && self.followed.images.iter().any(Image::has_told_news)
    }

    /// True if rings or nodes have come or gone since we looked.
    #[inline]
    fn has_changed(&self) -> bool {
        self.streams.roster.bells[RINGS_BELL].visits() != self.rings_seen
            || self.streams.roster.is_visited(self.visits_seen)
            || self.streams.roster.version() != self.version_seen
    }

    /// Shows at most `limit` messages for as long as `handler` takes them; returns how many were delivered.
    ///
    /// While the image that was busy last has messages, only that is asked, [`BUSY_TURNS`] times in a row. It is asked again if the
    /// others are few and have none.
    #[inline]
    pub(crate) fn poll(&mut self, limit: usize, handler: &mut impl MessageHandler) -> usize {
        let delivered = self.poll_busy(limit, handler);
        if delivered > 0 { delivered } else { self.poll_rest(limit, handler) }
    }

    /// As [`Self::poll`], of direct frames of the image that was busy last. Where nothing came of it, [`Self::poll_rest`] goes on. All
    /// of it is inlined: the fields of a handler that is handed to no other function stay in registers.
    #[inline(always)]
    pub(crate) fn poll_busy(&mut self, limit: usize, handler: &mut impl MessageHandler) -> usize {
        if self.asks_busy() { self.followed.poll_busy(limit, handler) } else { 0 }
    }

    /// True if only the image that was busy last is asked.
    #[inline]
    fn asks_busy(&mut self) -> bool {
        self.faulty.is_none() && (!self.followed.is_turn_of_others() || self.skip_others())
    }

    /// As [`Self::poll`], once [`Self::poll_busy`] had nothing.
    #[inline(never)]
    pub(crate) fn poll_rest(&mut self, limit: usize, handler: &mut impl MessageHandler) -> usize {
        if self.asks_busy() {
            let Self { gathering, streams, followed, .. } = self;
            let mut whole = WholeMessages { gathering, about: &streams.about, handler };
            let delivered = followed.poll_busy_any(limit, &mut whole);
            if delivered > 0 {
                return delivered;
            }
        }
        self.poll_all(limit, handler)
    }

    /// Leaves the turn of the others out, if nothing has come of them.
    #[cold]
    fn skip_others(&mut self) -> bool {
        !self.has_changed() && self.followed.skip_others()
    }

    /// The same for all images, those included that have come since.
    #[inline(never)]
    fn poll_all(&mut self, limit: usize, handler: &mut dyn MessageHandler) -> usize {
        if self.has_changed() {
            self.look_for_rings();
        }
        let Self { gathering, streams, followed, .. } = self;
        let mut whole = WholeMessages { gathering, about: &streams.about, handler };
        let delivered = match &mut self.faulty {
            None => followed.poll(limit, &mut whole),
            Some(faulty) => {
                let now = Clock::get().now();
                let released = faulty.release(now, limit, &mut whole);
                let page = &streams.about.page;
                let mut suffer = |message: &StreamMessage<'_>| faulty.suffer(message, now, page, &mut whole);
                released + followed.poll(limit - released, &mut suffer)
            }
        };
        // A message that is refused ends a look: parts that lie unread behind it are not late.
        if delivered == 0 && self.is_gathering() && !self.followed.was_refused() {
            self.gathering.handle_nothing(&self.streams.about);
        }
        delivered
    }

    /// True if a message is being put together, or the memory of one is kept.
    #[inline]
    pub(crate) fn is_gathering(&self) -> bool {
        self.gathering.is_gathering()
    }

    /// Its fragments count as delivered in this row of its node's page.
    pub(crate) fn count_in(&mut self, row: usize) {
        self.gathering.row = Some(row);
    }

    /// The message that was claimed ([`StreamMessage::claim`]), whose memory is lent until [`Self::give_back`].
    pub(crate) fn take_claimed(&mut self) -> Vec<u8> {
        self.gathering.take_claimed()
    }

    /// Nobody looks at a message that was claimed any more.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        self.gathering.give_back(&self.streams.about, bytes);
    }

    /// Looks for nodes that have left or died, and for rings that nobody told of.
    pub(crate) fn housekeep(&mut self, now: Ticks) {
        if self.housekeeping.is_due(now) {
            self.streams.keep_house();
            self.look_for_rings();
        }
    }

    /// Follows what is new. A ring that cannot be read is looked for again at the next look. A ring whose writer will not see its
    /// reader is read all the same. The subscription was there first, and nobody is left to whom it could be refused.
    #[cold]
    fn look_for_rings(&mut self) {
        let _said_when_it_began = self.find_rings();
    }

    /// Follows what is new and forgets what is done.
    ///
    /// # Errors
    /// If some of it cannot be read, or its writer will not know of it.
    fn find_rings(&mut self) -> Result<(), StreamError> {
        let streams = Arc::clone(&self.streams);
        if streams.roster.is_visited(self.visits_seen) {
            self.visits_seen = streams.roster.handle_visits();
        }
        // Before the tables: a change that comes while they are read is seen at the next look.
        let version = streams.roster.version();
        if std::mem::replace(&mut self.version_seen, version) != version {
            self.members = streams.members();
            if let Some(introduced) = &mut self.introduced {
                introduced
                    .retain(|life| self.members.iter().any(|member| member.segment.owner.life == *life));
            }
        }
        let members = std::mem::take(&mut self.members);
        self.rings_seen = streams.roster.bells[RINGS_BELL].visits();
        self.forget_ended();
        let mut unseen = self.followed.images.iter_mut().filter(|image| !image.is_seen());
        let _rest_later = unseen.all(Image::show);
        self.left_out = 0;
        let node = streams.own.segment.owner.node;
        let mut outcome = Ok(());
        // Only rings that a table still lists are remembered.
        let refused = std::mem::take(&mut self.refused);
        for member in &members {
            // Its rings that were followed and are forgotten would be followed again, from their beginning.
            if member.has_left() {
                continue;
            }
            let owner = member.segment.owner;
            for entry in member.segment.streams() {
                let id = entry[0].get_published();
                // Anybody may say of any ring that it is his.
                let ring = (owner.node, owner.life, id);
                let is_known = || self.followed.images.iter().any(|image| image.file.about.ring() == ring);
                if refused.contains(&ring) {
                    self.refused.insert(ring);
                    continue;
                }
                if id == 0 || !self.reads.may_mean(entry[1].get(), node) || is_known() {
                    continue;
                }
                let memory = match streams.roster.venue.open_stream(&owner, id) {
                    Ok(Some(memory)) => memory,
                    Ok(None) => continue,
                    Err(error) => {
                        self.left_out += 1;
                        outcome = Err(StreamError::System(error));
                        continue;
                    }
                };
                let reads = self.reads;
                let is_for_us = |file: &RingFile| {
                    let about = &file.about;
                    about.ring() == ring && reads.includes(about, node)
                };
                let file = RingFile::read(&memory).filter(is_for_us);
                outcome = outcome.and(self.follow(ring, member, file));
            }
        }
        self.members = members;
        outcome
    }

    /// Follows the ring of that node, life and id, if it is one for us that can be believed.
    fn follow(
        &mut self,
        ring: (NodeId, u64, u64),
        member: &Arc<Peer>,
        file: Option<RingFile>,
    ) -> Result<(), StreamError> {
        let Some(file) = file else {
            self.refused.insert(ring);
            return Ok(());
        };
        let is_sealed = file.about.sealed;
        if !self.reads.takes(is_sealed, self.followed.belief.opening.is_some()) {
            self.refused.insert(ring);
            let refusal = if is_sealed { Refusal::Unexpected } else { Refusal::Unsealed };
            self.page().count(count_of(refusal)).add(1);
            return Ok(());
        }
        self.introduce_to(member);
        let place = (self.bell, self.began);
        let image = Image::follow(&self.streams, Arc::clone(member), file, place, &mut self.followed.belief);
        let mut image = image.inspect_err(|_| self.left_out += 1)?;
        let shortage = image.shortage();
        self.followed.images.push(image);
        // For a subscription that only observes nobody waits anyway.
        shortage.filter(|_| self.reads != Reads::Everything).map_or(Ok(()), Err)
    }

    fn forget_ended(&mut self) {
        let ended = &mut self.ended;
        self.followed.forget(|image| {
            let is_done = image.is_done();
            if is_done {
                ended.push_back(image.account());
            }
            is_done
        });
        while ended.len() > ENDED_MAX {
            ended.pop_front();
        }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        if !self.streams.about.maker.is_this_process() {
            return;
        }
        if !self.has_ended {
            self.end();
        }
    }
}
