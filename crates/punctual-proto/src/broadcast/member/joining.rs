//! Joining: members that ask, and groups that refuse.

use super::{Event, Member, Phase, Say};
use crate::address::NodeId;
use crate::broadcast::message::Body;
use crate::broadcast::options::Unequal;
use crate::time::Nanos;

/// A group has other options than this member, which asks to join it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) unequal: Unequal,
    /// Since when it is refused for that, without a pause as long as the time of suspicion.
    since: Nanos,
    last: Nanos,
    is_told: bool,
}

impl Member {
    /// The option because of which a group refused this member last; nothing once it is in a view.
    pub fn unequal(&self) -> Option<Unequal> {
        self.refused.map(|refused| refused.unequal)
    }

    pub(super) fn handle_join(&mut self, place: usize, life: u64) {
        if self.view.includes(place, life) {
            self.push_say(Say::Install(place));
        } else {
            self.joining[place] = (life, self.now);
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
                // The group of others of its name may have another roster; one with ours has no such member.
                let is_ours =
                    |unequal: &Unequal| *unequal == Unequal::Roster || self.options.roster.contains(&source);
                if let Some(unequal) = self.options.terms().unequal(*there).filter(is_ours) {
                    self.note_refusal(unequal);
                }
            }
            _ => {}
        }
    }

    /// The user is told once for each option, after the time of suspicion. The refusal may come of one who founded another group, and
    /// has not heard yet of the one that takes this member.
    fn note_refusal(&mut self, unequal: Unequal) {
        let (now, after) = (self.now, self.options.suspect_after);
        let goes_on = |refused: &Refused| refused.unequal == unequal && now.since(refused.last) < after;
        let first = Refused { unequal, since: now, last: now, is_told: false };
        let mut refused = self.refused.filter(goes_on).unwrap_or(first);
        refused.last = now;
        if !refused.is_told && now.since(refused.since) >= after {
            refused.is_told = true;
            self.events.push_back(Event::Unequal(unequal));
        }
        self.refused = Some(refused);
    }

    /// A group has taken it.
    pub(super) fn forget_refusal(&mut self) {
        self.refused = None;
        self.events.retain(|event| !matches!(event, Event::Unequal(_)));
    }
}
