//! The only doorway to atomics: the real ones, or loom's where its model checker runs.
//!
//! loom treats `SeqCst` accesses as weaker than they are but models `fence(SeqCst)`: wake-ups are
//! written with fences, and every fence is one of a labelled pair.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Tells the CPU, or loom's scheduler, that this thread waits for another.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    crate::arch::spin_hint();
    #[cfg(loom)]
    loom::thread::yield_now();
}
