//! A ring of slots for what is numbered one after another.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// A power of two of slots. Numbers that differ by a multiple of it share one.
#[derive(Debug, Default)]
pub(super) struct Slots<T>(Vec<T>);

impl<T: Clone> Slots<T> {
    /// Room for `least` at least: the next power of two, so that a slot is found without a division.
    pub(super) fn new(least: usize, empty: T) -> Self {
        Self(vec![empty; least.next_power_of_two()])
    }

    pub(super) fn fill(&mut self, empty: T) {
        self.0.fill(empty);
    }
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the slot of a number is.
    #[inline]
    pub(super) fn place(&self, number: u64) -> usize {
        number as usize & (self.0.len() - 1)
    }
}

impl<T> Index<u64> for Slots<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u64) -> &T {
        &self.0[self.place(number)]
    }
}

impl<T> IndexMut<u64> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, number: u64) -> &mut T {
        let place = self.place(number);
        &mut self.0[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_closer_than_the_room_have_slots_of_their_own() {
        for least in [1, 3, 4, 5, 100] {
            let mut slots = Slots::new(least, 0);
            (7..7 + least as u64).for_each(|number| slots[number] = number);
            assert!((7..7 + least as u64).all(|number| slots[number] == number));
            let len = slots.len() as u64;
            assert_eq!(slots.place(7), slots.place(7 + len));
        }
    }
}
