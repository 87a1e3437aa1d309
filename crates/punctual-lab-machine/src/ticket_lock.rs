//! A ticket lock: a thread that comes spins until it is its turn. Fair, and a convoy as soon as the next thread has no processor.
//!
//! It is here to be measured. The library has no lock that spins.

use punctual_machine::sync::{AtomicU64, Ordering, spin_hint};

/// Lets one thread in after the other, in the order in which they came.
///
/// It orders the admission of threads, and nothing else. The data behind it has a lock of its own, which then is free.
#[derive(Debug, Default)]
pub struct TicketLock {
    next: AtomicU64,
    serving: AtomicU64,
}

/// Lets the next one in when it is dropped.
#[derive(Debug)]
pub struct TicketGuard<'l> {
    lock: &'l TicketLock,
    ticket: u64,
}

impl TicketLock {
    /// Spins until it is this thread's turn; says so once if it has to wait.
    pub fn lock(&self, waits: impl FnOnce()) -> TicketGuard<'_> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let is_served = || self.serving.load(Ordering::Relaxed) == ticket;
        if !is_served() {
            waits();
            while !is_served() {
                spin_hint();
            }
        }
        TicketGuard { lock: self, ticket }
    }
}

impl Drop for TicketGuard<'_> {
    fn drop(&mut self) {
        self.lock.serving.store(self.ticket.wrapping_add(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;

    /// Goal: the holder holds off the other threads, which come in their order.
    #[test]
    fn the_first_to_come_is_first() {
        let lock = Arc::new((TicketLock::default(), Mutex::new(Vec::new())));
        let held = lock.0.lock(|| panic!("nobody has it"));
        let mut threads = Vec::new();
        for number in 0..3 {
            let theirs = Arc::clone(&lock);
            threads.push(thread::spawn(move || {
                let _admitted = theirs.0.lock(|| {});
                theirs.1.lock().unwrap().push(number);
            }));
            while lock.0.next.load(Ordering::Relaxed) < number + 2 {
                thread::yield_now();
            }
        }
        assert!(lock.1.lock().unwrap().is_empty());
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*lock.1.lock().unwrap(), [0, 1, 2]);
    }
}
