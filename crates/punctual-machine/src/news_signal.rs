//! Signals that say that a descriptor has news (`O_ASYNC`): taken one by one by a thread that waits for them, or counted
//! by a handler that interrupts whoever runs.
//!
//! Rules:
//! 1. A taken signal is closed in the thread that takes it, and stays closed: what is still on its way would otherwise end
//!    the process.
//! 2. The handler touches one static counter, which is async-signal-safe.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use crate::SystemError;
use crate::sync::{AtomicU64, Ordering};

const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;
/// Counted from SIGRTMIN; those below are used by `wake`.
const FOR_NEWS: i32 = 9;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    thread: i32,
}

fn set_of(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that the pointer is to; `sigaddset` changes it. Both accept these signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

/// Lets the kernel raise signals for a descriptor's news, besides what its flags say already.
fn ask(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let raw = descriptor.as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed; both commands take integers.
    let done = unsafe {
        let flags = libc::fcntl(raw, libc::F_GETFL);
        flags != -1 && libc::fcntl(raw, libc::F_SETFL, flags | libc::O_ASYNC) != -1
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// News of one descriptor, for the thread that made this: a queued signal each, which waits until it is taken.
#[derive(Debug)]
pub struct NewsSignal {
    signal: i32,
    taken: u64,
}

impl NewsSignal {
    /// For the calling thread, from now on.
    ///
    /// # Errors
    /// The descriptor raises no signals: an eventfd or epoll set does not.
    pub fn of(descriptor: BorrowedFd<'_>) -> Result<Self, SystemError> {
        let signal = libc::SIGRTMIN() + FOR_NEWS;
        let set = set_of(signal);
        let owner = Owner { kind: F_OWNER_TID, thread: rustix::thread::gettid().as_raw_pid() };
        let raw = descriptor.as_raw_fd();
        // SAFETY: set and owner are live and initialised during the calls that read them; the descriptor is open.
        let done = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) == 0
                && libc::fcntl(raw, F_SETSIG, signal) != -1
                && libc::fcntl(raw, F_SETOWN_EX, &raw const owner) != -1
        };
        if !done {
            return Err(SystemError::last("ask for a signal of", format!("descriptor {raw}")));
        }
        ask(descriptor)
            .map_err(|error| SystemError::new("ask for a signal of", format!("descriptor {raw}"), error))?;
        Ok(Self { signal, taken: 0 })
    }

    /// Sleeps until there is a signal, for at most `timeout`; takes it and all that are queued behind it. Whether there was
    /// one. More signals than the queue holds become one SIGIO, which ends the process: so whoever uses this looks at the
    /// descriptor often enough, or raises `ulimit -i`.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let found = self.take(timeout);
        if found {
            while self.take(Duration::ZERO) {}
        }
        found
    }

    fn take(&mut self, timeout: Duration) -> bool {
        let set = set_of(self.signal);
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: set and time are live and initialised; the signal's information is not asked for.
        let taken =
            unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const timeout) == self.signal };
        self.taken += u64::from(taken);
        taken
    }

    /// Signals taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

static COUNTED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: libc::c_int) {
    COUNTED.fetch_add(1, Ordering::Relaxed);
}

/// From now on every piece of news of this descriptor interrupts some thread of this process by SIGIO, whose handler
/// counts and does nothing else: what `O_ASYNC` costs a process that has no use for it.
///
/// # Errors
/// The descriptor raises no signals.
pub fn interrupt_on_news(descriptor: BorrowedFd<'_>) -> Result<(), SystemError> {
    let raw = descriptor.as_raw_fd();
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    let process = i32::try_from(std::process::id()).unwrap_or(0);
    // SAFETY: the handler keeps rule 2; the structure is live; the descriptor is open while it is borrowed.
    let done = unsafe {
        libc::sigaction(libc::SIGIO, &raw const action, ptr::null_mut()) != -1
            && libc::fcntl(raw, libc::F_SETOWN, process) != -1
    };
    if !done {
        return Err(SystemError::last("ask for a signal of", format!("descriptor {raw}")));
    }
    ask(descriptor)
        .map_err(|error| SystemError::new("ask for a signal of", format!("descriptor {raw}"), error))
}

/// How often this process was interrupted so far.
pub fn interruptions() -> u64 {
    COUNTED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    /// Goal: no news is missed, however it falls between two waits; a quiet descriptor raises nothing.
    #[test]
    fn every_datagram_is_told() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut news = NewsSignal::of(receiver.as_fd()).unwrap();
                assert!(!news.wait(Duration::from_millis(1)));
                for _ in 0..3 {
                    sender.send_to(b"news", receiver.local_addr().unwrap()).unwrap();
                    assert!(news.wait(Duration::from_secs(60)), "a signal was lost");
                }
                assert!(news.taken() >= 3);
            });
        });
    }

    #[test]
    fn what_nobody_asked_for_interrupts() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        interrupt_on_news(receiver.as_fd()).unwrap();
        let before = interruptions();
        sender.send_to(b"news", receiver.local_addr().unwrap()).unwrap();
        let start = std::time::Instant::now();
        while interruptions() == before {
            assert!(start.elapsed() < Duration::from_secs(60), "never interrupted");
            std::thread::yield_now();
        }
    }
}
