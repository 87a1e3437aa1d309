//! A set of descriptors to wait for together.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::epoll;

use crate::SystemError;
use crate::slept::Slept;
use crate::sync::{AtomicBool, Ordering};

/// Descriptors reported by one wait. More are reported by the next.
const EVENTS_MAX: usize = 16;

/// Descriptors reported by one wait that says which.
const REPORTS_MAX: usize = 64;

/// This process has no `epoll_pwait2`: later waits make one system call each.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Readiness of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The number under which it was added.
    pub number: u64,
    /// Something can be read, or the end of it.
    pub is_readable: bool,
    /// There is room to write.
    pub is_writable: bool,
    /// The other end will send no more, or there is an error: reads say so from now on.
    pub is_closed: bool,
}

/// Reports of one wait.
#[derive(Clone)]
pub struct Reports {
    events: [libc::epoll_event; REPORTS_MAX],
    count: usize,
}

impl Default for Reports {
    fn default() -> Self {
        Self { events: [libc::epoll_event { events: 0, u64: 0 }; REPORTS_MAX], count: 0 }
    }
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Reports {
    /// Each descriptor once.
    pub fn iter(&self) -> impl Iterator<Item = Readiness> {
        let has = |events: u32, any: libc::c_int| events & any.cast_unsigned() != 0;
        self.events[..self.count].iter().map(move |&libc::epoll_event { events, u64: number }| Readiness {
            number,
            is_readable: has(events, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
            is_writable: has(events, libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR),
            is_closed: has(events, libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
        })
    }
}

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

    /// Adds a descriptor under a number. Each change is reported once (edge-triggered): that it can be read, that it can be
    /// written, that it is closed.
    pub fn add_numbered(&self, descriptor: BorrowedFd<'_>, number: u64) -> Result<(), SystemError> {
        let events =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.descriptor, descriptor, epoll::EventData::new_u64(number), events)
            .map_err(|error| SystemError::new("add to epoll set", format!("{descriptor:?}"), error))
    }

    /// Takes a descriptor out. An earlier wait's report of it may still be looked at.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) {
        // One that was never added is not in it either.
        let _absent = epoll::delete(&self.descriptor, descriptor);
    }

    /// Waits until something can be done with a descriptor, `timeout` has passed or a signal comes; says which. Those added
    /// without a number have number 0.
    pub fn wait_for(&self, reports: &mut Reports, timeout: Option<Duration>) -> Slept {
        let count = self.wait_into(&mut reports.events, timeout);
        reports.count = count.unwrap_or(0);
        Slept::to_the_limit(count == Some(0))
    }

    /// From now on a descriptor of the set is waited for, or is not. Input that it already has counts as well.
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
    pub fn wait_uninterrupted(&self, timeout: Option<Duration>) -> Option<usize> {
        self.wait_into(&mut [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX], timeout)
    }

    fn wait_into(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> Option<usize> {
        // Relaxed: a thread that does not see it yet finds out by itself.
        let ready = match IS_REFUSED.load(Ordering::Relaxed) {
            true => self.wait_coarsely(events, timeout),
            false => self.wait_precisely(events, timeout).or_else(|error| {
                // Linux before 5.11, or a filter of system calls that refuses those that are younger than itself.
                if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
                    return Err(error);
                }
                IS_REFUSED.store(true, Ordering::Relaxed);
                self.wait_coarsely(events, timeout)
            }),
        };
        // The only errors left are EINTR (look again) and misuse that the types exclude.
        ready.inspect_err(|error| debug_assert_eq!(error.kind(), io::ErrorKind::Interrupted)).ok()
    }

    /// `epoll_pwait2`, whose time is in nanoseconds.
    fn wait_precisely(
        &self,
        events: &mut [libc::epoll_event],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mask = ptr::null::<libc::sigset_t>();
        // SAFETY: the descriptor is open; the kernel writes at most as many events as the slice has. It reads a time that lives during
        // the call or is null, and leaves the signal mask alone where none is given.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.descriptor.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                timeout,
                mask,
                size_of::<libc::c_ulong>(),
            )
        };
        usize::try_from(ready).map_err(|_negative| io::Error::last_os_error())
    }

    /// `epoll_wait`, whose time is in milliseconds, rounded up.
    fn wait_coarsely(
        &self,
        events: &mut [libc::epoll_event],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let in_ms =
            |timeout: Duration| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let (timeout, size) = (timeout.map_or(-1, in_ms), events.len() as libc::c_int);
        // SAFETY: the descriptor is open, and the kernel writes at most as many events as the slice has.
        let ready =
            unsafe { libc::epoll_wait(self.descriptor.as_raw_fd(), events.as_mut_ptr(), size, timeout) };
        usize::try_from(ready).map_err(|_negative| io::Error::last_os_error())
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
        let events = &mut [libc::epoll_event { events: 0, u64: 0 }; 1];
        assert_eq!(set.wait_coarsely(events, Some(Duration::from_millis(1))).unwrap(), 0);
        assert!(set.add(one.as_fd()).is_err(), "twice in one set");
        one.ring();
        set.watch(one.as_fd(), false).unwrap();
        assert_eq!(set.wait(Some(Duration::from_millis(1))), 0, "not watched");
        set.watch(one.as_fd(), true).unwrap();
        assert_eq!(set.wait(None), 1, "the event from before counts");
    }

    /// Does it in a child of its own, which it must not end by a panic.
    pub(crate) fn in_child(work: impl FnOnce()) {
        // SAFETY: the child works and ends; the alarm ends one that hangs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: takes a number.
            unsafe { libc::alarm(60) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the child, and runs nothing of its parent's.
            unsafe { libc::_exit(done.is_err().into()) };
        }
        let mut status = -1;
        // SAFETY: reaps the child from above; the status is live.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// From now on the calling thread's calls of this number end so.
    pub(crate) fn end_calls(number: libc::c_long, how: u32) {
        let op = |code: u32, jump_true, k| libc::sock_filter { code: code as u16, jt: jump_true, jf: 0, k };
        let mut program = [
            // The number stands first in what a filter sees.
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number as u32),
            op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
            op(libc::BPF_RET | libc::BPF_K, 0, how),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies the program, which is live and as long as stated; the other call takes numbers.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
        }
    }

    /// Goal: where a filter of system calls refuses the precise wait, waits sleep, and the call is tried once.
    /// Method: a child refuses it, and after the first wait would be killed by it.
    #[test]
    fn a_wait_that_a_filter_refuses_still_sleeps() {
        let set = EpollSet::new().unwrap();
        let sleep = || {
            let before = crate::clock::monotonic_ns();
            assert_eq!(set.sleep(Some(Duration::from_millis(50))), Slept::ToTheLimit);
            assert!(crate::clock::monotonic_ns() - before >= 50_000_000);
        };
        in_child(|| {
            end_calls(libc::SYS_epoll_pwait2, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
            sleep();
            end_calls(libc::SYS_epoll_pwait2, libc::SECCOMP_RET_KILL_PROCESS);
            sleep();
        });
    }

    /// Goal: a wait says which descriptor, what can be done with it, and each change once.
    #[test]
    fn a_wait_says_which() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let bell = EventFd::new().unwrap();
        let set = EpollSet::new().unwrap();
        set.add(bell.as_fd()).unwrap();
        set.add_numbered(here.as_fd(), 7).unwrap();
        let mut reports = Reports::default();
        let mut next = |timeout| {
            let slept = set.wait_for(&mut reports, Some(timeout));
            (slept, reports.iter().collect::<Vec<_>>())
        };
        let one = |is_readable, is_closed| Readiness { number: 7, is_readable, is_writable: true, is_closed };
        let (long, none) = (Duration::from_secs(60), Duration::ZERO);
        assert_eq!(next(long), (Slept::Less, vec![one(false, false)]));
        assert_eq!(next(none), (Slept::ToTheLimit, vec![]), "said once");
        rustix::io::write(&there, b"x").unwrap();
        assert_eq!(next(long).1, [one(true, false)]);
        assert_eq!(next(none).1, []);
        bell.ring();
        let rung = Readiness { number: 0, is_readable: true, is_writable: false, is_closed: false };
        assert_eq!(
            (next(long).1, next(none).1),
            (vec![rung], vec![rung]),
            "level-triggered without a number"
        );
        assert!(bell.drain());
        drop(there);
        assert_eq!(next(long).1, [one(true, true)]);
        set.remove(here.as_fd());
        set.remove(here.as_fd());
        assert_eq!(next(none).1, []);
    }
}
