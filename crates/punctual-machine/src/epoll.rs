//! A set of descriptors to wait for together.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::SystemError;
use crate::event_fd::timespec;

/// Descriptors reported by one wait. More are reported by the next.
const EVENTS_MAX: usize = 16;

/// An epoll set, level-triggered, closed on exec. It is itself a descriptor that others can wait for.
#[derive(Debug)]
pub struct EpollSet {
    descriptor: OwnedFd,
}

impl EpollSet {
    /// An empty set.
    pub fn new() -> Result<Self, SystemError> {
        let descriptor = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| SystemError::new("create", "epoll set", error))?;
        Ok(Self { descriptor })
    }

    /// Adds a descriptor that is waited for until it can be read.
    pub fn add(&self, descriptor: BorrowedFd<'_>) -> Result<(), SystemError> {
        epoll::add(&self.descriptor, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(|error| SystemError::new("add to epoll set", format!("{descriptor:?}"), error))
    }

    /// From now on a descriptor of the set is waited for, or is not. What it has already counts as well.
    pub fn watch(&self, descriptor: BorrowedFd<'_>, watched: bool) -> Result<(), SystemError> {
        let events = if watched { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.descriptor, descriptor, epoll::EventData::new_u64(0), events)
            .map_err(|error| SystemError::new("watch in epoll set", format!("{descriptor:?}"), error))
    }

    /// Waits until a descriptor can be read; returns how many can. 0 when `timeout` passed or a signal came first.
    pub fn wait(&self, timeout: Option<Duration>) -> usize {
        self.wait_uninterrupted(timeout).unwrap_or(0)
    }

    /// As [`EpollSet::wait`], but `None` when a signal came first.
    pub(crate) fn wait_uninterrupted(&self, timeout: Option<Duration>) -> Option<usize> {
        let timeout = timeout.map(timespec);
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.descriptor, &mut events, timeout.as_ref()) {
            Ok((ready, _)) => Some(ready.len()),
            // The only errors left are EINTR (look again) and misuse that the types exclude.
            Err(error) => {
                debug_assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Interrupted);
                None
            }
        }
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_fd::EventFd;

    #[test]
    fn a_set_reports_what_can_be_read() {
        let (one, two) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let set = EpollSet::new().unwrap();
        set.add(one.as_fd()).unwrap();
        set.add(two.as_fd()).unwrap();
        assert_eq!(set.wait(Some(Duration::ZERO)), 0);
        two.ring();
        assert_eq!(set.wait(None), 1);
        two.drain();
        assert_eq!(set.wait(Some(Duration::from_millis(1))), 0);
        assert!(set.add(one.as_fd()).is_err(), "twice in one set");
        one.ring();
        set.watch(one.as_fd(), false).unwrap();
        assert_eq!(set.wait(Some(Duration::from_millis(1))), 0, "not watched");
        set.watch(one.as_fd(), true).unwrap();
        assert_eq!(set.wait(None), 1, "what it had counts");
    }
}
