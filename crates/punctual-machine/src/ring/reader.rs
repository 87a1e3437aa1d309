//! A reader of a ring.

use super::memory::Newest;
use super::words::SharedBytes;
use super::{
    COMMIT_SIZE, DENSE, FLAGS_MASK, FLAGS_SHIFT, PADDING, RingMemory, SIZE_MASK, Spacing, commit_word,
    frame_size_max, record_end,
};
use crate::mutant::{fence, ordering, without};
use crate::sync::{AtomicU64, Ordering};

/// Contents of the ring at a reader's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Empty,
    /// A frame: [`RingReader::frame`]. Once its bytes are copied, [`RingReader::is_intact`] says whether they were whole.
    Frame,
    /// The writer has been here again: records that were not read are lost. The reader now stands at the newest end.
    Overrun,
    /// Bytes that no honest writer leaves. Nothing of this ring can be believed any more.
    Corrupt,
}

/// One reader of a ring, with its own position. It stores nothing into the ring.
///
/// `begin + consumed + lost = sequence`, always: numbers are the account.
#[derive(Debug)]
pub struct RingReader {
    memory: RingMemory,
    /// Where the next record to be read begins.
    position: u64,
    /// Its number.
    sequence: u64,
    /// Records that it was overrun by.
    lost: u64,
    /// Size of the frame that `peek` last found there, bytes.
    frame_size: usize,
    /// Where that frame's record ends.
    end: u64,
    flags: u8,
    frame_size_max: usize,
}

/// Knows of one frame whether its writer may have stored there.
#[derive(Clone, Copy, Debug)]
pub struct RingGuard<'a> {
    limit: &'a AtomicU64,
    /// Nothing of the frame is written over while the limit is no more than this.
    lap: u64,
}

impl RingGuard<'_> {
    /// Returns true if everything read of the frame until now was as its writer left it. Ask after copying.
    #[inline]
    pub fn is_intact(&self) -> bool {
        fence!("ring_reader_fence", Acquire); // (D) pairs with the fence in `RingWriter::raise_limit`.
        self.limit.load(Ordering::Relaxed) <= self.lap
    }
}

impl RingReader {
    /// A reader of everything that was ever written, or is told by [`Next::Overrun`] that part of it is gone.
    pub fn from_start(memory: RingMemory) -> Self {
        let frame_size_max = frame_size_max(memory.capacity());
        Self { memory, position: 0, sequence: 0, lost: 0, frame_size: 0, end: 0, flags: 0, frame_size_max }
    }

    /// A reader of what will be written from now on.
    pub fn from_now(memory: RingMemory) -> Self {
        let newest = memory.newest();
        let reader = Self::from_start(memory);
        match newest {
            Newest::At(position, sequence) => Self { position, sequence, ..reader },
            Newest::Lapped(_) | Newest::Unbelievable => reader,
        }
    }

    /// Moves to the newest end, without counting as lost what it leaves out. A reader that has published its cursor before is
    /// never overrun from there on by a writer that it holds back: either that writer has seen the cursor, or the end that is
    /// read here is where it looked.
    pub fn move_to_now(&mut self) {
        fence!("ring_join_fence", SeqCst); // (E) pairs with the fence in `RingWriter::raise_limit`.
        if let Newest::At(position, sequence) = self.memory.newest()
            && position > self.position
        {
            (self.position, self.sequence) = (position, sequence);
        }
        self.frame_size = 0;
    }

    /// Looks at the oldest record not yet consumed. Calling it again without [`Self::consume`] returns the same.
    #[inline]
    pub fn peek(&mut self) -> Next {
        let word = self.memory.word(self.position).load(ordering!("ring_peek", Acquire)); // (C)
        if self.find(word) && (without!("ring_peek_limit") || !self.is_lapped()) {
            Next::Frame
        } else if word == 0 && !self.is_lapped() {
            Next::Empty
        } else {
            self.peek_slowly(word)
        }
    }

    /// Why there is no frame, or where it is.
    #[cold]
    fn peek_slowly(&mut self, mut word: u64) -> Next {
        if word == commit_word(self.sequence, PADDING)
            && self.position & (self.memory.capacity() as u64 - 1) != 0
        {
            self.position += self.memory.to_end(self.position) as u64;
            self.frame_size = 0;
            word = self.memory.word(self.position).load(ordering!("ring_peek_behind_padding", Acquire)); // (C)
        }
        // Asked first: the commit word may still stand where what follows it does not, or not for long.
        if !without!("ring_peek_limit_slowly") && self.is_lapped() {
            return self.overrun();
        }
        match word {
            0 => Next::Empty,
            word if self.find(word) => Next::Frame,
            _ => Next::Corrupt,
        }
    }

    /// Notes size and flags of the frame with this commit word, if an honest writer may have left it here (rule 6).
    #[inline]
    fn find(&mut self, word: u64) -> bool {
        let position = self.position;
        // Difference from a record of size 0, without flags, of the number that is next.
        let rest = word ^ commit_word(self.sequence, 0);
        let size = (rest & SIZE_MASK) as usize;
        if rest & !(SIZE_MASK | DENSE | FLAGS_MASK) != 0
            || size.wrapping_sub(1) >= self.frame_size_max
            || COMMIT_SIZE + size > self.memory.to_end(position)
        {
            return false;
        }
        let spacing = Spacing::of(rest);
        self.memory.prefetch(position + spacing.ahead());
        self.frame_size = size;
        self.end = record_end(position, size, spacing);
        self.flags = (rest >> FLAGS_SHIFT) as u8;
        true
    }

    /// The frame that [`Self::peek`] found; its bytes may change at any instant. [`Self::is_intact`] after copying says whether
    /// they were whole.
    #[inline]
    pub fn frame(&self) -> SharedBytes<'_> {
        // SAFETY: `find` looked whether it ends before the end of the ring; wherever the position moves, the size becomes 0.
        unsafe { self.memory.frame(self.position, self.frame_size) }
    }

    /// A guard that tells if that frame was whole while it was copied.
    #[inline]
    pub fn guard(&self) -> RingGuard<'_> {
        RingGuard { limit: &self.memory.control().limit.0, lap: self.lap() }
    }

    /// Returns true if there is anything to look at, without moving. Only [`Self::peek`] shows what: it loads the commit word again, so
    /// nothing is ordered here.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.memory.word(self.position).load(Ordering::Relaxed) != 0 || self.is_lapped()
    }

    /// Returns true if everything read at the present position was still as the writer left it. Ask after copying.
    #[inline]
    pub fn is_intact(&self) -> bool {
        self.guard().is_intact()
    }

    /// Moves behind the frame that [`Self::peek`] found. Never after [`Self::is_intact`] said no: the size may then be
    /// half of one record's and half of another's. The next look says [`Next::Overrun`] instead.
    #[inline]
    pub fn consume(&mut self) {
        debug_assert!(self.frame_size > 0, "nothing was found");
        self.position = self.end;
        self.sequence += 1;
        self.frame_size = 0;
    }

    /// Returns true if the writer may store where this reader stands.
    #[inline]
    fn is_lapped(&self) -> bool {
        self.memory.control().limit.0.load(Ordering::Relaxed) > self.lap()
    }

    /// Up to there its writer may store without touching what lies at the present position.
    #[inline]
    fn lap(&self) -> u64 {
        self.position + self.memory.capacity() as u64
    }

    #[cold]
    fn overrun(&mut self) -> Next {
        // (F) The position and number of the tail, by the newest limit, lie beyond where that limit lapped us.
        match self.memory.newest() {
            Newest::At(position, sequence) if position > self.position && sequence >= self.sequence => {
                self.lost += sequence - self.sequence;
                (self.position, self.sequence) = (position, sequence);
                self.frame_size = 0;
                Next::Overrun
            }
            // It is still lapped, and looks once more.
            Newest::Lapped(_) => Next::Empty,
            Newest::At(..) | Newest::Unbelievable => Next::Corrupt,
        }
    }

    /// The number of the next record to be read.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Records that were written over before they were read.
    #[inline]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The flags of the frame that was found, as its writer gave them.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.flags
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
