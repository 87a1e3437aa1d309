//! 64-bit ARM: the virtual counter, copies by NEON, ISB.

use core::arch::asm;

use super::BLOCK_SIZE;
#[cfg(not(loom))]
use crate::clock::ClockSource;

/// The clock that [`read_counter`] reads.
#[cfg(not(loom))]
pub(crate) const COUNTER: ClockSource = ClockSource::VirtualCounter;

/// The counter, CNTVCT_EL0.
#[cfg(not(loom))]
#[inline]
pub(crate) fn read_counter() -> u64 {
    let count: u64;
    // SAFETY: Linux lets user space read the counter, and reads it for a program where it is out of order (its errata);
    // the read touches neither memory nor flags.
    unsafe { asm!("mrs {count}, cntvct_el0", count = out(reg) count, options(nostack, preserves_flags)) };
    count
}

/// Reads of the counter after this call happen after the loads before it have their values.
#[cfg(not(loom))]
#[inline]
pub(crate) fn await_loads() {
    // SAFETY: barriers; they change neither registers nor memory.
    unsafe { asm!("dsb ld", "isb", options(nostack, preserves_flags)) };
}

/// Reads of the counter after this call happen after all can see the stores before it.
#[cfg(not(loom))]
pub(crate) fn await_stores() {
    // SAFETY: barriers; they change neither registers nor memory.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Returns true if the counter has one rate, never stops and is one for all processors. Every generic timer is such a counter (Arm
/// Architecture Reference Manual, "The Generic Timer").
#[cfg(not(loom))]
pub(crate) fn counter_is_invariant() -> bool {
    true
}

/// Ticks per second as the firmware states them, in CNTFRQ_EL0. Some firmware errs or says nothing: [`crate::clock`] checks.
#[cfg(not(loom))]
pub(crate) fn counter_rate() -> Option<u64> {
    let hz: u64;
    // SAFETY: the register is readable wherever the counter is; the read touches neither memory nor flags.
    unsafe { asm!("mrs {hz}, cntfrq_el0", hz = out(reg) hz, options(nomem, nostack, preserves_flags)) };
    // Its upper half is reserved. The slowest counters in use run at 1 MHz; the architecture's fastest at 1 GHz.
    (1_000_000..=1_000_000_000).contains(&hz).then_some(hz)
}

/// Asks for the cache line so far ahead of an address, which will be read soon; a multiple of 8 below 32 KiB.
#[inline]
pub(crate) fn prefetch<const AHEAD: usize>(address: *const u8) {
    // SAFETY: a hint: the processor ignores it where it cannot follow it.
    unsafe {
        asm!(
            "prfm pldl1keep, [{address}, #{ahead}]",
            address = in(reg) address.addr(),
            ahead = const AHEAD,
            options(nomem, nostack, preserves_flags)
        );
    };
}

/// Tells the processor that this thread waits for another: ISB, which empties the pipeline and so makes the loop wait for
/// its load. YIELD does nothing on most processors, and WFE would sleep until an event that a plain store does not send.
#[cfg(not(loom))]
#[inline]
pub(crate) fn spin_hint() {
    // SAFETY: a barrier; it changes neither registers nor memory.
    unsafe { asm!("isb", options(nomem, nostack, preserves_flags)) };
}

/// Copies a block by the processor, outside of the compiler's sight: to the compiler the bytes of either side may change
/// at any instant, as if each were accessed atomically.
///
/// # Safety
/// `source` is readable and `target` writable for `size` bytes, they do not overlap, and `size` is at least [`BLOCK_SIZE`].
#[inline]
pub(crate) unsafe fn copy_block(source: *const u8, target: *mut u8, size: usize) {
    debug_assert!(size >= BLOCK_SIZE);
    // The last line ends where the block ends, and may overlap the one before: no rest is left.
    let last = size - BLOCK_SIZE;
    // SAFETY: both lie inside of the blocks, as `last + BLOCK_SIZE` is their size.
    unsafe {
        copy_lines(source, target, last);
        copy_lines(source.add(last), target.add(last), 1);
    }
}

/// Copies lines of 64 bytes until `size` bytes are copied or more; nothing if that is zero.
///
/// # Safety
/// As [`copy_block`] for `size` bytes, rounded up to lines.
#[inline]
unsafe fn copy_lines(source: *const u8, target: *mut u8, size: usize) {
    // SAFETY: loads and stores stay within the rounded size; no flag but the arithmetic ones changes.
    unsafe {
        asm!(
            "cbz {left}, 3f",
            "2:",
            "ldp {a:q}, {b:q}, [{source}]",
            "ldp {c:q}, {d:q}, [{source}, 32]",
            "stp {a:q}, {b:q}, [{target}]",
            "stp {c:q}, {d:q}, [{target}, 32]",
            "add {source}, {source}, 64",
            "add {target}, {target}, 64",
            "subs {left}, {left}, 64",
            "b.hi 2b",
            "3:",
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            left = inout(reg) size => _,
            a = out(vreg) _,
            b = out(vreg) _,
            c = out(vreg) _,
            d = out(vreg) _,
            options(nostack)
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Goal: the counter counts as fast as it says, to the tenth. Bounds as in the clock's own test: readings of ours between
    /// two of the kernel's.
    #[test]
    fn the_counter_counts_at_the_rate_it_states() {
        let Some(hz) = counter_rate() else {
            crate::skipped!("CNTFRQ_EL0 says nothing here");
            return;
        };
        let reading = || {
            let before = crate::clock::monotonic_ns();
            let count = read_counter();
            (before, count, crate::clock::monotonic_ns())
        };
        let first = reading();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let second = reading();
        let counted_ns = u128::from(second.1 - first.1) * 1_000_000_000 / u128::from(hz);
        let (least, most) = (u128::from(second.0 - first.2), u128::from(second.2 - first.0));
        assert!(
            counted_ns * 10 >= least * 9 && counted_ns * 10 <= most * 11,
            "{counted_ns} ns in {least} to {most}"
        );
    }
}
