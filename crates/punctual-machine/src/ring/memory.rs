//! Where a ring lies: in a shared mapping, or in memory of this process.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::memory_traits::SharedObject;
use crate::mutant::{fence, ordering};
use crate::sync::{AtomicU64, Ordering};

use super::{COMMIT_SIZE, RECORD_ALIGN, SharedBytes, Spacing};

/// A value on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct OwnLine(pub(super) AtomicU64);

/// Where the records end, on a cache line of its own (rule 7).
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Tail {
    /// Where the next record will begin.
    pub(super) position: AtomicU64,
    /// Its number.
    pub(super) sequence: AtomicU64,
}

/// The words through which writer and readers agree.
#[repr(C)]
#[derive(Debug)]
pub struct RingControl {
    /// The writer stores nothing at or above this position (rule 1). Read by all readers, moved rarely (rule 5).
    pub(super) limit: OwnLine,
    /// Stored at every commit or run of them; read only by readers that join or were overrun, and by observers.
    pub(super) tail: Tail,
}

/// Size of the control words, bytes.
pub const RING_CONTROL_SIZE: usize = size_of::<RingControl>();

// SAFETY: `repr(C)`, atomics only, every bit pattern is a value.
unsafe impl SharedObject for RingControl {}

impl Default for RingControl {
    fn default() -> Self {
        let tail = Tail { position: AtomicU64::new(0), sequence: AtomicU64::new(0) };
        Self { limit: OwnLine(AtomicU64::new(0)), tail }
    }
}

/// A ring of this process.
#[derive(Debug)]
struct Heap {
    control: RingControl,
    words: Box<[AtomicU64]>,
    /// Set by its writer.
    writer: OnceLock<()>,
}

/// The owner that keeps the memory of a ring alive.
#[derive(Clone, Debug)]
enum Keeper {
    Heap {
        heap: Arc<Heap>,
    },
    #[cfg(not(loom))]
    Mapping {
        mapping: Arc<crate::memory::Mapping>,
    },
}

/// The memory of one ring, shared by its writer and its readers.
#[derive(Clone, Debug)]
pub struct RingMemory {
    control: NonNull<RingControl>,
    words: NonNull<[AtomicU64]>,
    /// The mask that leaves of a position the offset of its word, bytes.
    offset_mask: usize,
    keeper: Keeper,
}

// SAFETY: the pointers point to what `keeper` keeps alive and in place, and to atomics only.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

/// The mask that leaves of a position the offset of its word. The capacity is a power of two.
const fn offset_mask(capacity: usize) -> usize {
    capacity - size_of::<u64>()
}

/// Returns true if a ring can have this capacity, bytes.
fn is_capacity(capacity: usize) -> bool {
    capacity.is_power_of_two() && (4 * Spacing::Lines.align() as usize..=1 << 30).contains(&capacity)
}

impl RingMemory {
    /// A ring in memory of this process. `capacity` is a power of two, bytes.
    ///
    /// # Panics
    /// If the capacity is none.
    pub fn on_heap(capacity: usize) -> Self {
        assert!(is_capacity(capacity), "a ring of {capacity} bytes");
        let words: Box<[AtomicU64]> = (0..capacity / 8).map(|_| AtomicU64::new(0)).collect();
        let heap = Arc::new(Heap { control: RingControl::default(), words, writer: OnceLock::new() });
        let (control, words) = (NonNull::from(&heap.control), NonNull::from(&*heap.words));
        Self { control, words, offset_mask: offset_mask(capacity), keeper: Keeper::Heap { heap } }
    }

    /// A ring in a mapping: its control words at `control_at`, its records at `records_at`. None if that
    /// does not fit into the mapping, is not aligned, or is no capacity.
    #[cfg(not(loom))]
    pub fn in_mapping(
        mapping: Arc<crate::memory::Mapping>,
        control_at: usize,
        records_at: usize,
        capacity: usize,
    ) -> Option<Self> {
        if !is_capacity(capacity) {
            return None;
        }
        let control = NonNull::from(mapping.object::<RingControl>(control_at)?);
        let words = NonNull::from(mapping.objects::<AtomicU64>(records_at, capacity / 8)?);
        Some(Self { control, words, offset_mask: offset_mask(capacity), keeper: Keeper::Mapping { mapping } })
    }

    /// Returns true if its one writer is to be made now, and was not before: a writer gives out its records as bytes of its own.
    pub(super) fn take_for_writing(&self) -> bool {
        match &self.keeper {
            Keeper::Heap { heap } => heap.writer.set(()).is_ok(),
            #[cfg(not(loom))]
            Keeper::Mapping { mapping } => {
                let range = |start: usize, size| start..start + size;
                let control = range(self.control.addr().get(), RING_CONTROL_SIZE);
                let records = range(self.words.cast::<u8>().addr().get(), self.capacity());
                mapping.take_for_writing([control, records])
            }
        }
    }

    /// Size of the ring, bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.offset_mask + size_of::<u64>()
    }

    #[inline]
    pub(super) fn control(&self) -> &RingControl {
        // SAFETY: the pointer is to a live object that `keeper` keeps alive and in place.
        unsafe { self.control.as_ref() }
    }

    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: as above; the boxed slice of a heap ring does not move with its box.
        unsafe { self.words.as_ref() }
    }

    /// The word at a position.
    #[inline]
    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: `start` is inside of the words, which live as long as this. Looked at several times for each message: a check
        // was a tenth of receiving.
        unsafe { self.start(position).as_ref() }
    }

    /// Moves the line at a position to where its readers find it sooner.
    #[inline]
    pub(super) fn demote(&self, position: u64) {
        crate::arch::demote(std::ptr::from_ref(self.word(position)).cast());
    }

    /// The words of a record with a frame of `size` bytes: its commit word, and those of the frame.
    ///
    /// # Safety
    /// It ends before the end of the ring.
    #[inline]
    pub(super) unsafe fn record(&self, position: u64, size: usize) -> &[AtomicU64] {
        debug_assert!(COMMIT_SIZE + size <= self.to_end(position));
        // SAFETY: from the word at `position` on are as many words as the record takes, as the caller says.
        unsafe { core::slice::from_raw_parts(self.start(position).as_ptr(), 1 + size.div_ceil(8)) }
    }

    /// The offset of the word at a position, bytes.
    #[inline]
    fn offset(&self, position: u64) -> usize {
        position as usize & self.offset_mask
    }

    /// Where the words from a position on begin.
    #[inline]
    fn start(&self, position: u64) -> NonNull<AtomicU64> {
        let offset = self.offset(position);
        debug_assert!(offset < size_of_val(self.words()));
        // SAFETY: there are `capacity / 8` words, and the mask leaves less than the capacity.
        unsafe { self.words.cast::<AtomicU64>().byte_add(offset) }
    }

    /// Returns true if records begin at multiples of [`RECORD_ALIGN`] in memory, too.
    pub(super) fn is_aligned(&self) -> bool {
        self.words.cast::<u8>().addr().get().is_multiple_of(RECORD_ALIGN)
    }

    /// The commit word of the record at a position, and the bytes from there to the end of the ring.
    #[inline]
    pub(super) fn record_at(&self, position: u64) -> (&AtomicU64, SharedBytes<'_>) {
        let start = self.start(position);
        // SAFETY: `start` is inside of the words, which live as long as this, and the rest is behind it.
        unsafe { (start.as_ref(), SharedBytes::at(start.add(1), self.to_end(position) - COMMIT_SIZE)) }
    }

    /// The words behind the commit word at `position`, up to the end of the ring.
    #[inline]
    pub(super) fn words_behind(&self, position: u64) -> &[AtomicU64] {
        let index = self.offset(position) / 8 + 1;
        debug_assert!(index <= self.words().len());
        // SAFETY: as in `start`, and one more is the end at most.
        unsafe { self.words().get_unchecked(index..) }
    }

    /// Bytes from a position to the end of the ring.
    #[inline]
    pub(super) fn to_end(&self, position: u64) -> usize {
        self.capacity() - self.offset(position)
    }

    /// Where the next record will begin, as its writer last said.
    pub fn tail(&self) -> u64 {
        self.control().tail.position.load(ordering!("ring_tail_read", Acquire)) // (G)
    }

    /// Records written so far, as their writer last said.
    pub fn sent(&self) -> u64 {
        self.control().tail.sequence.load(Ordering::Relaxed)
    }

    /// Number of those records with this number or a later one; none if no honest writer says so (rule 6).
    pub fn sent_since(&self, sequence: u64) -> u64 {
        believable(self.sent()).map_or(0, |sent| sent.saturating_sub(sequence))
    }

    /// Position and number of the newest end (rule 7).
    pub(super) fn newest(&self) -> Newest {
        let (mut first, mut has_moved) = (None, false);
        for _ in 0..NEWEST_TRIES {
            match self.look_for_newest() {
                Some(Newest::Lapped(tail)) => has_moved |= *first.get_or_insert(tail) != tail,
                Some(newest) => return newest,
                None => return Newest::Unbelievable,
            }
        }
        // The tail of an honest writer whose limit laps it does not stay.
        first.filter(|_| has_moved).map_or(Newest::Unbelievable, Newest::Lapped)
    }

    /// The same, looked up once; `None` if no honest writer leaves what stands there.
    fn look_for_newest(&self) -> Option<Newest> {
        let position = believable(self.tail()).filter(|tail| tail.is_multiple_of(RECORD_ALIGN as u64))?;
        let told = self.control().tail.sequence.load(ordering!("ring_sequence_read", Acquire)); // (G)
        let told = believable(told)?;
        let word = self.word(position).load(Ordering::Relaxed);
        fence!("ring_newest_fence", Acquire); // (D), (F) pairs with the fences in `RingWriter::raise_limit`.
        if self.control().limit.0.load(Ordering::Relaxed) > position + self.capacity() as u64 {
            return Some(Newest::Lapped(position));
        }
        // Its writer may have told of later records since we read the position, never of as many as a half word counts.
        let later = if word == 0 { 0 } else { (told as u32).wrapping_sub((word >> 32) as u32) };
        told.checked_sub(later.into()).map(|sequence| Newest::At(position, sequence))
    }
}

/// Where the newest end of a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    /// At this position, of this number.
    At(u64, u64),
    /// Its writer has lapped the thread that looked at this tail. The next look may find it.
    Lapped(u64),
    /// No honest writer leaves what stands there.
    Unbelievable,
}

/// Number of times that the newest end is looked up again because its writer has lapped it meanwhile.
const NEWEST_TRIES: usize = if cfg!(loom) { 2 } else { 1000 };

/// The largest position or number that a peer is believed: 2^62 bytes take 146 years at 1 GB/s, and sums do not overflow.
const BELIEVABLE_MAX: u64 = 1 << 62;

/// The number that a peer says, if an honest one could say it (rule 6).
#[inline]
pub(super) fn believable(said: u64) -> Option<u64> {
    (said <= BELIEVABLE_MAX).then_some(said)
}
