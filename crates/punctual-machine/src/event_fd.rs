//! A counter that the kernel keeps and that wakes any thread that waits for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::SystemError;
use crate::calls;
use crate::slept::Slept;

/// An eventfd, non-blocking and closed on exec.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new counter at zero.
    pub fn new() -> Result<Self, SystemError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        eventfd(0, flags).map(Self).map_err(|error| SystemError::new("create", "eventfd", error))
    }

    /// An eventfd that somebody else made. `None` for anything else, and for one on which ringing could wait: a peer may send anything.
    /// It may still make it a blocking one later.
    pub fn from_descriptor(descriptor: OwnedFd) -> Option<Self> {
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let is_event = std::fs::read_link(path).is_ok_and(|what| what.as_os_str() == "anon_inode:[eventfd]");
        let flags = rustix::fs::fcntl_getfl(&descriptor).ok()?;
        (is_event && flags.contains(rustix::fs::OFlags::NONBLOCK)).then_some(Self(descriptor))
    }

    /// Wakes who waits. A counter that is full is as good as rung.
    pub fn ring(&self) {
        calls::note();
        crate::label!("event.ring");
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        crate::label!("event.ring.done");
    }

    /// Sets the counter back; true if it had been rung. Never waits, also if a peer that was sent the descriptor has made it a blocking
    /// one: that flag is of both ends.
    pub fn drain(&self) -> bool {
        calls::note();
        crate::label!("event.drain");
        let mut counter = [0; 8];
        let into = &mut [io::IoSliceMut::new(&mut counter)];
        // No file has a place `u64::MAX`; with it this is `readv` that may say not to wait (preadv2(2)).
        match preadv2(&self.0, into, u64::MAX, ReadWriteFlags::NOWAIT) {
            // An old kernel, or a filter of system calls that refuses those that are younger than itself.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                let mut descriptors = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
                let has_rung = poll(&mut descriptors, Some(&Timespec::default())) == Ok(1);
                has_rung && rustix::io::read(&self.0, &mut counter).is_ok()
            }
            read => read.is_ok(),
        }
    }

    /// Waits until it is rung or one of two others can be read, until `timeout` has passed or a signal comes. Returns true if it was
    /// rung, and says whether the time limit ended the wait.
    pub fn wait_with(&self, others: [Option<BorrowedFd<'_>>; 2], timeout: Option<Duration>) -> (bool, Slept) {
        let timeout = timeout.map(timespec);
        let watched = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let own = watched(self.0.as_fd());
        let mut descriptors = [own.clone(), own.clone(), own];
        let mut count = 1;
        for other in others.into_iter().flatten() {
            descriptors[count] = watched(other);
            count += 1;
        }
        calls::note();
        let ready = poll(&mut descriptors[..count], timeout.as_ref());
        let rung = ready.is_ok() && !descriptors[0].revents().is_empty();
        (rung, Slept::to_the_limit(ready == Ok(0)))
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `descriptor` can be read; `false` when `timeout` passed first. A signal is an error of kind `Interrupted`.
pub fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(timespec);
    let ready = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], timeout.as_ref())?;
    Ok(ready > 0)
}

/// A duration as the kernel takes it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::tests::{end_calls, in_child};

    #[test]
    fn only_a_nonblocking_eventfd_is_taken() {
        let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
        assert!(EventFd::from_descriptor(pipe).is_none());
        let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(EventFd::from_descriptor(blocking).is_none());
        assert!(EventFd::from_descriptor(EventFd::new().unwrap().0).is_some());
    }

    /// Goal: a counter is set back also where a filter of system calls refuses the younger call: else each wait would end at once.
    #[test]
    fn a_filter_keeps_no_event_rung() {
        let event = EventFd::new().unwrap();
        in_child(|| {
            end_calls(libc::SYS_preadv2, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
            event.ring();
            assert!(event.drain() && !event.drain());
        });
    }

    /// Goal: a peer that makes the descriptor it was sent a blocking one stops nobody.
    #[test]
    fn a_drain_never_waits() {
        let bell = EventFd::new().unwrap();
        rustix::fs::fcntl_setfl(&bell.0, rustix::fs::OFlags::empty()).unwrap();
        let (done, drained) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let empty = bell.drain();
            bell.ring();
            done.send([empty, bell.drain(), bell.drain()]).unwrap();
        });
        assert_eq!(drained.recv_timeout(Duration::from_secs(30)), Ok([false, true, false]));
    }

    #[test]
    fn rung_is_rung_once() {
        let bell = EventFd::new().unwrap();
        assert!(!bell.drain());
        assert_eq!(bell.wait_with([None; 2], Some(Duration::from_millis(1))), (false, Slept::ToTheLimit));
        bell.ring();
        bell.ring();
        assert_eq!(bell.wait_with([None; 2], None), (true, Slept::Less));
        assert!(bell.drain());
        let other = EventFd::new().unwrap();
        other.ring();
        let only_the_other = bell.wait_with([None, Some(other.as_fd())], None);
        assert_eq!(only_the_other, (false, Slept::Less));
        bell.ring();
        assert!(bell.wait_with([None, Some(other.as_fd())], None).0);
        assert!(bell.drain());
        assert!(!bell.drain());
    }
}
