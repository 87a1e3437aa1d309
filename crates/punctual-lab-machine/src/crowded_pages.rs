//! Pages of a file that many mappings share: to take one back, the kernel must find and clear each of them. Where there is no more
//! memory, a thread that touches the next page takes others back first, and that takes most of its time.

use std::path::Path;

use punctual_machine::SystemError;
use rustix::fs::ftruncate;

use crate::file_pages::{FilePages, failed, nameless_file};

/// Bytes of the file: more than the memory that its toucher may have.
const FILE_SIZE: usize = 64 << 20;

/// Mappings of it: with one, reading the pages takes as long as taking them back.
const MAPPINGS: usize = 32;

/// Where a page is touched, the kernel maps as much around it (`fault_around_bytes`).
const STEP: usize = 64 << 10;

/// A file without blocks on a disk, mapped many times. Its pages are zeros that can always be taken back.
#[derive(Debug)]
pub struct CrowdedPages {
    mappings: Vec<FilePages>,
    at: usize,
}

impl CrowdedPages {
    /// Makes the file in a directory that is on a disk: in memory its pages could not be taken back.
    ///
    /// # Errors
    /// The directory takes no files, or its file system cannot be mapped.
    pub fn new(directory: &Path) -> Result<Self, SystemError> {
        let file = nameless_file(directory)?;
        ftruncate(&file, FILE_SIZE as u64).map_err(|error| failed(directory, error))?;
        let mappings = (0..MAPPINGS).map(|_| FilePages::of(&file, FILE_SIZE)).collect::<Result<_, _>>();
        Ok(Self { mappings: mappings.map_err(|error| failed(directory, error))?, at: 0 })
    }

    /// Touches the next pages in every mapping. Returns the sum of what was read, which is 0.
    pub fn touch(&mut self) -> u64 {
        let at = self.at;
        self.at = (at + STEP) % FILE_SIZE;
        self.mappings.iter().map(|mapping| u64::from(mapping.read(at))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pages are there in every mapping, and again in the second round.
    #[test]
    fn pages_are_touched_all_round() {
        let mut pages = CrowdedPages::new(&std::env::temp_dir()).expect("a file can be made");
        assert_eq!(pages.mappings.len(), MAPPINGS);
        for _ in 0..FILE_SIZE / STEP + 1 {
            assert_eq!(pages.touch(), 0);
        }
        assert_eq!(pages.at, STEP);
        let missing = CrowdedPages::new(Path::new("/nowhere")).expect_err("no such directory");
        assert!(missing.to_string().contains("/nowhere"), "{missing}");
    }
}
