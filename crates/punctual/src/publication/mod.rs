//! Publications and subscriptions: messages in memory without anything between a sender's ring and its readers.
//!
//! A [`Publication`] is a connected sender: one ring, for one target. A [`Subscription`] reads all publications that are for its port,
//! where they lie. They move messages inside a process and over shared memory. For other media, and for a sender with many targets,
//! there is the [`crate::Communicator`].
//!
//! ```
//! use punctual::{Bus, Node, PublicationOptions, SubscriptionOptions, Target};
//!
//! let bus = Bus::loopback("streams"); // or Bus::shared("streams")
//! let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
//! let mut subscription = there.subscription(7, &SubscriptionOptions::default())?;
//! let mut publication = here.publication(Target::port("there", 7), &PublicationOptions::default())?;
//!
//! let mut buffer = [0; 64];
//! publication.offer(b"one")?;
//! let received = subscription.receive(&mut buffer)?;
//! assert_eq!(&buffer[..received.size], b"one");
//!
//! let mut run = publication.run(); // readers are told once, at its end
//! run.offer(b"two")?;
//! run.offer(b"three")?;
//! drop(run);
//! let mut seen = Vec::new();
//! subscription.poll(64, |message| {
//!     if let Ok(size) = message.copy_to(&mut buffer) {
//!         seen.push(buffer[..size].to_vec());
//!     }
//! });
//! assert_eq!(seen, [&b"two"[..], b"three"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod news;
mod received;
mod subscription;

pub use crate::memory::stream::{
    ImageAccount, OfferError, Overrun, Publication, PublicationClaim, PublicationOptions, Run, StampChoice,
    StreamError, StreamHead, StreamMessage,
};
pub(crate) use news::Nudges;
pub use received::{Received, TakeError};
pub(crate) use subscription::Wait;
pub use subscription::{Subscription, SubscriptionOptions};
