//! Instants that tasks wait for.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use punctual_machine::counter::Counter;
use punctual_proto::Nanos;

use super::shared::Shared;
use super::{Handle, nanos};
use crate::locks::lock;

/// Timers that one look lets go off: the worker has other things to do.
const DUE_MAX: usize = 256;

/// Due, and a number that no other has.
type Key = (Nanos, u64);

#[derive(Debug, Default)]
struct Waiting {
    by_time: BTreeMap<Key, Waker>,
    number: u64,
}

#[derive(Debug)]
pub(super) struct Timers {
    waiting: Mutex<Waiting>,
    /// When the first is due. Changed with the lock held.
    next: Counter,
}

impl Default for Timers {
    fn default() -> Self {
        let timers = Self { waiting: Mutex::default(), next: Counter::default() };
        timers.next.set(Nanos::NEVER.0);
        timers
    }
}

impl Timers {
    /// When the first is due.
    pub(super) fn next(&self) -> Nanos {
        Nanos(self.next.get())
    }

    fn note_next(&self, waiting: &Waiting) {
        self.next.set(waiting.by_time.first_key_value().map_or(Nanos::NEVER.0, |((due, _), _)| due.0));
    }

    /// Returns its key, and true if it is now the first.
    fn add(&self, due: Nanos, waker: Waker) -> (Key, bool) {
        let mut waiting = lock(&self.waiting);
        let is_first = due < self.next();
        waiting.number += 1;
        let key = (due, waiting.number);
        waiting.by_time.insert(key, waker);
        self.note_next(&waiting);
        (key, is_first)
    }

    /// True if it is still there, and now has this waker. The one before may be the last of its task, and is dropped without the lock.
    fn change(&self, key: Key, waker: &Waker) -> bool {
        let mut waiting = lock(&self.waiting);
        let Some(known) = waiting.by_time.get_mut(&key) else { return false };
        let gone = (!known.will_wake(waker)).then(|| std::mem::replace(known, waker.clone()));
        drop(waiting);
        drop(gone);
        true
    }

    fn remove(&self, key: Key) {
        let mut waiting = lock(&self.waiting);
        let gone = waiting.by_time.remove(&key);
        self.note_next(&waiting);
        drop(waiting);
        drop(gone);
    }

    /// Takes out those that are due, up to a number.
    pub(super) fn take_due(&self, now: Nanos, wakers: &mut Vec<Waker>) {
        if self.next() > now {
            return;
        }
        let mut waiting = lock(&self.waiting);
        for _ in 0..DUE_MAX {
            let Some(first) = waiting.by_time.first_entry().filter(|first| first.key().0 <= now) else {
                break;
            };
            wakers.push(first.remove());
        }
        self.note_next(&waiting);
    }

    pub(super) fn forget(&self) -> Vec<Waker> {
        std::mem::take(&mut lock(&self.waiting).by_time).into_values().collect()
    }
}

/// An instant of a runtime's clock, to be waited for. When the runtime is gone it wakes nobody: awaited elsewhere it lasts until it is
/// polled after its time.
#[derive(Debug)]
pub struct Sleep {
    shared: Arc<Shared>,
    due: Nanos,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.now() >= self.due {
            return Poll::Ready(());
        }
        let timers = &self.shared.reactor.timers;
        if self.key.is_none_or(|key| !timers.change(key, context.waker())) {
            let (key, is_first) = timers.add(self.due, context.waker().clone());
            if is_first {
                self.shared.wake_leader();
            }
            self.key = Some(key);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // In a forked child the timers are its parent's.
        if let Some(key) = self.key.filter(|_| self.shared.is_of_this_process()) {
            self.shared.reactor.timers.remove(key);
        }
    }
}

/// A future was not done in time. It was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not done in time")
    }
}

impl std::error::Error for Elapsed {}

impl Handle {
    /// The time since the runtime's start, by the processor's counter. While the machine sleeps, it goes on or stands still as that does.
    /// Where the counter begins anew behind that, it is 0 until the counter is where it was at the start. Timers wait for as long.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }

    /// Waits so long.
    #[must_use]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().plus(nanos(duration)))
    }

    /// Waits until this instant.
    #[must_use]
    pub fn sleep_until(&self, due: Nanos) -> Sleep {
        Sleep { shared: Arc::clone(&self.shared), due, key: None }
    }

    /// The future's output, if it is done in time.
    ///
    /// # Errors
    /// [`Elapsed`].
    pub async fn within<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        let (mut future, mut sleep) = (pin!(future), pin!(self.sleep(duration)));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Elapsed)),
        })
        .await
    }
}
