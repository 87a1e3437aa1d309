//! Pages of files that are not in memory: to touch one waits for the disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use punctual_machine::SystemError;
use rustix::fs::{Advice, fadvise};

use crate::file_pages::{FilePages, failed, nameless_file};

/// Bytes of a file. Where a page is touched the kernel reads what lies around it, some MiB if it may: no more than the file has.
const FILE_SIZE: usize = 512 << 10;

/// Files on a disk, mapped, and nowhere in memory.
#[derive(Debug)]
pub struct ColdPages {
    files: Vec<ColdFile>,
    /// The file that is touched next.
    next: usize,
}

/// One of them.
#[derive(Debug)]
struct ColdFile {
    file: File,
    pages: FilePages,
    is_cold: bool,
}

impl ColdPages {
    /// Writes so many files of half a MiB into this directory, and puts them out of memory.
    ///
    /// # Errors
    /// The directory takes no files, or its file system cannot be mapped.
    pub fn new(directory: &Path, files: usize) -> Result<Self, SystemError> {
        let files = (0..files).map(|_| ColdFile::new(directory)).collect::<Result<_, SystemError>>()?;
        Ok(Self { files, next: 0 })
    }

    /// Touches a page of the next file: about a millisecond of a disk.
    ///
    /// # Errors
    /// There is none, or it cannot be put out of memory again.
    pub fn touch(&mut self) -> Result<u8, SystemError> {
        let place = self.next % self.files.len().max(1);
        self.next = place + 1;
        let none = || SystemError::new("touch", "cold pages", rustix::io::Errno::NOENT);
        self.files.get_mut(place).ok_or_else(none)?.touch()
    }
}

impl ColdFile {
    fn new(directory: &Path) -> Result<Self, SystemError> {
        let mut file = nameless_file(directory)?;
        file.write_all(&vec![1; FILE_SIZE]).map_err(|error| failed(directory, error))?;
        let pages = FilePages::of(&file, FILE_SIZE).map_err(|error| failed(directory, error))?;
        // Only clean pages leave memory, and it is never written again.
        file.sync_data().map_err(|error| failed(directory, error))?;
        let mut cold = Self { file, pages, is_cold: false };
        cold.put_out()?;
        Ok(cold)
    }

    fn touch(&mut self) -> Result<u8, SystemError> {
        if !self.is_cold {
            self.put_out()?;
        }
        self.is_cold = false;
        Ok(self.pages.read(FILE_SIZE / 2))
    }

    fn put_out(&mut self) -> Result<(), SystemError> {
        let off = |error: std::io::Error| SystemError::new("put out of memory", "a file", error);
        self.pages.unmap_pages().map_err(off)?;
        fadvise(&self.file, 0, None, Advice::DontNeed).map_err(|error| off(error.into()))?;
        self.is_cold = true;
        Ok(())
    }
}

/// Returns true if files of this directory are on a disk: those of a file system in memory are never out of it.
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
            punctual_machine::skipped!("{} is in memory", directory.display());
            return;
        }
        let mut cold = ColdPages::new(&directory, 8).expect("files can be made");
        for round in 0..2 {
            let before = ThreadUsage::now();
            (0..8).for_each(|_| assert_eq!(cold.touch().expect("it is written"), 1));
            let faults = ThreadUsage::now().since(before).faults_major;
            assert!(faults >= 4, "round {round}: {faults} of 8");
        }
        let missing = ColdPages::new(Path::new("/nowhere"), 1).expect_err("no such directory");
        assert!(missing.to_string().contains("/nowhere"), "{missing}");
        assert!(ColdPages::new(&directory, 0).expect("nothing to make").touch().is_err());
    }
}
