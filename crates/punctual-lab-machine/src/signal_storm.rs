//! A storm of signals: the calling thread is interrupted again and again, as by a device that raises SIGIO for each packet.
//!
//! It sends them to itself. A timer that goes on by itself can leave a thread no time at all; it would never see the end.
//!
//! # Rules of access
//! The handler adds to one counter. The signal's disposition is that of the whole process: one storm at a time sets it, and puts back
//! what was there.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use punctual_machine::SystemError;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::sync::{AtomicU64, Ordering};

/// From one signal to the next, nanoseconds.
const PERIOD_NS: u64 = 5_000;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Held while the disposition is ours.
static DISPOSITION: Mutex<()> = Mutex::new(());

extern "C" fn count_one(_signal: libc::c_int) {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Lets signals interrupt the calling thread until an instant of `CLOCK_MONOTONIC`. Returns the number of signals that did.
///
/// # Errors
/// The kernel sends none.
pub fn interrupt_until(until_ns: u64) -> Result<u64, SystemError> {
    let _alone = DISPOSITION.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let signal = libc::SIGRTMAX() - 3;
    let _handled = Handled::set(signal).map_err(|error| SystemError::new("handle", "a signal", error))?;
    let before = COUNT.load(Ordering::Relaxed);
    let mut now_ns = monotonic_ns();
    while now_ns < until_ns {
        // SAFETY: sends a signal that is handled to the calling thread, and touches no memory.
        check(unsafe { libc::raise(signal) }).map_err(|error| SystemError::new("send", "a signal", error))?;
        let next_ns = now_ns + PERIOD_NS;
        while now_ns < next_ns {
            std::hint::spin_loop();
            now_ns = monotonic_ns();
        }
    }
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

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: this thread is interrupted as long as it is asked for, and no longer. Afterwards the earlier handling of the signal is in
    /// place again.
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
        let (mut count, give_up_ns) = (0, monotonic_ns() + 20_000_000_000);
        // A busy processor may deliver one in 20 ms.
        while count <= 10 {
            assert!(monotonic_ns() < give_up_ns, "{count}");
            count += interrupt_until(monotonic_ns() + 20_000_000).expect("sent");
        }
        assert_eq!(ignored(), before);
        let counted = COUNT.load(Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(COUNT.load(Ordering::Relaxed), counted);
    }
}
