//! Both ends of a pair of slots, in a file that two processes map.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::futex::{self, Flags};

use super::words::{Slot, Wakes};
use crate::SystemError;
use crate::event_fd::timespec;
use crate::memory::{Access, Mapping};
use crate::sync::{AtomicU64, spin_hint};

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
    /// The slot that this end writes: 0 or 1.
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

    fn slot(&self, which: usize) -> Slot<'_> {
        let words: &[AtomicU64] =
            self.memory.objects(which * SLOT_STRIDE, 1 + SLOT_SIZE_MAX / 8).expect("the size was looked at");
        Slot { sequence: &words[0], words: &words[1..] }
    }

    fn wakes(&self, which: usize) -> Wakes<'_> {
        Wakes(self.memory.object(FUTEX_AT + 64 * which).expect("the size was looked at"))
    }

    /// Writes the message. The other end must have read the one before.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.sent += 1;
        self.slot(self.own).put(self.sent, bytes);
    }

    /// Reads the next message, if it is there.
    #[inline]
    pub fn try_get(&mut self, bytes: &mut [u8]) -> bool {
        let is_there = self.slot(1 - self.own).try_get(self.received, bytes);
        self.received += u64::from(is_there);
        is_there
    }

    /// Writes the message and wakes the other end by the bare call.
    #[inline]
    pub fn put_and_wake(&mut self, bytes: &[u8]) {
        self.put(bytes);
        let wakes = self.wakes(self.own);
        wakes.add();
        // Waking nobody is no error.
        let _woken = futex::wake(wakes.0, Flags::empty(), 1);
    }

    /// Reads the next message, sleeping by the bare call until it is there; `false` when `timeout` passed first.
    #[inline]
    pub fn get_asleep(&mut self, bytes: &mut [u8], timeout: Duration) -> bool {
        loop {
            let seen = self.wakes(1 - self.own).count();
            if self.try_get(bytes) {
                return true;
            }
            let wakes = self.wakes(1 - self.own).0;
            let slept = futex::wait(wakes, Flags::empty(), seen, Some(&timespec(timeout)));
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
