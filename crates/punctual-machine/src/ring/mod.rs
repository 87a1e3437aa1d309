//! The publication ring: one writer, many readers, no lock.
//!
//! The writer appends records; every reader follows at its own position and owns its cursor. A writer
//! that dies leaves a record uncommitted, which readers never see. A reader that is too slow is told so.
//!
//! ```text
//!  position   0                                                    capacity
//!             ├────────┬──────────────┬──────────┬────────┬────────────┤
//!             │ commit │ frame bytes  │ commit   │ frame… │ 0  (next)  │
//!             └────────┴──────────────┴──────────┴────────┴────────────┘
//! ```
//! A record is a commit word (8 bytes), its frame, and what is left up to where the next begins ([`Spacing`]). Zero means *not
//! yet written*.
//!
//! | bits of the commit word | content |
//! |---|---|
//! | 0 to 27 | size of the frame, bytes; never 0 |
//! | 28 | dense: the next record begins at the next multiple of 16, and not of 64 |
//! | 29 | padding: go on at the beginning of the ring; the size is 0, and the number is the next record's |
//! | 30, 31 | the user's two flags |
//! | 32 to 63 | lower half of the record's number, counted from 0 |
//!
//! Rules, cited by the SAFETY comments:
//! 1. Only the writer stores. It never stores below `position`, nor at or above `limit`, where `limit` is what
//!    `control.limit` says: a reader knows by one load whether anything it read may have been overwritten.
//! 2. Before readers see a record, or a run of them, the commit word behind it is set to zero. A reader that stands at that place
//!    therefore sees zero until the next commit, regardless of older bytes there.
//! 3. (C) The commit word is stored with release and read with acquire: a reader that sees it sees the frame. Of a run of records the
//!    first one's is stored last, so a reader that sees that sees all of them.
//! 4. (D) `limit` is raised before the stores that it allows (release fence), and read after the bytes it
//!    guards (acquire fence): a reader that read an overwritten byte sees the raised limit. Boehm, "Can
//!    seqlocks get along with programming language memory models?" (MSPC 2012).
//!    (F) A reader that it tells of an overrun finds the tail beyond its own position.
//! 5. `limit` moves in steps of [`LIMIT_STEPS`]th of the capacity, so that its cache line stays shared.
//! 6. Sizes in commit words are a peer's word: they are checked against capacity before anything is read.
//! 7. (G) The tail is two words, stored after the records below it: number first, position second. A reader that loads position, number
//!    and then the commit word at that position knows the number of the record that begins there. It is the number in the commit word,
//!    or the tail's number where none stands yet. So positions and numbers are the account: nothing else counts messages.

mod claim_error;
mod memory;
mod reader;
mod words;
mod writer;

pub use claim_error::ClaimError;
pub use memory::{RING_CONTROL_SIZE, RingControl, RingMemory};
pub use reader::{Next, RingFrame, RingGuard, RingReader};
pub use words::SharedBytes;
pub(crate) use words::{copy_in, copy_out};
pub use writer::RingWriter;

/// Bytes that move between processors together.
const LINE_SIZE: usize = 64;

/// Granularity of records, bytes.
pub const RECORD_ALIGN: usize = 16;

/// Where the record behind another begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At the next line: a reader that waits for it takes no line from the writer of this one. Records of 64 bytes that begin at
    /// multiples of 16 take a tenth longer there and back.
    Lines,
    /// At the next multiple of 16: for records that readers see together, which then take as few lines as they can.
    Dense,
}

impl Spacing {
    /// The spacing that a commit word with these bits states.
    #[inline]
    const fn of(word: u64) -> Self {
        if word & DENSE == 0 { Self::Lines } else { Self::Dense }
    }

    /// Its bit in the commit word.
    #[inline]
    const fn bit(self) -> u64 {
        match self {
            Self::Lines => 0,
            Self::Dense => DENSE,
        }
    }

    /// loom follows each word by itself and knows no lines: there a record has few words, so that few steps make a lap.
    #[inline]
    const fn align(self) -> u64 {
        match self {
            Self::Lines if !cfg!(loom) => LINE_SIZE as u64,
            Self::Lines | Self::Dense => RECORD_ALIGN as u64,
        }
    }
}

/// So many bytes of a run readers see at once, or a little more; in small rings the [`LIMIT_STEPS`]th. Between two cores 2,048
/// were as good for messages of 64 bytes, and two thirds as good for those of 1 KiB.
const RUN_SIZE: u64 = 8192;

/// From so many bytes on a run is long. Stored past the caches, a shorter one arrives later: 64 messages of 64 bytes, which are
/// 5 KiB, take as long either way, 16 take twice as long.
const LONG_RUN: u64 = 4096;

/// So far ahead a reader asks for the lines of a run, bytes: it knows where the next record begins only when it has this one.
const RUN_AHEAD: usize = 1024;

/// So many bytes of the next record are taken from its readers ahead at most: half of a core's first cache.
const AHEAD_MAX: u64 = 16384;

/// Up to so many bytes a record is demoted behind its fence ([`RingWriter::demote_short`]). Before it, a sender of 64 bytes took a
/// fifth to two fifths longer, for a reader that had them no sooner.
const SHORT_RECORD: u64 = 2 * LINE_SIZE as u64;

/// Size of a commit word, bytes.
pub const COMMIT_SIZE: usize = 8;

/// The share of the capacity by which `limit` moves ahead: an eighth is what a lagging reader loses of it.
pub const LIMIT_STEPS: u64 = 8;

const SIZE_BITS: u32 = 28;
const SIZE_MASK: u64 = (1 << SIZE_BITS) - 1;
const DENSE: u64 = 1 << SIZE_BITS;
const PADDING: u64 = 2 << SIZE_BITS;

/// The flags that a writer may give a record, by their place in [`RingFrame::flags`].
pub const RECORD_FLAGS: u8 = 0b11;
const FLAGS_SHIFT: u32 = SIZE_BITS + 2;
const FLAGS_MASK: u64 = (RECORD_FLAGS as u64) << FLAGS_SHIFT;

/// Where a record with a frame of `frame_size` ends that begins at `position`.
#[inline]
const fn record_end(position: u64, frame_size: usize, spacing: Spacing) -> u64 {
    // A power of two: without a division.
    let last = spacing.align() - 1;
    (position + (COMMIT_SIZE + frame_size) as u64 + last) & !last
}

/// No frame is larger, in any ring: the headers of captures and of other media have 24 bits for the size of a payload.
const FRAME_SIZE_MAX: usize = (1 << 24) - 1;

/// Largest frame for a ring of `capacity` bytes: a quarter of it, so that some always fit at once.
pub const fn frame_size_max(capacity: usize) -> usize {
    // loom's rings are as small as can be, so that few steps make a lap.
    let part = capacity / if cfg!(loom) { 2 } else { 4 } - COMMIT_SIZE;
    if part < FRAME_SIZE_MAX { part } else { FRAME_SIZE_MAX }
}

// Here a size of 24 bits ends, however large the ring is.
const _: () = assert!(frame_size_max(1 << 30) == FRAME_SIZE_MAX && frame_size_max(1 << 24) < 1 << 23);

/// The commit word of the record with this number. `rest` is its size and flags, or [`PADDING`].
const fn commit_word(sequence: u64, rest: u64) -> u64 {
    sequence << 32 | rest
}

/// The commit word of a record with a frame: of at most a quarter of a ring of at most 2^30 bytes.
#[inline]
const fn record_word(sequence: u64, frame_size: usize, flags: u8, spacing: Spacing) -> u64 {
    debug_assert!(flags & !RECORD_FLAGS == 0);
    commit_word(sequence, (flags as u64) << FLAGS_SHIFT | spacing.bit() | frame_size as u64)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
