//! Messages that are larger than a frame: cut into fragments, and put together again in bounded memory.
//!
//! Each fragment is a frame of its own ([`crate::Kind::Fragment`]), numbered and counted as all frames are. Its payload begins with a
//! head:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | number of the message among those that its node has cut |
//! | 4 | 4 | size of the message, bytes; the highest bit is set where it is repaired |
//! | 8 | 4 | where the fragment's bytes stand in the message |
//! | 12 | 4 | size of every fragment but the last, bytes |
//!
//! Little-endian. A fragment of which one of these cannot be is refused.
//!
//! Where a message is for one receiver, its sender asks for the state of the message ([`Question`]), and the receiver answers
//! ([`Receipt`]). Missing fragments are sent again ([`Courier`]). Questions and receipts are such frames, too. A question is a head
//! without bytes behind it, a receipt one of a message of no bytes.

use core::ops::Range;

use crate::limits::{FRAGMENT_SIZE_MIN, MESSAGE_SIZE_MAX};

mod assembler;
mod courier;
mod receipt;
#[cfg(test)]
mod tests;

pub use assembler::{Assembler, Place, Refused};
pub use courier::{Courier, Ending, Say};
pub use receipt::{Part, Progress, Question, RECEIPT_SIZE_MAX, Receipt, State};

/// Size of a head, bytes.
pub const HEAD_SIZE: usize = 16;

/// A fragment's description of itself and of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The message's number: no other one that is under way from its node has it.
    pub number: u32,
    /// Size of the message, bytes.
    pub message_size: u32,
    /// Where the fragment begins in it.
    pub at: u32,
    /// Size of every fragment but the last, bytes.
    pub fragment_size: u32,
    /// Its sender asks what has come, and is told at once when all has.
    pub is_repaired: bool,
}

/// Set in the field of the message's size: the message is repaired.
const REPAIRED: u32 = 1 << 31;
const _: () = assert!(MESSAGE_SIZE_MAX < REPAIRED as usize);

impl Head {
    /// The head as it stands before the fragment's bytes.
    pub fn to_bytes(&self) -> [u8; HEAD_SIZE] {
        let flag = if self.is_repaired { REPAIRED } else { 0 };
        let fields = [self.number, self.message_size | flag, self.at, self.fragment_size];
        let mut bytes = [0; HEAD_SIZE];
        for (part, field) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
            *part = field.to_le_bytes();
        }
        bytes
    }

    /// Reads the head of a fragment behind which stand `size` bytes. None if no sender writes such a one.
    pub fn read(bytes: &[u8; HEAD_SIZE], size: usize) -> Option<Self> {
        let head = Self::fields(bytes);
        (head.can_be() && head.range().len() == size).then_some(head)
    }

    /// The head as the bytes state it, valid or not.
    fn fields(bytes: &[u8; HEAD_SIZE]) -> Self {
        let mut fields = [0; 4];
        for (field, part) in fields.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *field = u32::from_le_bytes(*part);
        }
        let [number, size, at, fragment_size] = fields;
        let (message_size, is_repaired) = (size & !REPAIRED, size & REPAIRED != 0);
        Self { number, message_size, at, fragment_size, is_repaired }
    }

    fn can_be(&self) -> bool {
        let sizes_can = (1..=MESSAGE_SIZE_MAX).contains(&(self.message_size as usize))
            && self.fragment_size as usize >= FRAGMENT_SIZE_MIN;
        sizes_can && self.at < self.message_size && self.at.is_multiple_of(self.fragment_size)
    }

    /// Where the fragment's bytes stand in the message.
    pub fn range(&self) -> Range<usize> {
        let (at, end) = (self.at as usize, self.message_size as usize);
        at..end.min(at + self.fragment_size as usize)
    }

    /// Index of the fragment in its message, from 0.
    fn index(&self) -> usize {
        (self.at / self.fragment_size) as usize
    }

    /// Fragments of the message.
    fn count(&self) -> usize {
        self.message_size.div_ceil(self.fragment_size) as usize
    }
}

/// The heads of a message's fragments, in order.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Of the next fragment; beyond the message when all have been said.
    next: Head,
}

impl Cut {
    /// Of a message of `size` bytes, for frames that carry `payload_size_max`. None if it is empty or larger than any message, or the
    /// frames are too small to cut for.
    pub fn new(number: u32, size: usize, payload_size_max: usize) -> Option<Self> {
        let fragment_size = payload_size_max.checked_sub(HEAD_SIZE)?.min(MESSAGE_SIZE_MAX);
        let (message_size, fragment_size) = (u32::try_from(size).ok()?, fragment_size as u32);
        let next = Head { number, message_size, at: 0, fragment_size, is_repaired: false };
        next.can_be().then_some(Self { next })
    }
}

impl Iterator for Cut {
    type Item = Head;

    fn next(&mut self) -> Option<Head> {
        let head = self.next;
        self.next.at = head.at.saturating_add(head.fragment_size);
        (head.at < head.message_size).then_some(head)
    }
}
