//! Number of kernel calls that a thread makes to send, to receive and to sleep. Counted in debug builds only: for tests that say what a
//! message costs.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// One more.
#[inline]
pub(crate) fn note() {
    if cfg!(debug_assertions) {
        COUNT.with(|count| count.set(count.get() + 1));
    }
}

/// Number of calls that this thread has made by sockets, eventfds, epoll sets and doorbells; `None` where they are not counted.
pub fn of_this_thread() -> Option<u64> {
    cfg!(debug_assertions).then(|| COUNT.get())
}
