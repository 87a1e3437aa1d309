//! The receiving end of all publications that are for one port, and how it waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, LastLook, Ticks};
use punctual_machine::doorbell::Notification;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_machine::sync::spin_hint;
use punctual_proto::{Address, NodeId, Target};

use super::news::{News, Nudges};
use super::received::{CopyOut, Received, TakeError, Taken};
use super::{ImageAccount, StreamError, StreamMessage};
use crate::ledger::Count;
use crate::memory::stream::{HOUSEKEEPING_EVERY, Images, Streams};
use crate::trace::Stages;
use crate::wake::{Alarm, Bed, Manners, Waiter, Wake, epoll_set, waiter};

mod growing;

/// Looks between two looks at the clock, for a thread that polls without sleeping.
const LOOKS_PER_CLOCK: u32 = 64;

/// Messages between two looks at the clock, while every look finds one.
const TAKES_PER_LOOK: u32 = 256;

/// Glances before the waiter's own, where publications are many: the message that ends them is found a call or two earlier.
const FIRST_GLANCES: u32 = 16;

/// A subscription to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscriptionOptions {
    /// Its way of waiting: any but by signal.
    pub wake: Wake,
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
    /// In the set, where something comes that rings nothing. Set while it is armed only.
    alarm: Option<Alarm>,
    /// It sleeps on descriptors.
    on_descriptors: bool,
    /// Since when it waits in its user's event loop.
    armed: Option<Ticks>,
    clock: &'static Clock,
    looks: u32,
    taken: Taken,
    nudges: Nudges,
    nudges_seen: u64,
    takes: u32,
    /// A wait ends without a message when a look at the clock finds that it is later than this.
    pause_at: Ticks,
    last_look: LastLook,
    /// Of what comes from there nothing is copied.
    ignored: Option<Address>,
    /// A reader's own buffer, while a message that was put together is in its place.
    aside: Option<Vec<u8>>,
}

/// Outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait<T> {
    Found(T),
    Nudged,
    Late,
}

impl Subscription {
    /// `images` is called once it is known that it can wait so.
    pub(crate) fn new(
        options: &SubscriptionOptions,
        images: impl FnOnce(&Arc<EventFd>) -> Result<Images, StreamError>,
    ) -> Result<Self, StreamError> {
        let waiter = waiter(options.wake, Manners::IN_PROCESS).map_err(StreamError::CannotWait)?;
        let event = Arc::new(EventFd::new().map_err(StreamError::System)?);
        let mut images = images(&event)?;
        let alarm = images.has_instants().then(Alarm::new).transpose().map_err(StreamError::System)?;
        let descriptors = [images.post(), alarm.as_ref().map(AsFd::as_fd)];
        let set = epoll_set(&event, descriptors).map_err(StreamError::System)?;
        let on_descriptors = matches!(options.wake, Wake::EventFd | Wake::Epoll);
        if on_descriptors {
            images.introduce();
        }
        let (streams, bell) = (Arc::clone(images.streams()), images.bell_index());
        let source = images.address();
        Ok(Self {
            taken: Taken::nothing(source),
            nudges: Nudges::new(streams, bell),
            nudges_seen: 0,
            takes: 0,
            pause_at: Ticks::NEVER,
            last_look: LastLook::none(),
            ignored: None,
            aside: None,
            images,
            waiter,
            event,
            set,
            alarm,
            on_descriptors,
            armed: None,
            clock: Clock::get(),
            looks: 0,
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

    /// Publications that are for it and that it does not read, because its process has no memory left to map them. It tries again
    /// at every look.
    pub fn left_out(&self) -> usize {
        self.images.left_out()
    }

    /// Where the time of the message that was received last went, if its publication stamps all stages.
    pub fn stages(&self) -> Option<Stages> {
        self.taken.stages
    }

    /// The same where they lie. Read soon after they were written, a copy of them waits for all stores before it.
    #[inline]
    pub(crate) fn last_stages(&self) -> Option<&Stages> {
        self.taken.stages.as_ref()
    }

    /// Shows at most `limit` messages to `f`, where they lie; never waits. Returns how many were delivered.
    ///
    /// `f` may believe what it reads of a message once [`StreamMessage::copy_to`] or [`StreamMessage::is_intact`] said so. If `f`
    /// panics, the messages before that one were delivered, and it comes again.
    #[inline]
    pub fn poll(&mut self, limit: usize, mut f: impl FnMut(&StreamMessage<'_>)) -> usize {
        self.disarm();
        self.images.poll(limit, &mut |message: &StreamMessage<'_>| {
            f(message);
            true
        })
    }

    /// Shows one message to `f`, if there is one; never waits. Returns what `f` made of it, whether or not it was overwritten
    /// meanwhile.
    pub(crate) fn poll_one<R>(&mut self, f: impl for<'a> FnOnce(&'a StreamMessage<'a>) -> R) -> Option<R> {
        self.disarm();
        let (mut f, mut made) = (Some(f), None);
        self.images.poll(1, &mut |message: &StreamMessage<'_>| match f.take() {
            Some(f) => {
                made = Some(f(message));
                true
            }
            // Behind one that was overwritten there is another: it is shown next time.
            None => false,
        });
        made
    }

    /// From now on messages that are from its own address are taken as empty ones by those who have a buffer that grows.
    pub(crate) fn ignore_own(&mut self) {
        self.ignored = Some(self.address());
    }

    /// Fragments that it reads count as delivered in this row of its node's page.
    pub(crate) fn count_in(&mut self, row: usize) {
        self.images.count_in(row);
    }

    pub(crate) fn streams(&self) -> &Arc<Streams> {
        self.images.streams()
    }

    /// The name of a node whose publications it reads.
    pub(crate) fn name_of(&self, node: NodeId) -> Option<String> {
        self.images.name_of(node)
    }

    /// The nudges that end its waits.
    pub(crate) fn nudges(&self) -> &Nudges {
        &self.nudges
    }

    /// The port that it has alone is free for another soon.
    pub(crate) fn leave_port(&mut self) {
        self.images.leave_port();
    }

    /// Reads nothing any more, and is no reader to anybody. Returns the number of messages that are there and that nobody has had.
    pub(crate) fn close(&mut self) -> u64 {
        self.disarm();
        self.images.close()
    }

    /// Waits end at this instant too, or a little later: a waiting thread looks at the clock now and then.
    #[inline]
    pub(crate) fn pause_at(&mut self, instant: Ticks) {
        self.pause_at = instant;
    }

    /// Does what has to be done from time to time, if it is time.
    pub(crate) fn keep_house(&mut self) {
        self.images.housekeep(self.clock.now());
    }

    /// True if it was nudged since this was last asked.
    #[inline]
    pub(crate) fn take_nudge(&mut self) -> bool {
        let count = self.nudges.count();
        std::mem::replace(&mut self.nudges_seen, count) != count
    }

    /// The message that was received last, and its target.
    #[inline]
    pub(crate) fn last(&self) -> (&Received, Target) {
        (&self.taken.received, self.taken.target)
    }

    /// Copies the oldest message of one of its publications into `buffer`, if there is one; never waits.
    ///
    /// # Errors
    /// See [`TakeError`].
    #[inline]
    pub fn try_receive(&mut self, buffer: &mut [u8]) -> Result<&Received, TakeError> {
        self.note_listening();
        self.disarm();
        self.take_into(buffer).map(|()| &self.taken.received)
    }

    /// True if there may be a message, or something else to look after.
    pub(crate) fn is_ready(&self) -> bool {
        self.images.is_ready() || self.nudges.count() != self.nudges_seen
    }

    /// For an event loop of one's own: from now on [`Self::as_fd`] becomes readable when a message comes. Returns `false`, and
    /// arms nothing, if there may already be one. Receive or poll until there is none, arm, wait; any receive or poll disarms.
    ///
    /// Arming looks after nodes that have left or died when that is due: a loop that waits for long arms again now and then. A loop
    /// that must not miss a message waits with a deadline: a sender that is killed or stopped just as it wakes wakes nobody, and no
    /// other sender does so in its place.
    pub fn arm(&mut self) -> bool {
        self.disarm();
        self.images.introduce();
        let now = self.clock.now();
        self.images.housekeep(now);
        let (images, nudges, seen) = (&self.images, &self.nudges, self.nudges_seen);
        let is_ready = || images.is_ready() || nudges.count() != seen;
        let arms = images.bell().arm(Notification::Descriptor, is_ready);
        if arms {
            self.armed = Some(now);
            self.alarm.iter().for_each(|alarm| alarm.set(self.images.next_due()));
        } else {
            self.stand_down();
        }
        arms
    }

    #[inline]
    pub(crate) fn disarm(&mut self) {
        if self.armed.is_some() {
            self.disarm_armed();
        }
    }

    #[cold]
    fn disarm_armed(&mut self) {
        self.armed = None;
        self.stand_down();
        self.taken.woken = self.clock.now();
    }

    /// Nobody rings for it any more. A thread that armed in vain did not sleep, and is not woken by this.
    fn stand_down(&mut self) {
        self.images.bell().disarm();
        self.images.handle_awake();
        self.alarm.iter().for_each(Alarm::clear);
    }

    /// A receive begins, before [`Self::disarm`]: what came since it was armed came while it listened.
    #[inline]
    pub(crate) fn note_listening(&mut self) {
        if self.taken.stages.is_some() {
            self.taken.listened = self.clock.now();
            self.taken.armed = self.armed.unwrap_or_default();
        }
    }

    /// Copies the oldest message of one of its publications into `buffer`; [`Self::last`] describes it.
    #[inline]
    pub(crate) fn take_into(&mut self, buffer: &mut [u8]) -> Result<(), TakeError> {
        let Self { images, taken, .. } = self;
        // Two of them: the fields of one that is handed to `poll_rest` would lie in memory.
        let mut of_busy = CopyOut::new(buffer, taken);
        images.poll_busy(1, &mut of_busy);
        let outcome = of_busy.outcome;
        if outcome.is_ok() {
            return outcome;
        }
        let mut of_rest = CopyOut::new(buffer, taken);
        images.poll_rest(1, &mut of_rest);
        if of_rest.outcome == Err(TakeError::Empty) { outcome } else { of_rest.outcome }
    }

    /// As [`Self::try_receive`]; waits for a message in the way that was chosen.
    ///
    /// # Errors
    /// [`TakeError::BufferTooSmall`].
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<&Received, TakeError> {
        self.receive_until(|| None, buffer)
    }

    /// As [`Self::receive`], for at most `timeout`.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub fn receive_timeout(&mut self, timeout: Duration, buffer: &mut [u8]) -> Result<&Received, TakeError> {
        let clock = self.clock;
        self.receive_until(|| Some(clock.now().plus(clock.ticks(timeout))), buffer)
    }

    /// `deadline` is asked for where there is a wait: a message that is there costs no look at the clock.
    #[inline]
    fn receive_until(
        &mut self,
        deadline: impl FnOnce() -> Option<Ticks>,
        buffer: &mut [u8],
    ) -> Result<&Received, TakeError> {
        self.note_listening();
        self.disarm();
        let looks = self.begins_with_full_look();
        let mut outcome = if looks { self.take_into(buffer) } else { Err(TakeError::Empty) };
        if outcome == Err(TakeError::Empty) {
            outcome = self.take_later(looks, deadline(), buffer);
        }
        outcome.map(|()| &self.taken.received)
    }

    /// Waits for a message. `has_looked`: a full look has found none.
    #[inline(never)]
    fn take_later(
        &mut self,
        mut has_looked: bool,
        deadline: Option<Ticks>,
        buffer: &mut [u8],
    ) -> Result<(), TakeError> {
        loop {
            let found =
                self.wait_longer(has_looked, deadline, |subscription| match subscription.take_into(buffer) {
                    Err(TakeError::Empty) => None,
                    outcome => Some(outcome),
                });
            match found {
                Wait::Found(outcome) => return outcome,
                // A nudge may have come in place of a look.
                Wait::Nudged => has_looked = false,
                Wait::Late => return Err(TakeError::Empty),
            }
        }
    }

    /// Waits until `take` finds something, somebody nudges, or the deadline has passed. That is asked for where there is a wait.
    #[inline]
    pub(crate) fn wait_for<T>(
        &mut self,
        deadline: impl FnOnce() -> Option<Ticks>,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Wait<T> {
        self.disarm();
        let looks = self.begins_with_full_look();
        if looks && let Some(found) = take(self) {
            return Wait::Found(found);
        }
        self.wait_longer(looks, deadline(), take)
    }

    /// The same after a full look that found nothing, or after none.
    fn wait_longer<T>(
        &mut self,
        mut has_looked: bool,
        deadline: Option<Ticks>,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Wait<T> {
        loop {
            if self.take_nudge() {
                return Wait::Nudged;
            }
            if self.wait(deadline) && has_looked {
                // The user's time between two calls is no wait. After a pause this one goes on.
                if deadline.unwrap_or(Ticks::NEVER) <= self.pause_at {
                    self.waiter.handle_found();
                }
                return Wait::Late;
            }
            has_looked = true;
            if let Some(found) = take(self) {
                self.waiter.handle_found();
                return Wait::Found(found);
            }
        }
    }

    /// True if a wait begins with a look at all publications, false if with glances at the busy one and a few others. A full look at
    /// many takes so long that an answer comes meanwhile, and waits for its end.
    #[inline]
    fn begins_with_full_look(&self) -> bool {
        !self.images.are_many() || !self.waiter.spins_first() || self.glances_first()
    }

    /// True if one of the first glances finds something.
    fn glances_first(&self) -> bool {
        let mut from = 0;
        (0..FIRST_GLANCES).any(|_| {
            let found = self.images.glance(&mut from);
            if !found {
                spin_hint();
            }
            found
        })
    }

    /// Waits a little, or until there is something. Returns true if the deadline has passed.
    fn wait(&mut self, deadline: Option<Ticks>) -> bool {
        let (mut limit, mut is_deadline) = (HOUSEKEEPING_EVERY, false);
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_CLOCK) || deadline.is_some() {
            let now = self.clock.now();
            self.images.housekeep(now);
            let until = deadline.unwrap_or(Ticks::NEVER);
            if self.last_look.finds_past(now, until.min(self.pause_at)) {
                return true;
            }
            let left = self.clock.duration(until.since(now));
            (limit, is_deadline) = (limit.min(left), left < limit);
        }
        if let Some(due) = self.images.next_due() {
            let left = self.clock.duration(due.since(self.clock.now()));
            (limit, is_deadline) = (limit.min(left), is_deadline || left < limit);
        }
        let Self { images, event, set, waiter, nudges, nudges_seen, .. } = self;
        let post = if self.on_descriptors { images.post() } else { None };
        let mut bed = Bed { bell: images.bell(), event, descriptors: [post, None], set };
        let mut news = News { images, nudges, nudges_seen: *nudges_seen, limit, is_deadline, glance_from: 0 };
        let waited = waiter.wait(&mut bed, &mut news);
        if waited.slept {
            self.looks = LOOKS_PER_CLOCK - 1;
            self.taken.woken = self.clock.now();
        }
        if waited.on_descriptor {
            images.handle_awake();
        }
        if waited.missed {
            images.page().count(Count::MissedWakeups).add(1);
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
        if self.streams().about.maker.is_this_process() {
            self.disarm();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Bus, Node, PublicationOptions};

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Goal: a call that ends at its time limit ends its wait: what the user does until the next call is none.
    #[test]
    fn a_time_limit_ends_a_wait() {
        let node = Node::open(&Bus::loopback("late"), "here").expect("a node alone");
        let options = SubscriptionOptions { wake: Wake::Backoff };
        let mut subscription = node.subscription(7, &options).expect("a port");
        if !subscription.waiter.spins_first() {
            punctual_machine::skipped!("the end of a wait: sleeping costs nothing here, so nobody spins");
            return;
        }
        let mut ends_its_wait = |_| {
            let outcome = subscription.receive_timeout(Duration::from_micros(5), &mut [0; 8]).copied();
            assert_eq!(outcome, Err(TakeError::Empty));
            subscription.waiter.spins_first()
        };
        // A wait in which another has the processor is slept through, and so are some after it.
        assert!((0..100).any(&mut ends_its_wait), "its wait goes on");
    }

    /// Goal: a counter that begins anew while the machine sleeps ends a wait whose deadline was by what it had counted before. No wait
    /// ends so whose deadline is by what it counts now. Method: the last look at the clock was hours ahead.
    #[test]
    fn a_counter_that_begins_anew_ends_a_wait() {
        let node = Node::open(&Bus::loopback("anew"), "here").expect("a node alone");
        let clock = Clock::get();
        let ahead = clock.now().plus(clock.ticks(10 * HOUR));
        let soon = clock.now().plus(clock.ticks(Duration::from_millis(50)));
        for (port, deadline) in [(1, ahead.plus(clock.ticks(HOUR))), (2, soon)] {
            let mut subscription = node.subscription(port, &SubscriptionOptions::default()).expect("a port");
            assert!(!subscription.last_look.finds_past(ahead, Ticks::NEVER));
            let (ended, result) = mpsc::channel();
            std::thread::spawn(move || {
                let outcome = subscription.receive_until(|| Some(deadline), &mut [0; 8]).copied();
                ended.send((outcome, clock.now()))
            });
            let (outcome, now) = result.recv_timeout(Duration::from_secs(60)).expect("it ends");
            assert_eq!(outcome, Err(TakeError::Empty));
            assert!(deadline > ahead || now >= deadline, "it had begun after the sleep");
        }
    }

    /// Goal: a caller that does not wait at all gets the messages of any of many publications, also of one that no first glance looks
    /// at.
    #[test]
    fn no_time_is_enough_for_a_full_look() {
        const FIRST_SEEN: usize = FIRST_GLANCES as usize * 4;
        let node = Node::open(&Bus::loopback("many"), "here").expect("a node alone");
        let mut subscription =
            node.subscription(1, &SubscriptionOptions { wake: Wake::Spin }).expect("a port");
        let options = PublicationOptions { ring_size: 1 << 12, ..PublicationOptions::default() };
        let publish = |_| node.publication(Target::port("here", 1), &options).expect("room");
        let mut publications: Vec<_> = (0..FIRST_SEEN + 6).map(publish).collect();
        let mut buffer = [0; 1];
        for number in [0, 1, FIRST_SEEN, FIRST_SEEN + 5] {
            publications[number].offer(&[number as u8]).expect("room");
            let received = subscription.receive_timeout(Duration::ZERO, &mut buffer);
            assert!(received.is_ok(), "{number}: {received:?}");
            assert_eq!(buffer, [number as u8]);
        }
    }
}
