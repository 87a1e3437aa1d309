//! Liveness of the process that made a file, answered by the kernel across all namespaces.
//!
//! A pid means something in its own pid namespace only, a start time in its own time namespace only, and both need `/proc`. A lock
//! belongs to the file. The kernel gives it up when its holder dies, by any cause, and shows it to everybody who may open the file,
//! from any namespace.
//!
//! Rules:
//! 1. The lock belongs to an open file description (`F_OFD_SETLK`), which lives for as long as a descriptor or a mapping
//!    refers to it. Here only a mapping does: one page that nobody touches.
//! 2. That mapping is not inherited over `fork` (`MADV_DONTFORK`). So a child that lives on does not keep its parent alive.
//! 3. It is a lock for writing, which only a process that may write to the file can take. It is asked for as one for reading. So a
//!    process that may only read the file can neither pretend that a dead owner lives, nor disturb a process that asks.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use crate::SystemError;
use crate::memory::Mapping;
use crate::own_file::FileIdentity;

/// State of the process that made a file, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It lives.
    Held,
    /// It is dead, or has given up the file.
    Ended,
    /// There is no such file.
    Absent,
    /// The file cannot be opened or asked about.
    Unknown,
}

/// A file's lock, held until this is dropped or the process ends.
#[derive(Debug)]
pub struct LifeLock {
    _page: Mapping,
}

impl LifeLock {
    /// Holds the file at `path`, which we made.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped, if somebody else holds it, or if its file system keeps no locks.
    pub fn hold(path: &Path, made: FileIdentity) -> Result<Self, SystemError> {
        let own = made.open(CWD, path);
        let own = own.map_err(|error| SystemError::new("lock", path.display().to_string(), error))?;
        Self::hold_file(&own.into(), path)
    }

    /// Holds by way of this open file, which nothing else that lasts may refer to (rule 1).
    pub(crate) fn hold_file(own: &File, path: &Path) -> Result<Self, SystemError> {
        let failed = |error| SystemError::new("lock", path.display().to_string(), error);
        crate::label!("life.hold");
        lock(own.as_fd(), libc::F_OFD_SETLK, libc::F_WRLCK).map_err(failed)?;
        let page = Mapping::placeholder(own, path)?;
        crate::label!("life.held");
        Ok(Self { _page: page })
    }
}

/// Looks whether the file of that name in a folder is held.
pub fn look(folder: BorrowedFd<'_>, name: &CStr) -> Life {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => look_at(file.as_fd()),
        Err(rustix::io::Errno::NOENT) => Life::Absent,
        Err(_) => Life::Unknown,
    }
}

/// Looks whether this file is held: by another open file than this one.
pub fn look_at(file: BorrowedFd<'_>) -> Life {
    match lock(file, libc::F_OFD_GETLK, libc::F_RDLCK) {
        Ok(libc::F_UNLCK) => Life::Ended,
        Ok(_) => Life::Held,
        Err(_) => Life::Unknown,
    }
}

/// One call about a lock on a whole file; returns the kind of lock that the kernel answers with.
fn lock(file: BorrowedFd<'_>, command: i32, kind: i32) -> io::Result<i32> {
    // SAFETY: `flock` is plain data for which all zeroes is a value: the whole file, from its start.
    let mut wish: libc::flock = unsafe { core::mem::zeroed() };
    wish.l_type = kind as libc::c_short;
    // SAFETY: the descriptor is open, and `wish` is live and of the type that both commands take.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut wish) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(wish.l_type.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::process::Command;

    fn folder() -> (tempfile::TempDir, File, CString) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::write(folder.path().join("file"), [0; 64]).unwrap();
        let opened = File::open(folder.path()).unwrap();
        (folder, opened, CString::new("file").unwrap())
    }

    fn hold(folder: &tempfile::TempDir) -> Result<LifeLock, SystemError> {
        let path = folder.path().join("file");
        LifeLock::hold(&path, FileIdentity::of(File::open(&path).unwrap()).unwrap())
    }

    #[test]
    fn a_file_is_held_until_its_lock_is_dropped() {
        let (folder, opened, name) = folder();
        assert_eq!(look(opened.as_fd(), &name), Life::Ended);
        let lock = hold(&folder).unwrap();
        assert_eq!(look(opened.as_fd(), &name), Life::Held);
        let second = hold(&folder).unwrap_err();
        assert!(second.to_string().contains("lock"), "{second}");
        drop(lock);
        assert_eq!(look(opened.as_fd(), &name), Life::Ended);
        std::fs::remove_file(folder.path().join("file")).unwrap();
        assert_eq!(look(opened.as_fd(), &name), Life::Absent);
    }

    /// Goal: a program that this one starts, and a child that it forks, do not keep the lock.
    #[test]
    fn no_child_keeps_the_lock() {
        let (folder, opened, name) = folder();
        let lock = hold(&folder).unwrap();
        let mut program = Command::new("sleep").arg("100").spawn().unwrap();
        // SAFETY: the child only waits, in a call that is safe after `fork`, and is killed below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: `pause` may be called at any time.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0);
        assert_eq!(look(opened.as_fd(), &name), Life::Held);
        drop(lock);
        let after = look(opened.as_fd(), &name);
        // SAFETY: signals and reaps the child from above, which is nobody else's.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
        }
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(after, Life::Ended);
    }
}
