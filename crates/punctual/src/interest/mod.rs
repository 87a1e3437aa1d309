//! Interest and response: a subscriber says how often it wants a value, and the publisher serves all subscribers.
//!
//! A [`Publisher`] has values of one topic, a [`Subscriber`] wants them every so often; a [`Participant`] does any number
//! of both on one communicator, in callbacks. Each drives the protocol (`docs/interest.md`) while it waits, on the
//! caller's thread, or on one of its own ([`Publisher::spawn`], [`Subscriber::spawn`], [`Participant::spawn`]).
//!
//! ```
//! use std::time::Duration;
//! use punctual::interest::{Publisher, Subscriber, Topic};
//! use punctual::unit::{MetrePerSecond, Quantity};
//! use punctual::{Bus, Node};
//!
//! const SPEED: Topic<Quantity<MetrePerSecond, f32>> = Topic::named("speed");
//!
//! let bus = Bus::loopback("interest");
//! let (axle, display) = (Node::open(&bus, "axle")?, Node::open(&bus, "display")?);
//! let publisher = Publisher::new(axle.bind(1)?, SPEED)?.spawn(|_due| Quantity::new(13.9))?;
//! let mut subscriber = Subscriber::new(display.bind(1)?, SPEED, Duration::from_millis(10))?;
//!
//! let response = subscriber.receive_timeout(Duration::from_secs(10))?;
//! assert_eq!(response.value, Quantity::new(13.9));
//! publisher.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Values have units, and the compiler checks them: seconds are no speed.
//! ```compile_fail
//! # use punctual::interest::{Publisher, Topic};
//! # use punctual::unit::{MetrePerSecond, Quantity, Second};
//! # use punctual::{Bus, Node};
//! # const SPEED: Topic<Quantity<MetrePerSecond, f32>> = Topic::named("speed");
//! # let communicator = Node::open(&Bus::loopback("interest-2"), "axle").unwrap().bind(1).unwrap();
//! Publisher::new(communicator, SPEED).unwrap().spawn(|_due| Quantity::<Second, f32>::new(13.9)).unwrap();
//! ```
//! Nor are they one where they arrive:
//! ```compile_fail
//! # use std::time::Duration;
//! # use punctual::interest::{Response, Subscriber, Topic};
//! # use punctual::unit::{MetrePerSecond, Quantity, Second};
//! # use punctual::{Bus, Node};
//! # const SPEED: Topic<Quantity<MetrePerSecond, f32>> = Topic::named("speed");
//! # let communicator = Node::open(&Bus::loopback("interest-3"), "display").unwrap().bind(1).unwrap();
//! let mut subscriber = Subscriber::new(communicator, SPEED, Duration::from_millis(10)).unwrap();
//! let time: Quantity<Second, f32> = subscriber.receive().unwrap().value;
//! ```

use std::fmt;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::unit::DataType;
use punctual_proto::{Address, Nanos};

use crate::trace::Stages;

pub use participant::{Participant, ParticipantOptions};
pub use publisher::Publisher;
pub use punctual_proto::interest::{
    Due, Instant, Lateness, Period, PublicationCounts, PublicationLimits, Refusal, Repetition, Schedule,
    SubscriptionCounts, Topic, TopicKey, topic_number,
};
pub use punctual_proto::unit::Data;
pub use running::Running;
pub use subscriber::Subscriber;
pub use untyped::{Untyped, WrongSize};

mod carrier;
mod driven;
mod driver;
mod followed;
mod participant;
mod publisher;
mod running;
mod subscriber;
mod untyped;

/// Why a topic cannot be published or subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterestError {
    /// A value with its head is longer than a message of this bus.
    TooLong {
        /// Bytes of a value with its head.
        size: usize,
        /// Largest message of this bus, bytes.
        size_max: usize,
    },
    /// The communicator has as many topics as it can have.
    TooMany(usize),
    /// The communicator publishes the topic already.
    Published(TopicKey),
    /// A period is from 1 µs to 71 minutes.
    BadPeriod(Duration),
    /// A value of no numbers, bytes that have a unit, or numbers in bytes.
    BadType(DataType),
}

impl fmt::Display for InterestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { size, size_max } => {
                write!(f, "value of {size} bytes with its head, where {size_max} is the most of this bus")
            }
            Self::TooMany(most) => {
                write!(f, "a communicator has at most {most} topics: bind another for the rest")
            }
            Self::Published(key) => write!(f, "{key} is published here already"),
            Self::BadType(data) => write!(
                f,
                "values of {data}: one has 1 number or more, bytes have the unit `bytes`, and nothing else has it"
            ),
            Self::BadPeriod(period) => write!(f, "period of {period:?}: from 1 µs to 71 minutes is possible"),
        }
    }
}

impl std::error::Error for InterestError {}

/// Outcomes of the messages of one publisher, subscriber or participant, besides the counts of its topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages that the node took.
    pub sent: u64,
    /// Not sent: there was no room. A value that is late is worth nothing; the next one is due soon.
    pub full: u64,
    /// Not sent: nobody there by that address, such as a subscriber that died and whose interest still holds.
    pub unreachable: u64,
    /// Not sent for another reason: a key is missing, memory, or room for one more node.
    pub unsendable: u64,
    /// Messages that came and are none of this protocol.
    pub foreign: u64,
    /// Messages that came and were not sealed in the group that is followed.
    pub other_groups: u64,
}

/// A value that arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response<T> {
    /// The value.
    pub value: T,
    /// Its publisher.
    pub source: Address,
    /// The instant for which it is, µs since its publisher's schedule began.
    pub offset_us: u64,
    /// It was sent at once to us as newcomers, between the instants of the schedule.
    pub at_once: bool,
    /// Instants before it for which no value came from this publisher; time away from its group is none of these.
    pub missed_before: u64,
    /// When it was due, in ticks of this clock, where that is known: one clock, and a communicator with stamps.
    pub due: Option<Ticks>,
    /// When its publisher sent it, in ticks of this clock, where that is known.
    pub sent: Option<Ticks>,
    /// Where its time went, if it came over the bus and its publisher's communicator has stamps.
    pub stages: Option<Stages>,
}

impl<T> Response<T> {
    /// Time from its instant until it was here, where that is known; for a value that did not come over the bus, until now. At least so
    /// much where it was sent later than stamps can tell, 2³² ticks after its instant.
    pub fn late_by(&self) -> Option<Nanos> {
        let at_latest = || {
            let stages = self.stages.as_ref().filter(|stages| stages.one_clock)?;
            Some(Ticks(stages.sender.due_at_latest()))
        };
        let due = self.due.or_else(at_latest).filter(|_| !self.at_once)?;
        let clock = Clock::get();
        let here = self.stages.map_or_else(|| clock.now(), |stages| stages.receiver.delivered);
        Some(Nanos(clock.nanos(here.since(due))))
    }
}
