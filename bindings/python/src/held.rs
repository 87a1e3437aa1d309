//! Values that one thread at a time uses, until they are closed.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use punctual_machine::handles::{Thread, forks};
use pyo3::prelude::*;

use crate::error::{Busy, Closed, invalid};

/// Longest time that a wait may delay a signal, such as Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// A value that may be closed, of this process alone.
#[derive(Debug)]
pub(crate) struct Held<T: Send> {
    value: Mutex<Option<T>>,
    forks: u32,
    what: &'static str,
}

impl<T: Send> Held<T> {
    pub(crate) fn new(value: T, what: &'static str) -> Self {
        // From the first of a process on forks are seen.
        let _seen = Thread::current();
        Self { value: Mutex::new(Some(value)), forks: forks(), what }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, Option<T>>> {
        if self.forks != forks() {
            let what = self.what;
            return Err(Closed::new_err(format!("this {what} is of the process that forked: open another")));
        }
        match self.value.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(_)) => {
                Err(Closed::new_err(format!("a mistake in the library broke this {}", self.what)))
            }
            Err(TryLockError::WouldBlock) => {
                Err(Busy::new_err(format!("another thread is using this {}", self.what)))
            }
        }
    }

    /// Uses it.
    pub(crate) fn with<R>(&self, visit: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        let mut guard = self.lock()?;
        visit(guard.as_mut().ok_or_else(|| Closed::new_err(format!("this {} is closed", self.what)))?)
    }

    /// Closes it; once it is, that does nothing.
    pub(crate) fn close(&self) -> PyResult<()> {
        let closed = self.lock()?.take();
        drop_detached(closed);
        Ok(())
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().ok().and_then(Option::take);
        if self.forks == forks() {
            drop_detached(value);
        } else {
            // A parent's, whose rings and descriptors are not ours to close.
            std::mem::forget(value);
        }
    }
}

/// Drops it without the interpreter's lock. Its end may wait for readers, and threads of this interpreter may be among them.
fn drop_detached<T: Send>(value: Option<T>) {
    // Without an interpreter nobody waits for its lock: the closure is dropped then, and the value with it.
    let _ = Python::try_attach(|py| py.detach(move || drop(value)));
}

/// A timeout in seconds; `None` waits for as long as it takes.
pub(crate) fn timeout_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let seconds = if seconds.is_nan() { -1.0 } else { seconds };
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| invalid(format_args!("a timeout of {seconds} seconds: 0 or more is needed, or None")))
}

/// Until when a call waits, in several waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    begun: Instant,
    timeout: Option<Duration>,
}

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self { begun: Instant::now(), timeout }
    }

    /// The time that remains; `None` is for ever.
    pub(crate) fn left(self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.begun.elapsed()))
    }
}

/// Tries for as long as there is nothing, without the interpreter's lock, and looks after signals.
///
/// `attempt` waits for at most so long, and says `None` if there was nothing.
pub(crate) fn wait<R: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut attempt: impl FnMut(Duration) -> Option<R> + Send,
) -> PyResult<Option<R>> {
    let begun = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        let slice = left.map_or(SIGNALS_EVERY, |left| left.min(SIGNALS_EVERY));
        if let Some(found) = py.detach(|| attempt(slice)) {
            return Ok(Some(found));
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= SIGNALS_EVERY) {
            return Ok(None);
        }
    }
}
