//! Both ends of a wake-up over the words that they share, whether a doorbell stands between them or not.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::page::WakeWords;
use super::{Notify, Park, Waited, wait};

/// The reader's end. It belongs to the thread that opened it.
pub trait Sleeper: Send + fmt::Debug {
    /// Sleeps once, and may wake early: the caller looks again.
    fn sleep(&mut self, words: &WakeWords, timeout: Duration, is_ready: &mut dyn FnMut() -> bool) -> Waited;

    /// Whether a look may take the place of the sleep. `false` where each message leaves a token, which only a sleep takes.
    fn may_look(&self) -> bool {
        true
    }

    /// System calls of one sleep.
    fn calls(&self) -> u32;
}

/// The writer's end.
pub trait Waker: Send + Sync + fmt::Debug {
    /// The message's number is stored: wakes the reader if it must be. Returns the system calls that were made for it.
    fn wake(&self, words: &WakeWords) -> u32;

    /// What another process needs to be the writer.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
}

/// With the doorbell's handshake.
impl Sleeper for Box<dyn Park> {
    #[inline]
    fn sleep(&mut self, words: &WakeWords, timeout: Duration, is_ready: &mut dyn FnMut() -> bool) -> Waited {
        wait(&mut **self, &words.bell, timeout, is_ready)
    }

    fn calls(&self) -> u32 {
        (**self).calls()
    }
}

/// A notification only if the doorbell asks for one.
impl Waker for Box<dyn Notify> {
    #[inline]
    fn wake(&self, words: &WakeWords) -> u32 {
        if words.bell.ring().is_none() {
            return 0;
        }
        self.notify(&words.bell);
        self.calls()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptor().into_iter().collect()
    }
}
