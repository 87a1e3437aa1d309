//! The 92-byte value that vehicles publish, and what a receiver notes of it.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | when it was due, ticks |
//! | 8 | 8 | when it was sent, ticks |
//! | 16 | 4 | its number at its sender, from 0 |
//! | 20 | 2 | its sender's number, from 0 |
//! | 22 | 2 | the component's number at its sender, from 0 |
//! | 24 | 68 | a pattern that follows from the three numbers, compared whole |

use punctual::{Stage, Stages, Ticks};

use crate::endpoint::VALUE_SIZE;

const PATTERN_AT: usize = 24;

/// Who published a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// Its vehicle.
    pub vehicle: u16,
    /// The component there.
    pub component: u16,
    /// Its number.
    pub number: u32,
}

impl Origin {
    fn pattern(self, at: usize) -> u8 {
        let mixed = u64::from(self.number) ^ u64::from(self.vehicle) << 32 ^ u64::from(self.component) << 48;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 8 * 8)) as u8 ^ at as u8
    }
}

/// A value on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Whose.
    pub origin: Origin,
    /// When it was due.
    pub due: Ticks,
    /// When it was sent.
    pub sent: Ticks,
}

impl Value {
    /// As it travels.
    pub fn bytes(&self) -> [u8; VALUE_SIZE] {
        let mut bytes = [0; VALUE_SIZE];
        Self::stamp(&mut bytes, self.due, self.sent);
        bytes[16..20].copy_from_slice(&self.origin.number.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.origin.vehicle.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.origin.component.to_le_bytes());
        for (at, byte) in bytes.iter_mut().enumerate().skip(PATTERN_AT) {
            *byte = self.origin.pattern(at);
        }
        bytes
    }

    /// Gives a value that is ready its instants.
    #[inline]
    pub fn stamp(bytes: &mut [u8; VALUE_SIZE], due: Ticks, sent: Ticks) {
        bytes[..8].copy_from_slice(&due.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&sent.0.to_le_bytes());
    }

    /// `None` if these bytes are no value, or not as they were sent.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; VALUE_SIZE] = bytes.try_into().ok()?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let number = u32::from_le_bytes(std::array::from_fn(|place| bytes[16 + place]));
        let origin = Origin { vehicle: short(20), component: short(22), number };
        let is_whole =
            bytes.iter().enumerate().skip(PATTERN_AT).all(|(at, &byte)| byte == origin.pattern(at));
        is_whole.then_some(Self { origin, due: Ticks(long(0)), sent: Ticks(long(8)) })
    }
}

/// A stage of which nothing is known.
pub const UNKNOWN: u32 = u32::MAX;

/// Stages between sent and received that a record keeps.
pub const STAGES_KEPT: [Stage; 8] = [
    Stage::Sealed,
    Stage::Posted,
    Stage::Medium,
    Stage::Elsewhere,
    Stage::Woken,
    Stage::Read,
    Stage::Opened,
    Stage::Delivered,
];

/// A value that was received, as it goes from a vehicle's process to the experiment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it said.
    pub value: Value,
    /// The receiving component.
    pub component: u16,
    /// When the probe was reached.
    pub received: Ticks,
    /// Ticks in each of [`STAGES_KEPT`], or [`UNKNOWN`].
    pub stages: [u32; STAGES_KEPT.len()],
}

/// Bytes of a record: three instants, a number, three short numbers, eight stages; padded to words.
pub const RECORD_SIZE: usize = 72;

impl Record {
    /// Of a value that reached the probe at this instant.
    #[inline]
    pub fn new(value: Value, component: u16, received: Ticks, stages: Option<&Stages>) -> Self {
        let kept = |stage: Stage| {
            let ticks = stages.and_then(|stages| stages.time_in(stage));
            // A stage of seconds is a long one, not an unknown one.
            ticks.map_or(UNKNOWN, |ticks| u32::try_from(ticks.0).unwrap_or(UNKNOWN).min(UNKNOWN - 1))
        };
        Self { value, component, received, stages: STAGES_KEPT.map(kept) }
    }

    /// Adds it to a stream of bytes.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        for instant in [self.value.due, self.value.sent, self.received] {
            bytes.extend_from_slice(&instant.0.to_le_bytes());
        }
        let Origin { vehicle, component, number } = self.value.origin;
        bytes.extend_from_slice(&number.to_le_bytes());
        for number in [vehicle, component, self.component, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for ticks in self.stages {
            bytes.extend_from_slice(&ticks.to_le_bytes());
        }
        bytes.resize(start + RECORD_SIZE, 0);
    }

    /// The inverse of [`Record::write`].
    pub fn read(bytes: &[u8; RECORD_SIZE]) -> Self {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let origin = Origin { number: word(24), vehicle: short(28), component: short(30) };
        Self {
            value: Value { origin, due: Ticks(long(0)), sent: Ticks(long(8)) },
            component: short(32),
            received: Ticks(long(16)),
            stages: std::array::from_fn(|place| word(36 + 4 * place)),
        }
    }

    /// All records of a stream.
    pub fn read_all(bytes: &[u8]) -> Vec<Self> {
        bytes.as_chunks::<RECORD_SIZE>().0.iter().map(Self::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Value {
        let origin = Origin { vehicle: 14, component: 9, number: 70_000 };
        Value { origin, due: Ticks(1 << 40), sent: Ticks((1 << 40) + 77) }
    }

    /// Goal: whatever byte is changed behind the instants is noticed.
    #[test]
    fn a_value_travels_whole_or_not_at_all() {
        let bytes = value().bytes();
        assert_eq!(Value::parse(&bytes), Some(value()));
        for at in 16..VALUE_SIZE {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert_eq!(Value::parse(&changed), None, "byte {at}");
        }
        assert_eq!(Value::parse(&bytes[1..]), None);
        assert_eq!(Value::parse(&[]), None);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record {
            value: value(),
            component: 3,
            received: Ticks((1 << 40) + 999),
            stages: [1, 2, UNKNOWN, 4, 5, 6, 7, 8],
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        record.write(&mut bytes);
        assert_eq!(Record::read_all(&bytes), [record, record]);
        assert_eq!(bytes.len(), 2 * RECORD_SIZE);
    }
}
