//! A signal when a descriptor becomes readable: `O_ASYNC`, SIGIO, as programs did before epoll.
//!
//! The signal is closed in the thread that waits, and open only inside its sleep (`ppoll` opens it and sleeps in one). So a signal that
//! comes between the last look and the sleep waits, and ends the sleep at once. It says that something came, once, and not that
//! something is there: a thread that asks for it looks at all descriptors afterwards, and only then sleeps.
//!
//! Rules:
//! 1. The handler touches one static counter, which is async-signal-safe.
//! 2. The signal stays closed in a thread that has waited. Otherwise one still on its way would run the handler in the middle of the
//!    thread's code. That is harmless, but this module exists to avoid it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use crate::SystemError;
use crate::process::Maker;
use crate::slept::Slept;
use crate::sync::{AtomicU64, Ordering};

/// Number of times that the handler has run in this process.
static DELIVERED: AtomicU64 = AtomicU64::new(0);

/// Receiver of the signals of a descriptor: `struct f_owner_ex`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    kind: i32,
    id: i32,
}

impl Owner {
    /// The calling thread, and no other.
    pub fn this_thread() -> Self {
        Self { kind: F_OWNER_TID, id: rustix::thread::gettid().as_raw_pid() }
    }

    /// The receiver of this descriptor's signals.
    fn of(descriptor: BorrowedFd<'_>) -> Option<Self> {
        let mut owner = Self { kind: 0, id: 0 };
        // SAFETY: the descriptor is open; the structure is live, and the call only writes it.
        let asked = unsafe { libc::fcntl(descriptor.as_raw_fd(), F_GETOWN_EX, &raw mut owner) };
        (asked != -1).then_some(owner)
    }

    /// Some thread of this process that has not closed the signal.
    pub fn this_process() -> Self {
        Self { kind: F_OWNER_PID, id: rustix::process::getpid().as_raw_pid() }
    }
}

/// `fcntl`: the signal that a descriptor raises, and its receiver.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;
const F_OWNER_TID: i32 = 0;
const F_OWNER_PID: i32 = 1;

extern "C" fn deliver(_signal: libc::c_int) {
    DELIVERED.fetch_add(1, Ordering::Relaxed);
}

/// Number of times that a signal of a descriptor has interrupted this process. This is the cost of the signals beside the frames.
pub fn signals_delivered() -> u64 {
    DELIVERED.load(Ordering::Relaxed)
}

/// Sees to it that SIGIO has a handler. One that the program has is as good: any handler ends the sleep.
fn install_handler() -> Result<(), SystemError> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        // SAFETY: `sigaction` is plain data for which all zeroes is a value.
        let mut current: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: without a new action the call only writes the current one to the live structure.
        if unsafe { libc::sigaction(libc::SIGIO, ptr::null(), &raw mut current) } == -1 {
            return Err(last_error());
        }
        if current.sa_sigaction != libc::SIG_DFL && current.sa_sigaction != libc::SIG_IGN {
            return Ok(());
        }
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = deliver as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler keeps rule 1; the structure is live.
        let refused = unsafe { libc::sigaction(libc::SIGIO, &raw const action, ptr::null_mut()) } == -1;
        if refused { Err(last_error()) } else { Ok(()) }
    };
    INSTALLED.get_or_init(install).map_err(|error| {
        SystemError::new("install", "handler of SIGIO", std::io::Error::from_raw_os_error(error))
    })
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Closes the signal for this thread; returns the signals that are closed besides, and stay so while it sleeps. The program may close
/// others at any time, so it is asked each time.
fn close_signal() -> Result<libc::sigset_t, SystemError> {
    let (mut io, mut open) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigemptyset` initialises the set, `sigaddset` changes it; `pthread_sigmask` reads it, and initialises the
    // other with the mask as it was, from which the signal is then taken.
    let (refused, open) = unsafe {
        libc::sigemptyset(io.as_mut_ptr());
        libc::sigaddset(io.as_mut_ptr(), libc::SIGIO);
        libc::sigemptyset(open.as_mut_ptr());
        let refused = libc::pthread_sigmask(libc::SIG_BLOCK, io.as_ptr(), open.as_mut_ptr());
        libc::sigdelset(open.as_mut_ptr(), libc::SIGIO);
        (refused, open.assume_init())
    };
    match refused {
        0 => Ok(open),
        error => Err(SystemError::new("close signal", "SIGIO", std::io::Error::from_raw_os_error(error))),
    }
}

/// Waits for descriptors by signal. They stop to raise it when this is dropped, unless another one has claimed them since.
#[derive(Debug)]
pub struct AsyncIo {
    /// The same open files, so that they can be told to stop.
    watched: Vec<OwnedFd>,
    /// The thread that claimed them last.
    owner: Option<Owner>,
    maker: Maker,
}

/// As many as a medium has: the first wait allocates nothing then.
const DESCRIPTORS_USUAL: usize = 2;

impl Default for AsyncIo {
    fn default() -> Self {
        let watched = Vec::with_capacity(DESCRIPTORS_USUAL);
        Self { watched, owner: None, maker: Maker::this_process() }
    }
}

impl AsyncIo {
    /// From now on these descriptors signal the calling thread, and no other. Look at all of them afterwards: news that was there
    /// before raises no signal.
    ///
    /// # Errors
    /// No descriptors are left. Kinds that know no signals (eventfds, epoll sets) are not told apart: they raise none.
    pub fn claim(&mut self, descriptors: &[BorrowedFd<'_>]) -> Result<(), SystemError> {
        install_handler()?;
        close_signal()?;
        if self.watched.is_empty() {
            for descriptor in descriptors {
                match descriptor.try_clone_to_owned() {
                    Ok(own) => self.watched.push(own),
                    Err(error) => {
                        // A part of them would be all of them for the next claim.
                        self.watched.clear();
                        return Err(SystemError::new("watch", "descriptor", error));
                    }
                }
            }
        }
        let owner = Owner::this_thread();
        self.owner = Some(owner);
        self.watched.iter().try_for_each(|descriptor| raise_signal(descriptor.as_fd(), owner, libc::SIGIO))
    }

    /// Sleeps until a descriptor that the calling thread claimed raises its signal, `event` can be read, or `timeout` has passed. The
    /// result says whether the timeout ended the sleep.
    ///
    /// A signal that came since the claim, or since the last sleep, ends it at once.
    ///
    /// # Errors
    /// The kernel refuses to close the signal.
    pub fn sleep(&self, event: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<Slept, SystemError> {
        let open = close_signal()?;
        let mut watched = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: one descriptor's record, the time if there is one, and the mask are live and initialised during the call.
        let ready = unsafe { libc::ppoll(&raw mut watched, 1, timeout, &raw const open) };
        Ok(Slept::to_the_limit(ready == 0))
    }
}

/// From now on every piece of news of this descriptor interrupts some thread of this process, and [`signals_delivered`] counts it. This
/// is the cost of `O_ASYNC` to a process that has no use for it.
///
/// # Errors
/// The descriptor raises no signals.
pub fn interrupt_on_news(descriptor: BorrowedFd<'_>) -> Result<(), SystemError> {
    install_handler()?;
    raise_signal(descriptor, Owner::this_process(), libc::SIGIO)
}

/// From now on news of a descriptor raise this signal.
///
/// # Errors
/// The descriptor raises no signals.
pub fn raise_signal(descriptor: BorrowedFd<'_>, owner: Owner, signal: i32) -> Result<(), SystemError> {
    // SAFETY: the descriptor is open; the structure is live, and the call only reads it.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), F_SETOWN_EX, &raw const owner) } {
        -1 => Err(SystemError::last("ask for a signal of", "descriptor")),
        _ => set_async(descriptor, Some(signal)),
    }
}

/// Switches the signals of a descriptor on or off.
fn set_async(descriptor: BorrowedFd<'_>, signal: Option<i32>) -> Result<(), SystemError> {
    let failed = || SystemError::last("ask for a signal of", "descriptor");
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: the descriptor is open; all of these take integers.
    unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        if flags == -1 {
            return Err(failed());
        }
        if (flags & libc::O_ASYNC != 0) == signal.is_some() {
            return Ok(());
        }
        let flags = if signal.is_some() { flags | libc::O_ASYNC } else { flags & !libc::O_ASYNC };
        let refused = libc::fcntl(descriptor, F_SETSIG, signal.unwrap_or(0)) == -1
            || libc::fcntl(descriptor, libc::F_SETFL, flags) == -1;
        if refused { Err(failed()) } else { Ok(()) }
    }
}

impl Drop for AsyncIo {
    fn drop(&mut self) {
        // The open files of a forked child are its parent's, which goes on to wait for them.
        if !self.maker.is_this_process() {
            return;
        }
        // Another component of the node may sleep until these descriptors wake it. A thread that has ended has no number.
        let is_ours = |descriptor: &&OwnedFd| {
            Owner::of(descriptor.as_fd()).is_none_or(|owner| owner.id == 0 || Some(owner) == self.owner)
        };
        for descriptor in self.watched.iter().filter(is_ours) {
            let _gone_anyway = set_async(descriptor.as_fd(), None);
            if !is_ours(&descriptor) {
                // Another one has claimed it between the question and the answer.
                let _as_before = set_async(descriptor.as_fd(), Some(libc::SIGIO));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_fd::{EventFd, wait_readable};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::net::UdpSocket;
    use std::time::Instant;

    /// Far longer than anything takes that is not lost.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn pair() -> (UdpSocket, UdpSocket) {
        let (here, there) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        there.connect(here.local_addr().unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        (here, there)
    }

    fn take_all(socket: &UdpSocket) -> u64 {
        let mut taken = 0;
        while socket.recv(&mut [0; 8]).is_ok() {
            taken += 1;
        }
        taken
    }

    /// Goal: the original's lost wake-up. There the handler set a flag that the loop set back after its last look. A frame that came in
    /// between was lost until the next one. Here none is: with one datagram under way at a time, a lost signal would leave both ends
    /// waiting, and the sleep would end by its time.
    #[test]
    fn no_signal_is_lost_between_the_last_look_and_the_sleep() {
        let (here, there) = pair();
        let event = EventFd::new().unwrap();
        let mut signals = AsyncIo::default();
        signals.claim(&[here.as_fd()]).unwrap();
        let (next, asked) = std::sync::mpsc::channel::<u64>();
        let sender = std::thread::spawn(move || {
            for round in asked {
                (0..round * 37 % 3_000).for_each(|_| std::hint::spin_loop());
                there.send(&[1]).unwrap();
            }
        });
        for round in 0..3_000 {
            next.send(round).unwrap();
            let asleep = Instant::now();
            while take_all(&here) == 0 {
                signals.sleep(event.as_fd(), Some(PATIENCE)).unwrap();
                assert!(asleep.elapsed() < PATIENCE, "round {round}: a signal was lost");
            }
        }
        drop(next);
        sender.join().unwrap();
        assert!(signals_delivered() > 0);
    }

    /// Goal: a flood while signals are being asked for; datagrams that came before raise none, and are found by the look after.
    #[test]
    fn a_flood_during_set_up_is_found_by_the_look_after() {
        for round in 0..50 {
            let (here, there) = pair();
            let event = EventFd::new().unwrap();
            let flood =
                std::thread::spawn(move || (0..100_u64).filter(|_| there.send(&[1]).is_ok()).count() as u64);
            let mut signals = AsyncIo::default();
            (0..round * 100).for_each(|_| std::hint::spin_loop());
            signals.claim(&[here.as_fd()]).unwrap();
            let (mut taken, asleep) = (take_all(&here), Instant::now());
            while taken < 100 {
                signals.sleep(event.as_fd(), Some(PATIENCE)).unwrap();
                taken += take_all(&here);
                assert!(asleep.elapsed() < PATIENCE, "round {round}: {taken} of 100, then nothing");
            }
            assert_eq!(flood.join().unwrap(), 100);
        }
    }

    #[test]
    fn an_event_ends_the_sleep_too() {
        let (here, _there) = pair();
        let event = EventFd::new().unwrap();
        let mut signals = AsyncIo::default();
        signals.claim(&[here.as_fd()]).unwrap();
        event.ring();
        let asleep = Instant::now();
        signals.sleep(event.as_fd(), Some(PATIENCE)).unwrap();
        assert!(asleep.elapsed() < PATIENCE && event.drain());
    }

    /// Goal: a thread that ends takes no wake-up from another one that waits for the same descriptors.
    #[test]
    fn a_descriptor_claimed_by_another_since_goes_on_raising_signals() {
        let (here, _there) = pair();
        let is_async = || rustix::fs::fcntl_getfl(&here).unwrap().bits() & libc::O_ASYNC.cast_unsigned() != 0;
        let mut first = AsyncIo::default();
        first.claim(&[here.as_fd()]).unwrap();
        let (claimed, dropped) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut second = AsyncIo::default();
                second.claim(&[here.as_fd()]).unwrap();
                claimed.wait();
                dropped.wait();
            });
            claimed.wait();
            drop(first);
            let was_async = is_async();
            dropped.wait();
            assert!(was_async);
        });
        assert!(!is_async());
    }

    /// Goal: a signal that the program has closed since it waited first stays closed while it sleeps.
    #[test]
    fn a_signal_that_was_closed_later_ends_no_sleep() {
        std::thread::spawn(|| {
            let (here, _there) = pair();
            let event = EventFd::new().unwrap();
            let mut signals = AsyncIo::default();
            signals.claim(&[here.as_fd()]).unwrap();
            signals.sleep(event.as_fd(), Some(Duration::from_millis(1))).unwrap();
            // SAFETY: the set is initialised before it is read, and the signal is one that this thread alone is sent.
            unsafe {
                let mut closed = MaybeUninit::<libc::sigset_t>::uninit();
                libc::sigemptyset(closed.as_mut_ptr());
                libc::sigaddset(closed.as_mut_ptr(), libc::SIGURG);
                libc::pthread_sigmask(libc::SIG_BLOCK, closed.as_ptr(), ptr::null_mut());
                libc::pthread_kill(libc::pthread_self(), libc::SIGURG);
            }
            let is_pending = || {
                let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
                // SAFETY: `sigpending` initialises the set.
                unsafe {
                    libc::sigpending(pending.as_mut_ptr());
                    libc::sigismember(pending.as_ptr(), libc::SIGURG) == 1
                }
            };
            assert!(is_pending());
            signals.sleep(event.as_fd(), Some(Duration::from_millis(1))).unwrap();
            assert!(is_pending(), "the sleep let it through");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_dropped_claim_raises_no_signals() {
        let (here, there) = pair();
        let mut signals = AsyncIo::default();
        signals.claim(&[here.as_fd()]).unwrap();
        let is_async = || rustix::fs::fcntl_getfl(&here).unwrap().bits() & libc::O_ASYNC.cast_unsigned() != 0;
        assert!(is_async());
        drop(signals);
        assert!(!is_async());
        there.send(&[1]).unwrap();
        assert!(wait_readable(here.as_fd(), Some(PATIENCE)).unwrap());
        assert_eq!(take_all(&here), 1);
    }

    /// Goal: a claim that failed for want of a descriptor claims all of them the next time, not those that it had.
    /// Method: a child that may have one descriptor more than it has.
    #[test]
    fn a_claim_that_failed_forgets_a_part() {
        let ((one, _first), (other, sender), event) = (pair(), pair(), EventFd::new().unwrap());
        // All that a process makes once: a child that was forked while another thread made it would wait for that thread for ever.
        AsyncIo::default().claim(&[one.as_fd()]).unwrap();
        crate::epoll::tests::in_child(|| {
            let next = event.as_fd().try_clone_to_owned().unwrap();
            let Rlimit { current: before, maximum } = getrlimit(Resource::Nofile);
            let limit = |current| setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
            // The lowest free number is the next one.
            let lowest = next.as_raw_fd();
            drop(next);
            let mut signals = AsyncIo::default();
            limit(Some(lowest as u64 + 1));
            signals.claim(&[one.as_fd(), other.as_fd()]).unwrap_err();
            limit(before);
            signals.claim(&[one.as_fd(), other.as_fd()]).unwrap();
            sender.send(&[1]).unwrap();
            assert_eq!(signals.sleep(event.as_fd(), Some(PATIENCE)).unwrap(), Slept::Less);
        });
    }
}
