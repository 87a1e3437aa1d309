//! A topic as a constant that publishers and subscribers share.

use core::fmt;
use core::marker::PhantomData;

use super::TopicKey;
use crate::unit::Data;

/// The number of the topic of that name: FNV-1a over its bytes (Fowler, Noll, Vo; 32-bit parameters).
pub const fn topic_number(name: &str) -> u32 {
    let (bytes, mut hash, mut at) = (name.as_bytes(), 0x811c_9dc5_u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

/// Topic of a publication: a number, and the type of its values.
///
/// ```
/// use punctual_proto::interest::Topic;
/// use punctual_proto::unit::{MetrePerSecond, Quantity};
///
/// const SPEED: Topic<Quantity<MetrePerSecond, f32>> = Topic::named("speed");
/// assert_eq!(SPEED.key().data.to_string(), "1 × F32 in m·s^-1");
/// ```
pub struct Topic<T> {
    number: u32,
    values: PhantomData<fn() -> T>,
}

impl<T: Data> Topic<T> {
    /// The topic of that number.
    pub const fn new(number: u32) -> Self {
        Self { number, values: PhantomData }
    }

    /// The topic of that name.
    pub const fn named(name: &str) -> Self {
        Self::new(topic_number(name))
    }

    /// The part of it that travels.
    pub const fn key(self) -> TopicKey {
        TopicKey { topic: self.number, data: T::TYPE }
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Topic<T> {}

impl<T: Data> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({})", self.key())
    }
}
