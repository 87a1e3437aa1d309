//! Record of the numbers of a stream that were taken already: a sliding bitmap, after RFC 6479 (Zhang, Tsou 2012).
//!
//! The numbers have 32 bits and come round again, and a later life of a node may begin with them anew; the time at which a frame was
//! sealed tells those apart. It never falls from one number of a stream to the next, so a frame newer than everything taken was never
//! taken. Each part of the bitmap knows how old its numbers can be at most.

/// Parts of the bitmap.
const PARTS: u32 = 32;
const PART_BITS: u32 = u64::BITS;

/// Numbers behind the newest that are told apart. One part of the bitmap is always being emptied.
pub const WINDOW: u32 = (PARTS - 1) * PART_BITS;
const _: () = assert!(WINDOW >= 1024 && PARTS.is_power_of_two() && PART_BITS.is_power_of_two());

/// Why a number is not taken. Both mean the same to a caller: it is not new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNew {
    /// It was taken before, or is one of an earlier lap or life.
    Taken,
    /// It is so far behind that nobody knows any more.
    TooOld,
}

/// Some numbers in a row.
#[derive(Clone, Copy, Debug)]
struct Part {
    taken: u64,
    /// Frames that were sealed before this are of an earlier lap or life.
    since: u64,
}

/// The numbers of one stream.
#[derive(Clone, Debug)]
pub struct Window {
    /// The newest number; none before the first.
    newest: Option<u32>,
    /// When it was sealed; before the first number, from when on one can be.
    newest_time: u64,
    parts: [Part; PARTS as usize],
}

impl Window {
    /// A window that takes frames sealed at `floor` or later, and any number as the first.
    pub fn beginning_after(floor: u64) -> Self {
        let part = Part { taken: 0, since: floor };
        Self { newest: None, newest_time: floor, parts: [part; PARTS as usize] }
    }

    /// When the newest frame that was taken had been sealed; the floor, if none was.
    pub fn newest_time(&self) -> u64 {
        self.newest_time
    }

    /// Takes a number that was sealed at `time`, once.
    ///
    /// # Errors
    /// When it was taken before, or nobody knows.
    #[inline]
    pub fn take(&mut self, number: u32, time: u64) -> Result<(), NotNew> {
        let newest = match self.newest {
            Some(newest) => newest,
            None if time < self.newest_time => return Err(NotNew::TooOld),
            None => self.begin(number, time, self.newest_time),
        };
        let is_ahead = number.wrapping_sub(newest).cast_signed() > 0;
        if time >= self.newest_time && is_ahead {
            self.advance(newest, number, time);
        } else if time > self.newest_time {
            // Newer than all that was taken, and yet behind: the numbers have begun anew.
            self.begin(number, time, self.newest_time + 1);
        } else if newest.wrapping_sub(number) >= WINDOW {
            return Err(NotNew::TooOld);
        }
        let part = &mut self.parts[(number / PART_BITS % PARTS) as usize];
        let bit = 1 << (number % PART_BITS);
        if part.taken & bit != 0 || time < part.since {
            return Err(NotNew::Taken);
        }
        part.taken |= bit;
        Ok(())
    }

    #[cold]
    fn begin(&mut self, number: u32, time: u64, since: u64) -> u32 {
        self.parts = [Part { taken: 0, since }; PARTS as usize];
        (self.newest, self.newest_time) = (Some(number), time);
        number
    }

    /// Empties the parts between the newest number and this one.
    #[inline]
    fn advance(&mut self, newest: u32, number: u32, time: u64) {
        let from = newest / PART_BITS;
        let steps = (number / PART_BITS).wrapping_sub(from) % (u32::MAX / PART_BITS + 1);
        for step in 1..=steps.min(PARTS) {
            let part = &mut self.parts[(from.wrapping_add(step) % PARTS) as usize];
            *part = Part { taken: 0, since: self.newest_time };
        }
        (self.newest, self.newest_time) = (Some(number), time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// Sealed at that time, that the place in the whole stream has: it never falls.
    fn time_of(place: u64, per_unit: u64) -> u64 {
        100 + place / per_unit
    }

    proptest! {
        /// Oracle: the set of all places taken. None is taken twice, every new one within the window is taken, and one is
        /// called too old only if it is; also where the numbers come round.
        #[test]
        fn no_number_is_taken_twice(
            start in prop_oneof![0..5_000_u64, Just(1 << 31), (1_u64 << 32) - 9_000..(1 << 32) + 1_000],
            per_unit in prop_oneof![Just(1_u64), 2..5_000_u64],
            steps in proptest::collection::vec((prop_oneof![-2_100_i64..2_100, -70_i64..70, Just(0), Just(i64::from(WINDOW))], 0_u8..4), 1..600),
        ) {
            let mut window = Window::beginning_after(0);
            let mut taken = BTreeSet::new();
            let mut at = start + 5_000;
            for (step, repeat) in steps {
                at = at.saturating_add_signed(step);
                for _ in 0..=repeat {
                    let newest = taken.last().copied().unwrap_or(at);
                    let told = window.take(at as u32, time_of(at, per_unit));
                    if newest.checked_sub(at).is_some_and(|age| age >= u64::from(WINDOW)) {
                        prop_assert!(told.is_err(), "{at} behind {newest}");
                    } else if taken.contains(&at) {
                        prop_assert_eq!(told, Err(NotNew::Taken));
                    } else {
                        prop_assert_eq!(told, Ok(()), "{} behind {}", at, newest);
                        taken.insert(at);
                    }
                }
            }
        }

        /// Goal: of frames recorded in several lives and laps, in any order of arrival, nothing is taken twice. Oracle: a set. Method:
        /// lives whose numbers all begin low, each later than the one before; then any of it again.
        #[test]
        fn nothing_of_another_life_or_lap_is_taken_twice(
            lives in proptest::collection::vec((0..3_u32, 1..200_u32, 1..100_u64), 1..6),
            choice in proptest::collection::vec(any::<prop::sample::Index>(), 1..800),
        ) {
            let mut said = alloc::vec::Vec::new();
            let mut time = 10;
            for (start, count, pause) in lives {
                time += pause;
                for number in 0..count {
                    time += u64::from(number % 7 == 0);
                    said.push(((start << 30).wrapping_add(number * 13), time));
                }
            }
            let mut window = Window::beginning_after(0);
            let mut taken = BTreeSet::new();
            // All of it in order: all is taken. Then what anybody plays back.
            for &frame in &said {
                prop_assert_eq!(window.take(frame.0, frame.1), Ok(()));
                taken.insert(frame);
            }
            let mut some = Window::beginning_after(0);
            let mut taken_of_some = BTreeSet::new();
            for index in choice {
                let (number, time) = said[index.index(said.len())];
                prop_assert!(window.take(number, time).is_err(), "{number} of {time} again");
                if some.take(number, time).is_ok() {
                    prop_assert!(taken_of_some.insert((number, time)), "{number} of {time} twice");
                }
            }
        }
    }

    #[test]
    fn a_frame_older_than_the_floor_is_not_taken() {
        let mut window = Window::beginning_after(50);
        assert_eq!(window.take(7, 49), Err(NotNew::TooOld));
        assert_eq!((window.take(7, 50), window.newest_time()), (Ok(()), 50));
        // It came before the first one, and is none of an earlier life.
        assert_eq!((window.take(6, 50), window.take(6, 50)), (Ok(()), Err(NotNew::Taken)));
        assert_eq!(window.take(5, 49), Err(NotNew::Taken));
    }

    #[test]
    fn a_lap_later_the_number_is_another() {
        let mut window = Window::beginning_after(0);
        for lap in 0..3_u64 {
            for quarter in 0..4_u32 {
                let time = 10 * lap + u64::from(quarter) + 1;
                assert_eq!(window.take(quarter << 30, time), Ok(()), "lap {lap}, quarter {quarter}");
                assert_eq!(window.take(quarter << 30, time), Err(NotNew::Taken));
                if lap > 0 {
                    // The same number of the lap before, which was never heard: it is too late for it.
                    assert!(window.take((quarter << 30).wrapping_sub(1), time - 10).is_err());
                }
            }
        }
    }
}
