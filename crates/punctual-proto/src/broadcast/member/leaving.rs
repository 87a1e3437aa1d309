//! The departure of a member: it asks the others to go on without it. It stays until they know how its last view ended, as those who go
//! on may be too few to find that out without it.

use super::{Event, Member, Phase, Say};
use crate::broadcast::change::Proposal;
use crate::broadcast::message::Head;
use crate::broadcast::mutant::Mutant;
use crate::broadcast::options::GroupOptions;
use crate::broadcast::view::Places;
use crate::time::Nanos;

/// A member that leaves and hears too few goes after so many times of suspicion: none is longer.
const CUT_OFF_TIMES: u64 = 8;

/// Times at which actions are due for a member that tells the others how its last view ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parting {
    /// It goes then, even if some have not heard.
    until: Nanos,
    repeat_at: Nanos,
    wait: Nanos,
}

impl Member {
    /// Asks the others to go on without this member. [`Event::Left`] says when they do.
    pub fn leave(&mut self, now: Nanos) {
        self.note_time(now);
        self.leaving_since.get_or_insert(now);
        self.outgoing.gather_no_more();
        if self.phase == Phase::Joining && self.timing.asked_at.is_none() {
            self.end();
        }
        self.timing.status_due = true;
        self.after_input();
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving_since.is_some()
    }

    /// Returns true if the others are asked to go on without it: once its own messages have numbers, or for too long could not get any.
    pub(super) fn asks_to_go(&self) -> bool {
        let waits = self.outgoing.is_waiting() && !self.is_stopped;
        self.leaving_since.is_some_and(|since| !waits || self.now.since(since) >= self.options.suspect_after)
    }

    /// It has asked to join, and leaves. Others may have let it in, which it does not know yet: a view with it would wait for it. It asks
    /// for that view, but not to join any more, until nobody has its request in mind.
    pub(super) fn leave_before_joining(&mut self, asked_at: Nanos) {
        if self.now >= self.forgotten_at(asked_at) {
            return self.end();
        }
        let own = self.own;
        (0..self.options.roster.len())
            .filter(|&place| place != own)
            .for_each(|place| self.push_say(Say::Status(place)));
        self.timing.join_at = self.now.plus(self.options.heartbeat);
    }

    /// Time from which nobody waits any more for a member that was heard last at this time.
    fn forgotten_at(&self, heard_at: Nanos) -> Nanos {
        let GroupOptions { heartbeat, suspect_after, .. } = self.options;
        heard_at.plus(suspect_after).plus(Nanos(heartbeat.0.saturating_mul(2)))
    }

    /// Returns true if it leaves and has heard too few for so long that it is no use to wait for them.
    pub(super) fn is_cut_off(&self) -> bool {
        let (Some(leaving), Some(stopped)) = (self.leaving_since, self.timing.stopped_at) else {
            return false;
        };
        self.now.since(leaving.max(stopped)).0 >= self.options.suspect_after.0.saturating_mul(CUT_OFF_TIMES)
    }

    /// It leaves, and may lack messages that the others delivered before they went on: its user is told so, before it is told that it
    /// has left.
    pub(super) fn note_loss(&mut self) {
        if !self.mutants.has(Mutant::LeaverForgotten) {
            self.events.push_back(Event::Expelled);
        }
    }

    /// It is in no view any more, and knows how its last one ended.
    pub(super) fn begin_parting(&mut self) {
        let (until, wait) = (self.forgotten_at(self.now), self.gaps.round_trip());
        self.phase = Phase::Parting;
        self.parting = Some(Parting { until, repeat_at: self.now.plus(wait), wait });
        self.say_only_ends();
        self.part();
    }

    /// Only the ends of views are left to be said.
    fn say_only_ends(&mut self) {
        self.say.retain(|say| matches!(say, Say::InstallAll | Say::Install(_) | Say::Confirm(_)));
    }

    pub(super) fn end(&mut self) {
        self.phase = Phase::Left;
        self.parting = None;
        self.say_only_ends();
        self.events.push_back(Event::Left);
    }

    /// Goes if nobody need hear of the end of the view any more, and says it again if that is due.
    pub(super) fn part(&mut self) {
        let Some(parting) = self.parting else { return };
        if self.now >= parting.until || self.awaited().is_empty() {
            return self.end();
        }
        if self.now >= parting.repeat_at {
            let wait = Nanos(2 * parting.wait.0).min(self.options.heartbeat);
            self.parting = Some(Parting { repeat_at: self.now.plus(wait), wait, ..parting });
            self.push_say(Say::InstallAll);
        }
    }

    /// When that is due.
    pub(super) fn parting_at(&self) -> Nanos {
        let suspicion = |place: usize| self.peers[place].suspicion_at(self.options.suspect_after);
        let first = self.awaited().iter().map(suspicion).min().unwrap_or(Nanos::NEVER);
        self.parting.map_or(Nanos::NEVER, |parting| parting.until.min(parting.repeat_at).min(first))
    }

    /// The life that is to hear how the view ended: of the next one, or of the one that ended.
    fn listener(&self, place: usize) -> Option<u64> {
        let next = self.installed.as_ref().and_then(|installed| installed.next.life(place));
        next.or_else(|| self.view.life(place)).filter(|_| place != self.own)
    }

    /// Those who are not known to know how the view ended, but for those of the old one that seem to be dead.
    pub(super) fn awaited(&self) -> Places {
        let mut awaited = Places::NONE;
        let Some(Proposal { next, .. }) = &self.installed else { return awaited };
        let is_dead = |place: usize| next.life(place).is_none() && self.peers[place].is_suspected();
        let is_awaited = |place: &usize| {
            self.listener(*place).is_some() && self.peers[*place].view < next.number && !is_dead(*place)
        };
        (0..self.peers.len()).filter(is_awaited).for_each(|place| awaited.insert(place));
        awaited
    }

    /// Somebody is in a view, or knows how the one before it ended. A member that leaves also knows from another life that the one
    /// which was put out is over.
    pub(super) fn note_view(&mut self, head: &Head, view: u64) {
        let place = head.place;
        let (meant, ends_at) = match (self.phase, &self.installed) {
            (Phase::Parting, Some(Proposal { next, .. })) => {
                (self.listener(place), next.life(place).is_none().then_some(next.number))
            }
            _ => (self.view.life(place), None),
        };
        let known = if meant == Some(head.life) { Some(view) } else { ends_at };
        if let Some(view) = known {
            self.peers[place].note_view(view);
        }
    }

    /// A member that leaves, and says how the view ended, goes once others say that they know.
    pub(super) fn confirm_install(&mut self, head: &Head, proposal: &Proposal) {
        let known = self.closing.as_ref().or(self.installed.as_ref()).map_or(0, |known| known.next.number);
        let leaves = !proposal.next.includes(head.place, head.life);
        if leaves && known >= proposal.next.number && self.phase != Phase::Joining {
            self.push_say(Say::Confirm(head.place));
        }
    }

    /// A member of the view that this one was put out of, or left, has not heard how it ended; or one that joined the next one then
    /// does not know.
    pub(super) fn handle_left_behind(&mut self, head: &Head) {
        let Some(Proposal { next, .. }) = &self.installed else { return };
        let is_known = next.includes(head.place, head.life) || self.view.includes(head.place, head.life);
        if is_known && head.view < next.number {
            self.push_say(Say::Install(head.place));
        }
        if is_known && self.phase == Phase::Parting {
            self.peers[head.place].hear(self.now);
        }
        self.note_view(head, head.view);
        self.part();
    }
}
