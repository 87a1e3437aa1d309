//! The receiving end of all publications that are for one port, and how it waits.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::doorbell::Notification;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_proto::Address;

use super::{ImageAccount, StreamError, StreamMessage};
use crate::engine::shared::stream::{HOUSEKEEPING_EVERY, Images};
use crate::ledger::Count;
use crate::node::Core;
use crate::node::opening::count_of;
use crate::trace::Stages;
use crate::wake::{Bed, Condition, Manners, Waiter, Wake, epoll_set, waiter};

/// Looks between two looks at the clock, for who polls without sleeping.
const LOOKS_PER_CLOCK: u32 = 64;

/// A subscription to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscriptionOptions {
    /// How it waits: any way but by signal.
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
    /// When it stood in the buffer, where it says when it was sent.
    pub delivered: Option<Ticks>,
    /// The group in which it was sealed, on a sealed bus.
    pub sealed_in: Option<u32>,
    /// Its size, bytes.
    pub size: usize,
}

/// The receiving end of all publications that are for one port of a node. One thread at a time holds it.
///
/// A publication's messages come in order. A subscription has all messages of publications that were made after it, and of older
/// ones those that were sent since it was made.
#[derive(Debug)]
pub struct Subscription {
    images: Images,
    waiter: Box<dyn Waiter>,
    event: Arc<EventFd>,
    /// Of the event, and what else wakes it.
    set: EpollSet,
    /// It sleeps on descriptors.
    on_descriptors: bool,
    /// It waits in its user's event loop.
    armed: bool,
    clock: &'static Clock,
    looks: u32,
    /// Of the message that was received last.
    stages: Option<Stages>,
    /// When the receive began, if the message before had stages: then this one may.
    listened: Ticks,
    /// When it last woke, if it has slept since the message before.
    woken: Ticks,
    core: Arc<Core>,
}

/// Whether there may be something, for who is about to sleep.
struct News<'a> {
    images: &'a Images,
    limit: Duration,
    is_deadline: bool,
}

impl Condition for News<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        self.images.is_ready()
    }

    fn timeout(&mut self) -> Option<Duration> {
        Some(self.limit)
    }

    fn is_overslept(&self) -> bool {
        !self.is_deadline && self.images.has_news()
    }
}

impl Subscription {
    /// `images` is called once it is known that it can wait so.
    pub(crate) fn new(
        options: &SubscriptionOptions,
        core: &Arc<Core>,
        images: impl FnOnce(&Arc<EventFd>) -> Result<Images, StreamError>,
    ) -> Result<Self, StreamError> {
        let cannot = |wake: Wake| StreamError::CannotWait(wake.name());
        let waiter = waiter(options.wake, Manners::IN_PROCESS).map_err(cannot)?;
        let event = Arc::new(EventFd::new().map_err(StreamError::System)?);
        let mut images = images(&event)?;
        let set = epoll_set(&event, [images.post(), None]).map_err(StreamError::System)?;
        let on_descriptors = matches!(options.wake, Wake::EventFd | Wake::Epoll);
        if on_descriptors {
            images.introduce();
        }
        Ok(Self {
            core: Arc::clone(core),
            images,
            waiter,
            event,
            set,
            on_descriptors,
            armed: false,
            clock: Clock::get(),
            looks: 0,
            stages: None,
            listened: Ticks::default(),
            woken: Ticks::default(),
        })
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.images.address()
    }

    /// The accounts of all publications that it reads, and of the newest that have ended.
    pub fn accounts(&self) -> impl Iterator<Item = ImageAccount> {
        self.images.accounts()
    }

    /// Publications that are for it and that it does not read, because its node reads as many as it can (256 in all).
    pub fn left_out(&self) -> usize {
        self.images.left_out()
    }

    /// Where the time of the message that was received last went, if its publication stamps all stages.
    pub fn stages(&self) -> Option<Stages> {
        self.stages
    }

    /// Shows at most `limit` messages to `f`, where they lie; never waits. Returns how many were delivered.
    ///
    /// What `f` reads of a message it may believe once [`StreamMessage::copy_to`] or [`StreamMessage::is_intact`] said so. If
    /// `f` panics, the messages before that one were delivered, and it comes again.
    #[inline]
    pub fn poll(&mut self, limit: usize, mut f: impl FnMut(&StreamMessage<'_>)) -> usize {
        self.disarm();
        let delivered = self.images.poll(limit, &mut |message| {
            f(message);
            true
        });
        self.count_refusals();
        delivered
    }

    #[inline]
    fn count_refusals(&mut self) {
        for refusal in self.images.take_refusals() {
            self.core.page.count(count_of(refusal)).add(1);
        }
    }

    /// Copies the oldest message of one of its publications into `buffer`, if there is one; never waits.
    ///
    /// # Errors
    /// See [`TakeError`].
    #[inline]
    pub fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Received, TakeError> {
        self.disarm();
        self.note_listening();
        self.take(buffer)
    }

    /// For an event loop of one's own: from now on [`Self::as_fd`] becomes readable when a message comes. Returns `false`, and
    /// arms nothing, if there may already be one. Receive or poll until there is none, arm, wait; any receive or poll disarms.
    ///
    /// Arming looks after nodes that have left or died when that is due: a loop that waits for long arms again now and then.
    pub fn arm(&mut self) -> bool {
        self.disarm();
        self.images.introduce();
        self.images.housekeep(self.clock.now());
        self.armed = true;
        let images = &self.images;
        let arms = images.bell().arm(Notification::Descriptor, || images.is_ready());
        if !arms {
            self.disarm();
        }
        arms
    }

    #[inline]
    fn disarm(&mut self) {
        if self.armed {
            self.disarm_armed();
        }
    }

    #[cold]
    fn disarm_armed(&mut self) {
        self.armed = false;
        self.images.bell().disarm();
        self.images.handle_awake();
        self.woken = self.clock.now();
    }

    #[inline]
    fn note_listening(&mut self) {
        if self.stages.is_some() {
            self.listened = self.clock.now();
        }
    }

    #[inline]
    fn take(&mut self, buffer: &mut [u8]) -> Result<Received, TakeError> {
        let mut outcome = Err(TakeError::Empty);
        let Self { images, stages, listened, woken, clock, .. } = self;
        images.poll(1, &mut |message| {
            if message.len() > buffer.len() {
                outcome = Err(TakeError::BufferTooSmall { size: message.len() });
                return false;
            }
            let Ok(size) = message.copy_to(buffer) else { return false };
            let StreamMessage { source, sequence, lost_before, sent, sealed_in, .. } = *message;
            *stages = message.stages_of(*listened, *woken);
            *woken = Ticks::default();
            let delivered =
                sent.map(|_| stages.map_or_else(|| clock.now(), |stages| stages.receiver.delivered));
            outcome = Ok(Received { source, sequence, lost_before, sent, delivered, sealed_in, size });
            true
        });
        self.count_refusals();
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
        self.disarm();
        self.note_listening();
        loop {
            match self.take(buffer) {
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
            self.images.housekeep(now);
        }
        let Self { core, images, event, set, waiter, .. } = self;
        let post = if self.on_descriptors { images.post() } else { None };
        let mut bed = Bed { bell: images.bell(), event, descriptors: [post, None], set };
        let mut news = News { images, limit, is_deadline };
        let waited = waiter.wait(&mut bed, &mut news);
        if waited.slept {
            self.looks = LOOKS_PER_CLOCK - 1;
            self.woken = self.clock.now();
        }
        if waited.on_descriptor {
            images.handle_awake();
        }
        if waited.missed {
            core.page.count(Count::MissedWakeups).add(1);
        }
        false
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.disarm();
    }
}
