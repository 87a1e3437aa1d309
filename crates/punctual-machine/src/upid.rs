//! The user-interrupt descriptor in software: 64 sources post to one receiver, which takes the highest first.
//!
//! Posted bits are the condition of a [`Doorbell`]: a bit stays until the receiver takes it, however often it is posted.
//! The handshake is the doorbell's; its rules hold here, with "the condition" being [`Upid::post`]'s bit.
//!
//! ```text
//! sender     PIR |= bit ─▶ fence (A) ─▶ state armed? ─▶ outstanding, notify
//! receiver   armed ─▶ fence (B) ─▶ PIR = 0? ─▶ park ─▶ awake ─▶ PIR.swap(0)
//! ```

use std::borrow::Borrow;
use std::fmt;

use crate::doorbell::{Doorbell, Notification};
use crate::memory_traits::SharedObject;
use crate::sync::{AtomicU64, Ordering};

/// Sources of one receiver: one bit each.
pub const SOURCES: u8 = 64;

/// Entries of one sender's table. As many as the architecture's index of 16 bits would allow are never needed here: a table
/// of this size takes 128 KiB.
pub const TABLE_SIZE_MAX: usize = 8192;

/// The words of one receiver. All zeroes is one that is awake and has nothing posted.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Upid {
    bell: Doorbell,
    requests: Line,
}

/// A line of its own: an awake receiver polls it, and the doorbell's line stays with the senders.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Line(AtomicU64);

// SAFETY: `repr(C)`, atomics only, every bit pattern is a value.
unsafe impl SharedObject for Upid {}

/// Requests that were taken, the highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub u64);

impl Iterator for Requests {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let source = self.0.checked_ilog2()? as u8;
        self.0 &= !(1 << source);
        Some(source)
    }
}

impl Upid {
    /// Sender: asks for `source` (modulo 64). Returns the notification that the sender must now send, if any.
    #[inline]
    pub fn post(&self, source: u8) -> Option<Notification> {
        let source = source % SOURCES;
        self.requests.0.fetch_or(1 << source, Ordering::Release);
        self.bell.ring(source.into())
    }

    /// Receiver: takes all that was posted, so that it can be posted again.
    #[inline]
    pub fn take(&self) -> Requests {
        Requests(if self.has_requests() { self.requests.0.swap(0, Ordering::Acquire) } else { 0 })
    }

    /// Receiver: whether something is posted.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.requests.0.load(Ordering::Relaxed) != 0
    }

    /// Receiver: from now on senders notify. `false`, and awake again, if something is posted already.
    pub fn arm(&self, how: Notification) -> bool {
        self.bell.arm(how);
        #[cfg(not(mutant = "upid_recheck"))]
        if self.has_requests() {
            self.bell.disarm();
            return false;
        }
        true
    }

    /// Receiver: awake again. Whether somebody rang.
    pub fn disarm(&self) -> bool {
        self.bell.disarm().rung
    }

    /// What the receiver sleeps on.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }
}

/// Why nothing was sent: never silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// There is no such entry.
    NoEntry {
        /// What was asked for.
        index: usize,
        /// Entries of the table.
        size: usize,
    },
    /// The entry was revoked.
    Revoked {
        /// What was asked for.
        index: usize,
    },
    /// A receiver has 64 sources.
    NoSuchSource {
        /// What was asked for.
        source: u8,
    },
    /// The table has [`TABLE_SIZE_MAX`] valid entries.
    Full,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEntry { index, size } => write!(f, "entry {index} of a sender's table of {size}"),
            Self::Revoked { index } => write!(f, "entry {index} of the sender's table was revoked"),
            Self::NoSuchSource { source } => write!(f, "source {source}, where a receiver has 0 to 63"),
            Self::Full => write!(f, "the sender's table has {TABLE_SIZE_MAX} entries, which is its limit"),
        }
    }
}

impl std::error::Error for TableError {}

/// Whom one sender may ask: receivers, as many as it likes, each with the source that it is to them.
#[derive(Debug)]
pub struct SenderTable<R> {
    entries: Vec<Option<(R, u8)>>,
}

impl<R> Default for SenderTable<R> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<R: Borrow<Upid>> SenderTable<R> {
    /// Adds a receiver to which this sender is `source`; returns the index to send to. Revoked entries are used again.
    ///
    /// # Errors
    /// The source is none of 64, or the table is full.
    pub fn add(&mut self, receiver: R, source: u8) -> Result<usize, TableError> {
        if source >= SOURCES {
            return Err(TableError::NoSuchSource { source });
        }
        let vacant = self.entries.iter().position(Option::is_none);
        let index = vacant.unwrap_or(self.entries.len());
        if index == TABLE_SIZE_MAX {
            return Err(TableError::Full);
        }
        if index == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[index] = Some((receiver, source));
        Ok(index)
    }

    /// From now on sending there is an error.
    ///
    /// # Errors
    /// There is no such entry, or it was revoked before.
    pub fn revoke(&mut self, index: usize) -> Result<R, TableError> {
        let size = self.entries.len();
        let entry = self.entries.get_mut(index).ok_or(TableError::NoEntry { index, size })?;
        entry.take().map(|(receiver, _)| receiver).ok_or(TableError::Revoked { index })
    }

    /// Posts to the receiver of an entry. Returns it with the notification that must now be sent, if any.
    ///
    /// # Errors
    /// There is no such entry, or it was revoked.
    #[inline]
    pub fn post(&self, index: usize) -> Result<(&R, Option<Notification>), TableError> {
        let entry = self.entries.get(index).ok_or(TableError::NoEntry { index, size: self.entries.len() })?;
        let (receiver, source) = entry.as_ref().ok_or(TableError::Revoked { index })?;
        Ok((receiver, receiver.borrow().post(*source)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_highest_is_taken_first_and_each_once() {
        let upid = Upid::default();
        for source in [3, 63, 0, 17, 3, 3] {
            assert_eq!(upid.post(source), None, "it is awake");
        }
        assert_eq!(upid.take().collect::<Vec<_>>(), [63, 17, 3, 0]);
        assert_eq!(upid.take().next(), None);
    }

    #[test]
    fn a_receiver_with_requests_does_not_fall_asleep() {
        let upid = Upid::default();
        upid.post(5);
        assert!(!upid.arm(Notification::Futex));
        assert_eq!(upid.post(6), None, "it is awake again");
        assert_eq!(upid.take().count(), 2);
        assert!(upid.arm(Notification::Futex));
        assert_eq!(upid.post(6), Some(Notification::Futex));
        assert_eq!(upid.post(7), None, "one is outstanding");
        assert!(upid.disarm());
        assert_eq!(upid.take().collect::<Vec<_>>(), [7, 6]);
    }

    #[test]
    fn more_receivers_than_sources_have_entries_and_wrong_ones_are_errors() {
        let mut table = SenderTable::<Arc<Upid>>::default();
        let receivers: Vec<Arc<Upid>> = (0..200).map(|_| Arc::default()).collect();
        for (place, receiver) in receivers.iter().enumerate() {
            assert_eq!(table.add(Arc::clone(receiver), (place % 64) as u8), Ok(place));
        }
        for index in [0, 63, 64, 199] {
            table.post(index).unwrap();
            assert_eq!(receivers[index].take().collect::<Vec<_>>(), [(index % 64) as u8]);
        }
        assert_eq!(table.post(200).unwrap_err(), TableError::NoEntry { index: 200, size: 200 });
        table.revoke(70).unwrap();
        assert_eq!(table.post(70).unwrap_err(), TableError::Revoked { index: 70 });
        assert_eq!(table.revoke(70).unwrap_err(), TableError::Revoked { index: 70 });
        assert!(!receivers[70].has_requests());
        assert_eq!(table.add(Arc::default(), 64), Err(TableError::NoSuchSource { source: 64 }));
        assert_eq!(table.add(Arc::default(), 1), Ok(70), "used again");
    }

    #[test]
    fn a_table_has_a_limit() {
        let (mut table, upid) = (SenderTable::<Arc<Upid>>::default(), Arc::<Upid>::default());
        for _ in 0..TABLE_SIZE_MAX {
            table.add(Arc::clone(&upid), 0).unwrap();
        }
        assert_eq!(table.add(upid, 0), Err(TableError::Full));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::AtomicU32;
    use loom::sync::Arc;
    use loom::thread;

    /// Goal: nobody sleeps over a request, and each is taken, whatever the order. Method: once all is sent, a receiver that
    /// sleeps has nothing posted or somebody rang. (Two threads: with three the states are too many.)
    #[test]
    fn two_sources_are_both_taken() {
        loom::model(|| {
            let upid = Arc::new(Upid::default());
            let sender = Arc::clone(&upid);
            let thread = thread::spawn(move || {
                sender.post(1);
                sender.post(63);
            });
            let mut taken = upid.take().0;
            let sleeps = upid.arm(Notification::Futex);
            thread.join().unwrap();
            if sleeps && upid.has_requests() {
                assert!(!upid.bell().is_armed(), "asleep over a request that nobody rang for");
            }
            upid.disarm();
            taken |= upid.take().0;
            assert_eq!(taken, 1 << 1 | 1 << 63);
        });
    }

    /// Goal: who takes a request sees what was stored before it was posted.
    #[test]
    fn a_request_brings_its_message() {
        loom::model(|| {
            let shared = Arc::new((Upid::default(), AtomicU32::new(0)));
            let sender = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                sender.1.store(7, Ordering::Relaxed);
                sender.0.post(0);
            });
            if shared.0.take().next().is_some() {
                assert_eq!(shared.1.load(Ordering::Relaxed), 7);
            }
            thread.join().unwrap();
        });
    }
}
