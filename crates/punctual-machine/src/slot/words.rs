//! The words of one slot: the way of a message from one end to the other.

use crate::mutant::ordering;
use crate::ring::{copy_in, copy_out};
use crate::sync::{AtomicU32, AtomicU64};

/// One slot, written by one end and read by the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    /// The number of the message in it; it leads the bytes.
    pub(super) sequence: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
}

/// The word that the reading end of a slot sleeps on: a count of the messages that it was woken for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wakes<'a>(pub(super) &'a AtomicU32);

impl Slot<'_> {
    /// Writes the message of this number: a reader that sees the number sees the bytes.
    #[inline]
    pub(super) fn put(&self, number: u64, bytes: &[u8]) {
        copy_in(self.words, bytes);
        self.sequence.store(number, ordering!("slot_put", Release));
    }

    /// Reads the message behind that of the number `received`, if it is there.
    #[inline]
    pub(super) fn try_get(&self, received: u64, bytes: &mut [u8]) -> bool {
        if self.sequence.load(ordering!("slot_get", Acquire)) == received {
            return false;
        }
        copy_out(self.words, bytes);
        true
    }
}

impl Wakes<'_> {
    /// Before the system call that wakes: a reader that sees this sees the message.
    #[inline]
    pub(super) fn add(&self) {
        self.0.fetch_add(1, ordering!("slot_wake", Release));
    }

    /// Before the look that precedes the sleep. A reader that sleeps with the newest count has looked for its message; the kernel
    /// compares the count again, in turn with the writer that wakes.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.0.load(ordering!("slot_wakes", Acquire))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[derive(Default)]
    struct Memory {
        sequence: AtomicU64,
        words: [AtomicU64; 2],
        wakes: AtomicU32,
    }

    impl Memory {
        fn slot(&self) -> Slot<'_> {
            Slot { sequence: &self.sequence, words: &self.words }
        }
    }

    /// Goal: a message that is there is whole.
    #[test]
    fn a_message_is_whole() {
        loom::model(|| {
            let memory = Arc::new(Memory::default());
            let theirs = Arc::clone(&memory);
            let thread = thread::spawn(move || theirs.slot().put(1, &[7; 16]));
            let mut bytes = [0; 16];
            if memory.slot().try_get(0, &mut bytes) {
                assert_eq!(bytes, [7; 16]);
            }
            thread.join().unwrap();
        });
    }

    /// Goal: nobody sleeps with the newest count and without its message.
    #[test]
    fn a_thread_that_sees_the_count_sees_the_message() {
        loom::model(|| {
            let memory = Arc::new(Memory::default());
            let theirs = Arc::clone(&memory);
            let thread = thread::spawn(move || {
                theirs.slot().put(1, &[7; 8]);
                Wakes(&theirs.wakes).add();
            });
            let count = Wakes(&memory.wakes).count();
            let found = memory.slot().try_get(0, &mut [0; 8]);
            assert!(found || count == 0);
            thread.join().unwrap();
        });
    }
}
