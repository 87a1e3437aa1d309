//! The floor: one shared slot each way between two processes, and nothing else.
//!
//! What no library can beat: a sequence word and the bytes. No header, no counters, no second message on its way. The
//! laboratory measures everything else against it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::futex::{self, Flags};

use crate::SystemError;
use crate::event_fd::timespec;
use crate::memory::{Access, Mapping};
use crate::ring::{copy_in, copy_out};
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_hint};

/// Largest message of a slot, bytes.
pub const SLOT_SIZE_MAX: usize = 8192;

/// Bytes from one slot to the next: the sequence word on a line of its own costs a second transfer, so it leads the bytes.
const SLOT_STRIDE: usize = 4096 + SLOT_SIZE_MAX;
const FUTEX_AT: usize = 2 * SLOT_STRIDE;
const MAPPING_SIZE: usize = FUTEX_AT + 4096;

/// One end of a pair of slots.
#[derive(Debug)]
pub struct SlotPair {
    memory: Arc<Mapping>,
    /// Which slot is written by this end: 0 or 1.
    own: usize,
    sent: u64,
    received: u64,
}

impl SlotPair {
    /// Makes the pair as a file.
    pub fn create(path: &Path) -> Result<Self, SystemError> {
        Ok(Self::end(Mapping::create(path, MAPPING_SIZE, 0o600)?, 0))
    }

    /// Opens the other end.
    pub fn open(path: &Path) -> Result<Self, SystemError> {
        let memory = Mapping::open(path, Access::ReadWrite)?;
        if memory.size() < MAPPING_SIZE {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "not a pair of slots");
            return Err(SystemError::new("open slots", path.display().to_string(), error));
        }
        Ok(Self::end(memory, 1))
    }

    fn end(memory: Mapping, own: usize) -> Self {
        Self { memory: Arc::new(memory), own, sent: 0, received: 0 }
    }

    fn slot(&self, which: usize) -> (&AtomicU64, &[AtomicU64]) {
        let words: &[AtomicU64] =
            self.memory.objects(which * SLOT_STRIDE, 1 + SLOT_SIZE_MAX / 8).expect("the size was looked at");
        (&words[0], &words[1..])
    }

    fn futex(&self, which: usize) -> &AtomicU32 {
        self.memory.object(FUTEX_AT + 64 * which).expect("the size was looked at")
    }

    /// Writes the message. The other end must have read the one before.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.sent += 1;
        let (sequence, slot) = self.slot(self.own);
        copy_in(slot, bytes);
        sequence.store(self.sent, Ordering::Release);
    }

    /// Reads the next message, if it is there.
    #[inline]
    pub fn try_get(&mut self, bytes: &mut [u8]) -> bool {
        let (sequence, slot) = self.slot(1 - self.own);
        if sequence.load(Ordering::Acquire) == self.received {
            return false;
        }
        copy_out(slot, bytes);
        self.received += 1;
        true
    }

    /// Writes the message and wakes the other end by the bare call.
    #[inline]
    pub fn put_and_wake(&mut self, bytes: &[u8]) {
        self.put(bytes);
        let word = self.futex(self.own);
        word.fetch_add(1, Ordering::SeqCst);
        // Waking nobody is no error.
        let _woken = futex::wake(word, Flags::empty(), 1);
    }

    /// Reads the next message, sleeping by the bare call until it is there; `false` when `timeout` passed first.
    #[inline]
    pub fn get_asleep(&mut self, bytes: &mut [u8], timeout: Duration) -> bool {
        loop {
            let seen = self.futex(1 - self.own).load(Ordering::SeqCst);
            if self.try_get(bytes) {
                return true;
            }
            let slept = futex::wait(self.futex(1 - self.own), Flags::empty(), seen, Some(&timespec(timeout)));
            if slept == Err(rustix::io::Errno::TIMEDOUT) {
                return self.try_get(bytes);
            }
        }
    }

    /// Tells the processor that this thread waits for another.
    #[inline]
    pub fn pause(&self) {
        spin_hint();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_exchange_messages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slots");
        let mut here = SlotPair::create(&path).unwrap();
        let mut there = SlotPair::open(&path).unwrap();
        let mut bytes = [0; 64];
        assert!(!there.try_get(&mut bytes));
        for round in 0..100 {
            here.put(&[round; 64]);
            assert!(there.try_get(&mut bytes) && bytes == [round; 64]);
            assert!(!there.try_get(&mut bytes), "once");
            there.put_and_wake(&[round + 1; 64]);
            assert!(here.get_asleep(&mut bytes, Duration::from_secs(10)) && bytes == [round + 1; 64]);
        }
        assert!(!here.get_asleep(&mut bytes, Duration::from_millis(1)));
    }
}
