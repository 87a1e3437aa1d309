//! A futex without any protocol: a lower bound that nothing built on it can beat.

use std::time::Duration;

use rustix::thread::futex::{self, Flags};

use crate::event_fd::timespec;
use crate::slept::Slept;
use crate::sync::{AtomicU32, Ordering};

/// A word that a futex waits on, also between processes. Its sender calls the kernel every time.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct BareFutex(AtomicU32);

impl BareFutex {
    /// Sender: changes the word and wakes.
    #[inline]
    pub fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Waking nobody is no error.
        let _woken = futex::wake(&self.0, Flags::empty(), 1);
    }

    /// The word, to be read before looking at the condition.
    #[inline]
    pub fn seen(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps while the word is still `seen`, for `timeout` at most.
    #[inline]
    pub fn sleep(&self, seen: u32, timeout: Duration) -> Slept {
        // Every outcome (woken, changed already, timeout, signal) asks the caller to look again.
        let outcome = futex::wait(&self.0, Flags::empty(), seen, Some(&timespec(timeout)));
        Slept::to_the_limit(outcome == Err(rustix::io::Errno::TIMEDOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = BareFutex::default();
        let seen = word.seen();
        word.wake();
        word.sleep(seen, Duration::from_secs(100));
    }
}
