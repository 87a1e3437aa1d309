//! The endpoint that a component holds.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use punctual_machine::clock::Ticks;
use punctual_machine::doorbell::Notification;
use punctual_machine::epoll::EpollSet;
use punctual_proto::limits::PREFIX_SIZE_MAX;
use punctual_proto::{Address, Frame, Target};

use crate::engine::{Bell, SendError};
use crate::ledger::RowCount;
use crate::node::inbox::{Inbox, InboxReader};
use crate::node::receiving::{Found, Landing, Receiving, time_left};
use crate::node::sending::{Sending, Timing};
use crate::node::{BindError, CommunicatorOptions, Core};
use crate::trace::{ReceiverStamps, Record, Recorder, Stages};
use crate::wake::{Bed, Waiter, epoll_set, waiter};

/// Polls between two looks at the clock while spinning: a look costs about as much as a poll.
const POLLS_PER_LOOK: u32 = 32;

/// Turns at the engine between two looks at the clock while every turn finds a message.
const TURNS_PER_LOOK: u32 = 256;

/// Turns at the engine in which one try gets past what is not for us: frames for others, announcements.
const TURNS_PER_TRY: u32 = 64;

/// Why no message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// Nothing is there now, or nothing came until the deadline.
    Empty,
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no message"),
        }
    }
}

impl std::error::Error for ReceiveError {}

/// A message that arrived, in the communicator's own buffer: no peer can change it any more.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub source: Address,
    /// Whom it was for: this port, all ports, everybody.
    pub target: Target,
    /// Its place in the stream from its node to this one, or from its node to everybody. 0 inside a node.
    pub sequence: u32,
    /// Messages of the same stream that were found lost by this one's arrival.
    pub lost_before: u64,
    /// Where its time went, if it carried stamps.
    pub stages: Option<Stages>,
    /// When the kernel received it, `CLOCK_REALTIME` nanoseconds, where the medium says.
    pub kernel_ns: Option<u64>,
    /// The message.
    pub payload: &'a [u8],
}

/// Room for a message, written in place: in shared memory the payload is written once.
///
/// Dropped without [`Claim::commit`], nothing was sent. While it lives, other senders of the node wait.
#[derive(Debug)]
pub struct Claim<'a> {
    sending: MutexGuard<'a, Sending>,
    core: &'a Core,
    inbox: &'a Inbox,
}

impl Claim<'_> {
    /// The payload to be written. Its bytes are whatever was there before.
    pub fn payload(&mut self) -> &mut [u8] {
        self.sending.payload()
    }

    /// Sends it.
    pub fn commit(mut self) {
        self.sending.commit(self.core, self.inbox);
        self.sending.flush();
    }
}

/// An endpoint at a port of a node. One component holds it; it sends and receives.
#[derive(Debug)]
pub struct Communicator {
    core: Arc<Core>,
    inbox: Arc<Inbox>,
    reader: InboxReader,
    landing: Landing,
    /// Waits for the engine.
    lead: Box<dyn Waiter>,
    lead_set: EpollSet,
    /// Waits for the inbox while another component drives the engine.
    follow: Box<dyn Waiter>,
    follow_set: EpollSet,
    /// Both together, for the user's own event loop.
    own_set: EpollSet,
    armed: bool,
    stamps: bool,
    recorder: Recorder,
    polls: u32,
    turns: u32,
    /// Events of the last turn.
    seen: usize,
}

impl Communicator {
    pub(crate) fn new(
        core: Arc<Core>,
        inbox: Arc<Inbox>,
        lead: Box<dyn Waiter>,
        options: &CommunicatorOptions,
    ) -> Result<Self, BindError> {
        let sets = Self::sets(&core, &inbox);
        let (lead_set, follow_set, own_set) =
            sets.inspect_err(|_| core.close(&inbox)).map_err(BindError::System)?;
        let follow = waiter(options.wake, true).map_err(BindError::CannotWait)?;
        let buffer = vec![0; PREFIX_SIZE_MAX + core.payload_size_max];
        Ok(Self {
            reader: inbox.reader(),
            landing: Landing { buffer, found: None },
            lead,
            lead_set,
            follow,
            follow_set,
            own_set,
            armed: false,
            stamps: options.stamps,
            recorder: Recorder::new(options.recorded),
            polls: 0,
            turns: 0,
            seen: 0,
            core,
            inbox,
        })
    }

    fn sets(
        core: &Core,
        inbox: &Inbox,
    ) -> Result<(EpollSet, EpollSet, EpollSet), punctual_machine::SystemError> {
        let [first, second] = &core.descriptors;
        let descriptors = [first, second].map(|descriptor| descriptor.as_ref().map(AsFd::as_fd));
        let lead = epoll_set(core.bell.event(), descriptors)?;
        let follow = epoll_set(inbox.bell.event(), [None; 2])?;
        let both = epoll_set(inbox.bell.event(), [Some(lead.as_fd()), None])?;
        Ok((lead, follow, both))
    }

    /// This communicator's address.
    pub fn address(&self) -> Address {
        Address { node: self.core.node, port: self.inbox.port }
    }

    /// Largest message of this bus, bytes.
    pub fn payload_size_max(&self) -> usize {
        self.core.payload_size_max
    }

    /// Takes the message, or says why not; never waits. What was taken is delivered or counted.
    ///
    /// # Errors
    /// See [`SendError`]; the message was then not sent.
    #[inline]
    pub fn try_send(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.try_send_due(target, payload, None)
    }

    /// As [`Self::try_send`], for a message that was due at an instant which the stages then count from.
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline]
    pub fn try_send_due(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<(), SendError> {
        let mut sending = self.queue_locked(target, payload, due)?;
        sending.flush();
        Ok(())
    }

    /// Takes the message without handing it to the medium yet: [`Self::flush`], or any later send, does that for all
    /// that were queued. For streams over UDP and Ethernet, where one call of the kernel then takes many.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn queue(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.queue_locked(target, payload, None).map(drop)
    }

    #[inline]
    fn queue_locked(
        &self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<MutexGuard<'_, Sending>, SendError> {
        let timing = self.stamps.then(|| Timing { due, sent: self.core.clock.now() });
        let mut sending = self.core.sending();
        sending.claim(&self.core, &self.inbox, target, payload.len(), timing)?;
        sending.payload().copy_from_slice(payload);
        sending.commit(&self.core, &self.inbox);
        Ok(sending)
    }

    /// Hands everything that was queued to the medium.
    pub fn flush(&mut self) {
        self.core.sending().flush();
    }

    /// Room for a message of `size` bytes, to be written in place.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn claim(&mut self, target: Target, size: usize) -> Result<Claim<'_>, SendError> {
        let timing = self.stamps.then(|| Timing { due: None, sent: self.core.clock.now() });
        let mut sending = self.core.sending();
        sending.claim(&self.core, &self.inbox, target, size, timing)?;
        Ok(Claim { sending, core: &self.core, inbox: &self.inbox })
    }

    /// Sends, waiting for room and for a target that is not there yet, for as long as it takes.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::TooManyNodes`]: waiting would not help.
    pub fn send(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.send_until(target, payload, None)
    }

    /// As [`Self::send`], for at most `timeout`.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_timeout(
        &mut self,
        target: Target,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        let deadline = self.core.clock.now().plus(self.core.clock.ticks(timeout));
        self.send_until(target, payload, Some(deadline))
    }

    fn send_until(
        &mut self,
        target: Target,
        payload: &[u8],
        deadline: Option<Ticks>,
    ) -> Result<(), SendError> {
        let mut pause = Duration::from_micros(1);
        loop {
            match self.try_send(target, payload) {
                Err(SendError::Full | SendError::Unreachable)
                    if deadline.is_none_or(|deadline| self.core.clock.now() < deadline) => {}
                result => return result,
            }
            // The reader of a full ring has no way to ring for room; looking again from time to time is what is left.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
            if let Some(mut receiving) = self.core.try_receiving() {
                self.core.housekeep(&mut receiving, self.core.clock.now());
                drop(receiving);
                self.core.hand_over();
            }
        }
    }

    /// The oldest message, if there is one; never waits.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        let was_armed = self.disarm();
        if let Some(found) = self.take_from_inbox() {
            if was_armed {
                self.core.hand_over();
            }
            return Ok(self.message(found));
        }
        // Another component drives the engine just now: what is for us comes to the inbox.
        let core = Arc::clone(&self.core);
        let found = core.try_receiving().and_then(|mut receiving| {
            let mut found = None;
            for _ in 0..TURNS_PER_TRY {
                receiving.look_everywhere();
                found = self.poll_engine(&core, &mut receiving);
                if found.is_some() || self.seen == 0 && !receiving.is_ready() {
                    break;
                }
            }
            drop(receiving);
            core.hand_over();
            found
        });
        found.map(|found| self.message(found)).ok_or(ReceiveError::Empty)
    }

    /// The oldest message; waits for one in the way that was chosen at [`crate::Node::bind_with`].
    ///
    /// # Errors
    /// None at present; a wait without a deadline ends with a message.
    #[inline]
    pub fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        self.receive_until(None)
    }

    /// As [`Self::receive`], for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when it has passed.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, ReceiveError> {
        let deadline = self.core.clock.now().plus(self.core.clock.ticks(timeout));
        self.receive_until(Some(deadline))
    }

    /// As [`Self::receive`], until an instant of [`crate::Clock`] at the most.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when it has passed.
    #[inline]
    pub fn receive_until(&mut self, deadline: Option<Ticks>) -> Result<Message<'_>, ReceiveError> {
        let was_armed = self.disarm();
        let core = Arc::clone(&self.core);
        let found = loop {
            if let Some(found) = self.take_from_inbox() {
                break Some(found);
            }
            let receiving = match core.try_receiving() {
                Some(receiving) => Some(receiving),
                None => match self.follow(&core, deadline) {
                    Turn::Lead(receiving) => Some(receiving),
                    Turn::Look => None,
                    Turn::Late => break None,
                },
            };
            let Some(mut receiving) = receiving else { continue };
            let step = self.lead(&core, &mut receiving, deadline);
            drop(receiving);
            core.hand_over();
            match step {
                Step::Found(found) => break Some(found),
                Step::Look => {}
                Step::Late => break None,
            }
            if core.has_visitors() {
                std::thread::yield_now();
            }
        };
        if was_armed {
            core.hand_over();
        }
        self.lead.handle_found();
        self.follow.handle_found();
        found.map(|found| self.message(found)).ok_or(ReceiveError::Empty)
    }

    /// Drives the engine until there is a message for this communicator.
    #[inline]
    fn lead(&mut self, core: &Core, receiving: &mut Receiving, deadline: Option<Ticks>) -> Step {
        self.inbox.leads.set(true);
        core.handle_lead(receiving);
        let step = loop {
            if let Some(found) = self.poll_engine(core, receiving) {
                break Step::Found(found);
            }
            if core.has_visitors() {
                break Step::Look;
            }
            if self.is_late(core, Some(receiving), deadline) {
                break Step::Late;
            }
            self.wait_leading(core, receiving, deadline);
        };
        self.inbox.leads.set(false);
        step
    }

    fn wait_leading(&mut self, core: &Core, receiving: &mut Receiving, deadline: Option<Ticks>) {
        let reader = &self.reader;
        let has_news = || reader.has_news() || core.has_visitors();
        let waited = receiving.wait(core, &mut *self.lead, &mut self.lead_set, deadline, &has_news);
        if waited.slept {
            // The next look at the clock is due: a sleep may have been long.
            self.polls = 0;
        }
    }

    /// Waits for the inbox, or for the leader to leave.
    fn follow<'c>(&mut self, core: &'c Core, deadline: Option<Ticks>) -> Turn<'c> {
        let turn = loop {
            if !self.inbox.is_listed() {
                core.registry.enlist(&self.inbox);
            }
            if self.reader.has_news() {
                break Turn::Look;
            }
            if let Some(receiving) = core.try_receiving() {
                break Turn::Lead(receiving);
            }
            if self.is_late(core, None, deadline) {
                break Turn::Late;
            }
            if let Some(receiving) = self.wait_following(core, deadline) {
                break Turn::Lead(receiving);
            }
        };
        if !core.registry.delist(&self.inbox) && !matches!(turn, Turn::Lead(_)) {
            // The leadership was ours, and we go away with a message or without: it is the next one's.
            core.hand_over();
        }
        turn
    }

    fn wait_following<'c>(
        &mut self,
        core: &'c Core,
        deadline: Option<Ticks>,
    ) -> Option<MutexGuard<'c, Receiving>> {
        let timeout = || {
            let left = time_left(core, core.clock.now(), deadline);
            Some(core.clock.duration(left))
        };
        let mut bed = Bed {
            bell: self.inbox.bell.doorbell(),
            event: self.inbox.bell.event(),
            descriptors: [None; 2],
            set: &mut self.follow_set,
        };
        let (inbox, reader) = (&self.inbox, &self.reader);
        let mut taken = None;
        let is_ready = &mut || {
            // Whoever was taken off the list must not sleep: nobody would ring.
            if reader.has_news() || !inbox.is_listed() {
                return true;
            }
            taken = core.try_receiving();
            taken.is_some()
        };
        let waited = self.follow.wait(&mut bed, &timeout, is_ready);
        if waited.on_descriptor {
            self.inbox.bell.event().drain();
        }
        if waited.slept {
            self.polls = 0;
        }
        taken
    }

    /// Whether the deadline has passed; does the housekeeping by the way. Looks at the clock now and then.
    #[inline]
    fn is_late(&mut self, core: &Core, receiving: Option<&mut Receiving>, deadline: Option<Ticks>) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) && self.polls != 1 {
            return false;
        }
        let now = core.clock.now();
        if let Some(receiving) = receiving
            && receiving.is_housekeeping_due(core, now)
        {
            core.housekeep(receiving, now);
        }
        deadline.is_some_and(|deadline| now >= deadline)
    }

    /// For who never waits here.
    #[cold]
    fn housekeep_if_due(&self, core: &Core, receiving: &mut Receiving) {
        let now = core.clock.now();
        if receiving.is_housekeeping_due(core, now) {
            core.housekeep(receiving, now);
        }
    }

    #[inline]
    fn poll_engine(&mut self, core: &Core, receiving: &mut Receiving) -> Option<Found> {
        // What is in the inbox is older than what the engine has: its last driver put it there.
        if let Some(found) = self.take_from_inbox() {
            return Some(found);
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_LOOK) {
            self.housekeep_if_due(core, receiving);
        }
        self.landing.found = None;
        self.seen = receiving.turn(core, &self.inbox, &mut self.landing);
        self.landing.found.take().or_else(|| self.take_from_inbox())
    }

    #[inline]
    fn take_from_inbox(&mut self) -> Option<Found> {
        if !self.reader.has_news() {
            return None;
        }
        let (circumstances, size) = self.reader.take(&self.inbox, &mut self.landing.buffer)?;
        let frame = Frame::parse(&self.landing.buffer[..size]).expect("this process wrote it");
        let payload_at = frame.header.prefix_size();
        Some(Found { header: frame.header, stamps: frame.stamps, circumstances, payload_at })
    }

    /// The message that was found; it is delivered now.
    #[inline]
    fn message(&mut self, found: Found) -> Message<'_> {
        let Found { header, stamps, circumstances, payload_at } = found;
        self.core.page.row(self.inbox.row, RowCount::Delivered).add_alone(1);
        let stages = stamps.map(|sender| Stages {
            sender,
            receiver: ReceiverStamps {
                woken: circumstances.woken,
                read: circumstances.read,
                opened: circumstances.read,
                delivered: self.core.clock.now(),
            },
            one_clock: sender.same_clock(self.core.clock.domain()),
        });
        if let Some(stages) = stages {
            self.recorder.record(Record { source: header.source, sequence: header.sequence, stages });
        }
        let size = header.payload_size as usize;
        Message {
            source: header.source,
            target: header.target,
            sequence: header.sequence,
            lost_before: circumstances.lost_before,
            stages,
            kernel_ns: Some(circumstances.kernel_ns).filter(|&ns| ns != 0),
            payload: &self.landing.buffer[payload_at..payload_at + size],
        }
    }

    /// The stages of the newest messages received, oldest first, as far as [`CommunicatorOptions::recorded`] keeps them.
    pub fn recorded(&self) -> impl Iterator<Item = &Record> {
        self.recorder.iter()
    }

    /// For an event loop of one's own: from now on [`Self::as_fd`] becomes readable when a message comes. Returns
    /// `false`, and arms nothing, if there may already be one. Receive until [`ReceiveError::Empty`], arm, wait; any receive
    /// disarms.
    ///
    /// Another component of the node that drives the engine meanwhile hands messages over as usual. Arming does the
    /// node's housekeeping when it is due: a loop that waits for long calls [`crate::Node::housekeep`] now and then.
    pub fn arm(&mut self) -> bool {
        self.disarm();
        self.inbox.bell.doorbell().arm(Notification::Descriptor);
        self.armed = true;
        if let Some(mut receiving) = self.core.try_receiving() {
            self.housekeep_if_due(&self.core, &mut receiving);
        }
        let quiet = self.core.arm();
        if !quiet || self.reader.has_news() {
            self.disarm();
            self.core.hand_over();
            return false;
        }
        true
    }

    /// Whether it was armed. If so, others may wait for the engine: [`Core::hand_over`] when done with it.
    #[inline]
    fn disarm(&mut self) -> bool {
        let was_armed = self.armed;
        if was_armed {
            self.disarm_armed();
        }
        was_armed
    }

    #[cold]
    fn disarm_armed(&mut self) {
        self.armed = false;
        self.inbox.bell.doorbell().disarm();
        self.inbox.bell.event().drain();
        self.core.disarm();
    }
}

/// Whose turn it is after waiting for another component that drives the engine.
enum Turn<'c> {
    /// Ours to drive it.
    Lead(MutexGuard<'c, Receiving>),
    /// There is something in the inbox.
    Look,
    /// The deadline has passed.
    Late,
}

/// What a turn at the engine or at the inbox came to.
#[derive(Debug)]
enum Step {
    Found(Found),
    Look,
    Late,
}

impl AsFd for Communicator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own_set.as_fd()
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.disarm();
        // What was queued goes before its sender does.
        self.core.sending().flush();
        self.core.close(&self.inbox);
        self.core.hand_over();
    }
}
