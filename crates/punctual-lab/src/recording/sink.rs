//! A file that grows by whole records: where there is no room for one, nothing of it stays.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// A new file, and what has yet to be written to it.
#[derive(Debug)]
pub struct Sink {
    file: File,
    buffer: Vec<u8>,
    /// Up to here there are whole records in the file.
    whole: u64,
}

impl Sink {
    /// A file that was not there before.
    ///
    /// # Errors
    /// It is there, or cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self { file, buffer: Vec::new(), whole: 0 })
    }

    /// Where records are put.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// The same file, for a caller that asks for its size.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn same_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Bytes of whole records in the file.
    pub fn size(&self) -> u64 {
        self.whole
    }

    /// Writes what is in the buffer, which ends with a whole record. Where that fails, the file ends as before, and the buffer is
    /// empty.
    ///
    /// # Errors
    /// The error of the system: no room, most likely.
    pub fn commit(&mut self) -> io::Result<()> {
        let size = self.buffer.len() as u64;
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        if written.is_err() {
            // A device or a pipe cannot be cut, and need not be.
            let _cut = self.cut(self.whole);
            return written;
        }
        self.whole += size;
        Ok(())
    }

    /// Waits until the file is on its disk: some file systems say only then that there is no room.
    ///
    /// # Errors
    /// The error of the system.
    pub fn sync(&self) -> io::Result<()> {
        match self.file.sync_data() {
            // A device or a pipe has no disk.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    /// Gives up what is behind that size, at which a record ends.
    ///
    /// # Errors
    /// It is no file that could be cut.
    pub fn cut(&mut self, size: u64) -> io::Result<()> {
        self.file.set_len(size)?;
        self.file.seek(SeekFrom::Start(size))?;
        self.whole = size;
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.commit()
    }
}
