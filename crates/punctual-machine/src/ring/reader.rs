//! A reader of a ring.

use super::words::SharedBytes;
use super::{PADDING, RECORD_ALIGN, RingMemory, commit_word, frame_size_max, record_size};
use crate::mutant::{fence, ordering, without};
use crate::sync::Ordering;

/// What stands at a reader's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Empty,
    /// A frame: [`RingReader::frame`]. Once its bytes are copied, [`RingReader::is_intact`] says whether they were whole.
    Frame,
    /// The writer has been here again: what was not read is lost. The reader now stands at the newest end.
    Overrun,
    /// Bytes that no honest writer leaves. Nothing of this ring can be believed any more.
    Corrupt,
}

/// The largest position that a peer is believed: 2^62 bytes take 146 years at 1 GB/s, and sums below do not overflow.
const POSITION_MAX: u64 = 1 << 62;

/// A position that a peer says, if an honest one could (rule 6).
#[inline]
fn believable(position: u64) -> Option<u64> {
    (position <= POSITION_MAX && position.is_multiple_of(RECORD_ALIGN as u64)).then_some(position)
}

/// One reader of a ring, with its own position. It stores nothing into the ring.
#[derive(Debug)]
pub struct RingReader {
    memory: RingMemory,
    /// Where the next record to be read begins.
    position: u64,
    /// Size of the frame that `peek` last found there, bytes.
    frame_size: usize,
}

impl RingReader {
    /// A reader of everything that was ever written, or is told by [`Next::Overrun`] that part of it is gone.
    pub fn from_start(memory: RingMemory) -> Self {
        Self { memory, position: 0, frame_size: 0 }
    }

    /// A reader of what will be written from now on.
    pub fn from_now(memory: RingMemory) -> Self {
        let position = believable(memory.tail()).unwrap_or(0);
        Self { memory, position, frame_size: 0 }
    }

    /// Moves to the newest end. A reader that has published its cursor before is never overrun from there on by a writer
    /// that it holds back: either that writer has seen the cursor, or the end that is read here is where it looked.
    pub fn move_to_now(&mut self) {
        fence!("ring_join_fence", SeqCst); // (E) pairs with the fence in `RingWriter::raise_limit`.
        if let Some(tail) = believable(self.memory.tail()) {
            self.position = self.position.max(tail);
        }
        self.frame_size = 0;
    }

    /// Looks at the oldest record not yet consumed. Calling it again without [`Self::consume`] returns the same.
    #[inline]
    pub fn peek(&mut self) -> Next {
        let mut word = self.memory.word(self.position).load(ordering!("ring_peek", Acquire)); // (C)
        if word == commit_word(self.position, PADDING) {
            self.position += self.memory.to_end(self.position) as u64;
            word = self.memory.word(self.position).load(ordering!("ring_peek_behind_padding", Acquire)); // (C)
        }
        if word == 0 {
            return if self.is_lapped() { self.overrun() } else { Next::Empty };
        }
        if !self.is_honest(word) {
            return if self.is_lapped() { self.overrun() } else { Next::Corrupt };
        }
        if !without!("ring_peek_limit") && self.is_lapped() {
            // The commit word still stands, but what follows it may not, or not for long.
            return self.overrun();
        }
        self.frame_size = word as u32 as usize;
        Next::Frame
    }

    /// The frame at the reader's position, if one is committed just there: [`Self::peek`] says why there is none. Its bytes
    /// may change at any instant; [`Self::is_intact`] after copying says whether they were whole.
    #[inline]
    pub fn next_frame(&mut self) -> Option<SharedBytes<'_>> {
        let word = self.memory.word(self.position).load(ordering!("ring_next_frame", Acquire)); // (C)
        if !self.is_honest(word) {
            return None;
        }
        self.frame_size = word as u32 as usize;
        Some(self.frame())
    }

    /// Whether an honest writer may have left this commit word at the reader's position (rule 6).
    #[inline]
    fn is_honest(&self, word: u64) -> bool {
        let size = word as u32 as usize;
        word == commit_word(self.position, word as u32)
            && size > 0
            && size <= frame_size_max(self.memory.capacity())
            && record_size(size) <= self.memory.to_end(self.position)
    }

    /// The frame that [`Self::peek`] found; its bytes may change at any instant.
    #[inline]
    pub fn frame(&self) -> SharedBytes<'_> {
        SharedBytes::new(self.memory.frame_words(self.position), self.frame_size)
    }

    /// Whether there is anything to look at, without moving. Only [`Self::peek`] and [`Self::next_frame`] show what: they
    /// load the commit word again, so nothing is ordered here.
    #[inline]
    pub fn has_news(&self) -> bool {
        if self.memory.word(self.position).load(Ordering::Relaxed) == 0 {
            return self.is_lapped();
        }
        self.memory.prefetch(self.position + RECORD_ALIGN as u64);
        true
    }

    /// Whether everything read at the present position was still as the writer left it. Ask after copying.
    #[inline]
    pub fn is_intact(&self) -> bool {
        fence!("ring_reader_fence", Acquire); // (D) pairs with the fence in `RingWriter::raise_limit`.
        !self.is_lapped()
    }

    /// Moves behind the frame that [`Self::peek`] found. Never after [`Self::is_intact`] said no: the size may then be
    /// half of one record's and half of another's. The next look says [`Next::Overrun`] instead.
    #[inline]
    pub fn consume(&mut self) {
        debug_assert!(self.frame_size > 0, "nothing was found");
        self.position += record_size(self.frame_size) as u64;
        self.frame_size = 0;
    }

    /// Whether the writer may store where this reader stands.
    #[inline]
    fn is_lapped(&self) -> bool {
        let limit = self.memory.control().limit.0.load(Ordering::Relaxed);
        limit > self.position + self.memory.capacity() as u64
    }

    #[cold]
    fn overrun(&mut self) -> Next {
        fence!("ring_overrun_fence", Acquire); // (F) pairs with (E) in `RingWriter::raise_limit`.
        match believable(self.memory.tail()) {
            Some(tail) if tail > self.position => {
                self.position = tail;
                self.frame_size = 0;
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
