//! The state: a value for each key. And a command, as bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual::broadcast::{Command, State};

use crate::broadcast::digest::hash_of;

/// Bytes in front of a command's value.
const HEAD_SIZE: usize = 25;
/// Bytes in front of a value in a snapshot: its key and its size.
const ENTRY_HEAD_SIZE: usize = 12;

/// Effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Put,
    /// Changes nothing: its place in the order says which value it answers.
    Get,
    /// Its process gives nothing more.
    End,
}

/// A command as its process gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) op: Op,
    /// Processes that were at the place before, and the number of the operation at this one.
    pub(super) incarnation: u64,
    pub(super) operation: u64,
    pub(super) key: u64,
    pub(super) value: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_SIZE + self.value.len());
        bytes.push(self.op as u8);
        for word in [self.incarnation, self.operation, self.key] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// `None` if it is none.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, value) = bytes.split_at_checked(HEAD_SIZE)?;
        let op = [Op::Put, Op::Get, Op::End].into_iter().find(|&op| op as u8 == head[0])?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        Some(Self { op, incarnation: word(1), operation: word(9), key: word(17), value })
    }
}

/// Name of a value in histories.
pub(super) fn digest_of(value: &[u8]) -> u64 {
    (hash_of(0, value) as u64).max(1)
}

/// All values. A snapshot shares them.
#[derive(Debug, Default)]
pub(super) struct Store {
    values: BTreeMap<u64, Arc<[u8]>>,
    /// Of a snapshot that is being restored, the begin of an entry whose rest is in the next part.
    begun: Vec<u8>,
}

impl Store {
    /// The digest of the value of a key; 0 if it has none.
    pub(super) fn get(&self, key: u64) -> u64 {
        self.values.get(&key).map_or(0, |value| digest_of(value))
    }

    /// The same of every key that has one.
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.values.iter().map(|(&key, value)| (key, digest_of(value))).collect()
    }
}

/// Values that are given to another member.
#[derive(Debug)]
pub(super) struct Snapshot {
    rest: std::collections::btree_map::IntoIter<u64, Arc<[u8]>>,
    /// The entry at hand, and how much of it was read.
    entry: Vec<u8>,
    at: usize,
}

impl Snapshot {
    /// Bytes of the entry at hand that were not read; of the next one, if all were. Empty behind the last.
    fn unread(&mut self) -> &[u8] {
        if self.at == self.entry.len()
            && let Some((key, value)) = self.rest.next()
        {
            self.at = 0;
            self.entry.clear();
            self.entry.extend_from_slice(&key.to_le_bytes());
            self.entry.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.entry.extend_from_slice(&value);
        }
        &self.entry[self.at..]
    }
}

impl State for Store {
    type Output = ();
    type Snapshot = Snapshot;

    fn apply(&mut self, command: Command<'_>) {
        if let Some(Request { op: Op::Put, key, value, .. }) = Request::read(command.payload) {
            self.values.insert(key, value.into());
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { rest: self.values.clone().into_iter(), entry: Vec::new(), at: 0 }
    }

    /// Entries are cut wherever a part ends: it may be smaller than a value.
    fn read(snapshot: &mut Snapshot, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() {
            let unread = snapshot.unread();
            let size = unread.len().min(buffer.len() - filled);
            if size == 0 {
                break;
            }
            buffer[filled..filled + size].copy_from_slice(&unread[..size]);
            snapshot.at += size;
            filled += size;
        }
        filled
    }

    fn reset(&mut self) {
        self.values.clear();
        self.begun.clear();
    }

    fn restore(&mut self, part: &[u8]) {
        self.begun.extend_from_slice(part);
        let mut rest = &self.begun[..];
        while let Some((head, behind)) = rest.split_at_checked(ENTRY_HEAD_SIZE) {
            let key = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
            let size = u32::from_le_bytes(head[8..].try_into().expect("four bytes"));
            let Some((value, behind)) = behind.split_at_checked(size as usize) else { break };
            self.values.insert(key, value.into());
            rest = behind;
        }
        let done = self.begun.len() - rest.len();
        self.begun.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::kv::option::VALUE_SIZE_MAX;

    fn put(store: &mut Store, key: u64, value: &[u8]) {
        let request = Request { op: Op::Put, incarnation: 1, operation: 2, key, value };
        let bytes = request.to_bytes();
        assert_eq!(Request::read(&bytes), Some(request));
        store.apply(Command { sender: punctual::NodeId::named("anne"), life: 1, payload: &bytes });
    }

    /// Goal: a store that was restored is the one that was given, however small the parts are, as it was when the snapshot was taken.
    #[test]
    fn a_snapshot_is_the_store() {
        let mut store = Store::default();
        for key in 0..100 {
            put(&mut store, key, &vec![key as u8; key as usize * 7]);
        }
        put(&mut store, 7, &[1; VALUE_SIZE_MAX]);
        // A part may be smaller than the head of an entry, and larger than many.
        for part_size in [1, 10, 4_096, 65_536] {
            let (values, mut snapshot) = (store.all(), store.snapshot());
            put(&mut store, 8, format!("later, {part_size}").as_bytes());
            assert_ne!(store.all(), values);
            let (mut other, mut part) = (Store::default(), vec![0; part_size]);
            put(&mut other, 1_000, b"before");
            other.reset();
            loop {
                let size = Store::read(&mut snapshot, &mut part);
                if size == 0 {
                    break;
                }
                other.restore(&part[..size]);
            }
            assert_eq!(other.all(), values, "{part_size}");
            assert_eq!((other.get(7), other.get(100)), (digest_of(&[1; VALUE_SIZE_MAX]), 0));
        }
    }
}
