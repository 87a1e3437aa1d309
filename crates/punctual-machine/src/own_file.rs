//! A file of ours once more, by a name that others may have given to something else.
//!
//! A process that may write to a folder may take away any name in it, and put a link, a pipe or another file there. So a name is opened
//! without following it or waiting for it, and believed if what it leads to is the file that we made.

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::SystemError;

/// Identity of a file, regardless of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// The identity of an open file.
    pub fn of(file: impl AsFd) -> Result<Self, SystemError> {
        Self::look(file).map_err(|error| SystemError::new("look at", "a file of ours", error))
    }

    fn look(file: impl AsFd) -> Result<Self, Errno> {
        let found = rustix::fs::fstat(file)?;
        Ok(Self { device: found.st_dev, inode: found.st_ino })
    }

    /// The file for reading and writing, by its name in an open folder.
    ///
    /// # Errors
    /// `ENOENT` if it has that name no more, regardless of which file has it now.
    pub(crate) fn open(self, folder: BorrowedFd<'_>, name: impl Arg) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            // A link, a folder, a socket.
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(Errno::NOENT),
            opened => opened?,
        };
        if Self::look(&file)? == self { Ok(file) } else { Err(Errno::NOENT) }
    }
}

/// Reserves a part of a file of ours that nobody has written to, by its name in an open folder, which is at `path`.
///
/// # Errors
/// If there is no room, or that name is not that file's any more.
pub fn reserve_in(
    folder: BorrowedFd<'_>,
    name: &CStr,
    (path, made): (&Path, FileIdentity),
    part: Range<usize>,
) -> Result<(), SystemError> {
    let failed = |error| SystemError::new("reserve shared memory", path.display().to_string(), error);
    crate::label!("memory.reserve.in");
    let file = made.open(folder, name).map_err(failed)?;
    crate::memory::reserve(&file, part).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, symlink};

    /// Goal: another file under the name of a file of ours is neither written to nor waited for.
    #[test]
    fn a_file_that_has_taken_a_name_is_left_alone() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("ours");
        let made = FileIdentity::of(File::create(&path).unwrap()).unwrap();
        let directory = File::open(folder.path()).unwrap();
        let reserve = || reserve_in(directory.as_fd(), c"ours", (&path, made), 0..4096);
        reserve().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().size(), 4096);
        let other = folder.path().join("other");
        fs::write(&other, b"theirs").unwrap();
        let takers: [&dyn Fn(); 4] = [
            &|| symlink(&other, &path).unwrap(),
            &|| fs::hard_link(&other, &path).unwrap(),
            &|| rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap(),
            &|| fs::create_dir(&path).unwrap(),
        ];
        fs::remove_file(&path).unwrap();
        for take in takers {
            take();
            assert_eq!(reserve().unwrap_err().kind(), std::io::ErrorKind::NotFound);
            assert_eq!(fs::read(&other).unwrap(), b"theirs");
            let _a_folder = fs::remove_file(&path);
        }
    }
}
