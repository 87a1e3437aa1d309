//! Processors on which nothing is stored past the caches, and no line is moved to another one.

/// Not measured on this processor.
#[cfg(not(loom))]
pub(crate) fn prefers_stores_past_caches() -> bool {
    false
}

/// Never called: [`prefers_stores_past_caches`] is false here.
///
/// # Safety
/// None is needed.
#[cfg(not(loom))]
pub(crate) unsafe fn store_past_caches(_target: *mut u64, _value: u64) {
    unreachable!("no stores past caches on this processor");
}

/// Never called, as above.
///
/// # Safety
/// None is needed.
#[cfg(not(loom))]
pub(crate) unsafe fn copy_past_caches(_source: *const u8, _target: *mut u8, _size: usize) {
    unreachable!("no stores past caches on this processor");
}

/// There are none.
#[cfg(not(loom))]
#[inline]
pub(crate) fn await_stores_past_caches() {}

/// No such hint is known.
#[cfg(not(loom))]
pub(crate) fn can_demote() -> bool {
    false
}

/// Never asked for, as above.
pub(crate) fn demote(_address: *const u8) {}
