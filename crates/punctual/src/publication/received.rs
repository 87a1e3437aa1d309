//! What is known of a message that was taken, and why none was.

use std::fmt;

use punctual_machine::clock::Ticks;
use punctual_proto::Address;

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

impl Received {
    /// Before the first.
    pub(super) fn nothing(source: Address) -> Self {
        let (sent, delivered, sealed_in) = (None, None, None);
        Self { source, sequence: 0, lost_before: 0, sent, delivered, sealed_in, size: 0 }
    }
}
