//! A storm of signals: a timer interrupts the calling thread again and again, as a device does that raises SIGIO for each packet.
//!
//! # Who may touch what
//! The handler adds to one counter. The signal's disposition is that of the whole process: one storm at a time sets it, and puts back
//! what was there.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use punctual_machine::SystemError;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::namespace::thread_id;
use punctual_machine::sync::{AtomicU64, Ordering};

/// From the end of one signal to the next, nanoseconds.
const PAUSE_NS: i64 = 1_000;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Held while the disposition is ours.
static DISPOSITION: Mutex<()> = Mutex::new(());

extern "C" fn count_one(_signal: libc::c_int) {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Lets signals interrupt the calling thread until an instant of `CLOCK_MONOTONIC`; how many did.
///
/// # Errors
/// The kernel gives no timer.
pub fn interrupt_until(until_ns: u64) -> Result<u64, SystemError> {
    let _alone = DISPOSITION.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let signal = libc::SIGRTMAX() - 3;
    let handled = Handled::set(signal).map_err(|error| SystemError::new("handle", "a signal", error))?;
    let timer = Timer::new(signal).map_err(|error| SystemError::new("make", "a timer", error))?;
    let before = COUNT.load(Ordering::Relaxed);
    let mut count = before;
    while monotonic_ns() < until_ns {
        // A timer that went on by itself could leave this thread no time at all: it would never see the end.
        timer.set().map_err(|error| SystemError::new("set", "a timer", error))?;
        while COUNT.load(Ordering::Relaxed) == count && monotonic_ns() < until_ns {
            std::hint::spin_loop();
        }
        count = COUNT.load(Ordering::Relaxed);
    }
    // Before the handler: a signal without one would end the process.
    drop(timer);
    drop(handled);
    Ok(COUNT.load(Ordering::Relaxed) - before)
}

/// A signal that is counted, until this is dropped.
struct Handled {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl Handled {
    fn set(signal: libc::c_int) -> io::Result<Self> {
        // SAFETY: `sigaction` is plain data for which all zeroes is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count_one as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut before = MaybeUninit::uninit();
        // SAFETY: the handler only adds to an atomic number; both structures live through the call.
        check(unsafe { libc::sigaction(signal, &raw const action, before.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, and has written what was there.
        Ok(Self { signal, before: unsafe { before.assume_init() } })
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        // SAFETY: puts back what the kernel gave.
        let _always = unsafe { libc::sigaction(self.signal, &raw const self.before, ptr::null_mut()) };
    }
}

/// A timer of ours, until it is dropped.
struct Timer(libc::timer_t);

impl Timer {
    /// For the calling thread.
    fn new(signal: libc::c_int) -> io::Result<Self> {
        // SAFETY: `sigevent` is plain data for which all zeroes is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = thread_id().cast_signed();
        let mut timer = MaybeUninit::uninit();
        // SAFETY: both live through the call.
        check(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, and has written the timer.
        Ok(Self(unsafe { timer.assume_init() }))
    }

    /// It expires once, soon.
    fn set(&self) -> io::Result<()> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
        let setting = libc::itimerspec { it_interval: never, it_value: soon };
        // SAFETY: the timer is ours, and the setting lives through the call.
        check(unsafe { libc::timer_settime(self.0, 0, &raw const setting, ptr::null_mut()) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is ours, and nobody uses it any more. What it has queued the kernel takes back with it.
        let _always = unsafe { libc::timer_delete(self.0) };
    }
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: this thread is interrupted as long as it is asked for, and no longer; what was done with the signal before is done again.
    #[test]
    fn signals_come_until_the_end() {
        let ignored = || {
            let mut present = MaybeUninit::uninit();
            // SAFETY: only asks; the structure lives through the call, which has written it when it succeeds.
            check(unsafe { libc::sigaction(libc::SIGRTMAX() - 3, ptr::null(), present.as_mut_ptr()) })
                .expect("asked");
            // SAFETY: as above.
            unsafe { present.assume_init() }.sa_sigaction
        };
        let before = ignored();
        let count = interrupt_until(monotonic_ns() + 20_000_000).expect("a timer");
        assert!(count > 10, "{count}");
        assert_eq!(ignored(), before);
        let counted = COUNT.load(Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(COUNT.load(Ordering::Relaxed), counted);
    }
}
