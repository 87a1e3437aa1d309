//! Messages between publishers and subscribers, as the payload of a message.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | magic, 0x1E |
//! | 1 | 1 | version (high four bits, 2) and kind (low four bits) |
//! | 2 | 1 | detail: of a response, 1 = sent at once to a newcomer; of a refusal, the cause; otherwise 0 |
//! | 3 | 1 | format of the numbers ([`Format`]) |
//! | 4 | 4 | topic |
//! | 8 | 10 | unit ([`crate::unit::UnitCode`]) |
//! | 18 | 2 | count of numbers |
//! | 20 | 4 | period, µs: interest, withdrawal, refusal; otherwise 0 |
//! | 24 | 4 | interest: lifetime, ms; advertisement, response: life of the schedule; otherwise 0 |
//! | 28 | 4 | interest, withdrawal: life of the subscriber; otherwise 0 |
//! | 32 | 8 | response: instant for which the value is due, µs since the schedule began; otherwise 0 |
//! | 40 | | response: the value |
//!
//! Little-endian. Unknown values are refused.

use core::fmt;

use crate::unit::{CODE_SIZE, DataType, Format, UnitCode};

/// Size of everything but the value, bytes.
pub const MESSAGE_SIZE: usize = 40;

const MAGIC: u8 = 0x1E;
const VERSION: u8 = 2;
const AT_ONCE: u8 = 1;

/// Key of a publication: a topic, and the type of its values. Both must be equal at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicKey {
    /// Tells topics of one type apart, such as the speeds of two axles.
    pub topic: u32,
    /// Type of its values.
    pub data: DataType,
}

impl fmt::Display for TopicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {:08x} ({})", self.topic, self.data)
    }
}

/// Why a publisher does not serve an interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has as many interests as it can have.
    TooMany,
    /// One node has as many interests, periods or responses per second as one node may have.
    TooManyOfNode,
    /// The period is too short for it, or zero.
    TooShort,
    /// It serves as many different periods, or responses per second, as it can.
    TooMuch,
    /// The topic is that, but its values are of another type.
    OtherType,
}

impl Refusal {
    /// All causes.
    pub const ALL: [Self; 5] =
        [Self::TooMany, Self::TooManyOfNode, Self::TooShort, Self::TooMuch, Self::OtherType];

    /// Its place in tables of counters.
    pub const fn place(self) -> usize {
        match self {
            Self::TooMany => 0,
            Self::TooManyOfNode => 1,
            Self::TooShort => 2,
            Self::TooMuch => 3,
            Self::OtherType => 4,
        }
    }

    const fn code(self) -> u8 {
        1 + self.place() as u8
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "the publisher has as many interests as it takes",
            Self::TooManyOfNode => {
                "the publisher serves this node as often, and with as many periods, as it serves one"
            }
            Self::TooShort => "the period is too short for the publisher",
            Self::TooMuch => "the publisher serves as many periods, or responses per second, as it can",
            Self::OtherType => "the publisher's values of that topic are of another type",
        })
    }
}

/// Statement of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying<'a> {
    /// *I want a value every period.* Holds for its lifetime, and is repeated before that has passed.
    Interest {
        /// Period, µs.
        period_us: u32,
        /// Time that this holds unless repeated, ms.
        lifetime_ms: u32,
        /// Life of the subscriber: with another one it lacks the values sent to the life before.
        life: u32,
    },
    /// *I want them no more.*
    Withdrawal {
        /// Of which period, µs.
        period_us: u32,
        /// Life of the subscriber: a later one may have asked since. 0 of earlier builds: any life.
        life: u32,
    },
    /// *I publish this: who wants it?*
    Advertisement {
        /// Life of the schedule.
        life: u32,
    },
    /// A value.
    Response {
        /// Life of the schedule.
        life: u32,
        /// The instant for which it is due, µs since the schedule began.
        offset_us: u64,
        /// It is sent to one newcomer between the instants of the schedule.
        at_once: bool,
        /// The value.
        value: &'a [u8],
    },
    /// *You will not be served.*
    Refused {
        /// Of which period, µs.
        period_us: u32,
        /// Why.
        cause: Refusal,
    },
}

/// Why bytes are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// Somebody else's bytes, or too few.
    NotOurs,
    /// A version, kind, cause, format or unit of a later Punctual, or a field that is not zero.
    Unknown,
    /// The value has another size than its type says.
    WrongSize {
        /// Bytes present.
        present: usize,
        /// Bytes that the type has.
        needed: usize,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("not a message of interest and response"),
            Self::Unknown => f.write_str("unknown version, kind or field"),
            Self::WrongSize { present, needed } => {
                write!(f, "value of {present} bytes where its type has {needed}")
            }
        }
    }
}

impl core::error::Error for MessageError {}

/// A message of interest and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Topic and type that it is about.
    pub key: TopicKey,
    /// Its statement.
    pub saying: Saying<'a>,
}

/// The fields that depend on the kind.
#[derive(Default)]
struct Fields {
    kind: u8,
    detail: u8,
    period_us: u32,
    word: u32,
    subscriber: u32,
    offset_us: u64,
}

impl<'a> Message<'a> {
    /// Size of the message, bytes.
    pub fn size(&self) -> usize {
        match self.saying {
            Saying::Response { value, .. } => MESSAGE_SIZE + value.len(),
            _ => MESSAGE_SIZE,
        }
    }

    fn fields(&self) -> Fields {
        match self.saying {
            Saying::Interest { period_us, lifetime_ms, life } => {
                Fields { kind: 0, period_us, word: lifetime_ms, subscriber: life, ..Fields::default() }
            }
            Saying::Withdrawal { period_us, life } => {
                Fields { kind: 1, period_us, subscriber: life, ..Fields::default() }
            }
            Saying::Advertisement { life } => Fields { kind: 2, word: life, ..Fields::default() },
            Saying::Response { life, offset_us, at_once, .. } => {
                Fields { kind: 3, detail: at_once.into(), word: life, offset_us, ..Fields::default() }
            }
            Saying::Refused { period_us, cause } => {
                Fields { kind: 4, detail: cause.code(), period_us, ..Fields::default() }
            }
        }
    }

    /// Writes everything but the value.
    pub fn write_head(&self, bytes: &mut [u8; MESSAGE_SIZE]) {
        let fields = self.fields();
        bytes[0] = MAGIC;
        bytes[1] = VERSION << 4 | fields.kind;
        bytes[2] = fields.detail;
        bytes[3] = self.key.data.format.code();
        bytes[4..8].copy_from_slice(&self.key.topic.to_le_bytes());
        bytes[8..18].copy_from_slice(&self.key.data.unit.to_bytes());
        bytes[18..20].copy_from_slice(&self.key.data.count.to_le_bytes());
        bytes[20..24].copy_from_slice(&fields.period_us.to_le_bytes());
        bytes[24..28].copy_from_slice(&fields.word.to_le_bytes());
        bytes[28..32].copy_from_slice(&fields.subscriber.to_le_bytes());
        bytes[32..40].copy_from_slice(&fields.offset_us.to_le_bytes());
    }

    /// Takes a message apart in place.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let (head, value) = bytes.split_first_chunk::<MESSAGE_SIZE>().ok_or(MessageError::NotOurs)?;
        if head[0] != MAGIC {
            return Err(MessageError::NotOurs);
        }
        if head[1] >> 4 != VERSION {
            return Err(MessageError::Unknown);
        }
        let key = parse_key(head).ok_or(MessageError::Unknown)?;
        let fields = Fields {
            kind: head[1] & 0x0F,
            detail: head[2],
            period_us: word(head, 20),
            word: word(head, 24),
            subscriber: word(head, 28),
            offset_us: u64::from(word(head, 32)) | u64::from(word(head, 36)) << 32,
        };
        let saying = parse_saying(&fields, value).ok_or(MessageError::Unknown)?;
        let needed = if matches!(saying, Saying::Response { .. }) { key.data.size() } else { 0 };
        if value.len() != needed {
            return Err(MessageError::WrongSize { present: value.len(), needed });
        }
        Ok(Self { key, saying })
    }
}

fn word(head: &[u8; MESSAGE_SIZE], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn parse_key(head: &[u8; MESSAGE_SIZE]) -> Option<TopicKey> {
    let mut code = [0; CODE_SIZE];
    code.copy_from_slice(&head[8..18]);
    let count = u16::from_le_bytes([head[18], head[19]]);
    let data = DataType { unit: UnitCode::from_bytes(code)?, format: Format::of(head[3])?, count };
    Some(TopicKey { topic: word(head, 4), data })
}

fn parse_saying<'a>(fields: &Fields, value: &'a [u8]) -> Option<Saying<'a>> {
    let Fields { kind, detail, period_us, word, subscriber, offset_us } = *fields;
    if kind > 1 && subscriber != 0 {
        return None;
    }
    match (kind, detail, period_us, word, offset_us) {
        (0, 0, _, lifetime_ms, 0) => Some(Saying::Interest { period_us, lifetime_ms, life: subscriber }),
        (1, 0, _, 0, 0) => Some(Saying::Withdrawal { period_us, life: subscriber }),
        (2, 0, 0, life, 0) => Some(Saying::Advertisement { life }),
        (3, 0 | AT_ONCE, 0, life, _) => {
            Some(Saying::Response { life, offset_us, at_once: detail == AT_ONCE, value })
        }
        (4, cause, _, 0, 0) => Some(Saying::Refused { period_us, cause: Refusal::of(cause)? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::{Data, Metre, Quantity};
    use proptest::prelude::*;

    fn sayings() -> impl Strategy<Value = (Saying<'static>, bool)> {
        let cause = (0..Refusal::ALL.len()).prop_map(|place| Refusal::ALL[place]);
        prop_oneof![
            any::<(u32, u32, u32)>().prop_map(|(period_us, lifetime_ms, life)| {
                (Saying::Interest { period_us, lifetime_ms, life }, false)
            }),
            any::<(u32, u32)>().prop_map(|(period_us, life)| (Saying::Withdrawal { period_us, life }, false)),
            any::<u32>().prop_map(|life| (Saying::Advertisement { life }, false)),
            any::<(u32, u64, bool)>().prop_map(|(life, offset_us, at_once)| {
                (Saying::Response { life, offset_us, at_once, value: &[7; 12] }, true)
            }),
            (any::<u32>(), cause)
                .prop_map(|(period_us, cause)| (Saying::Refused { period_us, cause }, false)),
        ]
    }

    fn written(message: &Message<'_>) -> Vec<u8> {
        let mut bytes = vec![0xFF; message.size()];
        let (head, rest) = bytes.split_first_chunk_mut().unwrap();
        message.write_head(head);
        if let Saying::Response { value, .. } = message.saying {
            rest.copy_from_slice(value);
        }
        bytes
    }

    const KEY: TopicKey = TopicKey { topic: 9, data: <[Quantity<Metre, f32>; 3]>::TYPE };

    proptest! {
        #[test]
        fn messages_survive((saying, _) in sayings(), topic: u32) {
            let message = Message { key: TopicKey { topic, ..KEY }, saying };
            let bytes = written(&message);
            prop_assert_eq!(Message::parse(&bytes), Ok(message));
        }

        #[test]
        fn every_other_size_is_refused((saying, _) in sayings(), size in 0_usize..80) {
            let mut bytes = written(&Message { key: KEY, saying });
            let is_whole = size == bytes.len();
            bytes.resize(size, 0);
            prop_assert_eq!(Message::parse(&bytes).is_ok(), is_whole);
        }

        /// Goal: bytes that parse are written back as they were, so that no two byte strings mean the same.
        #[test]
        fn no_bit_is_ignored((saying, _) in sayings(), at in 0_usize..MESSAGE_SIZE, flip in 1_u8..) {
            let mut bytes = written(&Message { key: KEY, saying });
            bytes[at] ^= flip;
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(written(&message), bytes);
            }
        }
    }

    #[test]
    fn somebody_elses_bytes_are_refused() {
        assert_eq!(Message::parse(&[]), Err(MessageError::NotOurs));
        assert_eq!(Message::parse(&[0; 100]), Err(MessageError::NotOurs));
        let mut bytes = written(&Message { key: KEY, saying: Saying::Advertisement { life: 1 } });
        bytes[1] = 0x12;
        assert_eq!(Message::parse(&bytes), Err(MessageError::Unknown));
    }
}
