//! Statements about time that nodes exchange, as the payload of a message.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | magic, 0x1F |
//! | 1 | 1 | version (high four bits, 2) and kind (low four bits) |
//! | 2 | 1 | status: priority; otherwise 0 |
//! | 3 | 1 | status: 1 = what it follows is known, plus 2 = its clock is slewed; otherwise 0 |
//! | 4 | 4 | number of the exchange; status: 0 |
//! | 8 | 4 | life of the sender's clock |
//! | 12 | 4 | delay response: life of the asker's clock; status: which clock ([`crate::stamps::Stamps::domain`]); otherwise 0 |
//! | 16 | 8 | follow-up, delay response, status: time on the sender's clock, ns; otherwise 0 |
//! | 24 | 8 | status, from here on: nanoseconds per tick of the stamps, with 32 fraction bits |
//! | 32 | 8 | the reference's node id |
//! | 40 | 4 | life of the reference's clock |
//! | 44 | 4 | drift (reference − own) in parts in 10⁹: not below |
//! | 48 | 8 | offset (reference − own) at that time, ns: not below |
//! | 56 | 8 | not above |
//! | 64 | 4 | drift: not above |
//! | 68 | 4 | 0 |
//!
//! Little-endian. Unknown content is refused.

use core::fmt;

use super::estimate::Track;
use crate::address::NodeId;
use crate::time::Nanos;

/// Size of all messages but the status, bytes.
const SHORT_SIZE: usize = 24;

/// Size of a status, the largest message, bytes.
pub const STATUS_SIZE: usize = 72;

const MAGIC: u8 = 0x1F;
/// Of the layout of messages. In version 1 a status did not say whether its clock is slewed.
const VERSION: u8 = 2;

/// Flags of a status: the known facts.
const FOLLOWING: u8 = 1;
const SLEWED: u8 = 2;

/// The clock of a node, by which it stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampClock {
    /// The clock by which its stamps count.
    pub domain: u32,
    /// Nanoseconds per tick of its stamps, with 32 fraction bits.
    pub scale: u64,
    /// Its rate may be another one at any instant, as that of `CLOCK_MONOTONIC`: a node that deals with it presumes
    /// [`super::ClockModel::SLEWED`].
    pub is_slewed: bool,
}

/// The least that a reading is taken to be behind, nanoseconds. Counters of short ticks may grow by several at once: AMD's by 10 ns.
const STEP_NS_MIN: u64 = 41;

/// By how much a reading may be behind the clock, whose tick is so long: nanoseconds with 32 fraction bits. Readings are of whole ticks,
/// and then of whole nanoseconds. Timers of 24 MHz have ticks of 41.7 ns, those of 19.2 MHz of 52.1 ns.
pub const fn step_ns(scale: u64) -> u64 {
    let tick_ns = (scale >> 32) + (scale as u32 != 0) as u64;
    if tick_ns < STEP_NS_MIN { STEP_NS_MIN } else { tick_ns + 1 }
}

impl StampClock {
    /// By how much its readings may be behind it, nanoseconds ([`step_ns`]).
    pub const fn step_ns(&self) -> u64 {
        step_ns(self.scale)
    }
}

/// A node's statement about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The lower, the rather it is master.
    pub priority: u8,
    /// Its clock.
    pub clock: StampClock,
    /// Its clock when it said so.
    pub now: Nanos,
    /// The clock that it follows, the life of that clock, and the position of its own clock against that.
    pub following: Option<(NodeId, u32, Track)>,
}

/// A message about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMessage {
    /// Drawn at random when the sender's clock begins: two lives have nothing in common.
    pub life: u32,
    /// Its statement.
    pub saying: Saying,
}

/// A statement about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying {
    /// *Note when this comes.*
    Sync {
        /// Number of the exchange.
        number: u32,
    },
    /// *My clock read this before I sent it.*
    FollowUp {
        /// Number of the exchange.
        number: u32,
        /// The master's clock.
        sent: Nanos,
    },
    /// *When does this come?*
    DelayRequest {
        /// Number of the exchange.
        number: u32,
    },
    /// *My clock read this after it came.*
    DelayResponse {
        /// Number of the exchange.
        number: u32,
        /// Of whose clock's life.
        asker: u32,
        /// The master's clock.
        received: Nanos,
    },
    /// *This is me.*
    Status(Status),
}

/// Why bytes are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMessageError {
    /// Somebody else's bytes, or too few or many.
    NotOurs,
    /// A version or kind of a later Punctual, or a field that cannot be.
    Unknown,
}

impl fmt::Display for TimeMessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("not a message about time"),
            Self::Unknown => f.write_str("unknown version, kind or field"),
        }
    }
}

impl core::error::Error for TimeMessageError {}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

impl TimeMessage {
    /// Writes it; returns its size.
    pub fn write(&self, bytes: &mut [u8; STATUS_SIZE]) -> usize {
        let (kind, number, other, time) = match self.saying {
            Saying::Sync { number } => (0, number, 0, Nanos(0)),
            Saying::FollowUp { number, sent } => (1, number, 0, sent),
            Saying::DelayRequest { number } => (2, number, 0, Nanos(0)),
            Saying::DelayResponse { number, asker, received } => (3, number, asker, received),
            Saying::Status(status) => (4, 0, status.clock.domain, status.now),
        };
        bytes.fill(0);
        bytes[0] = MAGIC;
        bytes[1] = VERSION << 4 | kind;
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.life.to_le_bytes());
        bytes[12..16].copy_from_slice(&other.to_le_bytes());
        bytes[16..24].copy_from_slice(&time.0.to_le_bytes());
        let Saying::Status(status) = self.saying else { return SHORT_SIZE };
        bytes[2] = status.priority;
        bytes[3] = if status.clock.is_slewed { SLEWED } else { 0 };
        bytes[24..32].copy_from_slice(&status.clock.scale.to_le_bytes());
        if let Some((reference, life, track)) = status.following {
            bytes[3] |= FOLLOWING;
            bytes[32..40].copy_from_slice(&reference.get().to_le_bytes());
            bytes[40..44].copy_from_slice(&life.to_le_bytes());
            bytes[44..48].copy_from_slice(&drift(track.drift_low).to_le_bytes());
            bytes[48..56].copy_from_slice(&track.low.to_le_bytes());
            bytes[56..64].copy_from_slice(&track.high.to_le_bytes());
            bytes[64..68].copy_from_slice(&drift(track.drift_high).to_le_bytes());
        }
        STATUS_SIZE
    }

    /// Takes a message apart.
    ///
    /// # Errors
    /// See [`TimeMessageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TimeMessageError> {
        if bytes.len() < SHORT_SIZE || bytes[0] != MAGIC {
            return Err(TimeMessageError::NotOurs);
        }
        let is_status = bytes[1] == VERSION << 4 | 4;
        if bytes.len() != if is_status { STATUS_SIZE } else { SHORT_SIZE } {
            return Err(TimeMessageError::NotOurs);
        }
        let saying = if is_status { parse_status(bytes) } else { parse_short(bytes) };
        Ok(Self { life: word(bytes, 8), saying: saying.ok_or(TimeMessageError::Unknown)? })
    }
}

/// A value that does not fit is bounded by the clock model long before.
fn drift(ppb: i64) -> i32 {
    ppb.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

fn parse_short(bytes: &[u8]) -> Option<Saying> {
    let (number, other, time) = (word(bytes, 4), word(bytes, 12), Nanos(long(bytes, 16)));
    if bytes[2..4] != [0; 2] || bytes[1] >> 4 != VERSION {
        return None;
    }
    match (bytes[1] & 0x0F, other, time.0) {
        (0, 0, 0) => Some(Saying::Sync { number }),
        (1, 0, _) => Some(Saying::FollowUp { number, sent: time }),
        (2, 0, 0) => Some(Saying::DelayRequest { number }),
        (3, asker, _) => Some(Saying::DelayResponse { number, asker, received: time }),
        _ => None,
    }
}

fn parse_status(bytes: &[u8]) -> Option<Saying> {
    let now = Nanos(long(bytes, 16));
    let is_whole = word(bytes, 4) == 0 && word(bytes, 68) == 0;
    let following = match bytes[3] & !SLEWED {
        0 if bytes[32..].iter().all(|&byte| byte == 0) => None,
        FOLLOWING => Some((NodeId::new(long(bytes, 32))?, word(bytes, 40), parse_track(bytes, now)?)),
        _ => return None,
    };
    let is_slewed = bytes[3] & SLEWED != 0;
    let clock = StampClock { domain: word(bytes, 12), scale: long(bytes, 24), is_slewed };
    let status = Status { priority: bytes[2], clock, now, following };
    is_whole.then_some(Saying::Status(status))
}

fn parse_track(bytes: &[u8], at: Nanos) -> Option<Track> {
    let track = Track {
        at,
        low: long(bytes, 48).cast_signed(),
        high: long(bytes, 56).cast_signed(),
        drift_low: word(bytes, 44).cast_signed().into(),
        drift_high: word(bytes, 64).cast_signed().into(),
    };
    (track.low <= track.high && track.drift_low <= track.drift_high).then_some(track)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sayings() -> impl Strategy<Value = Saying> {
        let track = any::<(u64, i64, i64, i32, i32)>().prop_map(|(at, a, b, c, d)| Track {
            at: Nanos(at),
            low: a.min(b),
            high: a.max(b),
            drift_low: c.min(d).into(),
            drift_high: c.max(d).into(),
        });
        let following = proptest::option::of((1..u64::MAX, any::<u32>(), track));
        let status = (any::<(u8, u32, u64, bool, u64)>(), following).prop_map(
            |((priority, domain, scale, is_slewed, now), following)| {
                let following = following.map(|(node, life, track)| {
                    (NodeId::new(node).unwrap(), life, Track { at: Nanos(now), ..track })
                });
                let clock = StampClock { domain, scale, is_slewed };
                Saying::Status(Status { priority, clock, now: Nanos(now), following })
            },
        );
        prop_oneof![
            any::<u32>().prop_map(|number| Saying::Sync { number }),
            any::<(u32, u64)>().prop_map(|(number, t)| Saying::FollowUp { number, sent: Nanos(t) }),
            any::<u32>().prop_map(|number| Saying::DelayRequest { number }),
            any::<(u32, u32, u64)>().prop_map(|(number, asker, t)| {
                Saying::DelayResponse { number, asker, received: Nanos(t) }
            }),
            status,
        ]
    }

    /// Goal: of a node that cannot say that its clock is slewed nothing is believed.
    #[test]
    fn another_version_is_refused() {
        let clock = StampClock { domain: 1, scale: 1 << 32, is_slewed: false };
        let status = Status { priority: 1, clock, now: Nanos(5), following: None };
        let mut bytes = [0; STATUS_SIZE];
        for saying in [Saying::Sync { number: 3 }, Saying::Status(status)] {
            let size = TimeMessage { life: 2, saying }.write(&mut bytes);
            assert_eq!(bytes[1] >> 4, 2);
            bytes[1] = 1 << 4 | bytes[1] & 0x0F;
            assert!(TimeMessage::parse(&bytes[..size]).is_err(), "{saying:?}");
        }
    }

    proptest! {
        #[test]
        fn messages_survive(saying in sayings(), life: u32, at in 0_usize..STATUS_SIZE, flip in 1_u8..) {
            let message = TimeMessage { life, saying };
            let mut bytes = [0; STATUS_SIZE];
            let size = message.write(&mut bytes);
            prop_assert_eq!(TimeMessage::parse(&bytes[..size]), Ok(message));
            prop_assert!(TimeMessage::parse(&bytes[..size - 1]).is_err());

            // No bit is ignored: every message that parses writes back to itself.
            let at = at % size;
            bytes[at] ^= flip;
            if let Ok(message) = TimeMessage::parse(&bytes[..size]) {
                let mut again = [0; STATUS_SIZE];
                let again_size = message.write(&mut again);
                prop_assert_eq!(&again[..again_size], &bytes[..size]);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_write_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(message) = TimeMessage::parse(&bytes) {
                let mut again = [0; STATUS_SIZE];
                let size = message.write(&mut again);
                prop_assert_eq!(&again[..size], &bytes[..]);
            }
        }
    }
}
