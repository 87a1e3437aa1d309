//! Ctrl-C as a flag that loops look at.

use crate::SystemError;
use crate::sync::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM set a flag. The second of them ends the process as usual.
pub fn catch_interrupts() -> Result<(), SystemError> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `sigaction` is plain data for which all zeroes is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = note_interrupt as extern "C" fn(libc::c_int) as usize;
        // RESETHAND: whoever asks twice means it. No RESTART: waits end, so that loops look.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe; the structure is live.
        if unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) } == -1 {
            return Err(SystemError::last("catch signal", signal.to_string()));
        }
    }
    Ok(())
}

/// Whether SIGINT or SIGTERM came since [`catch_interrupts`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Asks the kernel to send the calling process SIGKILL when its parent ends, so that no role is left behind.
pub fn end_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer; it cannot fail for a valid signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
