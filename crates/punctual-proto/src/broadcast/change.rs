//! Agreement on the next view: one decree of Paxos (Lamport 1998) among the members of the view that ends.
//!
//! Any member may lead a ballot. Its epoch has the leader's place in the low bits, so no two ballots share one. A member that has
//! promised an epoch takes part in nothing older, and is *frozen*: it neither orders nor delivers until the next view. A proposal names
//! the members of the next view and the end of the old one. The end tells how much of the order counts, and how many frames of each
//! origin. A member that accepts it holds all of that, so a decided end is held by a majority (the flush of virtual synchrony; Birman,
//! Joseph 1987). Nothing here knows of messages or time.

use alloc::vec;
use alloc::vec::Vec;

use super::mutant::{Mutant, Mutants};
use super::view::{Places, View};

/// Bits of an epoch that say who leads its ballot.
const PLACE_BITS: u32 = 8;

/// So many ballots no view has: an epoch so far above all that were seen is a message that was altered.
const BALLOTS_MAX: u64 = 1 << 32;

/// The epoch of a ballot of this member after the epoch `seen`.
pub(super) fn epoch_after(seen: u64, place: usize) -> u64 {
    (((seen >> PLACE_BITS) + 1) << PLACE_BITS) | place as u64
}

/// Returns true if an epoch can be one of a view in which the epoch `seen` is the newest that was heard of.
pub(super) fn may_follow(seen: u64, epoch: u64) -> bool {
    (epoch >> PLACE_BITS).saturating_sub(seen >> PLACE_BITS) <= BALLOTS_MAX
}

/// The leader of the ballot of an epoch; nobody leads that of epoch 0.
pub(super) fn leader_of(epoch: u64) -> Option<usize> {
    (epoch != 0).then_some((epoch & ((1 << PLACE_BITS) - 1)) as usize)
}

/// The next view, and where the one before it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proposal {
    pub(super) next: View,
    /// So many entries of the order count.
    pub(super) order_end: u64,
    /// Of each origin, so many frames belong to the view.
    pub(super) cut: Vec<u64>,
}

/// State that a member keeps between ballots.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Acceptor {
    promised: u64,
    accepted: Option<(u64, Proposal)>,
}

impl Acceptor {
    /// The newest epoch that was promised; 0 if the view goes on undisturbed.
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    pub(super) fn accepted(&self) -> Option<&(u64, Proposal)> {
        self.accepted.as_ref()
    }

    /// Returns true if the proposal accepted last was accepted in this epoch.
    pub(super) fn accepted_in(&self, epoch: u64) -> bool {
        self.accepted.as_ref().is_some_and(|(accepted, _)| *accepted == epoch)
    }

    /// Promises to take part in no older ballot. False if a newer one was promised.
    pub(super) fn promise(&mut self, epoch: u64, mutants: Mutants) -> bool {
        if epoch < self.promised && !mutants.has(Mutant::OldEpochTaken) {
            return false;
        }
        self.promised = epoch;
        true
    }

    /// Accepts a proposal of which everything is held. False if a newer ballot was promised.
    pub(super) fn accept(&mut self, epoch: u64, proposal: &Proposal, mutants: Mutants) -> bool {
        if epoch < self.promised && !mutants.has(Mutant::OldEpochTaken) {
            return false;
        }
        self.promised = epoch;
        self.accepted = Some((epoch, proposal.clone()));
        true
    }
}

/// State that a member holds when it promises.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Promise {
    /// The proposal that it accepted last, and in which epoch.
    pub(super) accepted: Option<(u64, Proposal)>,
    /// Length of the order that it holds.
    pub(super) ordered: u64,
    /// Of each origin, how many frames it holds.
    pub(super) marks: Vec<u64>,
}

/// State that a leader must hold before it proposes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Goal {
    pub(super) ordered: u64,
    pub(super) marks: Vec<u64>,
}

/// A ballot, as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ballot {
    pub(super) epoch: u64,
    promises: Vec<Option<Promise>>,
    /// Set once enough have promised.
    pub(super) proposal: Option<Proposal>,
    pub(super) accepted: Places,
}

impl Ballot {
    pub(super) fn new(epoch: u64, places: usize) -> Self {
        Self { epoch, promises: vec![None; places], proposal: None, accepted: Places::NONE }
    }

    /// Notes a promise. It is too late for one when the proposal is made.
    pub(super) fn add_promise(&mut self, place: usize, promise: Promise) {
        if self.proposal.is_none()
            && let Some(held) = self.promises.get_mut(place)
        {
            *held = Some(promise);
        }
    }

    pub(super) fn promised(&self) -> Places {
        let mut places = Places::NONE;
        (0..self.promises.len())
            .filter(|&place| self.promises[place].is_some())
            .for_each(|place| places.insert(place));
        places
    }

    /// The proposal that may have been decided already.
    fn earlier(&self) -> Option<&Proposal> {
        let accepted = self.promises.iter().flatten().filter_map(|promise| promise.accepted.as_ref());
        accepted.max_by_key(|(epoch, _)| *epoch).map(|(_, proposal)| proposal)
    }

    /// State that some member of those who promised holds, and everybody who goes on must hold.
    pub(super) fn goal(&self) -> Goal {
        if let Some(earlier) = self.earlier() {
            return Goal { ordered: earlier.order_end, marks: earlier.cut.clone() };
        }
        let promises = || self.promises.iter().flatten();
        let mark = |origin: usize| promises().filter_map(|promise| promise.marks.get(origin).copied()).max();
        Goal {
            ordered: promises().map(|promise| promise.ordered).max().unwrap_or(0),
            marks: (0..self.promises.len()).map(|origin| mark(origin).unwrap_or(0)).collect(),
        }
    }

    /// The proposal now that the goal is reached: one that may have been decided; otherwise that all who promised go on, without
    /// `leaving` and with `joining`. `order_end` is how much of the order counts, by what the leader holds. `None` if too few have
    /// promised.
    pub(super) fn propose(
        &mut self,
        view: &View,
        (leaving, joining): (Places, &[u64]),
        order_end: u64,
        mutants: Mutants,
    ) -> Option<&Proposal> {
        let promised = self.promised();
        if !view.is_majority(promised) && !mutants.has(Mutant::MinorityProposes) {
            return None;
        }
        let earlier = self.earlier().filter(|_| !mutants.has(Mutant::DecidedForgotten)).cloned();
        let proposal = earlier.unwrap_or_else(|| {
            let goal = self.goal();
            let stays = |place: usize| promised.contains(place) && !leaving.contains(place);
            let life = |place: usize| if stays(place) { view.lives[place] } else { joining[place] };
            let lives = (0..view.lives.len()).map(life).collect();
            let next = View { number: view.number.saturating_add(1), lives };
            Proposal { next, order_end, cut: goal.marks }
        });
        self.proposal = Some(proposal);
        self.proposal.as_ref()
    }

    /// Returns true if the proposal can never be undone.
    pub(super) fn is_decided(&self, view: &View) -> bool {
        self.proposal.is_some() && view.is_majority(self.accepted)
    }
}
