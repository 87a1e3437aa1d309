//! A message where it lies in a ring, and what becomes of it.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::{Address, Stamps, Target};

use super::payload::Payload;
use crate::trace::{ReceiverStamps, Stages};

/// The writer wrote over the message while it was read: nothing of it may be believed. It is counted as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("overwritten while it was read")
    }
}

impl std::error::Error for Overrun {}

/// A message without its payload.
#[derive(Clone, Copy, Debug)]
pub struct StreamHead {
    /// The sender.
    pub source: Address,
    /// The target: one port, all ports, everybody.
    pub target: Target,
    /// Its number in its publication, from 0.
    pub sequence: u64,
    /// Messages of the same publication that were lost just before it.
    pub lost_before: u64,
    /// When it was sent, where its publication says so.
    pub sent: Option<Ticks>,
    /// The group in which it was sealed, on a sealed bus.
    pub sealed_in: Option<u32>,
    /// Behind the message stands its seal, which nobody has looked at.
    pub(crate) is_unopened: bool,
    /// It is a fragment of a message of this life of its node.
    pub(crate) fragment_of: Option<u64>,
    pub(super) noted: Option<Noted>,
}

impl StreamHead {
    /// As [`StreamMessage::stages`], for a reader that began to listen and last woke then.
    pub(crate) fn stages_of(&self, listened: Ticks, woken: Ticks) -> Option<Stages> {
        let Noted { sender, read, opened } = self.noted?;
        let clock = Clock::get();
        let delivered = clock.now_after_loads();
        let receiver =
            ReceiverStamps { listened, woken, read, opened, delivered, ..ReceiverStamps::default() };
        Some(Stages { sender, receiver, one_clock: sender.same_clock(clock.domain()) })
    }

    /// Stamps of its sender, if its publication stamps all stages.
    pub(crate) fn stamps(&self) -> Option<Stamps> {
        self.noted.map(|noted| noted.sender)
    }
}

/// A message where it lies, for as long as it is looked at: its writer may write over it at any instant. Its head has been copied.
#[derive(Debug)]
pub struct StreamMessage<'a> {
    pub(super) head: &'a StreamHead,
    pub(super) payload: Payload<'a>,
    pub(super) fate: Cell<Fate>,
    /// Of a message that was put together, whether its reader claims its memory.
    pub(super) is_claimed: Option<&'a Cell<bool>>,
}

impl Deref for StreamMessage<'_> {
    type Target = StreamHead;

    #[inline]
    fn deref(&self) -> &StreamHead {
        self.head
    }
}

/// Receives messages that are shown.
pub(crate) trait MessageHandler {
    /// Returns true if it has taken the message; otherwise that is shown again.
    fn handle(&mut self, message: &StreamMessage<'_>) -> bool;
}

impl<F: FnMut(&StreamMessage<'_>) -> bool> MessageHandler for F {
    #[inline(always)]
    fn handle(&mut self, message: &StreamMessage<'_>) -> bool {
        self(message)
    }
}

/// Outcome of a message that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its reader has not asked yet whether it is whole.
    Open,
    /// Its reader was told that it is.
    Whole,
    /// Its reader was told that it was written over.
    Overwritten,
    /// It is a fragment, which its reader has, and not a message.
    Gathered,
    /// A fault that was asked for has taken it: it counts as lost.
    Lost,
    /// A fault that was asked for holds it back: it is shown later, from there.
    Held,
}

/// Of a message whose publication stamps all stages, what is known before it is delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) sender: Stamps,
    pub(super) read: Ticks,
    pub(super) opened: Ticks,
}

impl<'a> StreamMessage<'a> {
    /// A message of which nothing has become yet.
    #[inline]
    pub(super) fn new(head: &'a StreamHead, payload: Payload<'a>) -> Self {
        Self { head, payload, fate: Cell::new(Fate::Open), is_claimed: None }
    }

    /// Claims the memory in which the message was put together, in place of a copy. Returns true if it was put together: a reader that
    /// takes the message has it by [`super::Images::take_claimed`], until [`super::Images::give_back`].
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        self.is_claimed.inspect(|is_claimed| is_claimed.set(true)).is_some()
    }

    /// Where its time went until now, if its publication stamps all stages. The time for which it lay in the ring is not divided.
    /// [`crate::Subscription::stages`] tells whether its reader was elsewhere or slept.
    pub fn stages(&self) -> Option<Stages> {
        self.head.stages_of(Ticks::default(), Ticks::default())
    }

    /// Size, bytes.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// True if it is empty.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Copies the message, or as much of it as fits; returns how many bytes.
    ///
    /// # Errors
    /// [`Overrun`]: the content of `buffer` is void.
    #[inline]
    pub fn copy_to(&self, buffer: &mut [u8]) -> Result<usize, Overrun> {
        let size = self.payload.copy_to(buffer);
        if self.is_intact() { Ok(size) } else { Err(Overrun) }
    }

    /// The eight bytes from `8 * index` on as a little-endian number, if they are inside. [`Self::is_intact`] says whether what was
    /// read so far may be believed.
    #[inline]
    pub fn word(&self, index: usize) -> Option<u64> {
        self.payload.word(index)
    }

    /// True if everything that was read until now is what was sent. Ask after reading, before believing.
    #[inline]
    pub fn is_intact(&self) -> bool {
        let intact = self.payload.is_intact();
        if intact {
            self.fate.set(Fate::Whole);
        } else if self.fate.get() == Fate::Open {
            self.fate.set(Fate::Overwritten);
        }
        intact
    }

    /// True if it counts as delivered. Its reader is done with it.
    #[inline]
    pub(crate) fn is_delivered(&self) -> bool {
        self.fate.set(self.settle());
        self.fate.get() == Fate::Whole
    }

    /// Its fate: as its reader was told, or as it is now if the reader did not ask.
    #[inline]
    pub(super) fn settle(&self) -> Fate {
        match self.fate.get() {
            Fate::Open if self.payload.is_intact() => Fate::Whole,
            Fate::Open => Fate::Overwritten,
            fate => fate,
        }
    }
}
