//! The state: a value for each key. And a command, as bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual::broadcast::{Command, State};

use crate::broadcast::member::hash_of;

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

/// Values that are given to another member, the next one first.
#[derive(Debug)]
pub(super) struct Snapshot(std::collections::btree_map::IntoIter<u64, Arc<[u8]>>, Option<(u64, Arc<[u8]>)>);

impl State for Store {
    type Output = ();
    type Snapshot = Snapshot;

    fn apply(&mut self, command: Command<'_>) {
        if let Some(Request { op: Op::Put, key, value, .. }) = Request::read(command.payload) {
            self.values.insert(key, value.into());
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot(self.values.clone().into_iter(), None)
    }

    /// Whole values: each is smaller than a part.
    fn read(Snapshot(rest, held): &mut Snapshot, buffer: &mut [u8]) -> usize {
        let mut at = 0;
        while let Some((key, value)) = held.take().or_else(|| rest.next()) {
            let size = ENTRY_HEAD_SIZE + value.len();
            let Some(room) = buffer.get_mut(at..at + size) else {
                *held = Some((key, value));
                break;
            };
            room[..8].copy_from_slice(&key.to_le_bytes());
            room[8..ENTRY_HEAD_SIZE].copy_from_slice(&(value.len() as u32).to_le_bytes());
            room[ENTRY_HEAD_SIZE..].copy_from_slice(&value);
            at += size;
        }
        at
    }

    fn reset(&mut self) {
        self.values.clear();
    }

    fn restore(&mut self, mut part: &[u8]) {
        while let Some((head, rest)) = part.split_at_checked(ENTRY_HEAD_SIZE) {
            let key = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
            let size = u32::from_le_bytes(head[8..].try_into().expect("four bytes"));
            let Some((value, rest)) = rest.split_at_checked(size as usize) else { return };
            self.values.insert(key, value.into());
            part = rest;
        }
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
        let (values, mut snapshot) = (store.all(), store.snapshot());
        put(&mut store, 8, b"later");
        assert_ne!(store.all(), values);
        let mut other = Store::default();
        put(&mut other, 1_000, b"before");
        other.reset();
        let mut part = vec![0; ENTRY_HEAD_SIZE + VALUE_SIZE_MAX];
        loop {
            let size = Store::read(&mut snapshot, &mut part);
            if size == 0 {
                break;
            }
            other.restore(&part[..size]);
        }
        assert_eq!(other.all(), values);
        assert_eq!((other.get(7), other.get(100)), (digest_of(&[1; VALUE_SIZE_MAX]), 0));
    }
}
