//! A set of descriptors to wait for together.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::epoll;

use crate::SystemError;
use crate::event_fd::timespec;
use crate::wake::Slept;

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

    /// As [`EpollSet::wait`]; returns whether the time limit ended it.
    pub fn sleep(&self, timeout: Option<Duration>) -> Slept {
        Slept::to_the_limit(self.wait_uninterrupted(timeout) == Some(0))
    }

    /// As [`EpollSet::wait`], but `None` when a signal came first.
    pub(crate) fn wait_uninterrupted(&self, timeout: Option<Duration>) -> Option<usize> {
        let ready = match self.wait_precisely(timeout) {
            // Linux before 5.11.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => self.wait_coarsely(timeout),
            ready => ready,
        };
        // The only errors left are EINTR (look again) and misuse that the types exclude.
        ready.inspect_err(|error| debug_assert_eq!(error.kind(), io::ErrorKind::Interrupted)).ok()
    }

    /// `epoll_pwait2`, whose time is in nanoseconds.
    fn wait_precisely(&self, timeout: Option<Duration>) -> io::Result<usize> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mask = ptr::null::<libc::sigset_t>();
        // SAFETY: the descriptor is open; the kernel writes at most as many events as the array has, reads a time that lives
        // during the call or is null, and leaves the signal mask alone where none is given.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.descriptor.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                timeout,
                mask,
                size_of::<libc::c_ulong>(),
            )
        };
        usize::try_from(ready).map_err(|_negative| io::Error::last_os_error())
    }

    /// `epoll_wait`, whose time is in milliseconds, rounded up.
    fn wait_coarsely(&self, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map(timespec);
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let (ready, _) = epoll::wait(&self.descriptor, &mut events, timeout.as_ref())?;
        Ok(ready.len())
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
        assert_eq!(set.wait_coarsely(Some(Duration::from_millis(1))).unwrap(), 0);
        assert!(set.add(one.as_fd()).is_err(), "twice in one set");
        one.ring();
        set.watch(one.as_fd(), false).unwrap();
        assert_eq!(set.wait(Some(Duration::from_millis(1))), 0, "not watched");
        set.watch(one.as_fd(), true).unwrap();
        assert_eq!(set.wait(None), 1, "what it had counts");
    }
}
