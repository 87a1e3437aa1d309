//! A reader of a ring.

use std::hint::select_unpredictable;

use super::memory::Newest;
use super::words::SharedBytes;
use super::{
    DENSE, FLAGS_MASK, FLAGS_SHIFT, LINE_SIZE, PADDING, RUN_AHEAD, RingMemory, SIZE_MASK, Spacing,
    commit_word, frame_size_max, record_end,
};
use crate::arch::{self, COPIES_BLOCKS};
use crate::mutant::{fence, ordering, without};
use crate::sync::{AtomicU64, Ordering};

/// Contents of the ring at a reader's position.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing yet.
    Empty,
    /// A frame.
    Frame(RingFrame<'a>),
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
    place: Place,
    frame_size_max: usize,
}

/// The place at which a reader stands.
#[derive(Debug)]
struct Place {
    /// Where the next record to be read begins.
    position: u64,
    /// Its number.
    sequence: u64,
    /// Records that the reader was overrun by.
    lost: u64,
}

/// The oldest frame that its reader has not consumed. Once its bytes are copied, [`RingFrame::is_intact`] says whether they were
/// whole.
#[derive(Debug)]
pub struct RingFrame<'a> {
    record: Record<'a>,
    guard: RingGuard<'a>,
    place: &'a mut Place,
}

/// A record as its commit word says.
#[derive(Debug)]
struct Record<'a> {
    /// Its frame.
    bytes: SharedBytes<'a>,
    flags: u8,
    /// Where it ends.
    end: u64,
}

impl<'a> RingFrame<'a> {
    /// Its bytes, which may change at any instant.
    #[inline]
    pub fn bytes(&self) -> SharedBytes<'a> {
        self.record.bytes
    }

    /// A guard that tells if they were whole while they were copied.
    #[inline]
    pub fn guard(&self) -> RingGuard<'a> {
        self.guard
    }

    /// Returns true if everything read of it was as its writer left it. Ask after copying.
    #[inline]
    pub fn is_intact(&self) -> bool {
        self.guard.is_intact()
    }

    /// Its number.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.place.sequence
    }

    /// Its flags, as its writer gave them.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.record.flags
    }

    /// Moves its reader behind it. Never after [`Self::is_intact`] said no: its size may then be half of one record's and half of
    /// another's. The next look says [`Next::Overrun`] instead.
    #[inline]
    pub fn consume(self) {
        self.place.position = self.record.end;
        self.place.sequence += 1;
    }
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
        !self.is_lapped()
    }

    /// Returns true if the writer may store there.
    #[inline]
    fn is_lapped(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > self.lap
    }
}

/// A place at which a reader looks for a record. All that is known before its commit word is loaded: behind a load that acquires the
/// compiler would read it again.
struct Look<'a> {
    position: u64,
    sequence: u64,
    commit: &'a AtomicU64,
    /// From there to the end of the ring.
    behind: SharedBytes<'a>,
    guard: RingGuard<'a>,
    frame_size_max: usize,
}

impl<'a> Look<'a> {
    #[inline]
    fn at(memory: &'a RingMemory, place: &Place, frame_size_max: usize) -> Self {
        let Place { position, sequence, .. } = *place;
        let lap = position + memory.capacity() as u64;
        let guard = RingGuard { limit: &memory.control().limit.0, lap };
        let (commit, behind) = memory.record_at(position);
        Self { position, sequence, commit, behind, guard, frame_size_max }
    }

    /// The record of this commit word, if an honest writer may have left it there (rule 6). Inlined as `peek` is.
    #[inline(always)]
    fn record(&self, word: u64) -> Option<Record<'a>> {
        // Difference from a record of size 0, without flags, of the number that is next.
        let rest = word ^ commit_word(self.sequence, 0);
        let size = (rest & SIZE_MASK) as usize;
        if rest & !(SIZE_MASK | DENSE | FLAGS_MASK) != 0 || size.wrapping_sub(1) >= self.frame_size_max {
            return None;
        }
        let bytes = self.behind.first(size)?;
        // One branch for both: what is asked for ahead, and where the record ends.
        let end = match Spacing::of(rest) {
            spacing @ Spacing::Lines => {
                self.prefetch::<LINE_SIZE>();
                record_end(self.position, size, spacing)
            }
            spacing @ Spacing::Dense => {
                self.prefetch::<RUN_AHEAD>();
                record_end(self.position, size, spacing)
            }
        };
        Some(Record { bytes, flags: (rest >> FLAGS_SHIFT) as u8, end })
    }

    /// Asks for the cache line so far ahead. Close to the end of the ring it is none of the ring's, and nothing is gained.
    #[inline]
    fn prefetch<const AHEAD: usize>(&self) {
        prefetch::<AHEAD>(std::ptr::from_ref(self.commit).cast());
    }
}

#[inline]
fn prefetch<const AHEAD: usize>(address: *const u8) {
    if COPIES_BLOCKS {
        arch::prefetch::<AHEAD>(address);
    }
}

impl RingReader {
    /// A reader of everything that was ever written, or is told by [`Next::Overrun`] that part of it is gone.
    pub fn from_start(memory: RingMemory) -> Self {
        let frame_size_max = frame_size_max(memory.capacity());
        Self { memory, place: Place { position: 0, sequence: 0, lost: 0 }, frame_size_max }
    }

    /// A reader of what will be written from now on.
    pub fn from_now(memory: RingMemory) -> Self {
        let newest = memory.newest();
        let mut reader = Self::from_start(memory);
        if let Newest::At(position, sequence) = newest {
            (reader.place.position, reader.place.sequence) = (position, sequence);
        }
        reader
    }

    /// Moves to the newest end, without counting as lost what it leaves out. A reader that has published its cursor before is
    /// never overrun from there on by a writer that it holds back: either that writer has seen the cursor, or the end that is
    /// read here is where it looked.
    pub fn move_to_now(&mut self) {
        fence!("ring_join_fence", SeqCst); // (E) pairs with the fence in `RingWriter::raise_limit`.
        if let Newest::At(position, sequence) = self.memory.newest()
            && position > self.place.position
        {
            (self.place.position, self.place.sequence) = (position, sequence);
        }
    }

    /// Looks at the oldest record not yet consumed. It stays until it is consumed ([`RingFrame::consume`]).
    #[inline(always)] // It is on the path of every message, and has several callers.
    pub fn peek(&mut self) -> Next<'_> {
        let Self { memory, place, frame_size_max } = self;
        let look = Look::at(memory, place, *frame_size_max);
        let word = look.commit.load(ordering!("ring_peek", Acquire)); // (C)
        let (record, guard) = match look.record(word) {
            Some(record) if without!("ring_peek_limit") || !look.guard.is_lapped() => (record, look.guard),
            _ if word == 0 && !look.guard.is_lapped() => return Next::Empty,
            _ => match peek_slowly(memory, place, *frame_size_max, word) {
                Ok(found) => found,
                Err(nothing) => return nothing,
            },
        };
        // Only here, not by a call that cannot be seen through: then its place is known to be this one.
        Next::Frame(RingFrame { record, guard, place })
    }

    /// Returns true if there is anything to look at, without moving. Only [`Self::peek`] shows what: it loads the commit word again, so
    /// nothing is ordered here.
    #[inline]
    pub fn has_news(&self) -> bool {
        let look = Look::at(&self.memory, &self.place, self.frame_size_max);
        let word = look.commit.load(Ordering::Relaxed);
        // Without a branch: the end of a wait is mispredicted, and the record's second line need not wait for that. Where nothing is yet,
        // a line of this reader's is asked for: the polled one would be taken from a writer that has begun.
        let second = std::ptr::from_ref(look.commit).cast::<u8>().wrapping_add(LINE_SIZE);
        prefetch::<0>(select_unpredictable(word != 0, second, std::ptr::from_ref(&self.place).cast()));
        word != 0 || look.guard.is_lapped()
    }

    /// The number of the next record to be read.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.place.sequence
    }

    /// Records that were written over before they were read.
    #[inline]
    pub fn lost(&self) -> u64 {
        self.place.lost
    }

    /// Where the next record to be read begins. Everything below has been read.
    #[inline]
    pub fn position(&self) -> u64 {
        self.place.position
    }

    /// Bytes that the writer is ahead.
    pub fn lag(&self) -> u64 {
        self.memory.tail().saturating_sub(self.place.position)
    }

    /// The ring's memory.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }
}

/// The record, or why there is none.
#[cold]
fn peek_slowly<'a>(
    memory: &'a RingMemory,
    place: &mut Place,
    frame_size_max: usize,
    mut word: u64,
) -> Result<(Record<'a>, RingGuard<'a>), Next<'static>> {
    let capacity = memory.capacity() as u64;
    if word == commit_word(place.sequence, PADDING) && place.position & (capacity - 1) != 0 {
        place.position += memory.to_end(place.position) as u64;
        word = memory.word(place.position).load(ordering!("ring_peek_behind_padding", Acquire)); // (C)
    }
    let look = Look::at(memory, place, frame_size_max);
    // Asked first: the commit word may still stand where what follows it does not, or not for long.
    if !without!("ring_peek_limit_slowly") && look.guard.is_lapped() {
        return Err(overrun(memory, place));
    }
    if word == 0 {
        return Err(Next::Empty);
    }
    look.record(word).map(|record| (record, look.guard)).ok_or(Next::Corrupt)
}

#[cold]
fn overrun(memory: &RingMemory, place: &mut Place) -> Next<'static> {
    // (F) The position and number of the tail, by the newest limit, lie beyond where that limit lapped us.
    match memory.newest() {
        Newest::At(position, sequence) if position > place.position && sequence >= place.sequence => {
            place.lost += sequence - place.sequence;
            (place.position, place.sequence) = (position, sequence);
            Next::Overrun
        }
        // It is still lapped, and looks once more.
        Newest::Lapped(_) => Next::Empty,
        Newest::At(..) | Newest::Unbelievable => Next::Corrupt,
    }
}
