//! Joining: members that ask, and groups that refuse.

use super::{Event, Member, Phase, Say};
use crate::address::NodeId;
use crate::broadcast::message::Body;
use crate::broadcast::options::Mismatch;
use crate::time::Nanos;

/// A group has other options than this member, which asks to join it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) mismatch: Mismatch,
    /// Since when it is refused for that, without a pause as long as the time of suspicion.
    since: Nanos,
    last: Nanos,
    is_told: bool,
}

impl Member {
    /// The option because of which a group refused this member last; nothing once it is in a view.
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.refused.map(|refused| refused.mismatch)
    }

    /// A life asks to join, and has heard of this view last. One that hears nobody is not let in: no view with it could go on. Nor is
    /// one whose request names another view: it may be gone.
    pub(super) fn handle_join(&mut self, place: usize, life: u64, heard_view: u64) {
        self.peers[place].hear_successor(life);
        if self.view.includes(place, life) {
            self.push_say(Say::Install(place));
        } else if heard_view == self.view.number {
            if self.now >= self.timing.joins_from {
                self.joining[place] = (life, self.now);
            }
        } else if self.is_sequencer() {
            // One answer is enough.
            self.push_say(Say::Status(place));
        }
    }

    /// A member of this view is heard while this one asks to join. It asks once more at once, in a heartbeat once: members of two views
    /// may be heard.
    pub(super) fn note_heard_view(&mut self, view: u64) {
        if view == 0 || view == self.heard_view {
            return;
        }
        self.heard_view = view;
        if !self.is_leaving() && self.now >= self.timing.asks_again_from {
            self.timing.asks_again_from = self.now.plus(self.options.heartbeat);
            self.timing.join_at = self.now;
        }
    }

    /// The life that asks to join at a place; 0 if none does.
    pub(super) fn joiner(&self, place: usize) -> u64 {
        let (life, at) = self.joining[place];
        if self.now.since(at) < self.options.suspect_after { life } else { 0 }
    }

    /// A node asks to join on other terms than this group's, or hears that it did.
    pub(super) fn handle_other_terms(&mut self, source: NodeId, body: &Body<'_>) {
        match body {
            // One answer is enough.
            Body::Join(_) if self.is_active() && self.is_sequencer() => self.push_say(Say::Refuse(source)),
            Body::Refusal(there) if self.phase == Phase::Joining && !self.is_leaving() => {
                // A node that is not in our roster leads a group with another one: of it no other difference can be meant for us.
                let is_ours = |mismatch: &Mismatch| {
                    *mismatch == Mismatch::Roster || self.options.roster.contains(&source)
                };
                if let Some(mismatch) = self.options.terms().mismatch(*there).filter(is_ours) {
                    self.note_refusal(mismatch);
                }
            }
            _ => {}
        }
    }

    /// The user is told once that it is refused for an option, after the time of suspicion. Until then the refusal may be of a founder
    /// that has not heard yet of the group which takes this member.
    fn note_refusal(&mut self, mismatch: Mismatch) {
        let (now, after) = (self.now, self.options.suspect_after);
        let goes_on = |refused: &Refused| refused.mismatch == mismatch && now.since(refused.last) < after;
        let first = Refused { mismatch, since: now, last: now, is_told: false };
        let mut refused = self.refused.filter(goes_on).unwrap_or(first);
        refused.last = now;
        if !refused.is_told && now.since(refused.since) >= after {
            refused.is_told = true;
            self.events.push_back(Event::Mismatch(mismatch));
        }
        self.refused = Some(refused);
    }

    /// A group has taken it.
    pub(super) fn forget_refusal(&mut self) {
        self.refused = None;
        self.events.retain(|event| !matches!(event, Event::Mismatch(_)));
    }
}
