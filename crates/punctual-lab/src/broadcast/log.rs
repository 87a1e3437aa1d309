//! Records that a member's process writes of its lives, and the folder for them. Written records stay when the process is killed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file::advice_to_write;
use crate::run::memory_folder;
use crate::run::rows::rows_of;

/// A file of this name says that nobody gives the group anything more.
pub(super) const STOP: &str = "stop";
/// A file of this name says that all processes end.
pub(super) const OVER: &str = "over";

/// Between two looks of a process for these files.
pub(super) const BETWEEN_ORDERS: Duration = Duration::from_millis(5);

/// Where a process writes.
pub(super) fn log_path(folder: &Path, place: usize, incarnation: u64) -> PathBuf {
    folder.join(format!("{place}.{incarnation}"))
}

/// Returns true if a file of this name is in the folder.
pub(super) fn is_ordered(folder: &Path, name: &str) -> bool {
    folder.join(name).exists()
}

/// One thing that a process writes down, as words.
pub(super) trait Record: Sized {
    /// Appends its words; the first tells how many follow.
    fn write(&self, words: &mut Vec<u64>);

    /// The record at the start of these words, and how many it has. `None` if it is not whole.
    fn read(words: &[u64]) -> Option<(Self, usize)>;
}

/// A record that says where its process stands in the group.
pub(super) trait Told: Record {
    /// Notes what it says.
    fn note(&self, seen: &mut Seen);
}

/// Latest state in a process's log.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) view: u64,
    pub(super) lives: Vec<u64>,
    /// Messages delivered in that view.
    pub(super) delivered: u64,
    /// Processes that said here that they give the group nothing more: place and number there.
    pub(super) ends: BTreeSet<(usize, u64)>,
}

impl Seen {
    /// Another view begins; 0 for none.
    pub(super) fn enter(&mut self, view: u64, lives: &[u64]) {
        (self.view, self.delivered) = (view, 0);
        lives.clone_into(&mut self.lives);
    }

    /// A process gives the group nothing more.
    pub(super) fn note_end(&mut self, place: usize, incarnation: u64) {
        self.ends.insert((place, incarnation));
    }
}

/// The process's end.
pub(super) struct LogWriter {
    file: File,
    words: Vec<u64>,
    bytes: Vec<u8>,
}

impl LogWriter {
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let failed = |error| format!("{}: {error}{}", path.display(), advice_to_write(&error));
        let file = File::create_new(path).map_err(failed)?;
        Ok(Self { file, words: Vec::new(), bytes: Vec::new() })
    }

    /// Writes a record: it is with the kernel before the process goes on.
    pub(super) fn add(&mut self, record: &impl Record) -> Result<(), String> {
        self.put(record);
        self.flush()
    }

    /// Takes a record that is with the kernel after the next [`Self::flush`].
    pub(super) fn put(&mut self, record: &impl Record) {
        record.write(&mut self.words);
    }

    /// Hands everything to the kernel, in one call.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        if self.words.is_empty() {
            return Ok(());
        }
        self.bytes.clear();
        self.words.drain(..).for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
        self.file.write_all(&self.bytes).map_err(|error| {
            format!(
                "the log of a member in {}: {error}{}",
                memory_folder().display(),
                advice_to_write(&error)
            )
        })
    }
}

/// The other end: reads while the process writes, and after its end.
pub(super) struct LogReader<R> {
    file: File,
    /// Bytes that were read and make no whole record yet.
    rest: Vec<u8>,
    /// Records that were read until now.
    pub(super) records: Vec<R>,
}

impl<R: Record> LogReader<R> {
    /// `None` if the process has not made it yet.
    pub(super) fn open(path: &Path) -> Option<Self> {
        Some(Self { file: File::open(path).ok()?, rest: Vec::new(), records: Vec::new() })
    }

    /// Reads what there is to read.
    pub(super) fn follow(&mut self) -> Result<(), String> {
        let read = self.file.read_to_end(&mut self.rest);
        read.map_err(|error| format!("the log of a member: {error}"))?;
        let words: Vec<u64> = rows_of(&self.rest);
        let mut taken = 0;
        while let Some((record, size)) = R::read(&words[taken..]) {
            self.records.push(record);
            taken += size;
        }
        self.rest.drain(..8 * taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::lives::log::{Delivered, Entry};

    /// Goal: entries that a process wrote are read as they were; an entry that it had written in part when it was killed is not.
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
        assert!(LogReader::<Entry>::open(&path).is_none());
        let mut writer = LogWriter::create(&path).expect("a file");
        let mut reader = LogReader::<Entry>::open(&path).expect("that file");
        for entry in &entries[..2] {
            writer.add(entry).expect("room");
        }
        reader.follow().expect("readable");
        assert_eq!(reader.records, entries[..2]);
        writer.add(&entries[2]).expect("room");
        writer.add(&entries[3]).expect("room");
        writer.file.write_all(&[1; 21]).expect("room");
        reader.follow().expect("readable");
        assert_eq!(reader.records, entries);
    }
}
