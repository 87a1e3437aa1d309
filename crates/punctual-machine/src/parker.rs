//! Polls a future on the calling thread, which sleeps until it is woken for it.
//!
//! A thread has one token for all that park it: channels, scopes, and everything else that the polled code waits for take it as their
//! own. So a wake has a flag, too, and the token only ends a sleep.
//!
//! Rules:
//! 1. A wake raises the flag before it unparks the thread, which parks only where it has not found the flag. Anything that takes the
//!    token away comes behind the flag, which is found before the next sleep.
//! 2. Every wake unparks the thread. One that found the flag raised and left that to another would depend on that one's thread, which
//!    may have lost its processor in between.
//! 3. Release (A) in `raise` pairs with acquire (B) in `wait`: a poll sees what was stored before each wake. The flag is
//!    exchanged, not stored, as a store would end the release of the wake before.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;

use crate::mutant::{ordering, without};
use crate::sync::{AtomicBool, thread};

/// A thread that waits for a future.
struct Parker {
    thread: thread::Thread,
    is_woken: AtomicBool,
}

impl Parker {
    /// From now on it has been woken. Its thread is not unparked yet.
    fn raise(&self) {
        // (A) pairs with (B) in `wait`.
        self.is_woken.swap(true, ordering!("parker_wake", Release));
    }

    /// Sleeps until it has been woken once since the last time; on its own thread alone.
    fn wait(&self) {
        if without!("parker_flag") {
            return thread::park();
        }
        // (B) pairs with (A) in `raise`.
        while !self.is_woken.swap(false, ordering!("parker_wait", Acquire)) {
            thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
        self.thread.unpark();
    }
}

/// Polls a future on the calling thread until it is done. The polled code may park the thread, too.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Arc::new(Parker { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.wait(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::future::poll_fn;
    use core::time::Duration;
    use std::sync::mpsc;

    /// Goal: a wake lasts that the polled code has slept through with the thread's token. A lost one would hang.
    #[test]
    fn a_polled_future_may_park() {
        let (ends, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let mut polls = 0;
            block_on(poll_fn(|context| {
                polls += 1;
                if polls > 2 {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                std::thread::park();
                Poll::Pending
            }));
            ends.send(polls).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(3), "the wake is lost");
    }

    /// Goal: a wake needs no other waker's thread. Method: the flag is raised, as by one that has not unparked the thread yet.
    #[test]
    fn a_wake_waits_for_no_other_waker() {
        let (parks, parked) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let parker = Arc::new(Parker { thread: thread::current(), is_woken: AtomicBool::new(true) });
            parks.send(Waker::from(parker)).unwrap();
            std::thread::park();
            ends.send(()).unwrap();
        });
        parked.recv().unwrap().wake();
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(()), "it was left to another waker");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{AtomicU32, Ordering};
    use core::cell::Cell;
    use core::future::poll_fn;
    use loom::thread;

    /// Goal: no wake is lost while the polled code waits for something else. loom reports a sleeper that nobody wakes as a deadlock.
    #[test]
    fn a_wake_outlives_the_token() {
        loom::model(|| {
            let (answered, has_begun) = (Arc::new(AtomicU32::new(0)), Cell::new(false));
            block_on(poll_fn(|context| {
                if has_begun.replace(true) {
                    return Poll::Ready(());
                }
                let (waker, own, theirs) =
                    (context.waker().clone(), thread::current(), Arc::clone(&answered));
                thread::spawn(move || {
                    waker.wake();
                    theirs.store(1, Ordering::Release);
                    own.unpark();
                });
                while answered.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
                Poll::Pending
            }));
        });
    }

    /// Goal: the last poll sees what was stored before each of two wakes, also if neither has unparked the thread yet.
    #[test]
    fn wakes_bring_what_was_stored_before() {
        loom::model(|| {
            let parker = Arc::new(Parker { thread: thread::current(), is_woken: AtomicBool::new(false) });
            let messages = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            for number in 0..2 {
                let (parker, messages) = (Arc::clone(&parker), Arc::clone(&messages));
                thread::spawn(move || {
                    messages[number].store(1, Ordering::Relaxed);
                    parker.raise();
                    thread::yield_now();
                    parker.thread.unpark();
                });
            }
            while !messages.iter().all(|message| message.load(Ordering::Relaxed) == 1) {
                parker.wait();
            }
        });
    }
}
