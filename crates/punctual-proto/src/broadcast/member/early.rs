//! Messages without order: they are delivered ahead of their place in it.
//!
//! Their frames have numbers, are repaired, and have places in the order as all others have. So one credit frees their room, and
//! the end of a view is where it is for all. But nobody waits for the order: a *lane* for each such guarantee goes through the
//! frames of each origin by their numbers, as far as they are here without a gap; for [`Guarantee::Reliable`] as far as a
//! majority has said that it holds them. The order passes a frame of a lane once that lane has, and nothing is delivered there.
//!
//! Messages that are delivered early are held, and everything that a member holds when it promises is in the end of the view. So those
//! who go on deliver the same, early or at the end. A frozen member delivers nothing, and what it says that it holds does not count.

use alloc::vec;
use alloc::vec::Vec;

use super::Member;
use super::deliver::Delivery;
use crate::broadcast::frames::Frames;
use crate::broadcast::guarantee::{Guarantee, LANES, RELIABLE};
use crate::broadcast::mutant::Mutant;
use crate::broadcast::view::Places;
use crate::limits::GROUP_MEMBERS_MAX;

/// Progress of messages without order.
#[derive(Debug)]
pub(super) struct Early {
    /// Of each member, how many frames of each origin it has said that it holds, in the undisturbed view.
    marks: Vec<Vec<u64>>,
    /// Of each origin, so many frames a majority holds; known only as far as somebody waits for it.
    majority: Vec<u64>,
    /// Of each origin, how many frames the others were told that this member holds.
    said: Vec<u64>,
    /// Of each lane and origin, the frame that it looks at next.
    next: [Vec<u64>; LANES],
}

impl Early {
    pub(super) fn new(places: usize) -> Self {
        let none = || vec![0; places];
        Self {
            marks: vec![none(); places],
            majority: none(),
            said: none(),
            next: core::array::from_fn(|_| none()),
        }
    }

    /// A view begins, and numbers begin anew.
    pub(super) fn clear(&mut self) {
        self.marks.iter_mut().for_each(|marks| marks.fill(0));
        self.next.iter_mut().for_each(|next| next.fill(0));
        self.majority.fill(0);
        self.said.fill(0);
    }

    /// A member says, in the undisturbed view, that it holds so many frames of an origin.
    pub(super) fn note_mark(&mut self, place: usize, origin: usize, mark: u64) {
        let known = &mut self.marks[place][origin];
        *known = mark.max(*known);
    }

    /// All were told what is held here.
    pub(super) fn note_said(&mut self, marks: impl Iterator<Item = u64>) {
        self.said.iter_mut().zip(marks).for_each(|(said, mark)| *said = mark);
    }

    /// Others wait to hear what is held here of somebody's frames. Of an origin's own all know.
    pub(super) fn has_news(&self, frames: &[Frames], own: usize) -> bool {
        let is_new = |origin: usize| frames[origin].lane_end(RELIABLE) > self.said[origin];
        (0..frames.len()).any(|origin| origin != own && is_new(origin))
    }

    /// Returns true if a majority is known to hold all that waits for one.
    pub(super) fn is_settled(&self, frames: &[Frames]) -> bool {
        frames.iter().zip(&self.majority).all(|(frames, &majority)| frames.lane_end(RELIABLE) <= majority)
    }

    /// Frames that a majority is known to hold: grows while there is progress.
    pub(super) fn progress(&self) -> u64 {
        // Marks are what others say, and may be any numbers.
        self.majority.iter().fold(0, |sum, mark| sum.saturating_add(*mark))
    }

    /// Finds, of the frames that wait for a majority, those that one holds: frames held by the middle member and all above it are held
    /// by more than half.
    pub(super) fn update(&mut self, frames: &[Frames], members: Places, own: usize) {
        for (origin, frames) in frames.iter().enumerate() {
            if frames.lane_end(RELIABLE) <= self.majority[origin] {
                continue;
            }
            let mut marks = [0; GROUP_MEMBERS_MAX];
            let mut count = 0;
            for place in members.iter() {
                marks[count] = if place == own { frames.mark() } else { self.marks[place][origin] };
                count += 1;
            }
            let marks = &mut marks[..count];
            marks.sort_unstable_by(|one, other| other.cmp(one));
            if let Some(&majority) = marks.get(count / 2) {
                self.note_majority(origin, majority);
            }
        }
    }

    fn note_majority(&mut self, origin: usize, mark: u64) {
        self.majority[origin] = self.majority[origin].max(mark);
    }

    fn has_passed(&self, lane: usize, origin: usize, number: u64) -> bool {
        self.next[lane][origin] > number
    }
}

impl Member {
    /// The next message without order that may be delivered.
    pub(super) fn next_early(&mut self) -> Option<Delivery> {
        if self.is_frozen() && self.closing.is_none() {
            return None;
        }
        for lane in 0..LANES {
            for origin in 0..self.frames.len() {
                if self.frames[origin].lane_end(lane) > self.early.next[lane][origin]
                    && let Some(delivery) = self.advance(lane, origin)
                {
                    return Some(delivery);
                }
            }
        }
        None
    }

    /// Up to where a lane may go through the frames of an origin.
    fn lane_limit(&self, lane: usize, origin: usize) -> u64 {
        let mark = self.frames[origin].mark();
        let waits = lane == RELIABLE && !self.mutants.has(Mutant::ReliableUnheld);
        match &self.closing {
            Some(_) if self.mutants.has(Mutant::CutIgnored) => mark,
            Some(proposal) => mark.min(proposal.cut[origin]),
            None if waits => mark.min(self.early.majority[origin]),
            None => mark,
        }
    }

    /// Goes on through the frames of an origin up to the end of a message, or as far as it may.
    fn advance(&mut self, lane: usize, origin: usize) -> Option<Delivery> {
        let limit = self.lane_limit(lane, origin);
        // Frames that the order has passed are not here any more, and were none of this lane's, or it has passed them too.
        let mut number = self.early.next[lane][origin].max(self.delivered[origin]);
        let mut delivery = None;
        while number < limit && delivery.is_none() {
            if let Some((meta, _)) = self.frames[origin].get(number)
                && meta.guarantee.lane() == Some(lane)
            {
                let is_held = self.closing.is_some() || number < self.early.majority[origin];
                let guarantee = Guarantee::of(false, meta.guarantee.is_uniform() || is_held);
                delivery = self.deliver((origin, number), number, guarantee);
            }
            number += 1;
        }
        self.early.next[lane][origin] = number;
        delivery
    }

    /// The order comes to a frame of a lane, which a majority holds if that waits for one. The lane goes first.
    pub(super) fn let_pass(&mut self, lane: usize, (origin, number): (usize, u64)) -> Option<Delivery> {
        if self.early.has_passed(lane, origin, number) || self.mutants.has(Mutant::PassedUndelivered) {
            return None;
        }
        self.early.note_majority(origin, number + 1);
        self.next_early()
    }

    /// Returns true if the order need not wait for a majority at this frame.
    pub(super) fn is_passed(&self, lane: usize, (origin, number): (usize, u64)) -> bool {
        lane != RELIABLE || self.early.has_passed(lane, origin, number)
    }
}
