//! Numbers that one thread writes and anybody may read, also in memory that processes share.

use crate::memory_traits::SharedObject;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A number that others may read at any time. Reading it orders nothing else.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

// SAFETY: one atomic; every bit pattern is a value.
unsafe impl SharedObject for Counter {}

impl Counter {
    /// The number.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds, where only one thread at a time writes: a load and a store, no bus lock.
    #[inline]
    pub fn add_alone(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    /// Adds, where several threads may write.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Sets the number, where only one thread at a time writes.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets the number and everything stored before it: who sees it by [`Counter::get_published`] sees all that.
    #[inline]
    pub fn publish(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// The number, and everything stored before it was published.
    #[inline]
    pub fn get_published(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Yes or no, for several threads.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// Yes, together with everything stored before.
    #[inline]
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is raised.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
