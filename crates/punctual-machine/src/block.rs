//! Copies of blocks of bytes, as fast from every place to every place.
//!
//! `rep movsb`, and with it the C library's copies of 2 KiB and more, is slow on some processors (AMD's Zen 3 and 4). It takes 30 times
//! as long where the target begins up to 64 bytes behind the source within their pages. 8 KiB take 4.3 µs instead of 0.14 µs (glibc
//! bugs 30994 and 30995; `docs/speed.md`). A message's place in a ring is everywhere sooner or later. Lines through registers do not
//! have that.

use crate::arch::{BLOCK_SIZE, COPIES_BLOCKS, copy_block};

/// Copies one slice into the other.
///
/// # Panics
/// If their sizes differ.
#[inline]
pub fn copy(source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "a copy of another size");
    if COPIES_BLOCKS && source.len() >= BLOCK_SIZE {
        // SAFETY: both are as long as said and at least a block; one is borrowed mutably, so they do not overlap.
        unsafe { copy_block(source.as_ptr(), target.as_mut_ptr(), source.len()) };
        return;
    }
    target.copy_from_slice(source);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Goal: every byte comes over, and none beside it changes. Method: all sizes around the lines, at places of all kinds.
    #[test]
    fn bytes_come_over_and_no_others_change() {
        let source: Vec<u8> = (0..2000_usize).map(|byte| (byte * 31 % 251) as u8).collect();
        for size in (0..=200).chain(500..=520).chain([1024, 1900]) {
            for (from, to) in [(0, 0), (7, 1), (40, 56), (63, 64)] {
                let mut target = vec![255; to + size + 70];
                copy(&source[from..from + size], &mut target[to..to + size]);
                assert_eq!(target[to..to + size], source[from..from + size], "{size} bytes");
                assert!(target[..to].iter().chain(&target[to + size..]).all(|&byte| byte == 255));
            }
        }
    }

    #[test]
    #[should_panic(expected = "another size")]
    fn sizes_are_compared() {
        copy(&[0; 100], &mut [0; 99]);
    }
}
