//! A reader of a ring.

use super::words::SharedBytes;
use super::{PADDING, RECORD_ALIGN, RingMemory, commit_word, frame_size_max, record_size};
use crate::sync::{Ordering, fence};

/// What stands at a reader's position.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing yet.
    Empty,
    /// A frame. Once its bytes are copied, [`RingReader::is_intact`] says whether they were whole.
    Frame(SharedBytes<'a>),
    /// The writer has been here again: what was not read is lost. The reader now stands at the newest end.
    Overrun,
    /// Bytes that no honest writer leaves. Nothing of this ring can be believed any more.
    Corrupt,
}

/// The largest position that a peer is believed: 2^62 bytes take 146 years at 1 GB/s, and sums below do not overflow.
const POSITION_MAX: u64 = 1 << 62;

/// A position that a peer says, if an honest one could (rule 6).
fn believable(position: u64) -> Option<u64> {
    (position <= POSITION_MAX && position.is_multiple_of(RECORD_ALIGN as u64)).then_some(position)
}

/// One reader of a ring, with its own position. It stores nothing into the ring.
#[derive(Debug)]
pub struct RingReader {
    memory: RingMemory,
    /// Where the next record to be read begins.
    position: u64,
    /// Bytes that the record last returned by `next` takes.
    pending: usize,
}

impl RingReader {
    /// A reader of everything that was ever written, or is told by [`Next::Overrun`] that part of it is gone.
    pub fn from_start(memory: RingMemory) -> Self {
        Self { memory, position: 0, pending: 0 }
    }

    /// A reader of what will be written from now on.
    pub fn from_now(memory: RingMemory) -> Self {
        let position = believable(memory.tail()).unwrap_or(0);
        Self { memory, position, pending: 0 }
    }

    /// Looks at the oldest record not yet consumed. Calling it again without [`Self::consume`] returns the same.
    #[inline]
    pub fn next(&mut self) -> Next<'_> {
        let mut word = self.memory.word(self.position).load(Ordering::Acquire); // (C)
        if word == commit_word(self.position, PADDING) {
            self.position += self.memory.to_end(self.position) as u64;
            word = self.memory.word(self.position).load(Ordering::Acquire); // (C)
        }
        if word == 0 {
            return if self.is_lapped() { self.overrun() } else { Next::Empty };
        }
        let size = word as u32 as usize;
        let honest = word == commit_word(self.position, word as u32)
            && size <= frame_size_max(self.memory.capacity())
            && record_size(size) <= self.memory.to_end(self.position);
        if !honest {
            return if self.is_lapped() { self.overrun() } else { Next::Corrupt };
        }
        self.pending = record_size(size);
        Next::Frame(SharedBytes::new(self.memory.frame_words(self.position), size))
    }

    /// Whether everything read at the present position was still as the writer left it. Ask after copying.
    #[inline]
    pub fn is_intact(&self) -> bool {
        #[cfg(not(mutant = "ring_reader_fence"))]
        fence(Ordering::Acquire); // (D) pairs with the fence in `RingWriter::raise_limit`.
        !self.is_lapped()
    }

    /// Moves behind the record last returned by [`Self::next`].
    #[inline]
    pub fn consume(&mut self) {
        self.position += self.pending as u64;
        self.pending = 0;
    }

    /// Whether the writer may store where this reader stands.
    #[inline]
    fn is_lapped(&self) -> bool {
        let limit = self.memory.control().limit.0.load(Ordering::Relaxed);
        limit > self.position + self.memory.capacity() as u64
    }

    #[cold]
    fn overrun(&mut self) -> Next<'static> {
        match believable(self.memory.tail()) {
            Some(tail) if tail > self.position => {
                self.position = tail;
                self.pending = 0;
                Next::Overrun
            }
            _ => Next::Corrupt,
        }
    }

    /// Where the next record to be read begins. Everything below has been read.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes that the writer is ahead.
    pub fn lag(&self) -> u64 {
        self.memory.tail().saturating_sub(self.position)
    }

    /// The ring's memory.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }
}
