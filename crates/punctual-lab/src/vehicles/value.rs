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
use crate::run::room_for;
use crate::run::rows::Row;

/// The publisher of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Origin {
    pub(super) vehicle: u16,
    pub(super) component: u16,
    pub(super) number: u32,
}

/// A value on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) origin: Origin,
    pub(super) due: Ticks,
    pub(super) sent: Ticks,
}

impl Value {
    pub(super) fn bytes(&self) -> [u8; VALUE_SIZE] {
        let Origin { vehicle, component, number } = self.origin;
        let mixed = u64::from(number) ^ u64::from(vehicle) << 32 ^ u64::from(component) << 48;
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let mut bytes = std::array::from_fn(|at| mixed[at % 8] ^ at as u8);
        Self::stamp(&mut bytes, self.due, self.sent);
        bytes[16..20].copy_from_slice(&number.to_le_bytes());
        bytes[20..22].copy_from_slice(&vehicle.to_le_bytes());
        bytes[22..24].copy_from_slice(&component.to_le_bytes());
        bytes
    }

    /// Gives a value that is ready its instants.
    #[inline]
    pub(super) fn stamp(bytes: &mut [u8; VALUE_SIZE], due: Ticks, sent: Ticks) {
        bytes[..8].copy_from_slice(&due.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&sent.0.to_le_bytes());
    }

    /// `None` if these bytes are no value, or not as they were sent.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; VALUE_SIZE] = bytes.try_into().ok()?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let number = u32::from_le_bytes(std::array::from_fn(|place| bytes[16 + place]));
        let origin = Origin { vehicle: short(20), component: short(22), number };
        let value = Self { origin, due: Ticks(long(0)), sent: Ticks(long(8)) };
        (value.bytes() == *bytes).then_some(value)
    }
}

/// A stage of which nothing is known.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// Stages between sent and received that a record keeps.
pub(super) const STAGES_KEPT: [Stage; 8] = [
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
pub(super) struct Record {
    pub(super) value: Value,
    pub(super) component: u16,
    /// When the probe was reached.
    pub(super) received: Ticks,
    /// Ticks in each of [`STAGES_KEPT`], or [`UNKNOWN`].
    pub(super) stages: [u32; STAGES_KEPT.len()],
}

impl Record {
    /// Room for so many records of a component in memory that is there already: to note one while values travel faults no page.
    pub(super) fn room_for(count: usize, component: u16) -> Vec<Self> {
        let value = Value { sent: Ticks(1), ..Value::default() };
        room_for(count, Self { value, component, received: Ticks(1), stages: [UNKNOWN; STAGES_KEPT.len()] })
    }

    #[inline]
    pub(super) fn new(value: Value, component: u16, received: Ticks, stages: Option<&Stages>) -> Self {
        let kept = |stage: Stage| {
            let ticks = stages.and_then(|stages| stages.time_in(stage));
            // A stage of seconds is a long one, not an unknown one.
            ticks.map_or(UNKNOWN, |ticks| u32::try_from(ticks.0).unwrap_or(UNKNOWN).min(UNKNOWN - 1))
        };
        Self { value, component, received, stages: STAGES_KEPT.map(kept) }
    }
}

/// Words of a record: three instants, who sent it and its number, who received it, and a word for two stages.
pub(super) const RECORD_WORDS: usize = 5 + STAGES_KEPT.len() / 2;

impl Row<RECORD_WORDS> for Record {
    fn words(&self) -> [u64; RECORD_WORDS] {
        let Value { origin: Origin { vehicle, component, number }, due, sent } = self.value;
        let sender = u64::from(number) | u64::from(vehicle) << 32 | u64::from(component) << 48;
        let [a, b, c, d, e, f, g, h] = self.stages;
        let [a, b, c, d] = [[a, b], [c, d], [e, f], [g, h]].map(|[a, b]| u64::from(a) | u64::from(b) << 32);
        [due.0, sent.0, self.received.0, sender, self.component.into(), a, b, c, d]
    }

    fn of_words([due, sent, received, sender, component, stages @ ..]: [u64; RECORD_WORDS]) -> Self {
        let origin = Origin {
            vehicle: (sender >> 32) as u16,
            component: (sender >> 48) as u16,
            number: sender as u32,
        };
        Self {
            value: Value { origin, due: Ticks(due), sent: Ticks(sent) },
            component: component as u16,
            received: Ticks(received),
            stages: std::array::from_fn(|place| (stages[place / 2] >> (32 * (place % 2))) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual::trace::ReceiverStamps;
    use punctual_machine::cpu::ThreadUsage;
    use punctual_proto::Stamps;

    use super::*;
    use crate::run::rows::{bytes_of, rows_of};

    fn value() -> Value {
        let origin = Origin { vehicle: 14, component: 9, number: 70_000 };
        Value { origin, due: Ticks(1 << 40), sent: Ticks((1 << 40) + 77) }
    }

    /// Goal: a change of any byte behind the instants is noticed.
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

    /// Goal: a stage that is longer than a record can say is the longest one, not an unknown one.
    #[test]
    fn a_stage_of_seconds_is_known() {
        let stamps = ReceiverStamps { delivered: Ticks(1 << 33), ..ReceiverStamps::default() };
        let sender = Stamps { sent: 1, due_to_sent: 0, sent_to_sealed: 0, sealed_to_posted: 0, domain: 9 };
        let stages = Stages { sender, receiver: stamps, one_clock: false };
        let record = Record::new(value(), 3, Ticks(1), Some(&stages));
        let delivered = STAGES_KEPT.iter().position(|stage| *stage == Stage::Delivered);
        assert_eq!(delivered.map(|place| record.stages[place]), Some(UNKNOWN - 1));
    }

    /// Goal: records noted into room that was made fault no page, of many thousand records not one in a hundred.
    #[test]
    fn room_for_records_is_there() {
        let record = Record::new(value(), 3, Ticks(1), None);
        let mut records = Record::room_for(50_000, 3);
        let before = ThreadUsage::now();
        records.extend(std::iter::repeat_n(record, 50_000));
        assert!(ThreadUsage::now().since(before).faults_minor < 500 && records.capacity() == 50_000);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record {
            value: value(),
            component: 3,
            received: Ticks((1 << 40) + 999),
            stages: [1, 2, UNKNOWN, 4, 5, 6, 7, 8],
        };
        assert_eq!(rows_of::<RECORD_WORDS, Record>(&bytes_of(&[record, record])), [record, record]);
    }
}
