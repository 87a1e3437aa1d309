//! State of a member, and of the others as far as it knows: for those who watch it.

use super::{Member, Phase};
use crate::time::Nanos;

/// Repairs and requests of a member, and the progress of its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames that it missed and got as repairs.
    pub repaired: u64,
    /// Messages by which it repaired what others missed.
    pub repairs_sent: u64,
    /// Times that it asked others for what it missed.
    pub questions: u64,
    /// Times that the others went on without it.
    pub expelled: u64,
    /// So much of the view's order is known here.
    pub ordered: u64,
    /// So much of it a majority holds.
    pub uniform: u64,
    /// So much of it the user has taken.
    pub taken: u64,
    /// So much of the order that is known here its user has not taken.
    pub lag: u64,
    /// The place of the member that holds the group up. That is the member whose user takes least, if it is half a window behind what a
    /// majority holds: soon all wait for it, or do. Otherwise, if nothing has moved for a heartbeat and several round trips, it is one
    /// of two: the member that should have ordered this member's frames, or the one that holds least of the order.
    pub slowest: Option<usize>,
}

/// Progress of a member of the view, as far as another one knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// So much of the order that is known here its user has not taken.
    pub lag: u64,
    /// Of so much of that order it lacks frames, or has not said that it holds them.
    pub missing: u64,
}

impl Member {
    /// The account of this member, over all its lives. A member that has left has no positions.
    pub fn account(&self) -> Account {
        if self.has_left() {
            return self.account;
        }
        Account {
            ordered: self.order.mark(),
            uniform: self.progress.uniform,
            taken: self.progress.taken,
            lag: self.order.mark().saturating_sub(self.progress.taken),
            slowest: self.slowest(),
            ..self.account
        }
    }

    /// Progress of the member at a place; `None` if nobody is there.
    pub fn behind(&self, place: usize) -> Option<Behind> {
        self.view().life(place)?;
        let behind = |mark: u64| self.order.mark().saturating_sub(mark);
        Some(Behind { lag: behind(self.taken_by(place)), missing: behind(self.held_by(place)) })
    }

    /// So much of the order the user of a member has taken, as far as is known here.
    pub(super) fn taken_by(&self, place: usize) -> u64 {
        if place == self.own { self.progress.taken } else { self.peers[place].taken }
    }

    /// Of so much of the order a member holds the frames, as far as is known here.
    pub(super) fn held_by(&self, place: usize) -> u64 {
        if place == self.own { self.progress.held } else { self.peers[place].held }
    }

    /// Returns true if a member may have told the sequencer alone what its user took since it told all, which it does in each
    /// heartbeat.
    fn may_have_told_alone(&self, place: usize) -> bool {
        let recently = Nanos(2 * self.options.heartbeat.0);
        let is_recent = |at: Nanos| self.now.since(at) < recently;
        place != self.own
            && self.timing.alone_at.is_some_and(is_recent)
            && is_recent(self.peers[place].taken_at())
    }

    fn slowest(&self) -> Option<usize> {
        if self.phase != Phase::Member {
            return None;
        }
        let members = self.view.members();
        let slowest = members.iter().min_by_key(|&place| self.taken_by(place))?;
        let behind = self.progress.uniform.saturating_sub(self.taken_by(slowest));
        // A majority holds as much as another member says, which may be any number: nothing is added to it.
        if behind >= (self.options.window as u64).div_ceil(2) && !self.may_have_told_alone(slowest) {
            return Some(slowest);
        }
        if !self.is_stuck() {
            return None;
        }
        if self.order.count(self.own) < self.outgoing.sent {
            return self.view.sequencer().filter(|&sequencer| sequencer != self.own);
        }
        let least = members.iter().min_by_key(|&place| self.held_by(place))?;
        (self.held_by(least) < self.order.mark()).then_some(least)
    }
}
