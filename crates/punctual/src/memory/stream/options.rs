//! Options of a publication, and the reasons why it does not take a message.

use std::fmt;

use super::super::WhenFull;
use super::prefix::StampChoice;

/// A publication to be made.
#[derive(Clone, Debug)]
pub struct PublicationOptions {
    /// The port that its messages say they come from; 0 by default. Nobody need be bound there.
    pub source: u16,
    /// Size of its ring, bytes: a power of two, 4 KiB to 1 GiB; 256 KiB by default. A message is at most a quarter of it, less 16
    /// bytes, or 32 with all stamps, and 24 more on a sealed bus. It is less than 16 MiB, too.
    ///
    /// A stream of small messages one by one can be faster in a ring that is larger than a core's own caches. On an Intel Xeon messages
    /// of 64 bytes were two to three times as fast in 16 MiB as in 1 MiB. Those of 1 KiB were slower.
    pub ring_size: usize,
    /// Reaction to a reader that is too slow; by default as the bus says.
    pub when_full: Option<WhenFull>,
    /// Time stamps that its messages carry.
    pub stamps: StampChoice,
    /// Of as many messages one says so; 1 by default.
    pub stamp_one_in: u32,
}

impl Default for PublicationOptions {
    fn default() -> Self {
        Self { source: 0, ring_size: 256 << 10, when_full: None, stamps: StampChoice::Never, stamp_one_in: 1 }
    }
}

/// Why a message was not taken. It stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferError {
    /// A reader holds the ring back: try again after it has read.
    Full,
    /// Nobody reads: no subscription that this publication is for is there.
    NotConnected,
    /// A message is larger than the ring takes ([`crate::Publication::payload_size_max`]).
    TooLong {
        /// Bytes that were to be sent.
        size: usize,
        /// The most, bytes.
        size_max: usize,
    },
    /// The bus is sealed, and there is no key to seal with: none was inserted, or its time has not come.
    NoKey,
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room now"),
            Self::NotConnected => f.write_str("nobody reads this publication"),
            Self::TooLong { size, size_max } => {
                let advice =
                    "a ring takes a fourth of its size: open a larger one, or send by a communicator";
                write!(f, "message of {size} bytes where {size_max} is the most of this ring: {advice}")
            }
            Self::NoKey => f.write_str("no key to seal with: insert one, or wait until its time has come"),
        }
    }
}

impl std::error::Error for OfferError {}
