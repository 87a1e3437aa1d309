//! x86-64: the time-stamp counter, copies by SSE and AVX, PAUSE, CPUID.

#[cfg(not(loom))]
use core::arch::x86_64::{__cpuid, __cpuid_count};

use super::BLOCK_SIZE;
#[cfg(not(loom))]
use crate::clock::ClockSource;

/// The clock that [`read_counter`] reads.
#[cfg(not(loom))]
pub(crate) const COUNTER: ClockSource = ClockSource::TimeStampCounter;

/// The counter.
#[cfg(not(loom))]
#[inline]
pub(crate) fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC; Linux leaves it enabled for user space, and where a
    // process forbids it to itself (PR_SET_TSC) it faults, which is not undefined behaviour.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads of the counter after this call happen after the loads before it have their values.
#[cfg(not(loom))]
#[inline]
pub(crate) fn await_loads() {
    // SAFETY: LFENCE belongs to SSE2, which every x86-64 processor has, and touches no memory.
    unsafe { core::arch::x86_64::_mm_lfence() };
}

/// Reads of the counter after this call happen after all can see the stores before it (Intel SDM vol. 2B, RDTSC).
#[cfg(not(loom))]
pub(crate) fn await_stores() {
    // SAFETY: MFENCE and LFENCE belong to SSE2, which every x86-64 processor has, and touch no memory.
    unsafe {
        core::arch::x86_64::_mm_mfence();
        core::arch::x86_64::_mm_lfence();
    }
}

/// CPUID 8000_0007h, EDX bit 8 (Intel SDM vol. 3, 19.17.1; AMD APM vol. 3, E.4.6): the source of Linux's `constant_tsc` and
/// `nonstop_tsc`. Asked here because a container may have no `/proc/cpuinfo`.
#[cfg(not(loom))]
pub(crate) fn counter_is_invariant() -> bool {
    const POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & (1 << 8) != 0
}

/// Ticks per second as the kernel states them.
#[cfg(not(loom))]
pub(crate) fn counter_rate() -> Option<u64> {
    rate_of(&first_processor())
}

/// The entry of the first processor in `/proc/cpuinfo`. The file is as long as there are processors, so only its head is read.
#[cfg(not(loom))]
fn first_processor() -> String {
    use std::io::Read;
    let mut head = [0; 4096];
    // One call gives what is asked for: the kernel makes the text of one processor after the other.
    let read = std::fs::File::open("/proc/cpuinfo").and_then(|mut file| file.read(&mut head));
    let text = String::from_utf8_lossy(&head[..read.unwrap_or(0)]);
    text.split("\n\n").next().unwrap_or_default().to_owned()
}

/// The kernel takes its loops per jiffy from the counter's rate, and shows twice that as BogoMIPS, with two decimals
/// (`arch/x86/kernel/tsc.c`, `init/calibrate.c`). Of 2,600 MHz that is two in a million.
#[cfg(not(loom))]
fn rate_of(processor: &str) -> Option<u64> {
    let line = processor.lines().find(|line| line.starts_with("bogomips"))?;
    let (whole, hundredths) = line.split_once(':')?.1.trim().split_once('.')?;
    // Hundredths of BogoMIPS: 200 of them are a million ticks per second.
    let rate = whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)?;
    let is_plausible = hundredths.len() == 2 && (20_000..=4_000_000).contains(&rate);
    is_plausible.then_some(rate * 5_000)
}

/// Asks for the cache line so far ahead of an address, which will be read soon: PREFETCHT0. Each distance is an instruction of its own:
/// of an intrinsic the compiler merges two, and chooses the distance first.
#[inline]
pub(crate) fn prefetch<const AHEAD: usize>(address: *const u8) {
    // SAFETY: a hint: the processor ignores it where it cannot follow it, and the program sees no memory read by it.
    unsafe {
        core::arch::asm!(
            "prefetcht0 [{address} + {ahead}]",
            address = in(reg) address.addr(),
            ahead = const AHEAD,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// CPUID 7, ECX bit 25: the processor has CLDEMOTE (Intel SDM vol. 2A).
#[cfg(not(loom))]
pub(crate) fn can_demote() -> bool {
    const FEATURES: u32 = 7;
    __cpuid(0).eax >= FEATURES && __cpuid_count(FEATURES, 0).ecx & (1 << 25) != 0
}

/// Moves a line that was stored to into the cache that all cores share, from where another core reads it sooner: CLDEMOTE. Only the
/// stores to that line are ordered with it. Measured, a fence behind it still takes longer.
#[inline]
pub(crate) fn demote(address: *const u8) {
    // SAFETY: a hint, which changes no memory. Processors that do not have it ignore it (Intel SDM vol. 2A, CLDEMOTE).
    unsafe { core::arch::asm!("cldemote [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Tells the processor that this thread waits for another: PAUSE.
#[cfg(not(loom))]
#[inline]
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}

/// From this size on the wider registers are worth the look whether there are any. Measured: at 256 bytes either takes 8 ns.
const WIDE_MIN: usize = 512;

/// Copies a block by the processor, outside of the compiler's sight: to the compiler the bytes of either side may change
/// at any instant, as if each were accessed atomically.
///
/// # Safety
/// `source` is readable and `target` writable for `size` bytes, they do not overlap, and `size` is at least [`BLOCK_SIZE`].
#[inline]
pub(crate) unsafe fn copy_block(source: *const u8, target: *mut u8, size: usize) {
    debug_assert!(size >= BLOCK_SIZE);
    // SAFETY: as the caller says.
    unsafe {
        copy_lines(source, target, BLOCK_SIZE);
        if size > BLOCK_SIZE {
            copy_behind_first_line(source, target, size);
        }
    }
}

/// Copies a block but its first line.
///
/// # Safety
/// As [`copy_block`], for more than one line.
#[inline]
unsafe fn copy_behind_first_line(source: *const u8, target: *mut u8, size: usize) {
    // The last line ends where the block ends, and may overlap the one before: no rest is left.
    let last = size - BLOCK_SIZE;
    // SAFETY: both lie inside of the blocks, as `last + BLOCK_SIZE` is their size.
    unsafe {
        let (source_behind, target_behind) = (source.add(BLOCK_SIZE), target.add(BLOCK_SIZE));
        let between = last.saturating_sub(BLOCK_SIZE);
        if size >= WIDE_MIN {
            copy_many_lines(source_behind, target_behind, between);
        } else {
            copy_lines(source_behind, target_behind, between);
        }
        copy_lines(source.add(last), target.add(last), BLOCK_SIZE);
    }
}

/// As [`copy_lines`], by the widest registers there are. Not inlined: the functions that it calls would cost small blocks registers.
///
/// # Safety
/// As [`copy_lines`].
#[inline(never)]
unsafe fn copy_many_lines(source: *const u8, target: *mut u8, size: usize) {
    // SAFETY: as the caller says; AVX was looked for.
    unsafe {
        if std::is_x86_feature_detected!("avx") {
            copy_lines_wide(source, target, size);
        } else {
            copy_lines(source, target, size);
        }
    }
}

/// Copies a line of 64 bytes by a kind of stores, outside of the compiler's sight.
macro_rules! copy_line_by {
    ($store:literal, $source:expr, $target:expr) => {
        core::arch::asm!(
            "movups {a}, [{source}]",
            "movups {b}, [{source} + 16]",
            "movups {c}, [{source} + 32]",
            "movups {d}, [{source} + 48]",
            concat!($store, " [{target}], {a}"),
            concat!($store, " [{target} + 16], {b}"),
            concat!($store, " [{target} + 32], {c}"),
            concat!($store, " [{target} + 48], {d}"),
            source = in(reg) $source,
            target = in(reg) $target,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags)
        )
    };
}

/// Copies lines of 64 bytes until `size` bytes are copied or more.
///
/// # Safety
/// As [`copy_block`] for `size` bytes, rounded up to lines.
#[inline]
unsafe fn copy_lines(source: *const u8, target: *mut u8, size: usize) {
    for line in (0..size).step_by(BLOCK_SIZE) {
        // SAFETY: loads and stores stay within the rounded size.
        unsafe { copy_line_by!("movups", source.add(line), target.add(line)) };
    }
}

/// Returns true if large data that another core reads next is better stored past the caches. AMD's processors: between two cores of a
/// Zen 4 a stream of 64 bytes is five times as fast so (`docs/speed.md`). Of others nothing was measured.
#[cfg(not(loom))]
pub(crate) fn prefers_stores_past_caches() -> bool {
    let vendor = __cpuid(0);
    // "AuthenticAMD" (AMD APM vol. 3, E.3.1).
    (vendor.ebx, vendor.edx, vendor.ecx) == (0x6874_7541, 0x6974_6e65, 0x444d_4163)
}

/// Stores a word past the caches: MOVNTI. Nothing but [`await_stores_past_caches`] orders it behind or before other places'.
///
/// # Safety
/// `target` is writable, and a multiple of 8.
#[cfg(not(loom))]
#[inline]
pub(crate) unsafe fn store_past_caches(target: *mut u64, value: u64) {
    // SAFETY: MOVNTI belongs to SSE2, which every x86-64 processor has; the place is writable, as the caller says.
    unsafe {
        core::arch::asm!("movnti [{}], {}", in(reg) target, in(reg) value, options(nostack, preserves_flags));
    }
}

/// Copies whole lines of 64 bytes past the caches: MOVNTPS.
///
/// # Safety
/// As [`copy_block`] for `size` bytes, a multiple of 64; `target` is a multiple of 16.
#[cfg(not(loom))]
#[inline]
pub(crate) unsafe fn copy_past_caches(source: *const u8, target: *mut u8, size: usize) {
    for line in (0..size).step_by(BLOCK_SIZE) {
        // SAFETY: loads and stores stay within `size`.
        unsafe { copy_line_by!("movntps", source.add(line), target.add(line)) };
    }
}

/// All stores before this are seen before those after it: SFENCE.
#[cfg(not(loom))]
#[inline]
pub(crate) fn await_stores_past_caches() {
    // SAFETY: SFENCE belongs to SSE, which every x86-64 processor has, and touches no memory.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// As [`copy_lines`], by registers of 32 bytes.
///
/// # Safety
/// As [`copy_lines`], on a processor with AVX.
#[target_feature(enable = "avx")]
unsafe fn copy_lines_wide(source: *const u8, target: *mut u8, size: usize) {
    // SAFETY: as in `copy_lines`; `vzeroupper` leaves the registers as code without AVX wants them.
    unsafe {
        core::arch::asm!(
            "2:",
            "vmovups {a}, [{source}]",
            "vmovups {b}, [{source} + 32]",
            "vmovups [{target}], {a}",
            "vmovups [{target} + 32], {b}",
            "add {source}, 64",
            "add {target}, 64",
            "sub {left}, 64",
            "ja 2b",
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

    #[test]
    fn the_stated_rate_is_read_from_bogomips() {
        let stated =
            |text: &str| rate_of(&format!("flags\t\t: fpu tsc\nbogomips\t: {text}\ncache_alignment\t: 64"));
        for (text, hz) in [("5200.00", 2_600_000_000), ("4890.61", 2_445_305_000), ("6400.02", 3_200_010_000)]
        {
            assert_eq!(stated(text), Some(hz), "{text}");
        }
        for wrong in ["", "5200", "5200.0", "-5200.00", "0.00", "99999999999999999999.00", "5200.00x"] {
            assert_eq!(stated(wrong), None, "{wrong:?}");
        }
        assert_eq!(rate_of("flags: fpu"), None);
    }
}
