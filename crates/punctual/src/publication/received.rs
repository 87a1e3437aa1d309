//! Facts about a message that was taken, or the reason why none was; and the copy by which it is taken.

use std::fmt;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::{Address, Target};

use super::{StreamHead, StreamMessage};
use crate::memory::stream::MessageHandler;
use crate::trace::Stages;

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

/// Facts about a message that was copied into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender.
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

impl Received {
    /// Before the first.
    fn nothing(source: Address) -> Self {
        let (sent, delivered, sealed_in) = (None, None, None);
        Self { source, sequence: 0, lost_before: 0, sent, delivered, sealed_in, size: 0 }
    }
}

/// The message that was received last.
#[derive(Debug)]
pub(super) struct Taken {
    /// It is read where it was written: a copy of it takes as many instructions as a sixth of a receive.
    pub(super) received: Received,
    pub(super) target: Target,
    pub(super) stages: Option<Stages>,
    /// When the receive began, if the message before had stages: then this one may.
    pub(super) listened: Ticks,
    /// Since when the subscription waited in its user's event loop until then; 0 if it did not.
    pub(super) armed: Ticks,
    /// Time at which the subscription last woke: everything that was there by then, be it one message or many, came while it slept.
    pub(super) woken: Ticks,
    clock: &'static Clock,
}

impl Taken {
    /// Before the first.
    pub(super) fn nothing(source: Address) -> Self {
        Self {
            received: Received::nothing(source),
            target: Target::from(source),
            stages: None,
            listened: Ticks::default(),
            armed: Ticks::default(),
            woken: Ticks::default(),
            clock: Clock::get(),
        }
    }

    /// A message of so many bytes was copied.
    ///
    /// Its facts are copied word by word, as its number and its instant of sending were written just before. A copy of two words at once waits until all
    /// stores before it are in the cache, also one that needs another core's line. Equal losses are not copied. The
    /// compiler would make one copy of them and the number. Inlined, as it is on the path of every message.
    #[inline(always)]
    pub(super) fn note(&mut self, message: &StreamMessage<'_>, size: usize) {
        let received = &mut self.received;
        received.source = message.source;
        received.sequence = message.sequence;
        if received.lost_before != message.lost_before {
            received.lost_before = message.lost_before;
        }
        received.sealed_in = message.sealed_in;
        received.size = size;
        self.target = message.target;
        if message.sent.is_some() || self.stages.is_some() {
            self.note_time(message);
        } else {
            (received.sent, received.delivered) = (None, None);
        }
    }

    /// Notes when it was sent and delivered, if it says when it was sent.
    fn note_time(&mut self, head: &StreamHead) {
        self.stages = head.stages_of(self.listened, self.woken);
        if let Some(stages) = &mut self.stages {
            stages.receiver.armed = self.armed;
        }
        let received = &mut self.received;
        (received.sent, received.delivered) = match (head.sent, &self.stages) {
            (None, _) => (None, None),
            (Some(sent), Some(stages)) => (Some(sent), Some(stages.receiver.delivered)),
            (Some(sent), None) => (Some(sent), Some(self.clock.now_after_loads())),
        };
    }
}

/// Copies a message into a buffer that grows as it must, unless it is from its own address.
pub(super) struct CopyGrowing<'a> {
    buffer: &'a mut Vec<u8>,
    taken: &'a mut Taken,
    ignored: Option<Address>,
    /// The message was put together, and its memory is to be had without a copy.
    pub(super) is_claimed: bool,
}

impl<'a> CopyGrowing<'a> {
    #[inline]
    pub(super) fn new(buffer: &'a mut Vec<u8>, taken: &'a mut Taken, ignored: Option<Address>) -> Self {
        Self { buffer, taken, ignored, is_claimed: false }
    }
}

impl MessageHandler for CopyGrowing<'_> {
    // One of its callers is on the path of every message.
    #[inline(always)]
    fn handle(&mut self, message: &StreamMessage<'_>) -> bool {
        let size = if self.ignored == Some(message.source) {
            0
        } else if message.claim() {
            self.is_claimed = true;
            message.len()
        } else {
            if message.len() > self.buffer.len() {
                self.buffer.resize(message.len().next_power_of_two(), 0);
            }
            let Ok(size) = message.copy_to(self.buffer) else { return false };
            size
        };
        self.taken.note(message, size);
        true
    }
}

/// Copies a message into a buffer, if it fits.
pub(super) struct CopyOut<'a> {
    buffer: &'a mut [u8],
    taken: &'a mut Taken,
    /// [`TakeError::Empty`], if there was no message.
    pub(super) outcome: Result<(), TakeError>,
}

impl<'a> CopyOut<'a> {
    #[inline]
    pub(super) fn new(buffer: &'a mut [u8], taken: &'a mut Taken) -> Self {
        Self { buffer, taken, outcome: Err(TakeError::Empty) }
    }
}

impl MessageHandler for CopyOut<'_> {
    // One of its callers is on the path of every message.
    #[inline(always)]
    fn handle(&mut self, message: &StreamMessage<'_>) -> bool {
        if message.len() > self.buffer.len() {
            self.outcome = Err(TakeError::BufferTooSmall { size: message.len() });
            return false;
        }
        let Ok(size) = message.copy_to(self.buffer) else { return false };
        self.taken.note(message, size);
        self.outcome = Ok(());
        true
    }
}
