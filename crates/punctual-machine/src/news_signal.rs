//! Interruptions by news of a descriptor (`O_ASYNC`, SIGIO), counted by a handler that does nothing else: what they cost
//! whoever runs and has no use for them. To wait for such signals, see [`crate::async_io`].
//!
//! Rule: the handler touches one static counter, which is async-signal-safe.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::SystemError;
use crate::sync::{AtomicU64, Ordering};

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
    // SAFETY: the handler keeps the rule; the structure is live; the descriptor is open while it is borrowed.
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
    use std::time::Duration;

    use super::*;

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
