//! The only doorway to atomics: the real ones, or loom's where its model checker runs.
//!
//! loom treats `SeqCst` accesses as weaker than they are but models `fence(SeqCst)`: wake-ups are
//! written with fences, and every fence is one of a labelled pair.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Threads as the model checker sees them, where it runs.
#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(not(loom))]
pub(crate) use std::thread;

/// Tells the CPU, or loom's scheduler, that this thread waits for another.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    crate::arch::spin_hint();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// A cell that several threads share, one at a time. Where the model checker runs, it sees who does not keep to that.
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell as CheckedCell;

/// A cell that several threads share, one at a time. Where the model checker runs, it sees who does not keep to that.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct CheckedCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> CheckedCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Shows the place where the value is.
    #[inline]
    pub(crate) fn with_mut<R>(&self, visit: impl FnOnce(*mut T) -> R) -> R {
        visit(self.0.get())
    }
}

/// Keeps what stands before it before what stands behind it, for a signal handler that interrupts this thread. It costs nothing.
#[inline]
pub(crate) fn signal_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}
