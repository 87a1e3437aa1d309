//! Interest and response: subscribers say what they want and how often, publishers serve all periods.
//!
//! A subscriber announces its interest (topic, type, period) to everybody within reach, and repeats it: it is soft state, which a
//! publisher forgets when it is not repeated. A publisher sends a newcomer a value at once, and from then on one at every multiple of
//! the period since its schedule began ([`schedule`]). A publisher that starts late advertises itself, and every interested subscriber
//! repeats its interest at once. Both sides are bounded ([`PublicationLimits`], [`PUBLISHERS_MAX`]); anything beyond is refused in
//! words and counted.
//!
//! Sans-IO: messages come in by `handle_*`, go out by `poll_*`, and time is an argument.

mod at_once;
mod lateness;
mod message;
mod publication;
pub mod schedule;
mod subscription;
mod topic;

pub use lateness::Lateness;
pub use message::{MESSAGE_SIZE, Message, MessageError, Refusal, Saying, TopicKey};
pub use publication::{Due, Publication, PublicationCounts, PublicationLimits};
pub use schedule::{Instant, Period, Schedule};
pub use subscription::{PUBLISHERS_MAX, Repetition, Subscription, SubscriptionCounts, Taken};
pub use topic::{Topic, topic_number};

#[cfg(test)]
mod tests;
