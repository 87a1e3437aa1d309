//! Views: the lives of members that belong to the group. A member is known by its *place* in the configured roster.

use alloc::vec::Vec;

use crate::limits::GROUP_MEMBERS_MAX;

/// A set of places of the roster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Places(pub u32);

const _: () = assert!(GROUP_MEMBERS_MAX <= u32::BITS as usize);

impl Places {
    /// No place.
    pub const NONE: Self = Self(0);

    /// One place.
    pub const fn only(place: usize) -> Self {
        Self(1 << place)
    }

    /// Returns true if a place is in the set.
    pub const fn contains(self, place: usize) -> bool {
        place < GROUP_MEMBERS_MAX && self.0 & (1 << place) != 0
    }

    /// Adds a place.
    pub const fn insert(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    /// Takes a place out.
    pub const fn remove(&mut self, place: usize) {
        self.0 &= !(1 << place);
    }

    /// Number of places in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are in both sets.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are not in the other set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The lowest place.
    pub const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// All places, the lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let place = rest.first()?;
            rest.remove(place);
            Some(place)
        })
    }
}

/// The members of the group between two changes. Two views of one number are equal everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct View {
    /// Counts the views of the group from 1; 0 before the first.
    pub number: u64,
    /// The life of the member at each place of the roster; 0 where there is none.
    pub lives: Vec<u64>,
}

impl View {
    /// The view before the first: nobody is in it.
    pub fn nobody(places: usize) -> Self {
        Self { number: 0, lives: alloc::vec![0; places] }
    }

    /// The life at a place, if somebody is there.
    pub fn life(&self, place: usize) -> Option<u64> {
        self.lives.get(place).copied().filter(|&life| life != 0)
    }

    /// True if this very life is a member.
    pub fn includes(&self, place: usize, life: u64) -> bool {
        self.life(place) == Some(life)
    }

    /// All members.
    pub fn members(&self) -> Places {
        let mut members = Places::NONE;
        (0..self.lives.len()).filter(|&place| self.lives[place] != 0).for_each(|place| members.insert(place));
        members
    }

    /// Number of members of the view.
    pub fn size(&self) -> usize {
        self.lives.iter().filter(|&&life| life != 0).count()
    }

    /// True if these are more than half of the members. Any two such sets have a member in common.
    pub fn is_majority(&self, places: Places) -> bool {
        2 * places.both(self.members()).len() > self.size()
    }

    /// True if it has more than half of the roster. Smaller views take no messages.
    pub fn has_quorum(&self) -> bool {
        2 * self.size() > self.lives.len()
    }

    /// The sequencer, which orders the messages of this view: its first member.
    pub fn sequencer(&self) -> Option<usize> {
        self.lives.iter().position(|&life| life != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_majorities_meet() {
        for size in 1..=6_usize {
            let view = View { number: 1, lives: (1..=size as u64).collect() };
            let majorities: Vec<Places> =
                (0..1 << size).map(Places).filter(|&set| view.is_majority(set)).collect();
            assert!(majorities.iter().all(|one| majorities.iter().all(|other| !one.both(*other).is_empty())));
            assert!(majorities.contains(&view.members()));
        }
    }

    #[test]
    fn a_view_knows_lives() {
        let view = View { number: 3, lives: alloc::vec![0, 7, 9] };
        assert_eq!((view.sequencer(), view.size()), (Some(1), 2));
        assert!(view.has_quorum() && !View { number: 3, lives: alloc::vec![0, 7] }.has_quorum());
        assert!(view.includes(2, 9) && !view.includes(2, 7) && !view.includes(0, 0) && !view.includes(9, 9));
    }
}
