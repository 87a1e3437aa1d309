//! Numbers that one thread writes and anybody may read, also in memory that processes share.

use crate::memory_traits::SharedObject;
use crate::mutant::ordering;
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

    /// Adds as [`Counter::add`] does, and publishes as [`Counter::publish`] does.
    #[inline]
    pub fn add_published(&self, count: u64) {
        self.0.fetch_add(count, ordering!("counter_add_published", Release));
    }

    /// Raises the number by one at least, and at least to this; the new one, which no other thread gets.
    #[inline]
    pub fn raise_to(&self, least: u64) -> u64 {
        let mut current = self.get();
        loop {
            let next = least.max(current.wrapping_add(1));
            match self.0.compare_exchange_weak(current, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(changed) => current = changed,
            }
        }
    }

    /// Sets the number, where only one thread at a time writes.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets the number and publishes everything stored before it: a thread that sees it by [`Counter::get_published`] sees all that.
    #[inline]
    pub fn publish(&self, value: u64) {
        self.0.store(value, ordering!("counter_publish", Release));
    }

    /// The number, and everything stored before it was published.
    #[inline]
    pub fn get_published(&self) -> u64 {
        self.0.load(ordering!("counter_get_published", Acquire))
    }
}

/// Yes or no, for several threads.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// Yes, together with everything stored before.
    #[inline]
    pub fn raise(&self) {
        self.0.store(true, ordering!("flag_raise", Release));
    }

    /// Returns true if it is raised.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(ordering!("flag_is_raised", Acquire))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Goal: a thread that sees a published number sees everything stored before it.
    #[test]
    fn a_published_number_brings_what_was_stored_before() {
        loom::model(|| {
            let shared = Arc::new((Counter::default(), Counter::default()));
            let theirs = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                theirs.0.set(7);
                theirs.1.publish(1);
            });
            if shared.1.get_published() == 1 {
                assert_eq!(shared.0.get(), 7);
            }
            thread.join().unwrap();
        });
    }

    /// Goal: a thread that sees a number that was added and published sees everything stored before it.
    #[test]
    fn an_added_and_published_number_brings_what_was_stored_before() {
        loom::model(|| {
            let shared = Arc::new((Counter::default(), Counter::default()));
            let theirs = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                theirs.0.set(7);
                theirs.1.add_published(1);
            });
            if shared.1.get_published() == 1 {
                assert_eq!(shared.0.get(), 7);
            }
            thread.join().unwrap();
        });
    }

    /// Goal: no two threads get one number, and none gets one below what it asked for.
    #[test]
    fn numbers_that_are_raised_are_given_once() {
        loom::model(|| {
            let shared = Arc::new(Counter::default());
            let theirs = Arc::clone(&shared);
            let thread = thread::spawn(move || [theirs.raise_to(7), theirs.raise_to(7)]);
            let own = shared.raise_to(7);
            let [first, second] = thread.join().unwrap();
            assert!(own >= 7 && first >= 7 && first < second && own != first && own != second);
        });
    }

    /// Goal: a thread that sees a flag raised sees everything stored before.
    #[test]
    fn a_raised_flag_brings_what_was_stored_before() {
        loom::model(|| {
            let shared = Arc::new((Counter::default(), Flag::default()));
            let theirs = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                theirs.0.set(7);
                theirs.1.raise();
            });
            if shared.1.is_raised() {
                assert_eq!(shared.0.get(), 7);
            }
            thread.join().unwrap();
        });
    }
}
