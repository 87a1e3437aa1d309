//! Log records of a process that serves a store.

use crate::broadcast::lives::log::Entry as GroupEntry;
use crate::broadcast::log::{Record, Seen, Told};

/// An operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broadcast) struct Invoked {
    /// Its number at its process.
    pub(in crate::broadcast) operation: u64,
    pub(in crate::broadcast) is_put: bool,
    pub(in crate::broadcast) key: u64,
    /// The value that it puts.
    pub(in crate::broadcast) value: u64,
    pub(in crate::broadcast) at_ns: u64,
}

/// One thing that a process was told, or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::broadcast) enum Entry {
    /// It was told of the group.
    Group(Box<GroupEntry>),
    /// The first command of a view was applied, or the state was given.
    Working,
    /// A process said that it gives nothing more.
    Ended { place: usize, incarnation: u64 },
    /// A client's operation begins.
    Invoked(Invoked),
    /// A client has its answer: of a get what was read, 0 for nothing.
    Answered { operation: u64, value: u64, at_ns: u64 },
    /// A client read the member's own copy.
    Read { key: u64, value: u64, invoked_ns: u64, at_ns: u64 },
    /// Each key of the member's copy with what it has, when all was over.
    State { at_ns: u64, values: Vec<(u64, u64)> },
}

/// Kinds of entries, in the lowest byte of the first word; those below are of the group.
const WORKING: u64 = 16;
const ENDED: u64 = 17;
const INVOKED: u64 = 18;
const ANSWERED: u64 = 19;
const READ: u64 = 20;
const STATE: u64 = 21;

impl Record for Entry {
    fn write(&self, words: &mut Vec<u64>) {
        match *self {
            Self::Group(ref entry) => entry.write(words),
            Self::Working => words.push(WORKING),
            Self::Ended { place, incarnation } => words.extend([ENDED | (place as u64) << 8, incarnation]),
            Self::Invoked(it) => {
                words.extend([INVOKED | u64::from(it.is_put) << 8, it.operation, it.key, it.value, it.at_ns]);
            }
            Self::Answered { operation, value, at_ns } => words.extend([ANSWERED, operation, value, at_ns]),
            Self::Read { key, value, invoked_ns, at_ns } => {
                words.extend([READ, key, value, invoked_ns, at_ns]);
            }
            Self::State { at_ns, ref values } => {
                words.extend([STATE | (values.len() as u64) << 8, at_ns]);
                words.extend(values.iter().flat_map(|&(key, value)| [key, value]));
            }
        }
    }

    fn read(words: &[u64]) -> Option<(Self, usize)> {
        let (&head, rest) = words.split_first()?;
        let small = head >> 8 & 0xff;
        Some(match (head & 0xff, rest) {
            (WORKING, _) => (Self::Working, 1),
            (ENDED, &[incarnation, ..]) => (Self::Ended { place: small as usize, incarnation }, 2),
            (INVOKED, &[operation, key, value, at_ns, ..]) => {
                (Self::Invoked(Invoked { operation, is_put: small == 1, key, value, at_ns }), 5)
            }
            (ANSWERED, &[operation, value, at_ns, ..]) => (Self::Answered { operation, value, at_ns }, 4),
            (READ, &[key, value, invoked_ns, at_ns, ..]) => (Self::Read { key, value, invoked_ns, at_ns }, 5),
            (STATE, &[at_ns, ref rest @ ..]) => {
                let words = rest.get(..2 * (head >> 8) as usize)?;
                let values = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
                (Self::State { at_ns, values }, 2 + words.len())
            }
            (WORKING.., _) => return None,
            _ => {
                let (entry, size) = GroupEntry::read(words)?;
                (Self::Group(Box::new(entry)), size)
            }
        })
    }
}

impl Told for Entry {
    fn note(&self, seen: &mut Seen) {
        match self {
            Self::Group(entry) => entry.note(seen),
            Self::Working => seen.delivered += 1,
            Self::Ended { place, incarnation } => seen.note_end(*place, *incarnation),
            Self::Invoked(_) | Self::Answered { .. } | Self::Read { .. } | Self::State { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back() {
        let entries = [
            Entry::Group(Box::new(GroupEntry::View { number: 3, lives: vec![4, 0, 5], at_ns: 1 })),
            Entry::Working,
            Entry::Ended { place: 31, incarnation: 2 },
            Entry::Invoked(Invoked { operation: 1, is_put: true, key: 2, value: 3, at_ns: 4 }),
            Entry::Answered { operation: 1, value: 3, at_ns: 5 },
            Entry::Read { key: 6, value: 7, invoked_ns: 8, at_ns: 9 },
            Entry::Group(Box::new(GroupEntry::Expelled { at_ns: 12 })),
            Entry::State { at_ns: 13, values: vec![(6, 7), (2, 3)] },
        ];
        let mut words = Vec::new();
        entries.iter().for_each(|entry| entry.write(&mut words));
        let (mut at, mut found) = (0, Vec::new());
        while let Some((entry, size)) = Entry::read(&words[at..]) {
            assert_eq!(Entry::read(&words[at..at + size - 1]), None, "{entry:?} without its end");
            found.push(entry);
            at += size;
        }
        assert_eq!((found.as_slice(), at), (&entries[..], words.len()));
    }
}
