//! Wants values of one topic every so often.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_proto::Nanos;
use punctual_proto::interest::{Lateness, Subscription, SubscriptionCounts, Taken, Topic};
use punctual_proto::unit::Data;

use super::driver::{Driver, Origin, Step, now};
use super::publisher::deadline_after;
use super::{InterestError, ParticipantOptions, Response, Running};
use crate::communicator::{Communicator, ReceiveError};

/// Subscribes to one topic.
pub struct Subscriber<T> {
    pub(super) driver: Driver,
    pub(super) lateness: Lateness,
    values: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl<T: Data> Subscriber<T> {
    /// A subscriber to a topic that wants a value every `period`, 1 µs to 71 minutes. Its interest is announced by the first call that
    /// waits. Publishers refuse less than 100 µs, unless their [`super::PublicationLimits`] say otherwise.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn new(communicator: Communicator, topic: Topic<T>, period: Duration) -> Result<Self, InterestError> {
        Self::with(communicator, topic, period, &ParticipantOptions::default())
    }

    /// A subscriber with a reach of its own, and another repetition.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn with(
        communicator: Communicator,
        topic: Topic<T>,
        period: Duration,
        options: &ParticipantOptions,
    ) -> Result<Self, InterestError> {
        let mut driver = Driver::new(communicator, options.reach);
        driver.subscribe(topic.key(), period, options.repetition)?;
        Ok(Self::of(driver))
    }

    /// The next value; waits for it. The interest is repeated meanwhile, but not between the calls: a subscriber that stays away for
    /// longer than the interest's lifetime is forgotten until the next call.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] if it runs on a thread of its own and is told to stop.
    pub fn receive(&mut self) -> Result<Response<T>, ReceiveError> {
        self.receive_until(Nanos::NEVER)
    }

    /// As [`Self::receive`], for at most `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when it has passed.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Response<T>, ReceiveError> {
        self.receive_until(deadline_after(timeout))
    }

    fn receive_until(&mut self, deadline: Nanos) -> Result<Response<T>, ReceiveError> {
        while let Some(taken) = next_value(&mut self.driver, deadline) {
            let (bytes, origin) = self.driver.value();
            if let Some(response) = response(bytes, origin, taken) {
                note_lateness(&mut self.lateness, &response);
                return Ok(response);
            }
            self.driver.count_bad_value();
            if now() >= deadline {
                break;
            }
        }
        Err(ReceiveError::Empty)
    }

    /// Hands every value to `sink` for so long.
    pub fn serve_for(&mut self, duration: Duration, mut sink: impl FnMut(Response<T>)) {
        let deadline = deadline_after(duration);
        while let Ok(response) = self.receive_until(deadline) {
            sink(response);
            if now() >= deadline && !self.driver.has_match() {
                return;
            }
        }
    }

    /// Hands every value to `sink`, on a thread of its own.
    ///
    /// # Errors
    /// If the machine has no thread left.
    pub fn spawn(
        mut self,
        mut sink: impl FnMut(Response<T>) + Send + 'static,
    ) -> Result<Running<Self>, SystemError> {
        Running::start(self.driver.remote(), "subscriber", move || {
            while let Ok(response) = self.receive() {
                sink(response);
            }
            self
        })
    }
}

impl<T> Subscriber<T> {
    pub(super) fn of(driver: Driver) -> Self {
        Self { driver, lateness: Lateness::default(), values: PhantomData }
    }

    /// Wants no more values, and tells publishers so. If that message is lost, they notice when the interest's lifetime
    /// has passed.
    pub fn withdraw(&mut self) {
        self.driver.withdraw();
    }

    fn subscription(&self) -> &Subscription {
        &self.driver.subscriptions[0]
    }

    /// Lateness of each value after its deadline, where publisher and subscriber read one clock and the publisher's communicator has
    /// stamps.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// By how much the distance between two values of one publisher differed from that between their deadlines: needs no
    /// common clock.
    pub fn jitter(&self) -> &Lateness {
        self.subscription().jitter()
    }

    /// Outcomes of responses, counted.
    pub fn counts(&self) -> SubscriptionCounts {
        self.subscription().counts()
    }
}

/// The next value that is taken; waits for it until the deadline.
pub(super) fn next_value(driver: &mut Driver, deadline: Nanos) -> Option<Taken> {
    loop {
        match driver.step(deadline) {
            Step::Value(_, taken) => return Some(taken),
            Step::Late => return None,
            Step::Due(..) => {}
        }
    }
}

/// The value of a message, as its type has it; `None` if it is no such value.
pub(super) fn response<T: Data>(bytes: &[u8], origin: Origin, taken: Taken) -> Option<Response<T>> {
    Some(response_of(T::read(bytes)?, origin, taken))
}

pub(super) fn response_of<V>(value: V, origin: Origin, taken: Taken) -> Response<V> {
    Response {
        value,
        source: origin.source,
        offset_us: taken.offset_us,
        at_once: taken.at_once,
        missed_before: taken.missed_before,
        due: origin.due,
        sent: origin.sent,
        stages: origin.stages,
    }
}

pub(super) fn note_lateness<T>(lateness: &mut Lateness, response: &Response<T>) {
    if let Some(late_by) = response.late_by() {
        lateness.note(late_by);
    }
}
