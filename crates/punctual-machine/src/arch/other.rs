//! Any other processor: the kernel's clock, the compiler's copies and hints.

#[cfg(not(loom))]
use crate::clock::ClockSource;

/// The clock that [`read_counter`] reads.
#[cfg(not(loom))]
pub(crate) const COUNTER: ClockSource = ClockSource::Monotonic;

/// The kernel's clock in place of a counter.
#[cfg(not(loom))]
pub(crate) fn read_counter() -> u64 {
    crate::clock::monotonic_ns()
}

/// A call of the kernel reads the clock when it is made.
#[cfg(not(loom))]
pub(crate) fn await_loads() {}

/// The same.
#[cfg(not(loom))]
pub(crate) fn await_stores() {}

/// No counter is known.
#[cfg(not(loom))]
pub(crate) fn counter_is_invariant() -> bool {
    false
}

/// No counter is known.
#[cfg(not(loom))]
pub(crate) fn counter_rate() -> Option<u64> {
    None
}

/// No hint is known.
pub(crate) fn prefetch<const AHEAD: usize>(_address: *const u8) {}

/// Tells the processor that this thread waits for another.
#[cfg(not(loom))]
#[inline]
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}

/// Never called: [`super::COPIES_BLOCKS`] is false here.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn copy_block(_source: *const u8, _target: *mut u8, _size: usize) {
    unreachable!("no copy of blocks on this processor");
}
