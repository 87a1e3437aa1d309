//! Notes in a post box: of any size, with any descriptors, as many as fit.
//!
//! Input: notes of a byte of size, a byte whose bits say which descriptors come along, and as many bytes.
#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use libfuzzer_sys::fuzz_target;
use punctual_machine::event_fd::EventFd;
use punctual_machine::fd_exchange::{NOTE_SIZE, PostBox};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};

thread_local! {
    static STREET: Street = Street::new();
}

/// A box, somebody who sends, and what he may send along.
struct Street {
    folder: tempfile::TempDir,
    post: PostBox,
    sender: UnixDatagram,
    bell: EventFd,
    others: [OwnedFd; 3],
}

impl Street {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let post = PostBox::open(&folder.path().join("box")).expect("a box");
        let blocking = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let socket = UnixDatagram::unbound().expect("a socket");
        let others = [blocking, null.into(), socket.into()];
        let bell = EventFd::new().expect("an eventfd");
        Self { folder, post, sender: UnixDatagram::unbound().expect("a socket"), bell, others }
    }

    /// Sends one note; returns whether the first descriptor, if there is one, is a bell that may be rung.
    fn send(&self, which: u8, text: &[u8]) -> Option<bool> {
        let others = self.others.iter().map(AsFd::as_fd);
        let all: Vec<BorrowedFd<'_>> = std::iter::once(self.bell.as_fd()).chain(others).collect();
        let chosen: Vec<_> = (0..8).filter(|bit| which & 1 << bit != 0).map(|bit| all[bit % 4]).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !chosen.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&chosen)));
        }
        let address = SocketAddrUnix::new(self.folder.path().join("box")).expect("a short path");
        sendmsg_addr(&self.sender, &address, &[IoSlice::new(text)], &mut ancillary, SendFlags::DONTWAIT)
            .expect("there is room");
        (!chosen.is_empty()).then_some(which.trailing_zeros().is_multiple_of(4))
    }
}

fuzz_target!(|bytes: &[u8]| STREET.with(|street| play(street, bytes)));

fn play(street: &Street, mut bytes: &[u8]) {
    while let Some((&[size, which], rest)) = bytes.split_first_chunk::<2>() {
        let (text, rest) = rest.split_at(rest.len().min(size.into()));
        bytes = rest;
        let is_bell = street.send(which, text);
        let note = street.post.take().expect("it was sent");
        let read = text.len().min(NOTE_SIZE);
        assert_eq!(note.text[..read], text[..read]);
        assert!(note.text[read..].iter().all(|&byte| byte == 0), "nothing of an earlier note is left");
        let bell = note.descriptor.map(EventFd::from_descriptor);
        // More descriptors than one do not fit: the kernel closes them, and may give none.
        assert!(bell.is_none() || is_bell.is_some(), "no descriptor was sent");
        if let Some(Some(bell)) = bell {
            assert_eq!(is_bell, Some(true), "only a bell on which ringing never waits is taken");
            bell.ring();
            assert!(street.bell.drain(), "it is the same");
        }
    }
    assert!(street.post.take().is_none());
}
