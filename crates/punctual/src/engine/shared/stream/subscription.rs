//! The receiving end: all rings that are for one port.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_proto::{Address, Port};

use super::super::roster::Pace;
use super::super::segment::RINGS_BELL;
use super::image::{Image, ImageAccount, StreamMessage};
use super::ring_file::{RingFile, may_mean};
use super::{StreamError, Streams};
use crate::wake::{Bed, Condition, Manners, Waiter, Wake, waiter};

/// How often who waits looks after everything else: who has left, who has died, which rings were missed.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// Polls in a row that may find all they want at the publication that was busy last, before the others have their turn.
const BUSY_TURNS: u32 = 16;

/// Looks between two looks at the clock, for who polls without sleeping.
const LOOKS_PER_CLOCK: u32 = 64;

/// Accounts of publications that have ended which are kept.
const ENDED_MAX: usize = 256;

/// A subscription to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscriptionOptions {
    /// How it waits: spin, backoff, adaptive or futex.
    pub wake: Wake,
}

/// Why no message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeError {
    /// Nothing is there now, or nothing came until the deadline.
    Empty,
    /// The oldest message does not fit; it stays, and a larger buffer takes it.
    BufferTooSmall {
        /// Its size, bytes.
        size: usize,
    },
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no message"),
            Self::BufferTooSmall { size } => write!(f, "a message of {size} bytes is larger than the buffer"),
        }
    }
}

impl std::error::Error for TakeError {}

/// What is known of a message that was copied into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub source: Address,
    /// Its number in its publication, from 0.
    pub sequence: u64,
    /// Messages of the same publication that were lost just before it.
    pub lost_before: u64,
    /// When it was sent, where its publication says so.
    pub sent: Option<Ticks>,
    /// Its size, bytes.
    pub size: usize,
}

/// The receiving end of all publications that are for one port of a node. One thread at a time holds it.
///
/// A publication's messages come in order. A subscription has all messages of publications that were made after it, and of older
/// ones those that were sent since it was made.
#[derive(Debug)]
pub struct Subscription {
    streams: Arc<Streams>,
    port: Port,
    bell: usize,
    /// When it began, in ticks.
    began: u64,
    images: Vec<Image>,
    /// The image that had a message last, and how often in a row only that was asked.
    busy: usize,
    busy_turns: u32,
    /// Where the next turn of all images begins.
    next: usize,
    rings_seen: u32,
    visits_seen: u32,
    version_seen: u64,
    /// Rings whose page says that they are not for us, or nothing: looked at once.
    refused: HashSet<u64>,
    ended: VecDeque<ImageAccount>,
    waiter: Box<dyn Waiter>,
    event: EventFd,
    set: EpollSet,
    clock: &'static Clock,
    housekeeping: Pace,
    looks: u32,
}

/// Whether there may be something, for who is about to sleep.
struct News<'a> {
    streams: &'a Streams,
    images: &'a [Image],
    busy: usize,
    seen: (u32, u32, u64),
    limit: Duration,
    is_deadline: bool,
}

impl Condition for News<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        self.images.get(self.busy).is_some_and(Image::has_news)
            || self.images.iter().any(Image::has_news)
            || self.streams.has_changed(self.seen)
    }

    fn timeout(&mut self) -> Option<Duration> {
        Some(self.limit)
    }

    fn is_overslept(&self) -> bool {
        !self.is_deadline && self.images.iter().any(Image::has_news)
    }
}

impl Streams {
    /// Whether rings or nodes have come or gone since.
    #[inline]
    fn has_changed(&self, (rings, visits, version): (u32, u32, u64)) -> bool {
        self.own.segment.bell(RINGS_BELL).visits() != rings
            || self.roster.is_visited(visits)
            || self.roster.version() != version
    }
}

impl Subscription {
    pub(super) fn new(
        streams: Arc<Streams>,
        port: Port,
        bell: usize,
        options: &SubscriptionOptions,
    ) -> Result<Self, StreamError> {
        let wake = options.wake;
        if matches!(wake, Wake::EventFd | Wake::Epoll | Wake::Signal) {
            return Err(StreamError::CannotWait(wake));
        }
        let waiter = waiter(wake, Manners::IN_PROCESS).map_err(StreamError::CannotWait)?;
        let visits_seen = streams.roster.visits_seen();
        Ok(Self {
            streams,
            port,
            bell,
            began: 0,
            images: Vec::new(),
            busy: 0,
            busy_turns: 0,
            next: 0,
            rings_seen: 0,
            visits_seen,
            version_seen: 0,
            refused: HashSet::new(),
            ended: VecDeque::new(),
            waiter,
            event: EventFd::new().map_err(StreamError::System)?,
            set: EpollSet::new().map_err(StreamError::System)?,
            clock: Clock::get(),
            housekeeping: Pace::new(HOUSEKEEPING_EVERY),
            looks: 0,
        })
    }

    /// It is listed: follows all publications that are there.
    pub(super) fn begin(&mut self, began: u64) {
        self.began = began;
        self.find_rings();
    }

    /// Its address.
    pub fn address(&self) -> Address {
        Address { node: self.streams.own.segment.owner.node, port: self.port }
    }

    /// The accounts of all publications that it reads, and of the newest that have ended.
    pub fn accounts(&self) -> impl Iterator<Item = ImageAccount> {
        self.ended.iter().copied().chain(self.images.iter().map(Image::account))
    }

    /// Shows at most `limit` messages to `f`, where they lie; never waits. Returns how many were delivered.
    ///
    /// What `f` reads of a message it may believe once [`StreamMessage::copy_to`] or [`StreamMessage::is_intact`] said so. If
    /// `f` panics, the messages before that one were delivered, and it comes again.
    #[inline]
    pub fn poll(&mut self, limit: usize, mut f: impl FnMut(&StreamMessage<'_>)) -> usize {
        self.poll_taking(limit, &mut |message| {
            f(message);
            true
        })
    }

    #[inline]
    fn poll_taking(&mut self, limit: usize, take: &mut impl FnMut(&StreamMessage<'_>) -> bool) -> usize {
        if self.streams.has_changed((self.rings_seen, self.visits_seen, self.version_seen)) {
            self.find_rings();
        }
        if self.busy_turns < BUSY_TURNS
            && let Some(image) = self.images.get_mut(self.busy)
        {
            let delivered = image.poll(limit, take);
            if delivered > 0 {
                self.busy_turns += 1;
                return delivered;
            }
        }
        self.poll_all(limit, take)
    }

    fn poll_all(&mut self, limit: usize, take: &mut impl FnMut(&StreamMessage<'_>) -> bool) -> usize {
        self.busy_turns = 0;
        let count = self.images.len();
        let mut delivered = 0;
        for turn in 0..count {
            let index = (self.next + turn) % count;
            let found = self.images[index].poll(limit - delivered, take);
            if found > 0 {
                delivered += found;
                self.busy = index;
            }
            if delivered == limit {
                self.next = (index + 1) % count;
                break;
            }
        }
        delivered
    }

    /// Copies the oldest message of one of its publications into `buffer`, if there is one; never waits.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Received, TakeError> {
        let mut outcome = Err(TakeError::Empty);
        self.poll_taking(1, &mut |message| {
            if message.len() > buffer.len() {
                outcome = Err(TakeError::BufferTooSmall { size: message.len() });
                return false;
            }
            let Ok(size) = message.copy_to(buffer) else { return false };
            let StreamMessage { source, sequence, lost_before, sent, .. } = *message;
            outcome = Ok(Received { source, sequence, lost_before, sent, size });
            true
        });
        outcome
    }

    /// As [`Self::try_receive`]; waits for a message in the way that was chosen.
    ///
    /// # Errors
    /// [`TakeError::BufferTooSmall`].
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, TakeError> {
        self.receive_until(None, buffer)
    }

    /// As [`Self::receive`], for at most `timeout`.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub fn receive_timeout(&mut self, timeout: Duration, buffer: &mut [u8]) -> Result<Received, TakeError> {
        let deadline = self.clock.now().plus(self.clock.ticks(timeout));
        self.receive_until(Some(deadline), buffer)
    }

    #[inline]
    fn receive_until(&mut self, deadline: Option<Ticks>, buffer: &mut [u8]) -> Result<Received, TakeError> {
        let mut has_waited = false;
        loop {
            match self.try_receive(buffer) {
                Err(TakeError::Empty) => {}
                outcome => {
                    if has_waited {
                        self.waiter.handle_found();
                    }
                    return outcome;
                }
            }
            has_waited = true;
            if self.wait(deadline) {
                return Err(TakeError::Empty);
            }
        }
    }

    /// Waits a little, or until there is something. Whether the deadline has passed.
    fn wait(&mut self, deadline: Option<Ticks>) -> bool {
        let (mut limit, mut is_deadline) = (HOUSEKEEPING_EVERY, false);
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_CLOCK) || deadline.is_some() {
            let now = self.clock.now();
            if let Some(deadline) = deadline {
                if now >= deadline {
                    return true;
                }
                let left = self.clock.duration(deadline.since(now));
                (limit, is_deadline) = (limit.min(left), left < limit);
            }
            self.housekeep(now);
        }
        let Self { streams, images, busy, bell, event, set, waiter, .. } = self;
        let seen = (self.rings_seen, self.visits_seen, self.version_seen);
        let mut bed = Bed { bell: streams.own.segment.bell(*bell), event, descriptors: [None, None], set };
        let mut news = News { streams, images, busy: *busy, seen, limit, is_deadline };
        if waiter.wait(&mut bed, &mut news).slept {
            self.looks = LOOKS_PER_CLOCK - 1;
        }
        false
    }

    /// Looks who has left or died, and for rings that nobody told of.
    fn housekeep(&mut self, now: Ticks) {
        if self.housekeeping.is_due(now) {
            self.streams.roster.handle_housekeeping();
            self.find_rings();
        }
    }

    /// Follows what is new and forgets what is done.
    #[cold]
    fn find_rings(&mut self) {
        let streams = Arc::clone(&self.streams);
        if streams.roster.is_visited(self.visits_seen) {
            self.visits_seen = streams.roster.handle_visits();
        }
        // Before the tables: what comes while they are read is seen at the next look.
        self.version_seen = streams.roster.version();
        self.rings_seen = streams.own.segment.bell(RINGS_BELL).visits();
        self.forget_ended();
        let node = streams.own.segment.owner.node;
        for member in streams.members() {
            let owner = member.segment.owner;
            for entry in member.segment.streams().chunks(2) {
                let id = entry[0].get_published();
                let is_known = || self.images.iter().any(|image| image.file.about.id == id);
                if id == 0
                    || !may_mean(entry[1].get(), node, self.port)
                    || self.refused.contains(&id)
                    || is_known()
                {
                    continue;
                }
                let Some(memory) = streams.roster.venue.open_stream(&owner, id) else { continue };
                let is_for_us = |file: &RingFile| {
                    let about = &file.about;
                    (about.node, about.life, about.id) == (owner.node, owner.life, id)
                        && about.target.includes_node(node)
                        && about.target.includes_port(self.port)
                };
                match RingFile::read(&memory).filter(is_for_us) {
                    Some(file) => self.images.extend({
                        Image::follow(&streams, Arc::clone(&member), file, (self.bell, self.began))
                    }),
                    None => _ = self.refused.insert(id),
                }
            }
        }
    }

    fn forget_ended(&mut self) {
        let ended = &mut self.ended;
        self.images.retain_mut(|image| {
            let is_done = image.is_done();
            if is_done {
                ended.push_back(image.account());
            }
            !is_done
        });
        while ended.len() > ENDED_MAX {
            ended.pop_front();
        }
        (self.busy, self.next) = (0, 0);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.images.clear();
        self.streams.delist(self.bell);
    }
}
