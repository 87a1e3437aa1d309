//! State that the two ends of a wake-up share, in one page: of one process's memory, or of a file that two processes map.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use punctual_machine::SystemError;
use punctual_machine::bare_futex::BareFutex;
use punctual_machine::counter::Counter;
use punctual_machine::doorbell::Doorbell;
use punctual_machine::memory::{Access, MappedSlice, Mapping, SharedObject};

/// A line of its own for a number that one side writes and the other polls.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Line(pub Counter);

/// The page. All zeroes is the beginning.
#[repr(C)]
#[derive(Debug, Default)]
pub struct WakeWords {
    /// The number of the newest message: the condition of every wait.
    pub sent: Line,
    /// The number of the newest message that the reader has.
    pub seen: Line,
    /// 1 from just before the reader arms until it is awake again.
    pub parking: Line,
    /// Number of ends that are ready to begin.
    pub ready: Line,
    /// For ways with a doorbell.
    pub bell: Doorbell,
    /// For the bare futex.
    pub bare: BareFutex,
}

// SAFETY: `repr(C)`, and every field is an atomic, or atomics in `repr(C)` or `repr(transparent)`; every bit pattern is a value.
unsafe impl SharedObject for WakeWords {}

/// Bytes of the page.
const SIZE: usize = 4096;
const _: () = assert!(size_of::<WakeWords>() <= SIZE);

/// A [`WakeWords`] that keeps its memory alive.
#[derive(Clone, Debug)]
pub struct WakePage(MappedSlice<WakeWords>);

impl WakePage {
    /// For two threads of this process.
    ///
    /// # Errors
    /// No memory is left.
    pub fn private() -> Result<Self, SystemError> {
        Ok(Self::of(Mapping::anonymous(SIZE)?))
    }

    /// For two processes of this user: a new file at `path`.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn create(path: &Path) -> Result<Self, SystemError> {
        Ok(Self::of(Mapping::create(path, SIZE, 0o600)?))
    }

    /// The page that the other process made at `path`.
    ///
    /// # Errors
    /// It cannot be mapped, or is no such page.
    pub fn open(path: &Path) -> Result<Self, SystemError> {
        let mapping = Mapping::open(path, Access::ReadWrite)?;
        if mapping.size() < SIZE {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is too short");
            return Err(SystemError::new("open page", path.display().to_string(), error));
        }
        Ok(Self::of(mapping))
    }

    fn of(mapping: Mapping) -> Self {
        let words = MappedSlice::new(&Arc::new(mapping), 0, 1);
        Self(words.expect("a page has room for its words, and is aligned"))
    }
}

impl Deref for WakePage {
    type Target = WakeWords;

    #[inline]
    fn deref(&self) -> &WakeWords {
        &self.0[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_one_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let here = WakePage::create(&path).unwrap();
        let there = WakePage::open(&path).unwrap();
        here.sent.0.publish(7);
        assert_eq!((there.sent.0.get_published(), there.seen.0.get()), (7, 0));
        let short = folder.path().join("short");
        std::fs::write(&short, [0; 8]).unwrap();
        assert!(WakePage::open(&short).is_err() && WakePage::create(&path).is_err());
    }
}
