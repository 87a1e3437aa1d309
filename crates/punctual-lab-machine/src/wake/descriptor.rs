//! Sleeping until a descriptor can be read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Ends, Notify, Park};
use punctual_machine::SystemError;
use punctual_machine::doorbell::Doorbell;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::{EventFd, wait_readable};
use punctual_machine::slept::Slept;

/// A notification is a token that can be counted; more than a pipe holds are never outstanding.
const TOKEN: [u8; 1] = [1];

/// An eventfd that both ends know.
#[derive(Debug)]
pub(super) struct NotifyEvent(pub(super) Arc<EventFd>);

impl Notify for NotifyEvent {
    #[inline]
    fn notify(&self, _bell: &Doorbell) {
        self.0.ring();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[derive(Debug)]
struct ParkEvent(Arc<EventFd>);

impl Park for ParkEvent {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        let ready = wait_readable(self.0.as_fd(), Some(timeout));
        if let Ok(true) = ready {
            self.0.drain();
        }
        Slept::to_the_limit(matches!(ready, Ok(false)))
    }

    fn drain(&mut self) {
        self.0.drain();
    }

    fn calls(&self) -> u32 {
        2
    }
}

pub(super) fn open_event() -> Result<Ends, SystemError> {
    let event = Arc::new(EventFd::new()?);
    Ok(Ends::new(ParkEvent(Arc::clone(&event)), NotifyEvent(event)))
}

#[derive(Debug)]
struct ParkEpoll {
    event: Arc<EventFd>,
    set: EpollSet,
}

impl Park for ParkEpoll {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        let ready = self.set.wait_uninterrupted(Some(timeout));
        if ready.is_some_and(|count| count > 0) {
            self.event.drain();
        }
        Slept::to_the_limit(ready == Some(0))
    }

    fn drain(&mut self) {
        self.event.drain();
    }

    fn calls(&self) -> u32 {
        2
    }
}

pub(super) fn open_epoll() -> Result<Ends, SystemError> {
    let (event, set) = (Arc::new(EventFd::new()?), EpollSet::new()?);
    set.add(event.as_fd())?;
    Ok(Ends::new(ParkEpoll { event: Arc::clone(&event), set }, NotifyEvent(event)))
}

/// Each write is an edge of its own, so the counter is never read: it would take 584 years to fill.
#[derive(Debug)]
struct ParkEpollEdge {
    set: EpollSet,
    /// The set refers to it, and does not keep it open.
    _event: Arc<EventFd>,
}

impl Park for ParkEpollEdge {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        Slept::to_the_limit(self.set.wait_uninterrupted(Some(timeout)) == Some(0))
    }

    fn drain(&mut self) {
        self.set.wait(Some(Duration::ZERO));
    }

    fn calls(&self) -> u32 {
        1
    }
}

pub(super) fn open_epoll_edge() -> Result<Ends, SystemError> {
    let (event, set) = (Arc::new(EventFd::new()?), EpollSet::new()?);
    let how = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(set.as_fd(), event.as_fd(), epoll::EventData::new_u64(0), how)
        .map_err(|error| SystemError::new("add to epoll set", "eventfd", error))?;
    Ok(Ends::new(ParkEpollEdge { set, _event: Arc::clone(&event) }, NotifyEvent(event)))
}

/// A pipe with two ends that never block.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), SystemError> {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| SystemError::new("create", "pipe", error))
}

/// Eight records of a signalfd, or more tokens than are ever outstanding: a whole number of each.
const READ_SIZE: usize = 8 * size_of::<libc::signalfd_siginfo>();

/// Empties a pipe, socket or signalfd that does not block.
pub(super) fn empty(descriptor: BorrowedFd<'_>) {
    let mut tokens = [0; READ_SIZE];
    while matches!(rustix::io::read(descriptor, &mut tokens), Ok(size) if size == tokens.len()) {}
}

#[derive(Debug)]
pub(super) struct NotifyPipe(pub(super) OwnedFd);

impl Notify for NotifyPipe {
    fn notify(&self, _bell: &Doorbell) {
        // A full pipe is as good as notified.
        let _full = rustix::io::write(&self.0, &TOKEN);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Sleeps until a descriptor can be read, and empties it.
#[derive(Debug)]
pub(super) struct ParkReadable(pub(super) OwnedFd);

impl Park for ParkReadable {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        let ready = wait_readable(self.0.as_fd(), Some(timeout));
        if let Ok(true) = ready {
            self.drain();
        }
        Slept::to_the_limit(matches!(ready, Ok(false)))
    }

    fn drain(&mut self) {
        empty(self.0.as_fd());
    }

    fn calls(&self) -> u32 {
        2
    }
}

pub(super) fn open_pipe() -> Result<Ends, SystemError> {
    let (reading, writing) = pipe()?;
    Ok(Ends::new(ParkReadable(reading), NotifyPipe(writing)))
}

#[derive(Debug)]
pub(super) struct NotifyDatagram(pub(super) UnixDatagram);

impl Notify for NotifyDatagram {
    fn notify(&self, _bell: &Doorbell) {
        // A full socket is as good as notified.
        let _full = self.0.send(&TOKEN);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[derive(Debug)]
struct ParkDatagram {
    socket: UnixDatagram,
    /// Set on the socket already.
    timeout: Duration,
}

impl Park for ParkDatagram {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        // Zero means "for ever" to this call.
        let timeout = timeout.max(Duration::from_micros(1));
        if self.timeout != timeout && self.socket.set_read_timeout(Some(timeout)).is_ok() {
            self.timeout = timeout;
        }
        let received = self.socket.recv(&mut [0; 1]);
        Slept::to_the_limit(received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }

    fn drain(&mut self) {
        while rustix::net::recv(&self.socket, &mut [0_u8; 1], rustix::net::RecvFlags::DONTWAIT).is_ok() {}
    }

    fn calls(&self) -> u32 {
        1
    }
}

pub(super) fn open_datagram() -> Result<Ends, SystemError> {
    let failed = |error: io::Error| SystemError::new("create", "pair of Unix datagram sockets", error);
    let (reading, writing) = UnixDatagram::pair().map_err(failed)?;
    writing.set_nonblocking(true).map_err(failed)?;
    Ok(Ends::new(ParkDatagram { socket: reading, timeout: Duration::ZERO }, NotifyDatagram(writing)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_pipe_is_emptied_to_the_last_token() {
        let (reading, writing) = pipe().unwrap();
        let mut file = std::fs::File::from(writing);
        file.write_all(&[1; 2 * READ_SIZE + 200]).unwrap();
        empty(reading.as_fd());
        let left = std::fs::File::from(reading).read(&mut [0; 1]);
        assert_eq!(left.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
