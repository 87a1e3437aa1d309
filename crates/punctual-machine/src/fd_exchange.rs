//! Short notes between processes of one host, some with a descriptor attached.
//!
//! A descriptor has no name that another process could open; only a Unix socket carries it over.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, recvmsg, sendmsg_addr,
};
use rustix::process::geteuid;

use crate::SystemError;
use crate::memory::rename_to_free;

/// Size of a note, bytes.
pub const NOTE_SIZE: usize = 24;

/// A note that arrived.
#[derive(Debug)]
pub struct Note {
    /// Its text.
    pub text: [u8; NOTE_SIZE],
    /// The descriptor that came with it.
    pub descriptor: Option<OwnedFd>,
}

/// A post box at a path.
#[derive(Debug)]
pub struct PostBox(UnixDatagram);

impl PostBox {
    /// Opens a box at `path`, which must not exist. For an instant it looks abandoned: the kernel makes the file first.
    pub fn open(path: &Path) -> Result<Self, SystemError> {
        let failed = |error| SystemError::new("open post box", path.display().to_string(), error);
        crate::label!("post.bind");
        let socket = UnixDatagram::bind(path).map_err(failed)?;
        crate::label!("post.bind.done");
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self(socket))
    }

    /// The same, with these permissions if they are not to be as the umask says. It appears whole: it is made at `unfinished`.
    ///
    /// # Errors
    /// Of kind `NotFound` also if somebody has removed what was unfinished.
    pub fn open_whole(path: &Path, unfinished: &Path, mode: Option<u32>) -> Result<Self, SystemError> {
        let post = Self::open(unfinished)?;
        crate::label!("post.permissions");
        let permitted = mode.map_or(Ok(()), |mode| set_socket_mode(unfinished, mode));
        crate::label!("post.publish");
        let published = permitted.and_then(|()| rename_to_free(unfinished, path));
        crate::label!("post.publish.done");
        published.map_err(|error| {
            let _already_failing = std::fs::remove_file(unfinished);
            SystemError::new("open post box", path.display().to_string(), error)
        })?;
        Ok(post)
    }

    /// Returns true if there is a box at `path` whose owner is gone.
    pub fn is_abandoned(path: &Path) -> bool {
        crate::label!("post.probe");
        let Ok(probe) = UnixDatagram::unbound() else { return false };
        probe.connect(path).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    /// Puts a note into the box at `path`, never waiting: a box that is full or gone is an error.
    pub fn post(
        &self,
        path: &Path,
        text: &[u8; NOTE_SIZE],
        attached: Option<BorrowedFd<'_>>,
    ) -> Result<(), SystemError> {
        let failed = |error: Errno| SystemError::new("post to", path.display().to_string(), error);
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = attached.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        crate::label!("post.send");
        sendmsg_addr(&self.0, &address, &[IoSlice::new(text)], &mut ancillary, SendFlags::DONTWAIT)
            .map(drop)
            .map_err(failed)
    }

    /// The oldest note in the box.
    pub fn take(&self) -> Option<Note> {
        let mut text = [0; NOTE_SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        crate::label!("post.take");
        recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags).ok()?;
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Some(Note { text, descriptor })
    }
}

impl AsFd for PostBox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sets the permissions of a socket of ours at a path, and of nothing else.
///
/// # Errors
/// Of kind `NotFound` if ours is not there any more, and for nothing else.
fn set_socket_mode(path: &Path, mode: u32) -> io::Result<()> {
    let node = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&node)?;
    let is_socket = FileType::from_raw_mode(found.st_mode).is_socket();
    if !is_socket || found.st_uid != geteuid().as_raw() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // Of an open path nothing can be set but by its name here.
    let opened = format!("/proc/self/fd/{}", node.as_raw_fd());
    rustix::fs::chmod(opened, Mode::from_raw_mode(mode)).or_else(|_| set_mode_without_proc(&node, mode))
}

/// Sets the permissions of an open path. Linux has a call for that since 6.6.
fn set_mode_without_proc(path: &OwnedFd, mode: u32) -> io::Result<()> {
    /// `fchmodat2`, which has one number on all processors.
    const FCHMODAT2: libc::c_long = 452;
    let (path, name) = (path.as_raw_fd(), c"");
    // SAFETY: the descriptor is open, and the kernel reads a name that ends at once.
    let answer = unsafe { libc::syscall(FCHMODAT2, path, name.as_ptr(), mode, libc::AT_EMPTY_PATH) };
    if answer == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.kind() {
        io::ErrorKind::Unsupported => {
            io::Error::new(error.kind(), "its permissions cannot be set: mount /proc, or take Linux 6.6")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{Counter, Flag};
    use crate::event_fd::EventFd;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_descriptor_travels_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let open = |path: &Path| PostBox::open_whole(path, &path.with_extension("new"), None);
        let (sender, receiver) = (open(&here).unwrap(), open(&there).unwrap());
        assert!(receiver.take().is_none());

        let bell = EventFd::new().unwrap();
        sender.post(&there, &[7; NOTE_SIZE], Some(bell.as_fd())).unwrap();
        sender.post(&there, &[8; NOTE_SIZE], None).unwrap();

        let first = receiver.take().unwrap();
        assert_eq!(first.text, [7; NOTE_SIZE]);
        EventFd::from_descriptor(first.descriptor.unwrap()).unwrap().ring();
        assert!(bell.drain(), "the far end rings the same counter");
        assert!(receiver.take().unwrap().descriptor.is_none());

        assert!(sender.post(&folder.path().join("nobody"), &[0; NOTE_SIZE], None).is_err());
        assert!(open(&here).is_err(), "the path is taken");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left unfinished");
        assert!(!PostBox::is_abandoned(&here) && !PostBox::is_abandoned(&folder.path().join("nobody")));
        drop(sender);
        assert!(PostBox::is_abandoned(&here));
    }

    /// Goal: no box looks abandoned while its owner opens it.
    #[test]
    fn a_box_appears_with_its_owner() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (path, unfinished) = (folder.path().join("post"), folder.path().join("box"));
        let (ended, ended_looks) = (Flag::default(), Counter::default());
        // A look may find the name and then ask for its owner. The second look that ends after the removal found no name.
        let wait_for_looks = || {
            let begun_before = ended_looks.get_published() + 1;
            while ended_looks.get_published() <= begun_before {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut abandoned = 0;
                while !ended.is_raised() {
                    abandoned += u32::from(PostBox::is_abandoned(&path));
                    ended_looks.add_published(1);
                }
                abandoned
            });
            for _ in 0..20_000 {
                let post = PostBox::open_whole(&path, &unfinished, None).unwrap();
                fs::remove_file(&path).unwrap();
                wait_for_looks();
                drop(post);
            }
            ended.raise();
            assert_eq!(looks.join().unwrap(), 0);
        });
    }

    /// Goal: the permissions of nothing but a socket are set.
    #[test]
    fn permissions_of_what_has_taken_a_name_stay() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let (path, other) = (folder.path().join("socket"), folder.path().join("other"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let _socket = UnixDatagram::bind(&path).unwrap();
        set_socket_mode(&path, 0o660).unwrap();
        assert_eq!(mode(&path), 0o660);
        fs::write(&other, b"").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(set_socket_mode(&path, 0o660).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(mode(&other), 0o600);
    }
}
