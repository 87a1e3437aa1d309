//! Pages of a file that are not in memory: to touch one waits for the disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::ptr;

use punctual_machine::SystemError;
use rustix::fs::{Advice, fadvise};
use rustix::mm::{Advice as MapAdvice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The kernel reads a file by this much.
const PAGE_SIZE: usize = 4096;

/// A file on a disk, mapped, and nowhere in memory. It is unlinked: no other process can cut it short.
#[derive(Debug)]
pub struct ColdPages {
    file: File,
    begin: *const u8,
    pages: usize,
    /// Pages that were touched since they were put out.
    touched: usize,
}

impl ColdPages {
    /// Writes so many pages into a file of this directory, and puts them out of memory.
    ///
    /// # Errors
    /// The directory takes no file, or its file system cannot be mapped.
    pub fn new(directory: &Path, pages: usize) -> Result<Self, SystemError> {
        let off = |error: std::io::Error| {
            SystemError::new("make cold pages in", directory.display().to_string(), error)
        };
        let name =
            format!("punctual-cold-{}-{}", std::process::id(), punctual_machine::clock::monotonic_ns());
        let path = directory.join(name);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).map_err(off)?;
        let _gone = std::fs::remove_file(&path);
        let page = [1; PAGE_SIZE];
        (0..pages).try_for_each(|_| file.write_all(&page)).map_err(off)?;
        let size = pages * PAGE_SIZE;
        // SAFETY: a new mapping at a place that the kernel chooses. The file is ours alone, as long as the mapping and never cut.
        let mapped = unsafe { mmap(ptr::null_mut(), size, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        let begin = mapped.map_err(|error| off(error.into()))?.cast_const().cast();
        let cold = Self { file, begin, pages, touched: 0 };
        // SAFETY: the whole of our mapping; it says how pages are read, and changes none of them.
        unsafe { madvise(cold.begin.cast_mut().cast(), size, MapAdvice::Random) }
            .map_err(|error| off(error.into()))?;
        cold.put_out().map_err(off)?;
        Ok(cold)
    }

    /// Touches the next page, and puts all out of memory again when each was touched.
    ///
    /// # Errors
    /// The file cannot be written back.
    pub fn touch(&mut self) -> Result<u8, SystemError> {
        if self.touched == self.pages {
            self.put_out().map_err(|error| SystemError::new("put out", "cold pages", error))?;
            self.touched = 0;
        }
        let place = self.touched * PAGE_SIZE;
        self.touched += 1;
        // SAFETY: `place` lies within the mapping, whose file has as many bytes; nobody writes it. Volatile: the read is the point.
        Ok(unsafe { ptr::read_volatile(self.begin.add(place)) })
    }

    fn put_out(&self) -> Result<(), std::io::Error> {
        // Only clean pages that nobody maps leave memory.
        self.file.sync_data()?;
        // SAFETY: the whole of our mapping, of a file: what is dropped is read again when it is touched.
        unsafe { madvise(self.begin.cast_mut().cast(), self.pages * PAGE_SIZE, MapAdvice::LinuxDontNeed) }?;
        fadvise(&self.file, 0, None, Advice::DontNeed)?;
        Ok(())
    }
}

impl Drop for ColdPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it was given away.
        let _unmapped = unsafe { munmap(self.begin.cast_mut().cast(), self.pages * PAGE_SIZE) };
    }
}

/// Whether files of this directory are on a disk: those of a file system in memory are never out of it.
pub fn is_on_disk(directory: &Path) -> bool {
    const TMPFS: i128 = 0x0102_1994;
    const RAMFS: i128 = 0x8584_58f6;
    rustix::fs::statfs(directory).is_ok_and(|stat| ![TMPFS, RAMFS].contains(&i128::from(stat.f_type)))
}

#[cfg(test)]
mod tests {
    use punctual_machine::cpu::ThreadUsage;

    use super::*;

    /// Goal: a cold page is read from the disk, in the second round too; one of a file system in memory is not called cold.
    #[test]
    fn to_touch_a_cold_page_is_a_major_fault() {
        assert!(!is_on_disk(Path::new("/dev/shm")) || !Path::new("/dev/shm").exists());
        let directory = std::env::temp_dir();
        if !is_on_disk(&directory) {
            eprintln!("SKIPPED: {} is in memory", directory.display());
            return;
        }
        let mut cold = ColdPages::new(&directory, 64).expect("a file can be made");
        for round in 0..2 {
            let before = ThreadUsage::now();
            (0..64).for_each(|_| assert_eq!(cold.touch().expect("it is written"), 1));
            let faults = ThreadUsage::now().since(before).faults_major;
            assert!(faults >= 32, "round {round}: {faults} of 64");
        }
        let missing = ColdPages::new(Path::new("/nowhere"), 1).expect_err("no such directory");
        assert!(missing.to_string().contains("/nowhere"), "{missing}");
    }
}
