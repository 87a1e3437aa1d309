//! The one writer of a ring.

use core::fmt;

use super::words::copy_in;
use super::{COMMIT_SIZE, LIMIT_STEPS, PADDING, RingMemory, commit_word, frame_size_max, record_size};
use crate::mutant::{fence, ordering, without};
use crate::sync::Ordering;

/// Why no record could be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// A reader holds the writer back: retry after it has read.
    Full,
    /// The frame would never fit.
    TooLong {
        /// Bytes asked for.
        size: usize,
        /// Largest frame of this ring, bytes.
        size_max: usize,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("ring full"),
            Self::TooLong { size, size_max } => write!(f, "frame of {size} bytes in a ring for {size_max}"),
        }
    }
}

impl std::error::Error for ClaimError {}

/// The writer of a ring. Claims a record, writes it in place, commits it.
#[derive(Debug)]
pub struct RingWriter {
    memory: RingMemory,
    /// Where the next record begins.
    position: u64,
    /// What `control.limit` says.
    limit: u64,
    /// Nothing at or above this position may be written, as a reader may still read it a lap below.
    held_at: u64,
    /// Frame size of the claimed record; 0 = none.
    claimed: usize,
}

impl RingWriter {
    /// The writer of a ring that nothing was written to.
    pub fn new(memory: RingMemory) -> Self {
        let held_at = memory.capacity() as u64;
        Self { memory, position: 0, limit: 0, held_at, claimed: 0 }
    }

    /// Claims a record whatever its readers have read: slow ones lose.
    #[inline]
    pub fn claim(&mut self, frame_size: usize) -> Result<(), ClaimError> {
        self.claim_held(frame_size, &mut || u64::MAX)
    }

    /// Claims a record unless that would overwrite what a reader has not read. `slowest` gives the position of the
    /// slowest reader (`u64::MAX` if there is none); it is asked only when the last answer does not suffice.
    #[inline]
    pub fn claim_held(
        &mut self,
        frame_size: usize,
        slowest: &mut dyn FnMut() -> u64,
    ) -> Result<(), ClaimError> {
        let size_max = frame_size_max(self.memory.capacity());
        if frame_size > size_max {
            return Err(ClaimError::TooLong { size: frame_size, size_max });
        }
        let record = record_size(frame_size);
        let to_end = self.memory.to_end(self.position);
        let padding = if record > to_end { to_end } else { 0 };
        // The word behind the record is written too (rule 2).
        let end = self.position + (padding + record + COMMIT_SIZE) as u64;
        if end > self.limit {
            self.raise_limit(end, slowest)?;
        }
        if padding > 0 {
            if !without!("ring_clear_behind_padding") {
                self.clear(padding);
            }
            self.publish(PADDING, padding, || {});
        }
        // Now, not at the commit, which would have to wait until its reader's copy of that cache line is gone.
        if !without!("ring_clear") {
            self.clear(record);
        }
        self.claimed = frame_size;
        Ok(())
    }

    /// Makes room up to `end` (rules 4 and 5).
    #[cold]
    fn raise_limit(&mut self, end: u64, slowest: &mut dyn FnMut() -> u64) -> Result<(), ClaimError> {
        let capacity = self.memory.capacity() as u64;
        if end > self.held_at {
            // (E) pairs with the fence in `RingReader::move_to_now`: we see the cursor of a reader that joins, or it
            // sees our position. (F) pairs with the fence in `RingReader::overrun`: no limit laps a reader before we were
            // here, beyond its position, so who finds itself lapped sees the tail beyond it too.
            fence!("ring_holding_fence", SeqCst);
            // No reader is ahead of us, and one that joins later begins here: with no reader at all this answer holds for
            // one lap, not for ever.
            self.held_at = slowest().min(self.position) + capacity;
            if end > self.held_at {
                return Err(ClaimError::Full);
            }
        }
        self.limit = (end + capacity / LIMIT_STEPS).min(self.held_at);
        crate::label!("ring.limit");
        self.memory.control().limit.0.store(self.limit, Ordering::Relaxed);
        fence!("ring_writer_fence", Release); // (D) pairs with the fence in `RingReader::is_intact`.
        crate::label!("ring.limit.done");
        Ok(())
    }

    /// Writes into the claimed record, from `offset` bytes of its frame on; `offset` is a multiple of 8.
    ///
    /// # Panics
    /// If that is outside of what was claimed.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(8) && offset + bytes.len() <= self.claimed, "outside of the claim");
        copy_in(&self.memory.frame_words(self.position)[offset / 8..], bytes);
    }

    /// The claimed record's frame, to be written in place.
    #[cfg(not(loom))]
    #[inline]
    pub fn claimed_bytes(&mut self) -> &mut [u8] {
        let words = self.memory.frame_words(self.position);
        assert!(self.claimed <= words.len() * 8);
        // SAFETY: the bytes lie in the ring (asserted) and between `position` and `limit`, where only this writer
        // stores (rule 1) and `&mut self` makes it the only borrow. Readers of this process do not look at them: they
        // stop at the commit word, which is not part of them, and are held back or find `limit` raised (rule 4);
        // readers of other processes are outside of this program. Atomics may be written through while not shared.
        unsafe { core::slice::from_raw_parts_mut(words.as_ptr().cast::<u8>().cast_mut(), self.claimed) }
    }

    /// Commits the claimed record: from now on readers see it.
    ///
    /// # Panics
    /// If nothing was claimed.
    #[inline]
    pub fn commit(&mut self) {
        self.commit_counting(|| {});
    }

    /// As [`Self::commit`]; `count` runs when readers can see the record and before the tail says so. A counter that it
    /// publishes never counts a record that readers cannot see yet, and counts all that lie below the tail.
    ///
    /// # Panics
    /// If nothing was claimed.
    #[inline]
    pub fn commit_counting(&mut self, count: impl FnMut()) {
        assert!(self.claimed > 0, "nothing was claimed");
        // Frames are at most a quarter of a ring of at most 2^30 bytes.
        self.publish(self.claimed as u32, record_size(self.claimed), count);
        self.claimed = 0;
    }

    /// Sets the commit word behind a record of this size to zero (rule 2).
    #[inline]
    fn clear(&self, record: usize) {
        crate::label!("ring.clear");
        if crate::is_planted!("claim_uncleared") {
            return;
        }
        self.memory.word(self.position + record as u64).store(0, Ordering::Relaxed);
    }

    /// Stores the commit word and moves behind the record.
    #[inline]
    fn publish(&mut self, size: u32, record: usize, mut count: impl FnMut()) {
        let next = self.position + record as u64;
        let counts_first = crate::is_planted!("count_first");
        if counts_first {
            count();
        }
        crate::label!("ring.commit");
        self.memory
            .word(self.position)
            .store(commit_word(self.position, size), ordering!("ring_commit", Release)); // (C)
        crate::label!("ring.count");
        self.position = next;
        if !counts_first {
            count();
        }
        crate::label!("ring.tail");
        self.memory.control().tail.0.store(next, ordering!("ring_tail", Release));
        crate::label!("ring.tail.done");
    }

    /// Where the next record begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The ring's memory.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }
}
