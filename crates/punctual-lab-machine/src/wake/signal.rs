//! Sleeping until a signal: taken from the queue, read from a descriptor, or delivered into a handler.
//!
//! A signal is the nearest that a stock kernel has to a user interrupt. It is posted to a thread (`rt_tgsigqueueinfo`), and waits while
//! the mask (UIF) is closed. While the mask is open, its handler runs in the middle of the thread's code.
//!
//! Rules:
//! 1. The signals are closed in the thread that opens an end, and stay closed when that end is dropped: a signal that is still on its
//!    way would otherwise end the process.
//! 2. The handler does nothing, which is async-signal-safe: that it ran ends a sleep.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::descriptor::{NotifyPipe, ParkReadable, empty, pipe};
use super::{Ends, Notify, Park};
use punctual_machine::SystemError;
use punctual_machine::async_io::{Owner, raise_signal};
use punctual_machine::doorbell::Doorbell;
use punctual_machine::slept::Slept;

/// Real-time signals, counted from SIGRTMIN; the first few are left to others.
const FOR_SIGWAIT: i32 = 5;
const FOR_SIGNALFD: i32 = 6;
const FOR_HANDLER: i32 = 7;
const FOR_SIGIO: i32 = 8;

fn real_time_signal(place: i32) -> i32 {
    libc::SIGRTMIN() + place
}

fn set_of(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that the pointer is to; `sigaddset` changes it. Both accept any signal of
    // the range that SIGRTMIN begins, and these few are in it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

/// Opens or closes a signal for the calling thread.
fn mask(how: i32, signal: i32) -> Result<(), SystemError> {
    let set = set_of(signal);
    // SAFETY: the set is live and initialised; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) } {
        0 => Ok(()),
        error => {
            Err(SystemError::new("mask signal", signal.to_string(), std::io::Error::from_raw_os_error(error)))
        }
    }
}

/// `siginfo_t` as `rt_tgsigqueueinfo` wants it from user space: 128 bytes, of which these are used.
#[repr(C)]
struct QueuedInfo {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    pid: i32,
    user: u32,
    rest: [u64; 13],
}

const _: () = assert!(size_of::<QueuedInfo>() == size_of::<libc::siginfo_t>());

/// Posts a signal to one thread of this process.
#[derive(Debug)]
struct NotifySignal {
    signal: i32,
    thread: i32,
}

impl Notify for NotifySignal {
    fn notify(&self, _bell: &Doorbell) {
        let process = i32::try_from(std::process::id()).unwrap_or(0);
        let info = QueuedInfo {
            signal: self.signal,
            error: 0,
            code: libc::SI_QUEUE,
            padding: 0,
            pid: process,
            user: punctual_machine::process::user(),
            rest: [0; 13],
        };
        // SAFETY: the kernel reads 128 bytes of siginfo, which the structure has, and keeps no pointer. A full queue
        // (EAGAIN) holds signals that wake as well; a thread that is gone (ESRCH) has nobody to wake.
        unsafe {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, self.thread, self.signal, &raw const info)
        };
    }
}

impl NotifySignal {
    fn to_this_thread(signal: i32) -> Self {
        Self { signal, thread: rustix::thread::gettid().as_raw_pid() }
    }
}

fn libc_timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Takes one signal from the thread's queue, if there is one.
fn take(signal: i32) -> bool {
    await_signal(signal, Duration::ZERO).is_ok()
}

/// Sleeps until there is a signal in the thread's queue, and takes it. An error says why there is none: `timeout` passed
/// (EAGAIN), or another signal came first.
fn await_signal(signal: i32, timeout: Duration) -> std::io::Result<()> {
    let (set, timeout) = (set_of(signal), libc_timespec(timeout));
    // SAFETY: set and time are live and initialised; the signal's information is not asked for.
    match unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const timeout) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn slept(awaited: &std::io::Result<()>) -> Slept {
    let limit = awaited.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN));
    Slept::to_the_limit(limit)
}

#[derive(Debug)]
struct ParkSigWait(i32);

impl Park for ParkSigWait {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        slept(&await_signal(self.0, timeout))
    }

    fn drain(&mut self) {
        while take(self.0) {}
    }

    fn calls(&self) -> u32 {
        1
    }
}

pub(super) fn open_sigwait() -> Result<Ends, SystemError> {
    let signal = real_time_signal(FOR_SIGWAIT);
    mask(libc::SIG_BLOCK, signal)?;
    Ok(Ends::new(ParkSigWait(signal), NotifySignal::to_this_thread(signal)))
}

pub(super) fn open_signalfd() -> Result<Ends, SystemError> {
    let signal = real_time_signal(FOR_SIGNALFD);
    mask(libc::SIG_BLOCK, signal)?;
    let set = set_of(signal);
    // SAFETY: the set is live and initialised; -1 asks for a new descriptor.
    let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
    if descriptor == -1 {
        return Err(SystemError::last("create", "signalfd"));
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else knows it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(Ends::new(ParkReadable(descriptor), NotifySignal::to_this_thread(signal)))
}

extern "C" fn deliver(_signal: libc::c_int, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {}

/// A receiver whose handler runs in its sleep, when it is notified.
#[derive(Debug)]
struct SignalHandler(i32);

impl SignalHandler {
    /// For the calling thread, with deliveries closed.
    fn new() -> Result<Self, SystemError> {
        let signal = real_time_signal(FOR_HANDLER);
        mask(libc::SIG_BLOCK, signal)?;
        // SAFETY: `sigaction` is plain data for which all zeroes is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        action.sa_sigaction = deliver as Handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler keeps rule 2; the structure is live.
        match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
            -1 => Err(SystemError::last("install", "signal handler")),
            _ => Ok(Self(signal)),
        }
    }

    /// Opens deliveries and sleeps, in one; closed again on return.
    fn sleep(&self, timeout: Duration) -> Slept {
        let timeout = libc_timespec(timeout);
        let mut open = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: without a new mask the call only writes the current one to the live structure, and is then initialised.
        let mut open = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), open.as_mut_ptr());
            open.assume_init()
        };
        // SAFETY: the set is initialised; no descriptors are passed, and the time and the set are live during the call.
        let outcome = unsafe {
            libc::sigdelset(&raw mut open, self.0);
            libc::ppoll(ptr::null_mut(), 0, &raw const timeout, &raw const open)
        };
        // A handler that ran, whichever, is an interruption (-1).
        Slept::to_the_limit(outcome == 0)
    }
}

impl Park for SignalHandler {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        self.sleep(timeout)
    }

    fn drain(&mut self) {
        while take(self.0) {}
    }

    /// The mask is read, `ppoll` sleeps, and the handler returns by a call too.
    fn calls(&self) -> u32 {
        3
    }
}

pub(super) fn open_handler() -> Result<Ends, SystemError> {
    let handler = SignalHandler::new()?;
    let notify = NotifySignal::to_this_thread(handler.0);
    Ok(Ends::new(handler, notify))
}

#[derive(Debug)]
struct ParkSigIo {
    signal: i32,
    pipe: OwnedFd,
}

impl Park for ParkSigIo {
    fn park(&mut self, _bell: &Doorbell, timeout: Duration) -> Slept {
        let awaited = await_signal(self.signal, timeout);
        if awaited.is_ok() {
            empty(self.pipe.as_fd());
        }
        slept(&awaited)
    }

    fn drain(&mut self) {
        while take(self.signal) {}
        empty(self.pipe.as_fd());
    }

    fn calls(&self) -> u32 {
        2
    }
}

pub(super) fn open_sigio() -> Result<Ends, SystemError> {
    let signal = real_time_signal(FOR_SIGIO);
    mask(libc::SIG_BLOCK, signal)?;
    let (reading, writing) = pipe()?;
    raise_signal(reading.as_fd(), Owner::this_thread(), signal)?;
    Ok(Ends::new(ParkSigIo { signal, pipe: reading }, NotifyPipe(writing)))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use punctual_machine::async_io::{interrupt_on_news, signals_delivered};

    use super::*;

    /// Goal: `O_ASYNC` interrupts the running thread. Nothing else in this program raises SIGIO, so every counted signal is of this socket.
    #[test]
    fn an_async_socket_interrupts_the_running_thread() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        interrupt_on_news(receiver.as_fd()).unwrap();
        let before = signals_delivered();
        sender.send_to(b"news", receiver.local_addr().unwrap()).unwrap();
        let start = std::time::Instant::now();
        while signals_delivered() == before {
            assert!(start.elapsed() < Duration::from_secs(60), "never interrupted");
            std::thread::yield_now();
        }
    }
}
