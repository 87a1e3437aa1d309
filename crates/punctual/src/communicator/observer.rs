//! A communicator on a thread of its own, which hands every message to a callback.

use std::sync::Arc;
use std::thread::JoinHandle;

use punctual_machine::SystemError;
use punctual_machine::counter::Flag;
use punctual_proto::Address;

use super::{Communicator, Message, Sender};

/// A thread that observes a communicator. Dropped, it stops.
#[derive(Debug)]
pub struct Observer {
    thread: Option<JoinHandle<Communicator>>,
    stop: Arc<Stop>,
    sender: Sender,
}

#[derive(Debug, Default)]
struct Stop {
    is_wanted: Flag,
    /// The nudge that wakes for it has been sent.
    is_told: Flag,
}

impl Communicator {
    /// Hands every message to `callback` from now on, on a thread of its own that waits as this communicator was bound to
    /// ([`crate::Wake`]): spinning, on the doorbell, in epoll, by signal. Messages that came before are handed over first.
    ///
    /// To answer, or to send meanwhile, take a [`Communicator::sender`] before. Empty messages from the communicator to
    /// itself are not handed over: they end its wait.
    ///
    /// ```
    /// # use punctual::{Bus, Node, Target};
    /// # let bus = Bus::loopback("observe");
    /// # let (asker, answerer) = (Node::open(&bus, "asker")?, Node::open(&bus, "answerer")?);
    /// # let mut here = asker.bind(1)?;
    /// let there = answerer.bind(7)?;
    /// let mut answers = there.sender();
    /// let observer = there.on_message(move |message| {
    ///     // Full or gone: the asker asks again.
    ///     let _sent = answers.try_send(message.source.into(), message.payload);
    /// })?;
    ///
    /// here.send(Target::port("answerer", 7), b"hello")?;
    /// assert_eq!(here.receive()?.payload, b"hello");
    /// observer.stop();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the machine has no thread left.
    pub fn on_message(
        mut self,
        mut callback: impl FnMut(&Message<'_>) + Send + 'static,
    ) -> Result<Observer, SystemError> {
        let (stop, sender) = (Arc::new(Stop::default()), self.sender());
        let stopped = Arc::clone(&stop);
        let name = format!("observer {}", self.address().port);
        let work = move || {
            while !stopped.is_wanted.is_raised() {
                self.hand_next(&mut callback);
            }
            // A nudge that came later would be the next message of the communicator. It sleeps: a real-time thread that spins here
            // could keep its processor from the thread that nudges.
            while !stopped.is_told.is_raised() {
                std::thread::park();
            }
            self.hand_rest(&mut callback);
            self
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = thread.map_err(|error| SystemError::new("start", "thread of an observer", error))?;
        Ok(Observer { thread: Some(thread), stop, sender })
    }

    fn hand_next(&mut self, callback: &mut impl FnMut(&Message<'_>)) {
        let own = self.address();
        if let Ok(message) = self.receive()
            && !is_nudge(&message, own)
        {
            callback(&message);
        }
    }

    /// Hands over the messages that have come by now.
    fn hand_rest(&mut self, callback: &mut impl FnMut(&Message<'_>)) {
        let own = self.address();
        for _ in 0..REST_MAX {
            match self.try_receive() {
                Ok(message) if is_nudge(&message, own) => {}
                Ok(message) => callback(&message),
                Err(_) => return,
            }
        }
    }
}

/// Messages that are still handed over after an observer was told to stop: as many as its buffers may hold, without the rest of a
/// flood.
const REST_MAX: usize = 10_000;

/// An empty message to itself ends a wait.
fn is_nudge(message: &Message<'_>, own: Address) -> bool {
    message.source == own && message.payload.is_empty()
}

impl Observer {
    /// The communicator's address.
    pub fn address(&self) -> Address {
        self.sender.address()
    }

    /// Stops, and gives the communicator back. Messages that have come by now are handed over before.
    ///
    /// # Panics
    /// If the callback did: its panic goes on here. Or if the callback itself calls it, whose thread has the communicator. The callback
    /// may drop the observer: its thread ends then by itself.
    pub fn stop(mut self) -> Communicator {
        let ended = self.end().expect("a callback drops its observer in place of stopping it");
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// True if its thread has ended, which it does by itself only if the callback panics.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells the thread to stop and waits for its end, unless that was done. `None` on that thread itself, which cannot wait for its end.
    fn end(&mut self) -> Option<std::thread::Result<Communicator>> {
        let thread = self.thread.take()?;
        self.stop.is_wanted.raise();
        self.sender.clone().nudge();
        self.stop.is_told.raise();
        thread.thread().unpark();
        (thread.thread().id() != std::thread::current().id()).then(|| thread.join())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // A forked child has not got the thread, and the node is its parent's.
        if !self.sender.is_of_this_process() {
            std::mem::forget(self.thread.take());
            return;
        }
        let _panicked_or_done = self.end();
    }
}
