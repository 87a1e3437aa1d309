//! A publisher, subscriber or participant on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;

use crate::communicator::Sender;

/// A publisher, subscriber or participant that runs on a thread of its own until it is told to stop. Dropped, it stops too.
#[derive(Debug)]
pub struct Running<P> {
    thread: Option<JoinHandle<P>>,
    /// Number of times that it was told to stop.
    stops: Arc<Counter>,
    sender: Sender,
}

impl<P: Send + 'static> Running<P> {
    pub(super) fn start(
        (stops, sender): (Arc<Counter>, Sender),
        name: &str,
        work: impl FnOnce() -> P + Send + 'static,
    ) -> Result<Self, SystemError> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|error| SystemError::new("start", format!("thread {name}"), error))?;
        Ok(Self { thread: Some(thread), stops, sender })
    }

    /// Stops, and gives back what ran, with its counts. It can run again.
    ///
    /// # Panics
    /// If the callback did: its panic goes on here. Or if the callback itself calls it, which runs on that thread. The callback may drop
    /// this: its thread ends then by itself.
    pub fn stop(mut self) -> P {
        let ended = self.end().expect("a callback drops what runs it in place of stopping it");
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<P> Running<P> {
    /// True if its thread has ended, which it does by itself only if the callback panics.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells the thread to stop and waits for its end, unless that was done. `None` on that thread itself, which cannot wait for its end.
    fn end(&mut self) -> Option<std::thread::Result<P>> {
        let thread = self.thread.take()?;
        self.stops.add(1);
        self.sender.clone().nudge();
        (thread.thread().id() != std::thread::current().id()).then(|| thread.join())
    }
}

impl<P> Drop for Running<P> {
    fn drop(&mut self) {
        // A forked child has not got the thread, and the node is its parent's.
        if !self.sender.is_of_this_process() {
            std::mem::forget(self.thread.take());
            return;
        }
        let _panicked_or_done = self.end();
    }
}
