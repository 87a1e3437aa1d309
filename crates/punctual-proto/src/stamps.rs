//! The sender's half of a message's stages, as it rides in the frame.
//!
//! All intervals count in the sender's clock. The receiver may take a difference between its own
//! clock and these only if both read the same clock, which the *domain* says.

use crate::frame::{read_words, write_words};

/// Size of the stamps in a frame, bytes.
pub const STAMPS_SIZE: usize = 24;

/// Size of the stamps, words of eight bytes.
pub const STAMPS_WORDS: usize = STAMPS_SIZE / 8;

/// When the sender's stages of one message ended.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | `sent`: clock reading when the application handed the message over |
/// | 8 | 4 | `due_to_sent`: how long after its due time that was |
/// | 12 | 4 | `sent_to_sealed` |
/// | 16 | 4 | `sealed_to_posted` |
/// | 20 | 4 | `domain`: which clock this is; 0 = unknown |
///
/// Little-endian. An interval that does not fit stands as `u32::MAX`: it is at least so long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Clock reading at which the application handed the message over, in ticks of `domain`.
    pub sent: u64,
    /// From the instant at which the message was due until `sent`, ticks; 0 where nothing was due.
    pub due_to_sent: u32,
    /// Until header and tag were complete, ticks.
    pub sent_to_sealed: u32,
    /// Until the engine took the frame, ticks.
    pub sealed_to_posted: u32,
    /// The clock of the ticks: equal values mean one and the same clock. 0 is never equal.
    pub domain: u32,
}

/// An interval as it is stored: saturated, because an overflow must not look short.
#[inline]
pub fn interval(from: u64, to: u64) -> u32 {
    u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX)
}

/// An interval as it was, if it fitted.
#[inline]
fn fitting(stored: u32) -> Option<u64> {
    (stored != u32::MAX).then_some(stored.into())
}

/// Gives every message of an origin a stamp that no other has: the clock's reading, or the next number where the clock does
/// not say anything new. Clocks grow in steps, run on several processors, and may be set back.
///
/// An origin is a node in one life (its id and its incarnation), so (origin, stamp) is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UniqueStamps {
    last: u64,
}

impl UniqueStamps {
    /// The stamp of a message sent at this reading: never one that was given before, nor an earlier one.
    #[inline]
    pub fn next(&mut self, reading: u64) -> u64 {
        self.last = reading.max(self.last.saturating_add(1));
        self.last
    }
}

impl Stamps {
    /// The stamps as three little-endian words.
    #[inline]
    pub fn to_words(&self) -> [u64; STAMPS_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [self.sent, pair(self.due_to_sent, self.sent_to_sealed), pair(self.sealed_to_posted, self.domain)]
    }

    /// Stamps from three little-endian words; every bit pattern is one.
    #[inline]
    pub fn from_words(words: [u64; STAMPS_WORDS]) -> Self {
        let [sent, first, second] = words;
        Self {
            sent,
            due_to_sent: first as u32,
            sent_to_sealed: (first >> 32) as u32,
            sealed_to_posted: second as u32,
            domain: (second >> 32) as u32,
        }
    }

    /// Writes the stamps as they ride in a frame.
    #[inline]
    pub fn write(&self, bytes: &mut [u8; STAMPS_SIZE]) {
        write_words(self.to_words(), bytes);
    }

    /// Reads stamps; every bit pattern is one.
    #[inline]
    pub fn read(bytes: &[u8; STAMPS_SIZE]) -> Self {
        Self::from_words(read_words(bytes))
    }

    /// Clock reading at which the engine took the frame, ticks of `domain`; `None` if an interval before did not fit.
    #[inline]
    pub fn posted(&self) -> Option<u64> {
        let [sealing, posting] = [self.sent_to_sealed, self.sealed_to_posted].map(fitting);
        Some(self.sent.saturating_add(sealing?).saturating_add(posting?))
    }

    /// Clock reading at which the message was due, ticks of `domain`; `None` if the time since did not fit.
    #[inline]
    pub fn due(&self) -> Option<u64> {
        fitting(self.due_to_sent).map(|late| self.sent.saturating_sub(late))
    }

    /// The latest clock reading at which the message can have been due, ticks of `domain`.
    #[inline]
    pub fn due_at_latest(&self) -> u64 {
        self.sent.saturating_sub(self.due_to_sent.into())
    }

    /// True if both ends read the same clock.
    #[inline]
    pub fn same_clock(&self, domain: u32) -> bool {
        self.domain != 0 && self.domain == domain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stamps_survive_the_frame(sent: u64, a: u32, b: u32, c: u32, domain: u32) {
            let stamps = Stamps { sent, due_to_sent: a, sent_to_sealed: b, sealed_to_posted: c, domain };
            let mut bytes = [0; STAMPS_SIZE];
            stamps.write(&mut bytes);
            prop_assert_eq!(Stamps::read(&bytes), stamps);
        }
    }

    proptest! {
        /// Goal: unique and rising on any clock; and the reading itself whenever that is new.
        #[test]
        fn stamps_are_unique_whatever_the_clock_does(
            steps in proptest::collection::vec(prop_oneof![0_i64..3, -1_000_000_i64..1_000_000], 1..500),
        ) {
            let (mut stamps, mut reading, mut last) = (UniqueStamps::default(), 1_u64 << 40, 0);
            for step in steps {
                reading = reading.saturating_add_signed(step);
                let stamp = stamps.next(reading);
                prop_assert!(stamp > last && stamp >= reading);
                prop_assert!(stamp == reading || stamp == last + 1);
                last = stamp;
            }
        }
    }

    #[test]
    fn an_interval_that_does_not_fit_is_not_short() {
        assert_eq!(interval(10, 25), 15);
        assert_eq!(interval(25, 10), 0);
        assert_eq!(interval(0, 1 << 40), u32::MAX);
    }

    /// Goal: an interval that did not fit tells no instant, and one that just fits does.
    #[test]
    fn an_interval_that_does_not_fit_tells_no_instant() {
        let stamps = |due_to_sent, sent_to_sealed, sealed_to_posted| {
            let stamps =
                Stamps { sent: 1 << 40, due_to_sent, sent_to_sealed, sealed_to_posted, ..Stamps::default() };
            (stamps.due(), stamps.posted())
        };
        let (sent, full, most) = (1 << 40, u32::MAX, u64::from(u32::MAX) - 1);
        assert_eq!(stamps(full - 1, full - 1, 7), (Some(sent - most), Some(sent + most + 7)));
        assert_eq!(stamps(full, full, 7), (None, None));
        assert_eq!(stamps(3, 7, full), (Some(sent - 3), None));
        assert_eq!(Stamps { sent, due_to_sent: full, ..Stamps::default() }.due_at_latest(), sent - most - 1);
    }

    #[test]
    fn an_unknown_clock_is_nobodys() {
        assert!(!Stamps::default().same_clock(0));
        assert!(Stamps { domain: 3, ..Stamps::default() }.same_clock(3));
    }
}
