//! The frames of one origin in one view: a ring of the newest, and which of them are missing.

use alloc::vec;
use alloc::vec::Vec;

use super::guarantee::{Guarantee, LANES};
use super::slots::Slots;

/// Metadata of a frame, besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    /// It begins a message.
    pub(super) is_first: bool,
    /// It ends a message.
    pub(super) is_last: bool,
    /// It is several messages, whole each.
    pub(super) is_packed: bool,
    /// Guarantee of its message.
    pub(super) guarantee: Guarantee,
    /// Size of the whole message, bytes.
    pub(super) message_size: u32,
}

/// No frame has this number.
const NO_NUMBER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    size: u32,
    meta: Meta,
}

const EMPTY: Slot = Slot {
    number: NO_NUMBER,
    size: 0,
    meta: Meta {
        is_first: false,
        is_last: false,
        is_packed: false,
        guarantee: Guarantee::Uniform,
        message_size: 0,
    },
};

/// A ring of frames. A number's slot is taken again a window later at the soonest: by then all members have taken what was in it,
/// because the origin's credit says so.
#[derive(Debug)]
pub(super) struct Frames {
    slots: Slots<Slot>,
    window: usize,
    bytes: Vec<u8>,
    frame_size: usize,
    /// All frames before this one are here, or were.
    mark: u64,
    /// All frames before this one are known to exist.
    end: u64,
    /// Number of frames that are here behind a gap.
    here: u64,
    /// Of messages of each lane, the frame after the newest before `mark`.
    lane_ends: [u64; LANES],
}

impl Frames {
    pub(super) fn new(window: usize, frame_size: usize) -> Self {
        let slots = Slots::new(window, EMPTY);
        let bytes = vec![0; slots.len() * frame_size];
        Self { slots, window, bytes, frame_size, mark: 0, end: 0, here: 0, lane_ends: [0; LANES] }
    }

    /// Forgets everything: a view begins.
    pub(super) fn clear(&mut self) {
        self.slots.fill(EMPTY);
        (self.mark, self.end, self.here, self.lane_ends) = (0, 0, 0, [0; LANES]);
    }

    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }

    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Up to here there is something for a lane, among all that is here without a gap.
    pub(super) fn lane_end(&self, lane: usize) -> u64 {
        self.lane_ends[lane]
    }

    pub(super) fn has(&self, number: u64) -> bool {
        number != NO_NUMBER && self.slots[number].number == number
    }

    pub(super) fn get(&self, number: u64) -> Option<(Meta, &[u8])> {
        let slot = self.slots[number];
        let from = self.slots.place(number) * self.frame_size;
        self.has(number).then(|| (slot.meta, &self.bytes[from..from + slot.size as usize]))
    }

    /// Takes a frame. `limit` is the first number for which there is no room yet. Says whether it is new.
    pub(super) fn insert(&mut self, number: u64, meta: Meta, payload: &[u8], limit: u64) -> bool {
        if number < self.mark || number >= limit || self.has(number) || payload.len() > self.frame_size {
            return false;
        }
        self.slots[number] = Slot { number, size: payload.len() as u32, meta };
        self.bytes[self.slots.place(number) * self.frame_size..][..payload.len()].copy_from_slice(payload);
        self.end = self.end.max(number + 1);
        self.here += 1;
        while self.has(self.mark) {
            let lane = self.slots[self.mark].meta.guarantee.lane();
            self.mark += 1;
            self.here -= 1;
            if let Some(lane) = lane {
                self.lane_ends[lane] = self.mark;
            }
        }
        true
    }

    /// All before `end` exist, regardless of the source of that.
    pub(super) fn note_end(&mut self, end: u64, limit: u64) {
        self.end = self.end.max(end.min(limit));
    }

    /// Returns true if frames that exist are missing.
    pub(super) fn has_gap(&self) -> bool {
        self.mark < self.end
    }

    /// Number of frames that exist and are not here.
    pub(super) fn missing_count(&self) -> usize {
        (self.end - self.mark - self.here) as usize
    }

    /// Mask of those of the 64 numbers from `base` that exist and are not here, the first in the lowest bit.
    pub(super) fn missing(&self, base: u64) -> u64 {
        let (first, end) = (base.max(self.mark), self.end.min(base.saturating_add(64)));
        let is_missing = |number: &u64| self.slots[*number].number != *number;
        (first..end).filter(is_missing).fold(0, |bits, number| bits | 1 << (number - base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(frames: &mut Frames, number: u64) -> bool {
        frames.insert(number, Meta::default(), &number.to_le_bytes(), 1_000)
    }

    #[test]
    fn gaps_are_seen_and_closed() {
        let mut frames = Frames::new(8, 8);
        assert!(insert(&mut frames, 0) && insert(&mut frames, 3) && !insert(&mut frames, 3));
        assert_eq!((frames.mark(), frames.end(), frames.missing(0)), (1, 4, 0b0110));
        frames.note_end(6, 1_000);
        assert_eq!(frames.missing(1), 0b11011);
        [2, 1, 5, 4].into_iter().for_each(|number| assert!(insert(&mut frames, number)));
        assert!(!frames.has_gap() && frames.mark() == 6);
        assert_eq!(frames.get(4).map(|(_, bytes)| bytes), Some(&4_u64.to_le_bytes()[..]));
    }

    /// Goal: the count of missing frames is that of a look at each number, for any arrivals in any order.
    #[test]
    fn missing_frames_are_counted() {
        for window in [5, 64, 100] {
            let mut frames = Frames::new(window, 8);
            let mut random = 7_u64;
            for _ in 0..2_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let limit = frames.mark() + window as u64;
                // Mostly the first that is missing, so that it goes on.
                let ahead = if random >> 63 == 0 { 0 } else { (random >> 33) % window as u64 };
                frames.insert(frames.mark() + ahead, Meta::default(), &[], limit);
                if (random >> 40).is_multiple_of(16) {
                    frames.note_end(frames.end() + (random >> 50) % 8, limit);
                }
                let missing: Vec<u64> =
                    (frames.mark()..frames.end()).filter(|&number| !frames.has(number)).collect();
                assert_eq!(frames.missing_count(), missing.len());
                let base = frames.mark().saturating_sub(random >> 62);
                let bits = |number: &&u64| **number < base + 64;
                let expected =
                    missing.iter().filter(bits).fold(0, |bits, number| bits | 1_u64 << (number - base));
                assert_eq!(frames.missing(base), expected);
            }
            assert!(frames.mark() > 10 * window as u64);
        }
    }

    #[test]
    fn an_empty_slot_has_no_frame() {
        let frames = Frames::new(8, 8);
        assert!(!frames.has(NO_NUMBER) && frames.get(NO_NUMBER).is_none());
    }

    #[test]
    fn a_window_later_the_slot_has_the_other_frame() {
        let mut frames = Frames::new(4, 8);
        (0..6).for_each(|number| assert!(insert(&mut frames, number)));
        assert!(frames.get(1).is_none() && frames.has(5) && frames.has(2));
        assert!(!insert(&mut frames, 1), "a frame that was here once is not taken again");
        assert!(!frames.insert(9, Meta::default(), &[], 9), "no room yet");
    }
}
