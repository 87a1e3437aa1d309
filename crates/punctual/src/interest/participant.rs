//! Any number of publications and subscriptions on one communicator, in callbacks.

use std::fmt;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_proto::interest::{Due, Publication, PublicationLimits, Repetition, Subscription, Taken, Topic};
use punctual_proto::unit::Data;
use punctual_proto::{Nanos, Target};

use super::driver::{Driver, Origin, Step, now};
use super::publisher::deadline_after;
use super::subscriber::response;
use super::{InterestError, Response, Running};
use crate::communicator::Communicator;

/// Options of a publisher, subscriber or participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParticipantOptions {
    /// To whom interests and advertisements go. By default to every port of every node: name a port here if others on
    /// the bus do not know this protocol.
    pub reach: Target,
    /// Limits of its publications.
    pub limits: PublicationLimits,
    /// Repetition that keeps its interests alive.
    pub repetition: Repetition,
    /// Since when the periods of its publications count, on `CLOCK_MONOTONIC`: each is due at its multiples since then, so
    /// that publishers that agree on an instant serve together, or one after the other. By default since the publication
    /// is made.
    pub begins: Option<Nanos>,
}

impl Default for ParticipantOptions {
    fn default() -> Self {
        Self {
            reach: Target::EVERYONE,
            limits: PublicationLimits::default(),
            repetition: Repetition::default(),
            begins: None,
        }
    }
}

impl ParticipantOptions {
    /// Interests and advertisements go to this port of every node only.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.reach = Target::everyone_at(port);
        self
    }
}

type Source = Box<dyn FnMut(&Due, &mut [u8]) + Send>;
/// Returns true if the bytes were a value.
type Sink = Box<dyn FnMut(&[u8], Origin, Taken) -> bool + Send>;

/// Publishes and subscribes, in callbacks on the thread that drives it. A value that it publishes and wants itself is
/// handed from callback to callback, before the medium has it: no medium, no other thread, no tag.
pub struct Participant {
    pub(super) driver: Driver,
    options: ParticipantOptions,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl Participant {
    /// A participant at a communicator, with nothing to publish and no interest.
    pub fn new(communicator: Communicator) -> Self {
        Self::with(communicator, &ParticipantOptions::default())
    }

    /// A participant with limits, reach or repetition of its own.
    pub fn with(communicator: Communicator, options: &ParticipantOptions) -> Self {
        let driver = Driver::new(communicator, options.reach);
        Self { driver, options: *options, sources: Vec::new(), sinks: Vec::new() }
    }

    /// Publishes a topic: `source` is asked whenever a value is due.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn publish<T: Data>(
        &mut self,
        topic: Topic<T>,
        mut source: impl FnMut(&Due) -> T + Send + 'static,
    ) -> Result<(), InterestError> {
        self.driver.publish(topic.key(), &self.options)?;
        self.sources.push(Box::new(move |due, bytes| source(due).write(bytes)));
        Ok(())
    }

    /// Wants a value of a topic every `period`: `sink` is called with each.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn subscribe<T: Data>(
        &mut self,
        topic: Topic<T>,
        period: Duration,
        mut sink: impl FnMut(Response<T>) + Send + 'static,
    ) -> Result<(), InterestError> {
        self.driver.subscribe(topic.key(), period, self.options.repetition)?;
        let sink = move |bytes: &[u8], origin: Origin, taken: Taken| {
            let response = response(bytes, origin, taken);
            let is_value = response.is_some();
            response.into_iter().for_each(&mut sink);
            is_value
        };
        self.sinks.push(Box::new(sink));
        Ok(())
    }

    /// Publishes and receives for so long.
    pub fn serve_for(&mut self, duration: Duration) {
        self.serve_until(deadline_after(duration));
    }

    fn serve_until(&mut self, deadline: Nanos) {
        loop {
            match self.driver.step(deadline) {
                Step::Due(index, due) => {
                    let source = &mut self.sources[index];
                    self.driver.stage_value(index, &due, |bytes| source(&due, bytes));
                    while let Some((index, taken)) = self.driver.next_match() {
                        self.hand_value(index, taken);
                    }
                    self.driver.send_staged(index, &due);
                }
                Step::Value(index, taken) => self.hand_value(index, taken),
                Step::Late => return,
            }
            // Callbacks that take longer than a period always find something more to do.
            if now() >= deadline && !self.driver.has_match() {
                return;
            }
        }
    }

    fn hand_value(&mut self, index: usize, taken: Taken) {
        let (bytes, origin) = self.driver.value();
        if !self.sinks[index](bytes, origin, taken) {
            self.driver.count_bad_value();
        }
    }

    /// Publishes nothing more, and drops the sources. Its subscriptions go on.
    pub fn stop_publishing(&mut self) {
        self.driver.publications.clear();
        self.sources.clear();
    }

    /// Publishes and receives on a thread of its own.
    ///
    /// # Errors
    /// If the machine has no thread left.
    pub fn spawn(mut self) -> Result<Running<Self>, SystemError> {
        Running::start(self.driver.remote(), "participant", move || {
            self.serve_until(Nanos::NEVER);
            self
        })
    }

    /// Its publications, in the order in which they were made: interests, periods and their lateness, counts.
    pub fn publications(&self) -> &[Publication] {
        &self.driver.publications
    }

    /// Its subscriptions, in the order in which they were made: jitter, counts.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.driver.subscriptions
    }
}
