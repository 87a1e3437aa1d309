//! The endpoint that a component holds.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::{Address, Target};

use crate::engine::SendError;
use crate::late::Watch;
use crate::node::inbox::Inbox;
use crate::node::{About, BindError, CommunicatorOptions, Core};
use crate::publication::Subscription;
use crate::trace::{Record, Recorder, Stages};
use crate::wake::Waiter;
use memory::MemoryEnd;
use outlet::RouteClaim;
use wire::{WireClaim, WireEnd};

mod delivery;
mod kept;
mod large;
mod memory;
mod observer;
mod outlet;
mod patience;
mod reading;
mod reception;
mod recorded;
mod sender;
mod wire;

pub use delivery::Delivery;
pub use observer::Observer;
pub use sender::Sender;

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
    /// The sender.
    pub source: Address,
    /// The target: this port, all ports, everybody.
    pub target: Target,
    /// Its place in the stream from its node to this one, or from its node to everybody; in memory, from its sender to its target.
    /// 0 inside a node on the kernel's media, unless it is sealed there too. Of the number the lower 32 bits: 0 comes again after 4,294,967,295.
    pub sequence: u32,
    /// Messages of the same stream that were found lost by this one's arrival.
    pub lost_before: u64,
    /// Where its time went, if it carried stamps.
    pub stages: Option<&'a Stages>,
    /// When the kernel received it, `CLOCK_REALTIME` nanoseconds, where the medium says.
    pub kernel_ns: Option<u64>,
    /// On a sealed bus: the group whose key sealed it. None for what a component of one's own node sent without a seal.
    pub sealed_in: Option<u32>,
    /// The message.
    pub payload: &'a [u8],
}

/// Room for a message, written in place: in memory the payload is written once.
///
/// Dropped without [`Claim::commit`], nothing was sent. On the kernel's media other senders of the node wait while it lives. So does a
/// thread that binds or drops a communicator of the node, asks it about others, or for what was sent to a node. The thread that has the
/// claim does none of that meanwhile.
#[derive(Debug)]
pub struct Claim<'a>(Claimed<'a>);

#[derive(Debug)]
enum Claimed<'a> {
    Wire(WireClaim<'a>),
    Memory(RouteClaim<'a>),
}

impl Claim<'_> {
    /// The payload to be written. Its bytes are those that were there before.
    pub fn payload(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Claimed::Wire(claim) => claim.payload(),
            Claimed::Memory(claim) => claim.payload(),
        }
    }

    /// Sends it.
    pub fn commit(self) {
        match self.0 {
            Claimed::Wire(claim) => claim.commit(),
            Claimed::Memory(claim) => claim.commit(),
        }
    }
}

/// Back end of a communicator: its own publications and subscription in memory, or its node's engine.
#[derive(Debug)]
enum End {
    Wire(Box<WireEnd>),
    Memory(Box<MemoryEnd>),
}

/// An endpoint at a port of a node. One component holds it; it sends and receives.
///
/// Messages that it sends to one target arrive in order, each once, or are counted as lost. Between targets there is no order.
pub struct Communicator {
    end: End,
    recorder: Recorder,
    /// The message that memory delivered last is still to be recorded.
    unrecorded: bool,
    watch: Option<Box<Watch>>,
    /// The message that landed last did not fit into its receiver's buffer, and is received next.
    kept: bool,
    /// Messages that came while a large one was sent are received then, before all others.
    waiting: bool,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its buffers are as large as the largest message.
        f.debug_struct("Communicator").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Communicator {
    pub(crate) fn wire(
        core: Arc<Core>,
        inbox: &Arc<Inbox>,
        lead: Box<dyn Waiter>,
        options: &CommunicatorOptions,
    ) -> Result<Self, BindError> {
        let end = End::Wire(Box::new(WireEnd::new(core, inbox, lead, options)?));
        Ok(Self::new(end, options))
    }

    pub(crate) fn memory(subscription: Subscription, row: usize, options: &CommunicatorOptions) -> Self {
        let end = End::Memory(Box::new(MemoryEnd::new(subscription, row, options)));
        Self::new(end, options)
    }

    fn new(end: End, options: &CommunicatorOptions) -> Self {
        let mut new = Self {
            end,
            recorder: Recorder::new(options.recorded),
            unrecorded: false,
            watch: None,
            kept: false,
            waiting: false,
        };
        if let Some(log) = &options.late {
            let receiver = format!("{}:{}", new.about().owner.name, new.address().port);
            new.watch = Some(Box::new(Watch::new(log, receiver)));
        }
        new
    }

    /// False in a child that was forked since: it has only a copy, and the node is its parent's.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.about().maker.is_this_process()
    }

    fn about(&self) -> &About {
        match &self.end {
            End::Wire(end) => &end.core().about,
            End::Memory(end) => &end.streams().about,
        }
    }

    /// This communicator's address.
    pub fn address(&self) -> Address {
        match &self.end {
            End::Wire(end) => end.address(),
            End::Memory(end) => end.address(),
        }
    }

    /// A handle that sends from this address on other threads, while this one waits.
    pub fn sender(&self) -> Sender {
        match &self.end {
            End::Wire(end) => Sender::wire(end.sender()),
            End::Memory(end) => Sender::memory(end.sender()),
        }
    }

    /// From now on what it sends is sealed in this group, whichever the node's is.
    pub(crate) fn seal_in(&self, group: u32) {
        match &self.end {
            End::Wire(end) => end.seal_in(group),
            End::Memory(end) => end.seal_in(group),
        }
    }

    /// Largest message that goes over this bus in one frame, bytes.
    pub fn payload_size_max(&self) -> usize {
        self.about().payload_size_max
    }

    /// Takes the message, or says why not; never waits for room. A message that was taken is delivered or counted. On all media but
    /// memory it waits while another thread of the node sends, or holds a [`Claim`].
    ///
    /// One that is cut is taken if all its fragments are. If there is room for some only, it is [`SendError::Full`] and delivered to
    /// nobody, but those who have the first fragments count it as lost. A message that is larger than a ring is for [`Self::send`].
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
        let sent = match &mut self.end {
            End::Wire(end) => end.try_send(target, payload, due),
            End::Memory(end) => end.outlet.try_send(target, payload, due),
        };
        self.or_cut(sent, target, payload, due)
    }

    /// Takes a message without handing it to the medium yet: [`Self::flush`], or any later send, does that for all
    /// that were queued. For streams: over UDP and Ethernet one call of the kernel then takes many, and in memory readers are told once.
    /// One that is larger than a frame goes at once, as by [`Self::try_send`].
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn queue(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        let queued = match &mut self.end {
            End::Wire(end) => end.queue(target, payload),
            End::Memory(end) => end.outlet.queue(target, payload),
        };
        self.or_cut(queued, target, payload, None)
    }

    /// Hands everything that was queued to the medium.
    pub fn flush(&mut self) {
        match &mut self.end {
            End::Wire(end) => end.flush(),
            End::Memory(end) => end.outlet.flush(),
        }
    }

    /// Room for a message of `size` bytes, to be written in place: one that goes in one frame ([`Self::payload_size_max`]).
    ///
    /// # Errors
    /// See [`SendError`]. A larger message is [`SendError::TooLong`], regardless of the size that the node asked for: [`Self::send`]
    /// it.
    pub fn claim(&mut self, target: Target, size: usize) -> Result<Claim<'_>, SendError> {
        Ok(Claim(match &mut self.end {
            End::Wire(end) => Claimed::Wire(end.claim(target, size)?),
            End::Memory(end) => Claimed::Memory(end.outlet.claim(target, size)?),
        }))
    }

    /// The oldest message, if there is one; never waits.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        if self.takes_detour() {
            return self.try_receive_watched();
        }
        if self.land_now() { Ok(self.message()) } else { Err(ReceiveError::Empty) }
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
    #[inline]
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, ReceiveError> {
        let clock = Clock::get();
        self.receive_by(|| Some(clock.now().plus(clock.ticks(timeout))))
    }

    /// As [`Self::receive`], until an instant of [`crate::Clock`] at the most.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when it has passed.
    #[inline]
    pub fn receive_until(&mut self, deadline: Option<Ticks>) -> Result<Message<'_>, ReceiveError> {
        self.receive_by(|| deadline)
    }

    /// `deadline` is asked for where there may be a wait: in memory it costs a message that is there no look at the clock, as a rule.
    #[inline(always)]
    fn receive_by(&mut self, deadline: impl FnOnce() -> Option<Ticks>) -> Result<Message<'_>, ReceiveError> {
        if self.takes_detour() {
            return self.receive_until_watched(deadline());
        }
        if self.land_until(deadline) { Ok(self.message()) } else { Err(ReceiveError::Empty) }
    }

    /// Lets the oldest message land; waits for one.
    #[inline(always)]
    fn land_until(&mut self, deadline: impl FnOnce() -> Option<Ticks>) -> bool {
        self.record_last();
        match &mut self.end {
            End::Wire(end) => end.receive_until(deadline()),
            End::Memory(end) => end.receive_until(deadline),
        }
    }

    #[inline(never)]
    fn try_receive_watched(&mut self) -> Result<Message<'_>, ReceiveError> {
        if self.try_land_watched() { Ok(self.message()) } else { Err(ReceiveError::Empty) }
    }

    #[inline(never)]
    fn receive_until_watched(&mut self, deadline: Option<Ticks>) -> Result<Message<'_>, ReceiveError> {
        if self.land_until_watched(deadline) { Ok(self.message()) } else { Err(ReceiveError::Empty) }
    }

    /// The same as [`Self::land_until`], with looks at this thread while there is no message.
    fn land_until_watched(&mut self, deadline: Option<Ticks>) -> bool {
        if self.land_kept() {
            return true;
        }
        let wants_look = self.watch.as_ref().is_some_and(|watch| watch.wants_look());
        if wants_look && self.try_land_watched() {
            return true;
        }
        loop {
            if self.land_until(|| deadline) {
                return true;
            }
            let now = Clock::get().now();
            let is_look_due = self.watch.as_ref().is_some_and(|watch| now >= watch.due_at());
            // Where neither is due, the counter began anew, and the deadline was of its former life.
            if deadline.is_some_and(|deadline| now >= deadline || !is_look_due) {
                return false;
            }
            self.look();
        }
    }

    /// Lets the oldest message land, if there is one; if there is none, that is the time to look at this thread.
    fn try_land_watched(&mut self) -> bool {
        if self.land_kept() {
            return true;
        }
        if self.watch.as_ref().is_some_and(|watch| watch.wants_look() && watch.is_overdue()) {
            self.look();
        }
        let found = self.land_now();
        if !found && self.watch.as_mut().is_some_and(|watch| watch.handle_empty()) {
            self.look();
        }
        found
    }

    #[cold]
    fn look(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        watch.look();
        let due_at = watch.due_at();
        match &mut self.end {
            End::Wire(end) => end.pause_at(due_at),
            End::Memory(end) => end.pause_at(due_at),
        }
    }

    /// `Some(true)` if there may be a message; `None` where only the kernel could say.
    pub(crate) fn is_ready(&self) -> Option<bool> {
        match &self.end {
            _ if self.has_kept() => Some(true),
            End::Wire(_) => None,
            End::Memory(end) => Some(end.is_ready()),
        }
    }

    /// Copies that the medium makes of a message for everybody.
    pub(crate) fn copies(&self) -> usize {
        match &self.end {
            End::Wire(end) => end.core.copies,
            End::Memory(_) => 1,
        }
    }

    /// True if more lies at hand than was shown: no call of the kernel is needed for it.
    pub(crate) fn has_at_hand(&self) -> bool {
        match &self.end {
            _ if self.has_kept() => true,
            End::Wire(end) => end.has_at_hand(),
            End::Memory(end) => end.is_ready(),
        }
    }

    /// Lets the oldest message land, if there is one: [`Self::message`].
    #[inline]
    pub(crate) fn try_land(&mut self) -> bool {
        if self.takes_detour() { self.try_land_watched() } else { self.land_now() }
    }

    #[inline]
    fn land_now(&mut self) -> bool {
        self.record_last();
        match &mut self.end {
            End::Wire(end) => end.try_receive(),
            End::Memory(end) => end.try_receive(),
        }
    }

    /// The message that has landed; it is delivered now.
    ///
    /// Read where it landed: moving what is known of it costs more than the message.
    #[inline(always)]
    pub(crate) fn message(&mut self) -> Message<'_> {
        let (message, is_of_memory) = match &mut self.end {
            End::Wire(end) => (end.message(), false),
            End::Memory(end) => (end.message(), true),
        };
        if let Some(stages) = message.stages {
            let record = || Record { source: message.source, sequence: message.sequence, stages: *stages };
            if let Some(watch) = &mut self.watch {
                watch.note(&record());
            }
            if is_of_memory {
                self.unrecorded = true;
            } else {
                self.recorder.record(record());
            }
        }
        message
    }

    /// For an event loop of one's own: from now on [`Self::as_fd`] becomes readable when a message comes. Returns
    /// `false`, and arms nothing, if there may already be one. Receive until [`ReceiveError::Empty`], arm, wait; any receive
    /// disarms.
    ///
    /// Another component of the node that drives the engine meanwhile hands messages over as usual, and the loop is woken for
    /// its own only. Arming does the node's housekeeping when it is due: a loop that
    /// waits for long calls [`crate::Node::housekeep`] now and then. In memory a loop that must not miss a message waits with a
    /// deadline: a sender that is killed or stopped just as it wakes wakes nobody, and no other sender does so in its place.
    pub fn arm(&mut self) -> bool {
        if self.has_kept() {
            return false;
        }
        match &mut self.end {
            End::Wire(end) => end.arm(),
            End::Memory(end) => end.arm(),
        }
    }
}

impl AsFd for Communicator {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.end {
            End::Wire(end) => end.as_fd(),
            End::Memory(end) => end.as_fd(),
        }
    }
}
