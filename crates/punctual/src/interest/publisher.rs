//! Has values of one topic, and sends them when they are due.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_proto::interest::{Due, Period, Publication, PublicationCounts, Topic};
use punctual_proto::unit::Data;
use punctual_proto::{Address, Nanos};

use super::driver::{Driver, Step, now};
use super::{InterestError, ParticipantOptions, Running};
use crate::communicator::Communicator;

/// Publishes one topic.
pub struct Publisher<T> {
    pub(super) driver: Driver,
    values: PhantomData<fn(T)>,
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl<T: Data> Publisher<T> {
    /// A publisher of a topic at a communicator, with the usual limits.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn new(communicator: Communicator, topic: Topic<T>) -> Result<Self, InterestError> {
        Self::with(communicator, topic, &ParticipantOptions::default())
    }

    /// A publisher with limits and reach of its own.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn with(
        communicator: Communicator,
        topic: Topic<T>,
        options: &ParticipantOptions,
    ) -> Result<Self, InterestError> {
        let mut driver = Driver::new(communicator, options.reach);
        driver.publish(topic.key(), options)?;
        Ok(Self::of(driver))
    }

    /// Sends a value for an instant that [`Self::next_due`] gave. Values that could not be sent are counted ([`Self::traffic`]).
    pub fn publish(&mut self, due: &Due, value: &T) {
        self.driver.stage_value(0, due, |bytes| value.write(bytes));
        self.driver.send_staged(0, due);
    }

    /// Serves all interests for so long, with the values that `source` has when they are due.
    pub fn serve_for(&mut self, duration: Duration, mut source: impl FnMut(&Due) -> T) {
        self.serve_until(deadline_after(duration), &mut source);
    }

    fn serve_until(&mut self, deadline: Nanos, source: &mut impl FnMut(&Due) -> T) {
        while let Some(due) = self.next_until(deadline) {
            let value = source(&due);
            self.publish(&due, &value);
            // A source that takes longer than a period always has another instant to serve.
            if now() >= deadline {
                return;
            }
        }
    }

    /// Serves all interests on a thread of its own.
    ///
    /// # Errors
    /// If the machine has no thread left.
    pub fn spawn(
        mut self,
        mut source: impl FnMut(&Due) -> T + Send + 'static,
    ) -> Result<Running<Self>, SystemError> {
        Running::start(self.driver.remote(), "publisher", move || {
            self.serve_until(Nanos::NEVER, &mut source);
            self
        })
    }
}

impl<T> Publisher<T> {
    pub(super) fn of(driver: Driver) -> Self {
        Self { driver, values: PhantomData }
    }

    /// When the next value is wanted; takes care of interests while it waits. `None` if none is within `timeout`.
    pub fn next_due(&mut self, timeout: Duration) -> Option<Due> {
        self.next_until(deadline_after(timeout))
    }

    fn next_until(&mut self, deadline: Nanos) -> Option<Due> {
        loop {
            match self.driver.step(deadline) {
                Step::Due(_, due) => return Some(due),
                Step::Late => return None,
                Step::Value(..) => {}
            }
        }
    }

    fn publication(&self) -> &Publication {
        &self.driver.publications[0]
    }

    /// The periods that are or were served, each with its lateness against its deadlines and its misses.
    pub fn periods(&self) -> &[Period] {
        self.publication().schedule().periods()
    }

    /// Addresses that are interested now, each with its period, µs.
    pub fn interests(&self) -> impl Iterator<Item = (Address, u32)> + '_ {
        self.publication().interests()
    }

    /// Outcomes of interests, counted.
    pub fn counts(&self) -> PublicationCounts {
        self.publication().counts()
    }
}

pub(super) fn deadline_after(timeout: Duration) -> Nanos {
    now().plus(Nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)))
}
