//! Copies of blocks of bytes, as fast from every place to every place.
//!
//! `rep movsb`, and with it the C library's copies of 2 KiB and more, takes 30 times as long on some processors (AMD's
//! Zen 3 and 4) where the target begins up to 64 bytes behind the source within their pages: 8 KiB take 4.3 µs instead of
//! 0.14 µs (glibc bugs 30994 and 30995; `docs/speed.md`). A message's place in a ring is everywhere sooner or later. Lines
//! through registers do not have that.

/// Smallest block.
pub(crate) const BLOCK_SIZE: usize = 64;

/// From this size on the wider registers are worth the look whether there are any. Measured: at 256 bytes either takes 8 ns.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const WIDE_MIN: usize = 512;

/// Copies one slice into the other.
///
/// # Panics
/// If their sizes differ.
#[inline]
pub fn copy(source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "a copy of another size");
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    if source.len() >= BLOCK_SIZE {
        // SAFETY: both are as long as said and at least a block; one is borrowed mutably, so they do not overlap.
        unsafe { copy_block(source.as_ptr(), target.as_mut_ptr(), source.len()) };
        return;
    }
    target.copy_from_slice(source);
}

/// Copies a block by the processor, outside of the compiler's sight: to the compiler the bytes of either side may change
/// at any instant, as if each were accessed atomically.
///
/// # Safety
/// `source` is readable and `target` writable for `size` bytes, they do not overlap, and `size` is at least [`BLOCK_SIZE`].
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
pub(crate) unsafe fn copy_block(source: *const u8, target: *mut u8, size: usize) {
    debug_assert!(size >= BLOCK_SIZE);
    // The last line ends where the block ends, and may overlap the one before: no rest is left.
    let last = size - BLOCK_SIZE;
    // SAFETY: both lie inside of the blocks, as `last + BLOCK_SIZE` is their size; AVX was looked for.
    unsafe {
        if size >= WIDE_MIN && std::is_x86_feature_detected!("avx") {
            copy_lines_wide(source, target, last);
        } else {
            copy_lines(source, target, last);
        }
        copy_lines(source.add(last), target.add(last), 1);
    }
}

/// Copies lines of 64 bytes until `size` bytes are copied or more; nothing if that is zero.
///
/// # Safety
/// As [`copy_block`] for `size` bytes, rounded up to lines.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline]
unsafe fn copy_lines(source: *const u8, target: *mut u8, size: usize) {
    // SAFETY: loads and stores stay within the rounded size; no flag but the arithmetic ones changes.
    unsafe {
        core::arch::asm!(
            "test {left}, {left}",
            "jle 3f",
            "2:",
            "movups {a}, [{source}]",
            "movups {b}, [{source} + 16]",
            "movups {c}, [{source} + 32]",
            "movups {d}, [{source} + 48]",
            "movups [{target}], {a}",
            "movups [{target} + 16], {b}",
            "movups [{target} + 32], {c}",
            "movups [{target} + 48], {d}",
            "add {source}, 64",
            "add {target}, 64",
            "sub {left}, 64",
            "ja 2b",
            "3:",
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            left = inout(reg) size => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// As [`copy_lines`], by registers of 32 bytes.
///
/// # Safety
/// As [`copy_lines`], on a processor with AVX.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn copy_lines_wide(source: *const u8, target: *mut u8, size: usize) {
    // SAFETY: as in `copy_lines`; `vzeroupper` leaves the registers as code without AVX wants them.
    unsafe {
        core::arch::asm!(
            "test {left}, {left}",
            "jle 3f",
            "2:",
            "vmovups {a}, [{source}]",
            "vmovups {b}, [{source} + 32]",
            "vmovups [{target}], {a}",
            "vmovups [{target} + 32], {b}",
            "add {source}, 64",
            "add {target}, 64",
            "sub {left}, 64",
            "ja 2b",
            "3:",
            "vzeroupper",
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            left = inout(reg) size => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            options(nostack)
        );
    }
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
