//! Bytes that others may change at any instant, and how they are copied.

use core::marker::PhantomData;
use core::ptr::NonNull;

#[cfg(not(loom))]
use crate::arch;
use crate::arch::{BLOCK_SIZE, COPIES_BLOCKS, copy_block};
use crate::sync::{AtomicU64, Ordering};

/// Bytes in shared memory, readable by copy only: a peer may change them at any instant.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    /// Of as many words as have some of the bytes.
    start: NonNull<AtomicU64>,
    size: usize,
    words: PhantomData<&'a [AtomicU64]>,
}

impl<'a> SharedBytes<'a> {
    /// The first `size` bytes of `words`.
    #[cfg(all(test, not(loom)))]
    fn new(words: &'a [AtomicU64], size: usize) -> Self {
        assert!(size <= words.len() * 8);
        // SAFETY: as many words are borrowed as the bytes take.
        unsafe { Self::at(NonNull::from(words).cast(), size) }
    }

    /// The `size` bytes that begin at a word.
    ///
    /// # Safety
    /// There are as many words from there on as the bytes take, and they live for `'a`.
    #[inline]
    pub(super) unsafe fn at(start: NonNull<AtomicU64>, size: usize) -> Self {
        Self { start, size, words: PhantomData }
    }

    /// The words, of which the last one may have bytes that do not belong to it.
    #[inline]
    fn words(&self) -> &'a [AtomicU64] {
        // SAFETY: as `at` was promised.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.size.div_ceil(8)) }
    }

    /// Size, bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.size
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// All but the first `count` bytes; `count` is a multiple of 8. None if there are fewer.
    #[inline]
    pub fn skip(&self, count: usize) -> Option<SharedBytes<'a>> {
        debug_assert!(count.is_multiple_of(8));
        let size = self.size.checked_sub(count)?;
        // SAFETY: `count / 8` words have no more than `count` bytes, and the rest of the words have the rest of them.
        Some(unsafe { Self::at(self.start.add(count / 8), size) })
    }

    /// The first `size` bytes, if there are as many.
    #[inline]
    pub fn first(&self, size: usize) -> Option<SharedBytes<'a>> {
        (size <= self.size).then_some(SharedBytes { size, ..*self })
    }

    /// The eight bytes from `8 * index` on as a little-endian number, if they are inside.
    #[inline]
    pub fn word(&self, index: usize) -> Option<u64> {
        let inside = index.checked_add(1)?.checked_mul(8)? <= self.size;
        inside.then(|| u64::from_le(self.words()[index].load(Ordering::Relaxed)))
    }

    /// The first `N` little-endian words, if there are as many.
    #[inline]
    pub fn first_words<const N: usize>(&self) -> Option<[u64; N]> {
        let words = self.words().first_chunk::<N>().filter(|_| 8 * N <= self.size)?;
        Some(core::array::from_fn(|index| u64::from_le(words[index].load(Ordering::Relaxed))))
    }

    /// Copies as many bytes as fit into `target`; returns how many.
    #[inline]
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let size = self.size.min(target.len());
        if COPIES_BLOCKS && size >= BLOCK_SIZE {
            // SAFETY: both sides have `size` bytes, at least a block, and do not overlap, as one is borrowed mutably. The source may
            // change under the copy. So the processor makes the copy outside of the compiler's sight, like an atomic access of every
            // byte (rule 2 of `memory`).
            unsafe { copy_block(self.start.as_ptr().cast(), target.as_mut_ptr(), size) };
        } else {
            copy_words_out(self.words(), &mut target[..size]);
        }
        size
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size];
        self.copy_to(&mut bytes);
        bytes
    }
}

/// Copies out of shared words. `target` is no longer than they are.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], target: &mut [u8]) {
    assert!(target.len() <= words.len() * 8);
    // SAFETY: there are as many words as the bytes of the target take.
    unsafe { SharedBytes::at(NonNull::from(words).cast(), target.len()) }.copy_to(target);
}

/// The same, word after word.
#[inline]
fn copy_words_out(words: &[AtomicU64], target: &mut [u8]) {
    let (chunks, rest) = target.as_chunks_mut::<8>();
    let whole = chunks.len();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&words[whole].load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
    }
}

/// Copies into shared words that only the caller stores to. `source` is no longer than they are.
#[inline]
pub(crate) fn copy_in(words: &[AtomicU64], source: &[u8]) {
    assert!(source.len() <= words.len() * 8);
    if COPIES_BLOCKS && source.len() >= BLOCK_SIZE {
        return copy_block_in(words, source);
    }
    let (chunks, rest) = source.as_chunks::<8>();
    for (chunk, word) in chunks.iter().zip(words) {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        words[chunks.len()].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// As [`copy_in`], past the caches. The words begin at a multiple of 16.
#[cfg(not(loom))]
#[inline]
pub(super) fn copy_past_caches_in(words: &[AtomicU64], source: &[u8]) {
    assert!(source.len() <= words.len() * 8);
    let lines = source.len() / BLOCK_SIZE * BLOCK_SIZE;
    let first = words.as_ptr().cast::<u8>().cast_mut();
    debug_assert!(first.addr().is_multiple_of(16));
    // SAFETY: as in `copy_block_in`; the words begin at a multiple of 16, as the writer looked.
    unsafe { arch::copy_past_caches(source.as_ptr(), first, lines) };
    let (chunks, rest) = source[lines..].as_chunks::<8>();
    let words = &words[lines / 8..];
    for (chunk, word) in chunks.iter().zip(words) {
        store_past_caches(word, u64::from_ne_bytes(*chunk));
    }
    if !rest.is_empty() {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        store_past_caches(&words[chunks.len()], u64::from_ne_bytes(bytes));
    }
}

/// Stores a shared word that only the caller stores to past the caches.
#[cfg(not(loom))]
#[inline]
pub(super) fn store_past_caches(word: &AtomicU64, value: u64) {
    // SAFETY: an atomic may be stored to through a shared reference; the store is one of eight bytes at a multiple of eight, so
    // readers see all of it or nothing, as of an atomic one.
    unsafe { arch::store_past_caches(std::ptr::from_ref(word).cast::<u64>().cast_mut(), value) };
}

/// All stores of this thread before this, also past the caches, are seen before those after it.
#[cfg(not(loom))]
#[inline]
pub(super) fn await_stores_past_caches() {
    arch::await_stores_past_caches();
}

#[cfg(loom)]
pub(super) use past_caches::{await_stores_past_caches, copy_past_caches_in, store_past_caches};

/// Stores past the caches, as the model checker has them: they come into memory when their thread awaits them, and not before. A
/// processor may write them earlier, too: that none overtakes the limit (`RingWriter::raise_limit`) is not checked here.
#[cfg(loom)]
mod past_caches {
    use std::cell::RefCell;

    use super::{AtomicU64, NonNull, Ordering};

    loom::thread_local! {
        static ON_THE_WAY: RefCell<Vec<(NonNull<AtomicU64>, u64)>> = RefCell::new(Vec::new());
    }

    pub(in super::super) fn store_past_caches(word: &AtomicU64, value: u64) {
        ON_THE_WAY.with(|stores| stores.borrow_mut().push((NonNull::from(word), value)));
    }

    pub(in super::super) fn copy_past_caches_in(words: &[AtomicU64], source: &[u8]) {
        let (chunks, rest) = source.as_chunks::<8>();
        assert!(rest.is_empty(), "tests send whole words");
        chunks
            .iter()
            .zip(words)
            .for_each(|(chunk, word)| store_past_caches(word, u64::from_ne_bytes(*chunk)));
    }

    pub(in super::super) fn await_stores_past_caches() {
        for (word, value) in ON_THE_WAY.with(RefCell::take) {
            // SAFETY: a ring's memory outlives its writer, which awaits its stores.
            unsafe { word.as_ref() }.store(value, Ordering::Relaxed);
        }
    }
}

#[inline]
fn copy_block_in(words: &[AtomicU64], source: &[u8]) {
    // SAFETY: both are at least `source.len()` bytes long and that is a block (the caller looked); atomics may be stored
    // to through a shared reference, and the only storer is the caller (rule 1 of `ring`).
    unsafe { copy_block(source.as_ptr(), words.as_ptr().cast::<u8>().cast_mut(), source.len()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(u64::MAX)).collect();
        for size in (0..=512).filter(|size| size % 7 < 3) {
            let source: Vec<u8> = (0..size).map(|byte| (byte * 31 % 251) as u8).collect();
            copy_in(&words, &source);
            let shared = SharedBytes::new(&words, size);
            assert_eq!(shared.to_vec(), source, "{size} bytes");
            let mut short = vec![0; size / 2];
            assert_eq!(shared.copy_to(&mut short), size / 2);
            assert_eq!(short, source[..size / 2]);
        }
    }

    #[test]
    fn nothing_behind_the_end_is_read() {
        let words: Vec<AtomicU64> = (0..4).map(AtomicU64::new).collect();
        let shared = SharedBytes::new(&words, 20);
        assert_eq!((shared.word(1), shared.word(2), shared.word(usize::MAX)), (Some(1), None, None));
        assert_eq!(shared.skip(16).map(|rest| rest.len()), Some(4));
        assert!(shared.skip(24).is_none());
        assert!(shared.first(21).is_none());
    }
}
