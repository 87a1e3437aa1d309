//! Which of a sender's numbers were taken already: a sliding bitmap, after RFC 6479 (Zhang, Tsou 2012).

/// Words of the bitmap.
const WORDS: u64 = 32;

/// Numbers behind the newest that are told apart. One word of the bitmap is always being emptied.
pub const WINDOW: u64 = (WORDS - 1) * 64;
const _: () = assert!(WINDOW >= 1024 && WORDS.is_power_of_two());

/// Why a number is not taken. Both mean the same to a caller: it is not new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNew {
    /// It was taken before.
    Taken,
    /// It is so far behind that nobody knows any more.
    TooOld,
}

/// The numbers of one life of one sender.
#[derive(Clone, Debug)]
pub struct Window {
    newest: u64,
    words: [u64; WORDS as usize],
}

impl Window {
    /// A window whose first number is this; it is taken.
    pub fn beginning_at(number: u64) -> Self {
        let mut window = Self { newest: number, words: [0; WORDS as usize] };
        *window.word(number) |= bit(number);
        window
    }

    /// Takes a number, once.
    ///
    /// # Errors
    /// When it was taken before, or nobody knows.
    #[inline]
    pub fn take(&mut self, number: u64) -> Result<(), NotNew> {
        if number > self.newest {
            self.advance(number);
        } else if self.newest - number >= WINDOW {
            return Err(NotNew::TooOld);
        }
        let word = self.word(number);
        if *word & bit(number) != 0 {
            return Err(NotNew::Taken);
        }
        *word |= bit(number);
        Ok(())
    }

    /// Empties the words between the newest number and this one.
    #[inline]
    fn advance(&mut self, number: u64) {
        let (from, to) = (self.newest / 64, number / 64);
        for place in from + 1..=to.min(from.saturating_add(WORDS)) {
            self.words[(place % WORDS) as usize] = 0;
        }
        self.newest = number;
    }

    #[inline]
    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.words[(number / 64 % WORDS) as usize]
    }
}

#[inline]
fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// Oracle: the set of all numbers taken. No number is taken twice, every new one within the window is taken, and
        /// one is called too old only if it is.
        #[test]
        fn no_number_is_taken_twice(
            start in prop_oneof![0..5_000_u64, Just(u64::MAX / 2), u64::MAX - 9_000..u64::MAX - 8_000],
            steps in proptest::collection::vec((prop_oneof![-2_100_i64..2_100, -70_i64..70, Just(0), Just(WINDOW as i64)], 0_u8..4), 1..600),
        ) {
            let mut window = Window::beginning_at(start);
            let mut taken = BTreeSet::from([start]);
            let mut at = start;
            for (step, repeat) in steps {
                at = at.saturating_add_signed(step).min(start.saturating_add(7_000));
                for _ in 0..=repeat {
                    let newest = *taken.last().unwrap();
                    let told = window.take(at);
                    if newest.checked_sub(at).is_some_and(|age| age >= WINDOW) {
                        prop_assert_eq!(told, Err(NotNew::TooOld));
                    } else if taken.contains(&at) {
                        prop_assert_eq!(told, Err(NotNew::Taken));
                    } else {
                        prop_assert_eq!(told, Ok(()));
                        taken.insert(at);
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_numbers_have_room() {
        let mut window = Window::beginning_at(0);
        let numbers: Vec<u64> = [u64::MAX - 1, u64::MAX].to_vec();
        for &number in &numbers {
            assert_eq!(window.take(number), Ok(()));
            assert_eq!(window.take(number), Err(NotNew::Taken));
        }
        assert_eq!(window.take(0), Err(NotNew::TooOld));
    }
}
