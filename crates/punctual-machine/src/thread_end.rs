//! Work for when a thread has ended all else: behind the destructors of its thread-local values, of any language.
//!
//! Those run in an order of their own, and one of them may use what an earlier one has given up. The system runs the destructors of
//! keys behind them, and again for a key that one of those sets, a few times.

use std::ffi::c_void;
use std::sync::OnceLock;

/// Work that threads do at their very end.
#[derive(Debug)]
pub struct ThreadEnd {
    work: fn(),
    /// `None` where the process has no key left.
    key: OnceLock<Option<libc::pthread_key_t>>,
}

impl ThreadEnd {
    /// Threads that ask for it do `work`.
    pub const fn new(work: fn()) -> Self {
        Self { work, key: OnceLock::new() }
    }

    /// Asks for it, for the calling thread; true if it will be done. Once it is done, it may be asked for again.
    pub fn note(&'static self) -> bool {
        let Some(key) = *self.key.get_or_init(make_key) else { return false };
        // SAFETY: the key is one of the system's, never deleted; its value is a reference to a value that stays.
        unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(self).cast()) == 0 }
    }
}

fn make_key() -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: the key is live, and `run` is told what `note` set.
    let refused = unsafe { libc::pthread_key_create(&raw mut key, Some(run)) };
    (refused == 0).then_some(key)
}

unsafe extern "C" fn run(noted: *mut c_void) {
    // SAFETY: `note` set it, to a reference that stays; the system calls this with nothing else.
    let end = unsafe { &*noted.cast::<ThreadEnd>() };
    (end.work)();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Counter;

    /// Goal: it is done once for each thread that asked, however often, when that has ended, and not by others.
    #[test]
    fn a_thread_does_it_at_its_end() {
        static DONE: OnceLock<Counter> = OnceLock::new();
        static END: ThreadEnd = ThreadEnd::new(|| DONE.get_or_init(Counter::default).add(1));
        let done = DONE.get_or_init(Counter::default);
        for asks in [2, 0, 1] {
            let ended = std::thread::spawn(move || (0..asks).all(|_| END.note()) && done.get() < 2);
            assert!(ended.join().unwrap());
        }
        assert_eq!(done.get(), 2);
    }
}
