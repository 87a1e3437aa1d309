//! Ctrl-C as a flag that loops look at, and the end of a stop as an instant.

use crate::SystemError;
use crate::clock::monotonic_ns;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM set a flag. The second of them ends the process as usual.
pub fn catch_interrupts() -> Result<(), SystemError> {
    // Whoever asks twice means it.
    catch(libc::SA_RESETHAND)
}

/// As [`catch_interrupts`], for a process that its parent ends: the terminal and the parent may both send one.
pub fn catch_all_interrupts() -> Result<(), SystemError> {
    catch(0)
}

fn catch(flags: libc::c_int) -> Result<(), SystemError> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `sigaction` is plain data for which all zeroes is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = note_interrupt as extern "C" fn(libc::c_int) as usize;
        // No RESTART: waits end, so that loops look.
        action.sa_flags = flags;
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

/// From now on a write beyond a limit of file sizes (`ulimit -f`) fails with EFBIG, where SIGXFSZ would end the process.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler, and cannot fail for a signal that may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sends a child of this process SIGINT.
pub fn interrupt(child: &std::process::Child) {
    let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) else { return };
    // Gone already is as good: its pid is its own until it is reaped, which takes the child by `&mut`.
    let _gone = rustix::process::kill_process(pid, rustix::process::Signal::INT);
}

/// Sends SIGINT to all processes of a group, by the child of this process that leads it.
pub fn interrupt_group(leader: u32) {
    let Some(group) = rustix::process::Pid::from_raw(leader.cast_signed()) else { return };
    let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::INT);
}

/// Stops a process of this user until [`resume`].
pub fn stop(process: u32) -> Result<(), SystemError> {
    send(process, rustix::process::Signal::STOP, "stop")
}

/// Continues a process that was stopped.
pub fn resume(process: u32) -> Result<(), SystemError> {
    send(process, rustix::process::Signal::CONT, "continue")
}

fn send(process: u32, signal: rustix::process::Signal, what: &'static str) -> Result<(), SystemError> {
    let object = || format!("process {process}");
    let none = || SystemError::new(what, object(), rustix::io::Errno::SRCH);
    let pid = rustix::process::Pid::from_raw(process.cast_signed()).ok_or_else(none)?;
    rustix::process::kill_process(pid, signal).map_err(|error| SystemError::new(what, object(), error))
}

static CONTINUATIONS: AtomicU64 = AtomicU64::new(0);
static CONTINUED_NS: AtomicU64 = AtomicU64::new(0);
/// They are counted.
static COUNTS: AtomicBool = AtomicBool::new(false);

extern "C" fn note_continuation(_signal: libc::c_int) {
    CONTINUED_NS.store(monotonic_ns(), Ordering::Relaxed);
    CONTINUATIONS.fetch_add(1, Ordering::Relaxed);
}

/// From now on every SIGCONT is counted, and with it the ends of stops: whoever stops a process must continue it.
pub fn count_continuations() -> Result<(), SystemError> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = note_continuation as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler reads a clock and changes two atomics, all of it async-signal-safe; the structure is live.
    if unsafe { libc::sigaction(libc::SIGCONT, &raw const action, core::ptr::null_mut()) } == -1 {
        return Err(SystemError::last("catch signal", "SIGCONT"));
    }
    COUNTS.store(true, Ordering::Relaxed);
    Ok(())
}

/// As [`count_continuations`], unless the program has a handler of its own. Whether they are counted.
pub fn count_continuations_unless_handled() -> bool {
    if COUNTS.load(Ordering::Relaxed) {
        return true;
    }
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let mut present: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: no handler is given, and the structure that is filled is live.
    let answer = unsafe { libc::sigaction(libc::SIGCONT, core::ptr::null(), &raw mut present) };
    answer == 0 && present.sa_sigaction == libc::SIG_DFL && count_continuations().is_ok()
}

/// How often the process was continued since [`count_continuations`], and when last, nanoseconds of `CLOCK_MONOTONIC`.
pub fn continuations() -> (u64, u64) {
    (CONTINUATIONS.load(Ordering::Relaxed), CONTINUED_NS.load(Ordering::Relaxed))
}

/// Asks the kernel to send the calling process SIGKILL when its parent ends, so that no role is left behind.
pub fn end_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer; it cannot fail for a valid signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Goal: a continuation is counted, with an instant that lies between two readings around it.
    #[test]
    fn a_continuation_is_counted() {
        count_continuations().expect("a handler");
        let (before, from) = (continuations().0, monotonic_ns());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
            .expect("oneself");
        while continuations().0 == before {
            std::thread::yield_now();
        }
        let (count, at) = continuations();
        assert!(count > before && at >= from && at <= monotonic_ns(), "{count} at {at}, from {from}");
    }
}
