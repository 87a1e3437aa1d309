//! Short notes between processes of one host, some with a descriptor attached.
//!
//! A descriptor has no name that another process could open; only a Unix socket carries it over.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, recvmsg, sendmsg_addr,
};

use crate::SystemError;

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
    /// Opens a box at `path`, which must not exist.
    pub fn open(path: &Path) -> Result<Self, SystemError> {
        let failed = |error| SystemError::new("open post box", path.display().to_string(), error);
        crate::label!("post.bind");
        let socket = UnixDatagram::bind(path).map_err(failed)?;
        crate::label!("post.bind.done");
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self(socket))
    }

    /// Whether there is a box at `path` whose owner is gone.
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
        let failed =
            |error: rustix::io::Errno| SystemError::new("post to", path.display().to_string(), error);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_fd::EventFd;

    #[test]
    fn a_descriptor_travels_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let (sender, receiver) = (PostBox::open(&here).unwrap(), PostBox::open(&there).unwrap());
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
        assert!(PostBox::open(&here).is_err(), "the path is taken");
        assert!(!PostBox::is_abandoned(&here) && !PostBox::is_abandoned(&folder.path().join("nobody")));
        drop(sender);
        assert!(PostBox::is_abandoned(&here));
    }
}
