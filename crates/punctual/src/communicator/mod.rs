//! The endpoint that a component holds.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::biased::BiasedGuard;
use punctual_machine::clock::{Clock, Ticks, realtime_ns, stamp_age};
use punctual_machine::doorbell::Notification;
use punctual_machine::epoll::EpollSet;
use punctual_proto::{Address, Target};

use crate::engine::{Bell, SendError};
use crate::ledger::RowCount;
use crate::node::inbox::Inbox;
use crate::node::receiving::Found;
use crate::node::sending::{Sending, Timing};
use crate::node::{BindError, CommunicatorOptions, Core};
use crate::trace::{ReceiverStamps, Record, Recorder, Stages};
use crate::wake::{Manners, Waiter, epoll_set, waiter};
use reception::Reception;

mod observer;
mod reception;
mod sender;

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
    /// On a sealed bus: the group whose key sealed it. None for what a component of one's own node sent without a seal.
    pub sealed_in: Option<u32>,
    /// The message.
    pub payload: &'a [u8],
}

/// Room for a message, written in place: in shared memory the payload is written once.
///
/// Dropped without [`Claim::commit`], nothing was sent. While it lives, other senders of the node wait.
#[derive(Debug)]
pub struct Claim<'a> {
    sending: BiasedGuard<'a, Sending>,
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
pub struct Communicator {
    core: Arc<Core>,
    reception: Reception,
    /// The engine's descriptors and the inbox's together, for the user's own event loop.
    own_set: EpollSet,
    armed: bool,
    stamps: bool,
    recorder: Recorder,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its buffers are as large as the largest message.
        f.debug_struct("Communicator").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Communicator {
    pub(crate) fn new(
        core: Arc<Core>,
        inbox: &Arc<Inbox>,
        lead: Box<dyn Waiter>,
        options: &CommunicatorOptions,
    ) -> Result<Self, BindError> {
        let follow = waiter(options.wake.inside(), Manners::IN_PROCESS).map_err(BindError::CannotWait)?;
        let (reception, own_set) = Self::open_sets(&core, inbox, lead, follow)
            .inspect_err(|_| core.close(inbox))
            .map_err(BindError::System)?;
        let recorder = Recorder::new(options.recorded);
        Ok(Self { core, reception, own_set, armed: false, stamps: options.stamps, recorder })
    }

    fn open_sets(
        core: &Core,
        inbox: &Arc<Inbox>,
        lead: Box<dyn Waiter>,
        follow: Box<dyn Waiter>,
    ) -> Result<(Reception, EpollSet), SystemError> {
        let reception = Reception::new(core, Arc::clone(inbox), lead, follow)?;
        let own_set = epoll_set(inbox.bell.event(), [Some(core.gate.as_fd()), None])?;
        Ok((reception, own_set))
    }

    /// This communicator's address.
    pub fn address(&self) -> Address {
        Address { node: self.core.node, port: self.reception.inbox.port }
    }

    /// What sends from this address on other threads, while this one waits.
    pub fn sender(&self) -> Sender {
        Sender::new(&self.core, &self.reception.inbox, self.stamps)
    }

    /// From now on what it sends is sealed in this group, whichever the node's is.
    pub(crate) fn seal_in(&self, group: u32) {
        self.reception.inbox.seal_in(group);
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
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<BiasedGuard<'_, Sending>, SendError> {
        let timing = self.stamps.then(|| Timing { due, sent: self.core.clock.now() });
        let mut sending = self.core.sending(&mut self.reception.pass);
        sending.take(&self.core, &self.reception.inbox, target, payload, timing)?;
        Ok(sending)
    }

    /// Hands everything that was queued to the medium.
    pub fn flush(&mut self) {
        self.core.sending(&mut self.reception.pass).flush();
    }

    /// Room for a message of `size` bytes, to be written in place.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn claim(&mut self, target: Target, size: usize) -> Result<Claim<'_>, SendError> {
        let timing = self.stamps.then(|| Timing { due: None, sent: self.core.clock.now() });
        let mut sending = self.core.sending(&mut self.reception.pass);
        sending.claim(&self.core, &self.reception.inbox, target, size, timing)?;
        Ok(Claim { sending, core: &self.core, inbox: &self.reception.inbox })
    }

    /// How long [`Self::send`] waits: longer than a program takes to start, or a reader to be scheduled.
    pub const SEND_TIMEOUT: Duration = Duration::from_secs(1);

    /// Sends. Waits for room, and for a target that is not there yet, for at most [`Self::SEND_TIMEOUT`].
    ///
    /// ```
    /// use punctual::{Bus, Node, SendError, Target};
    ///
    /// let mut here = Node::open(&Bus::loopback("nobody-there"), "ping").unwrap().bind(1).unwrap();
    /// assert_eq!(here.send(Target::port("pong", 7400), b"hello"), Err(SendError::Unreachable));
    /// ```
    ///
    /// # Errors
    /// See [`SendError`]; the message was then not sent. [`SendError::Full`] and [`SendError::Unreachable`] come when the time has
    /// passed, the others at once.
    pub fn send(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.send_timeout(target, payload, Self::SEND_TIMEOUT)
    }

    /// As [`Self::send`], for at most `timeout`. [`Duration::MAX`] waits for as long as it takes.
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
        let mut pause = Duration::from_micros(1);
        loop {
            match self.try_send(target, payload) {
                Err(SendError::Full | SendError::Unreachable) if self.core.clock.now() < deadline => {}
                result => return result,
            }
            // The reader of a full ring has no way to ring for room; looking again from time to time is what is left.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
            if let Some(mut receiving) = self.core.try_receiving(None) {
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
        let found = self.reception.try_receive(&self.core);
        if was_armed {
            self.core.hand_over();
        }
        if found { Ok(self.message()) } else { Err(ReceiveError::Empty) }
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
        let found = self.reception.receive_until(&self.core, deadline);
        if was_armed {
            self.core.hand_over();
        }
        if found { Ok(self.message()) } else { Err(ReceiveError::Empty) }
    }

    /// The message that has landed; it is delivered now.
    ///
    /// Read where it landed: moving what is known of it costs more than the message.
    #[inline(always)]
    fn message(&mut self) -> Message<'_> {
        let landed = self.reception.landing().last();
        let (Found { header, stamps, circumstances, payload_at, direct }, buffer) =
            landed.expect("asked for only when something has landed");
        let row = self.core.page.row(self.reception.inbox.row);
        row[RowCount::Delivered as usize].add_alone(1);
        row[RowCount::Direct as usize].add_alone((*direct).into());
        let stages = stamps.map(|sender| {
            let delivered = self.core.clock.now();
            Stages {
                sender,
                receiver: ReceiverStamps {
                    kernel: kernel_instant(self.core.clock, delivered, circumstances.kernel_ns),
                    listened: self.reception.listened(),
                    woken: circumstances.woken,
                    read: circumstances.read,
                    opened: circumstances.read,
                    delivered,
                    handed_on: !*direct,
                },
                one_clock: sender.same_clock(self.core.clock.domain()),
            }
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
            sealed_in: circumstances.sealed_in,
            payload: &buffer[*payload_at..payload_at + size],
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
    /// Another component of the node that drives the engine meanwhile hands messages over as usual, and the loop is woken for
    /// its own only. Arming does the node's housekeeping when it is due: a loop that
    /// waits for long calls [`crate::Node::housekeep`] now and then.
    pub fn arm(&mut self) -> bool {
        self.disarm();
        self.armed = true;
        if let Some(mut receiving) = self.core.try_receiving(None) {
            reception::housekeep_if_due(&self.core, &mut receiving);
        }
        let (core, reception) = (&self.core, &self.reception);
        let is_ready = || !core.arm() || reception.has_news();
        if reception.inbox.bell.doorbell().arm(Notification::Descriptor, is_ready) {
            return true;
        }
        self.disarm();
        self.core.hand_over();
        false
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
        self.reception.inbox.bell.doorbell().disarm();
        self.reception.inbox.bell.event().drain();
        self.core.disarm();
    }
}

/// A kernel's stamp, `CLOCK_REALTIME` nanoseconds, as an instant of our clock; 0 = not known. Both clocks are read now, so that
/// neither drift nor a calibration's error has time to grow.
#[inline]
fn kernel_instant(clock: &Clock, now: Ticks, kernel_ns: u64) -> Ticks {
    if kernel_ns == 0 {
        return Ticks::default();
    }
    let age = stamp_age(kernel_ns, realtime_ns());
    age.map_or_else(Ticks::default, |age| Ticks(now.0.saturating_sub(clock.ticks(age).0)))
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
        self.core.sending(&mut self.reception.pass).flush();
        self.core.close(&self.reception.inbox);
        self.core.hand_over();
    }
}
