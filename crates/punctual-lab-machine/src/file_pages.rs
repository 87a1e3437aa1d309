//! Pages of a file that nobody else has, mapped to be read.

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr;

use punctual_machine::SystemError;
use punctual_machine::clock::monotonic_ns;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A file on a disk without a name: no other process can cut it short.
///
/// # Errors
/// The directory takes no files.
pub(crate) fn nameless_file(directory: &Path) -> Result<File, SystemError> {
    let path = directory.join(format!("punctual-pages-{}-{}", std::process::id(), monotonic_ns()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let _gone = std::fs::remove_file(&path);
    file.map_err(|error| failed(directory, error))
}

/// No file can be made, or mapped, in this directory.
pub(crate) fn failed(directory: &Path, error: impl Into<io::Error>) -> SystemError {
    SystemError::new("make a file in", directory.display().to_string(), error.into())
}

/// A mapping of such a file.
#[derive(Debug)]
pub(crate) struct FilePages {
    begin: *const u8,
    size: usize,
}

impl FilePages {
    /// Of a file of [`nameless_file`] that has so many bytes, and is never cut.
    ///
    /// # Errors
    /// Its file system cannot be mapped.
    pub(crate) fn of(file: &File, size: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses.
        let mapped = unsafe { mmap(ptr::null_mut(), size, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        Ok(Self { begin: mapped?.cast_const().cast(), size })
    }

    /// Reads one byte.
    pub(crate) fn read(&self, at: usize) -> u8 {
        assert!(at < self.size, "{at} of {} bytes", self.size);
        // SAFETY: the place lies within the mapping, whose file has as many bytes. Volatile: the read is the point.
        unsafe { ptr::read_volatile(self.begin.add(at)) }
    }

    /// Takes its pages out of the process's map.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn unmap_pages(&self) -> io::Result<()> {
        // SAFETY: the whole of our mapping, of a file: pages that are dropped are read again when they are touched.
        let dropped = unsafe { madvise(self.begin.cast_mut().cast(), self.size, Advice::LinuxDontNeed) };
        dropped.map_err(io::Error::from)
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it was given away.
        let _unmapped = unsafe { munmap(self.begin.cast_mut().cast(), self.size) };
    }
}
