//! Publishers and subscribers whose values are bytes: for programs in other languages, bridges and recorders, which know the type of
//! a topic when they run.

use std::fmt;
use std::time::Duration;

use punctual_proto::interest::{Due, TopicKey};

use super::driver::Driver;
use super::publisher::deadline_after;
use super::subscriber::{next_value, note_lateness, response_of};
use super::{InterestError, ParticipantOptions, Publisher, Response, Subscriber};
use crate::communicator::{Communicator, ReceiveError};

/// The values of a topic whose type is known only when the program runs.
///
/// ```
/// use std::time::Duration;
/// use punctual::interest::{ParticipantOptions, Publisher, Subscriber, TopicKey, topic_number};
/// use punctual::unit::{DataType, Format};
/// use punctual::{Bus, Node};
///
/// let data = DataType { unit: "m/s".parse()?, format: Format::F32, count: 1 };
/// let key = TopicKey { topic: topic_number("speed"), data };
/// let bus = Bus::loopback("untyped");
/// let (axle, display) = (Node::open(&bus, "axle")?, Node::open(&bus, "display")?);
/// let options = ParticipantOptions::default();
/// let mut publisher = Publisher::untyped(axle.bind(1)?, key, &options)?;
/// let mut subscriber = Subscriber::untyped(display.bind(1)?, key, Duration::from_millis(10), &options)?;
///
/// assert!(subscriber.receive_bytes(Duration::ZERO).is_err()); // this says what it wants
/// let due = publisher.next_due(Duration::from_secs(10)).unwrap();
/// publisher.publish_bytes(&due, &13.9_f32.to_le_bytes())?;
/// let response = subscriber.receive_bytes(Duration::from_secs(10))?;
/// assert_eq!(response.value, 13.9_f32.to_le_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Untyped {}

/// A value has another size than its topic says; it was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongSize {
    /// Bytes of the value.
    pub size: usize,
    /// Bytes of each value of the topic.
    pub expected: usize,
}

impl fmt::Display for WrongSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {} bytes, where each of the topic has {}", self.size, self.expected)
    }
}

impl std::error::Error for WrongSize {}

impl Publisher<Untyped> {
    /// A publisher of a topic whose values are given as bytes, each as its type says: little-endian numbers, one after the other.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn untyped(
        communicator: Communicator,
        key: TopicKey,
        options: &ParticipantOptions,
    ) -> Result<Self, InterestError> {
        let mut driver = Driver::new(communicator, options.reach);
        driver.publish(key, options)?;
        Ok(Self::of(driver))
    }

    /// Sends a value for an instant that [`Self::next_due`] gave.
    ///
    /// # Errors
    /// If it has another size than the topic's values; the instant can still be served.
    pub fn publish_bytes(&mut self, due: &Due, value: &[u8]) -> Result<(), WrongSize> {
        let (size, expected) = (value.len(), self.value_size());
        if size != expected {
            return Err(WrongSize { size, expected });
        }
        self.driver.stage_value(0, due, |bytes| bytes.copy_from_slice(value));
        self.driver.send_staged(0, due);
        Ok(())
    }

    /// Bytes of each value.
    pub fn value_size(&self) -> usize {
        self.driver.publications[0].key().data.size()
    }
}

impl Subscriber<Untyped> {
    /// A subscriber to a topic whose values are shown as bytes.
    ///
    /// # Errors
    /// See [`InterestError`].
    pub fn untyped(
        communicator: Communicator,
        key: TopicKey,
        period: Duration,
        options: &ParticipantOptions,
    ) -> Result<Self, InterestError> {
        let mut driver = Driver::new(communicator, options.reach);
        driver.subscribe(key, period, options.repetition)?;
        Ok(Self::of(driver))
    }

    /// The next value; waits for it for at most `timeout`, and repeats the interest meanwhile. Its bytes are of the size that the topic says.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when the time has passed.
    pub fn receive_bytes(&mut self, timeout: Duration) -> Result<Response<&[u8]>, ReceiveError> {
        let taken = next_value(&mut self.driver, deadline_after(timeout)).ok_or(ReceiveError::Empty)?;
        let (value, origin) = self.driver.value();
        let response = response_of(value, origin, taken);
        note_lateness(&mut self.lateness, &response);
        Ok(response)
    }

    /// Bytes of each value.
    pub fn value_size(&self) -> usize {
        self.driver.subscriptions[0].key().data.size()
    }
}
