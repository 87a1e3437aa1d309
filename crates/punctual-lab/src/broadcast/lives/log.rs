//! What a member's process writes down of its lives. What is written stays when the process is killed.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// A message as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    /// Place of its sender in the roster, and that sender's life in the group.
    pub(super) sender: usize,
    pub(super) life: u64,
    /// Where it stands in the order.
    pub(super) view: u64,
    pub(super) index: u64,
    /// Its number at its sender.
    pub(super) number: u64,
    /// Of its bytes.
    pub(super) hash: u64,
    /// Whether a majority held it.
    pub(super) is_uniform: bool,
    pub(super) sent_ns: u64,
    pub(super) at_ns: u64,
}

/// What a process was told, or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Delivered(Delivered),
    /// A view began: its number, and the life at each place of the roster, 0 for nobody.
    View {
        number: u64,
        lives: Vec<u64>,
        at_ns: u64,
    },
    /// The group took a message of this process.
    Sent {
        number: u64,
        hash: u64,
    },
    /// The others went on without this life.
    Expelled {
        at_ns: u64,
    },
}

/// Kinds of entries, in the lowest byte of the first word.
const DELIVERED: u64 = 1;
const VIEW: u64 = 2;
const SENT: u64 = 3;
const EXPELLED: u64 = 4;

/// Words of an entry but the first; a view has a word more for each place.
const DELIVERED_WORDS: usize = 7;
const VIEW_WORDS: usize = 2;
const SENT_WORDS: usize = 2;
const EXPELLED_WORDS: usize = 1;

impl Entry {
    /// Appends its words: the kind, a byte and a flag that go with it, then the rest.
    fn write(&self, words: &mut Vec<u64>) {
        match self {
            Self::Delivered(it) => words.extend([
                DELIVERED | (it.sender as u64) << 8 | u64::from(it.is_uniform) << 16,
                it.life,
                it.view,
                it.index,
                it.number,
                it.hash,
                it.sent_ns,
                it.at_ns,
            ]),
            Self::View { number, lives, at_ns } => {
                words.extend([VIEW | (lives.len() as u64) << 8, *number, *at_ns]);
                words.extend(lives);
            }
            Self::Sent { number, hash } => words.extend([SENT, *number, *hash]),
            Self::Expelled { at_ns } => words.extend([EXPELLED, *at_ns]),
        }
    }

    /// The first entry of these words, and how many it has. `None` if it is not whole.
    fn read(words: &[u64]) -> Option<(Self, usize)> {
        let (&head, rest) = words.split_first()?;
        let small = head >> 8 & 0xff;
        let size = match head & 0xff {
            DELIVERED => DELIVERED_WORDS,
            VIEW => VIEW_WORDS + small as usize,
            SENT => SENT_WORDS,
            EXPELLED => EXPELLED_WORDS,
            _ => return None,
        };
        let rest = rest.get(..size)?;
        let entry = match head & 0xff {
            DELIVERED => Self::Delivered(Delivered {
                sender: small as usize,
                life: rest[0],
                view: rest[1],
                index: rest[2],
                number: rest[3],
                hash: rest[4],
                is_uniform: head >> 16 & 1 == 1,
                sent_ns: rest[5],
                at_ns: rest[6],
            }),
            VIEW => Self::View { number: rest[0], at_ns: rest[1], lives: rest[VIEW_WORDS..].to_vec() },
            SENT => Self::Sent { number: rest[0], hash: rest[1] },
            _ => Self::Expelled { at_ns: rest[0] },
        };
        Some((entry, size + 1))
    }
}

/// The process's end. Each entry is with the kernel before the process goes on.
pub(super) struct LogWriter {
    file: File,
    words: Vec<u64>,
    bytes: Vec<u8>,
}

impl LogWriter {
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let file = File::create_new(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { file, words: Vec::new(), bytes: Vec::new() })
    }

    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), String> {
        self.words.clear();
        self.bytes.clear();
        entry.write(&mut self.words);
        self.words.iter().for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
        self.file.write_all(&self.bytes).map_err(|error| format!("the log of a member: {error}"))
    }
}

/// The other end: reads while the process writes, and after its end.
pub(super) struct LogReader {
    file: File,
    /// What was read and makes no whole entry yet.
    rest: Vec<u8>,
    /// What was read until now.
    pub(super) entries: Vec<Entry>,
}

impl LogReader {
    /// `None` if the process has not made it yet.
    pub(super) fn open(path: &Path) -> Option<Self> {
        Some(Self { file: File::open(path).ok()?, rest: Vec::new(), entries: Vec::new() })
    }

    /// Reads what there is to read.
    pub(super) fn follow(&mut self) -> Result<(), String> {
        let read = self.file.read_to_end(&mut self.rest);
        read.map_err(|error| format!("the log of a member: {error}"))?;
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let words: Vec<u64> = self.rest.chunks_exact(8).map(word).collect();
        let mut taken = 0;
        while let Some((entry, size)) = Entry::read(&words[taken..]) {
            self.entries.push(entry);
            taken += size;
        }
        self.rest.drain(..8 * taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a process wrote is read as it was; what it had written in part when it was killed is not.
    #[test]
    fn whole_entries_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let delivered = Delivered {
            sender: 2,
            life: 5,
            view: 6,
            index: 7,
            number: 8,
            hash: 9,
            is_uniform: true,
            sent_ns: 10,
            at_ns: 11,
        };
        let entries = [
            Entry::View { number: 3, lives: vec![4, 0, 5], at_ns: 1 },
            Entry::Sent { number: 8, hash: 9 },
            Entry::Delivered(delivered),
            Entry::Expelled { at_ns: 12 },
        ];
        assert!(LogReader::open(&path).is_none());
        let mut writer = LogWriter::create(&path).expect("a file");
        let mut reader = LogReader::open(&path).expect("that file");
        for entry in &entries[..2] {
            writer.add(entry).expect("room");
        }
        reader.follow().expect("readable");
        assert_eq!(reader.entries, entries[..2]);
        writer.add(&entries[2]).expect("room");
        writer.add(&entries[3]).expect("room");
        writer.file.write_all(&[1; 21]).expect("room");
        reader.follow().expect("readable");
        assert_eq!(reader.entries, entries);
    }
}
