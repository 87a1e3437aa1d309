//! A stack that many threads push to and one thread empties at once: the way of a woken task to its worker.
//!
//! No lock, no fence, and no allocation: a pusher brings the entry that carries the value, and gets it back from the thread that
//! empties the inbox. An interrupted pusher holds nobody up.
//!
//! Rules:
//! 1. An entry belongs to one thread at a time: to the pusher until its exchange, then to the inbox, then to the thread that exchanged
//!    the head for nothing. Only its owner touches value and link.
//! 2. The pusher's exchange releases what it wrote (A); the emptier's acquires it (B). Pushes in between are exchanges too and
//!    carry on the release, so that one acquiring exchange covers every entry of the stack.
//! 3. Nobody takes single entries, so an address that comes back to the head misleads nobody.
//! 4. A thread that sleeps until something comes looks at [`Inbox::is_empty`] between the fences of a doorbell: the look orders nothing
//!    itself.

use core::ptr;

use crate::mutant::ordering;
use crate::sync::{AtomicPtr, Ordering};

/// Carries a value into an inbox, again and again.
#[derive(Debug)]
pub struct Entry<T> {
    value: Option<T>,
    next: *mut Self,
}

// SAFETY: an entry belongs to one thread at a time (rule 1), and owns a value that may change threads. The link is followed by the
// owner of all that it leads to.
unsafe impl<T: Send> Send for Entry<T> {}

impl<T> Entry<T> {
    /// One that carries nothing yet.
    #[must_use]
    pub fn new() -> Box<Self> {
        Box::new(Self { value: None, next: ptr::null_mut() })
    }

    /// Takes out what it carries.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}

/// Entries that wait for one thread.
#[derive(Debug)]
pub struct Inbox<T> {
    head: AtomicPtr<Entry<T>>,
}

// SAFETY: values only pass through, each from one thread to one other (rule 1).
unsafe impl<T: Send> Sync for Inbox<T> {}
// SAFETY: it owns its entries, whose values may change threads.
unsafe impl<T: Send> Send for Inbox<T> {}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl<T> Inbox<T> {
    /// Puts a value in. The owner's doorbell is the caller's to ring.
    pub fn push(&self, mut entry: Box<Entry<T>>, value: T) {
        entry.value = Some(value);
        let entry = Box::into_raw(entry);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the entry is ours until the exchange succeeds (rule 1).
            unsafe { (*entry).next = head };
            let release = ordering!("inbox_push", Release); // (A) pairs with (B) in `take_all`.
            match self.head.compare_exchange(head, entry, release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => head = newer,
            }
        }
    }

    /// Takes everything out, oldest first. An exchange: a caller that asks often asks [`Self::is_empty`] before.
    pub fn take_all(&self) -> Entries<T> {
        let mut newest = self.head.swap(ptr::null_mut(), ordering!("inbox_take_all", Acquire)); // (B)
        let mut first = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: the exchange made all of them ours (rules 1 and 2).
            let older = unsafe { ptr::replace(&raw mut (*newest).next, first) };
            (first, newest) = (newest, older);
        }
        Entries { first }
    }

    /// Returns true if nothing is in it, as far as this thread sees. A thread that sleeps on that asks between the fences of a
    /// doorbell.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// Entries that were in an inbox, oldest first.
#[derive(Debug)]
pub struct Entries<T> {
    first: *mut Entry<T>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { first: ptr::null_mut() }
    }
}

impl<T> Iterator for Entries<T> {
    type Item = Box<Entry<T>>;

    fn next(&mut self) -> Option<Box<Entry<T>>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: it came out of a box in `push`, and belongs to this iterator alone (rule 1).
        let mut entry = unsafe { Box::from_raw(self.first) };
        self.first = core::mem::replace(&mut entry.next, ptr::null_mut());
        Some(entry)
    }
}

impl<T> Drop for Entries<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn values(inbox: &Inbox<u64>) -> Vec<u64> {
        inbox.take_all().map(|mut entry| entry.take().unwrap()).collect()
    }

    #[test]
    fn the_oldest_comes_first() {
        let inbox = Inbox::default();
        assert!(inbox.is_empty() && values(&inbox).is_empty());
        (1..=3).for_each(|value| inbox.push(Entry::new(), value));
        assert!(!inbox.is_empty());
        assert_eq!(values(&inbox), [1, 2, 3]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn an_entry_carries_one_value_after_another() {
        let inbox = Inbox::default();
        let mut entry = Entry::new();
        for value in 1..=3 {
            inbox.push(entry, value);
            entry = inbox.take_all().next().unwrap();
            assert_eq!((entry.take(), entry.take()), (Some(value), None));
        }
    }

    #[test]
    fn values_that_were_never_taken_are_dropped() {
        let value = Arc::new(());
        let inbox = Inbox::default();
        (0..3).for_each(|_| inbox.push(Entry::new(), Arc::clone(&value)));
        let mut entries = inbox.take_all();
        drop(entries.next());
        inbox.push(Entry::new(), Arc::clone(&value));
        drop((entries, inbox));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// Goal: every value of every thread arrives once, and each thread's in its order.
    #[test]
    fn values_of_many_threads_arrive_once_and_in_order() {
        const THREADS: u64 = 3;
        let each: u64 = if cfg!(miri) { 100 } else { 20_000 };
        let inbox = Arc::new(Inbox::default());
        let pushers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let inbox = Arc::clone(&inbox);
                std::thread::spawn(move || {
                    (0..each).for_each(|number| inbox.push(Entry::new(), thread * each + number));
                })
            })
            .collect();
        let mut next = [0; THREADS as usize];
        while next.iter().sum::<u64>() < THREADS * each {
            for value in values(&inbox) {
                let expected = &mut next[(value / each) as usize];
                assert_eq!(value % each, *expected);
                *expected += 1;
            }
            std::thread::yield_now();
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        assert!(inbox.is_empty() && next == [each; THREADS as usize]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::doorbell::{Doorbell, Notification};
    use crate::sync::AtomicU32;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// Values that each of two threads wrote before it pushed its number.
    type Written = [AtomicU32; 2];

    fn push(inbox: &Inbox<usize>, written: &Written, number: usize) {
        written[number].store(1, Ordering::Relaxed);
        inbox.push(Entry::new(), number);
    }

    /// Takes what is there; all of it brings what its pusher wrote before.
    fn take(inbox: &Inbox<usize>, written: &Written) -> usize {
        let seen = |mut entry: Box<Entry<usize>>| {
            let number = entry.take().expect("a value");
            assert_eq!(written[number].load(Ordering::Relaxed), 1);
        };
        inbox.take_all().map(seen).count()
    }

    /// Goal: of two who push while a third empties, each arrives once, with what it wrote before.
    #[test]
    fn two_push_while_one_takes() {
        loom::model(|| {
            let shared = Arc::new((Inbox::default(), Written::default()));
            let pushers: Vec<_> = (0..2)
                .map(|number| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || push(&shared.0, &shared.1, number))
                })
                .collect();
            let early = take(&shared.0, &shared.1);
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            assert_eq!(early + take(&shared.0, &shared.1), 2);
        });
    }

    /// Goal: a thread that empties it sleeps by a doorbell over nothing that was pushed.
    #[test]
    fn no_push_is_slept_over() {
        loom::model(|| {
            let shared = Arc::new((Inbox::default(), Written::default(), Doorbell::default(), Notify::new()));
            let theirs = Arc::clone(&shared);
            let pusher = thread::spawn(move || {
                let (inbox, written, bell, notify) = &*theirs;
                push(inbox, written, 0);
                if bell.ring().is_some() {
                    notify.notify();
                }
            });
            let (inbox, written, bell, notify) = &*shared;
            while take(inbox, written) == 0 {
                bell.sleep(Notification::Futex, &mut (), |()| !inbox.is_empty(), |()| notify.wait());
            }
            pusher.join().unwrap();
        });
    }
}
