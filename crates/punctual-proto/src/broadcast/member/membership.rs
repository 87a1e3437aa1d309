//! Membership of the group: stopping, changing the view and joining.

use alloc::vec::Vec;

use super::deliver::{Assembly, Unpacked};
use super::{Event, Member, Phase, Progress, Say};
use crate::broadcast::change::{Acceptor, Ballot, Promise, Proposal, epoch_after, leader_of};
use crate::broadcast::frames::Frames;
use crate::broadcast::message::Head;
use crate::broadcast::mutant::Mutant;
use crate::broadcast::peer::life_after;
use crate::broadcast::view::{Places, View};
use crate::time::Nanos;

/// A member whose processor is busy with others may get no turn for such a part of the time after which silence is suspicious. To go on
/// without it costs more than to wait: it begins a new life.
const TURN_PARTS: u64 = 8;

/// A ballot that this member leads.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    /// Of how much of the order the frames were here when it began.
    held: u64,
    /// Until then those that are alive are waited for.
    until: Nanos,
    repeat_at: Nanos,
}

impl Member {
    /// The first view of a group: its founder alone.
    pub(super) fn found(&mut self) {
        let places = self.options.roster.len();
        let mut next = View::nobody(places);
        (next.number, next.lives[self.own]) = (1, self.life);
        self.begin_view(Proposal { next, order_end: 0, cut: alloc::vec![0; places] });
    }

    /// Time that a ballot waits for those that are not suspected, and a part of the time it may take before somebody else leads one.
    fn patience(&self) -> Nanos {
        let turn = Nanos(self.options.suspect_after.0 / TURN_PARTS);
        Nanos(8 * self.gaps.round_trip().0).max(self.options.heartbeat).max(turn)
    }

    /// Frames held, of each origin.
    pub(super) fn marks(&self) -> Vec<u64> {
        self.frames.iter().map(Frames::mark).collect()
    }

    fn holds(&self, order_end: u64, cut: &[u64]) -> bool {
        self.order.mark() >= order_end
            && self.frames.iter().zip(cut).all(|(frames, cut)| frames.mark() >= *cut)
    }

    /// Anything that is known to exist now is asked for as any gap is.
    fn note_ends(&mut self, order_end: u64, cut: &[u64]) {
        self.order.note_end(order_end, self.progress.taken);
        for (origin, &cut) in cut.iter().enumerate().take(self.frames.len()) {
            let limit = self.limit(origin);
            self.frames[origin].note_end(cut, limit);
        }
    }

    /// Members with which the group does not go on: a majority suspects them, they leave, or they have begun a new life.
    fn doomed(&self) -> Places {
        let members = self.view.members();
        // Asked after every message: nearly always nobody is suspected, and nobody joins.
        let own = self.suspects();
        let is_calm =
            own.is_empty() && self.others().iter().all(|place| self.peers[place].suspects.is_empty());
        if is_calm && self.joining.iter().all(|(life, _)| *life == 0) {
            return Places::NONE;
        }
        let suspects = |of: usize| if of == self.own { own } else { self.peers[of].suspects };
        let mut doomed = Places::NONE;
        for place in members.iter() {
            let mut accusers = Places::NONE;
            members.iter().filter(|&of| suspects(of).contains(place)).for_each(|of| accusers.insert(of));
            if self.view.is_majority(accusers) || accusers.contains(place) || self.joiner(place) != 0 {
                doomed.insert(place);
            }
        }
        doomed
    }

    fn wants_change(&self) -> bool {
        !self.doomed().is_empty() || (0..self.joining.len()).any(|place| self.joiner(place) != 0)
    }

    /// When this member leads a ballot, if nobody before it does.
    fn delay(&mut self) -> Nanos {
        let candidates = self.view.members().without(self.doomed());
        let rank = candidates.iter().take_while(|&place| place != self.own).count();
        match (self.acceptor.promised() > 0, rank) {
            // So that those who ask to join at once are in one view.
            (false, 0) => self.gaps.round_trip(),
            (is_frozen, _) => self.delay_of(rank, is_frozen),
        }
    }

    fn delay_of(&mut self, rank: usize, is_frozen: bool) -> Nanos {
        let patience = self.patience();
        let turns = 2 * rank as u64 + if is_frozen { 4 } else { 0 };
        Nanos(patience.0.saturating_mul(turns)).plus(self.gaps.jitter(patience))
    }

    pub(super) fn update_membership(&mut self) {
        self.update_stopped();
        if self.is_cut_off() {
            self.note_loss();
            return self.end();
        }
        if self.is_frozen() {
            self.timing.frozen_at.get_or_insert(self.now);
        }
        self.try_accept();
        self.lead_on();
        if self.closing.is_some() || self.lead.is_some() {
            return;
        }
        if self.acceptor.promised() == 0 && !self.wants_change() {
            self.timing.change_at = None;
            return;
        }
        if self.timing.change_at.is_none() {
            self.timing.change_at = Some(self.now.plus(self.delay()));
        }
        if self.timing.change_at.is_some_and(|at| self.now >= at) {
            self.begin_ballot();
            self.lead_on();
        }
    }

    fn update_stopped(&mut self) {
        let mut heard = self.view.members();
        self.others()
            .iter()
            .filter(|&place| self.peers[place].is_suspected())
            .for_each(|place| heard.remove(place));
        let is_stopped = !self.view.is_majority(heard) || !self.view.has_quorum();
        if is_stopped != self.is_stopped {
            self.note_stop(is_stopped);
        }
        self.is_stopped = is_stopped;
        self.timing.stopped_at = is_stopped.then(|| self.timing.stopped_at.unwrap_or(self.now));
    }

    /// Tells the user. Two that say that all is as before are none: a user that is away would find any number of them.
    fn note_stop(&mut self, is_stopped: bool) {
        let (event, undone) =
            if is_stopped { (Event::Stopped, Event::Resumed) } else { (Event::Resumed, Event::Stopped) };
        if self.events.back() == Some(&undone) {
            self.events.pop_back();
        } else {
            self.events.push_back(event);
        }
    }

    fn begin_ballot(&mut self) {
        let epoch = epoch_after(self.epoch_seen.max(self.acceptor.promised()), self.own);
        self.acceptor.promise(epoch, self.mutants);
        let mut ballot = Ballot::new(epoch, self.options.roster.len());
        let promise = Promise {
            accepted: self.acceptor.accepted().cloned(),
            ordered: self.order.mark(),
            marks: self.marks(),
        };
        ballot.add_promise(self.own, promise);
        let until = self.now.plus(self.patience());
        let repeat_at = self.now.plus(self.gaps.round_trip());
        self.lead = Some(Lead { ballot, held: self.progress.held, until, repeat_at });
        (self.epoch_seen, self.pending, self.timing.change_at) = (epoch, None, None);
        self.push_say(Say::Prepare);
    }

    pub(super) fn note_epoch(&mut self, epoch: u64) {
        self.epoch_seen = self.epoch_seen.max(epoch);
    }

    /// Does what the ballot that this member leads needs next.
    fn lead_on(&mut self) {
        let Some(lead) = &self.lead else { return };
        let (epoch, until) = (lead.ballot.epoch, lead.until);
        let is_outbid = self.epoch_seen > epoch || self.acceptor.promised() > epoch;
        let is_late = self.now >= until.plus(Nanos(self.patience().0.saturating_mul(6)));
        if is_outbid || is_late {
            self.lead = None;
            // A member that did not get on is the last to try again: it may be that nobody is heard here.
            let delay = if is_outbid { self.delay() } else { self.delay_of(self.view.size(), true) };
            self.timing.change_at = Some(self.now.plus(delay));
            return;
        }
        if lead.ballot.proposal.is_none() {
            self.gather();
        }
        self.confirm();
        self.repeat();
    }

    fn repeat(&mut self) {
        let wait = Nanos(2 * self.gaps.round_trip().0);
        let Some(lead) = self.lead.as_mut().filter(|lead| self.now >= lead.repeat_at) else { return };
        lead.repeat_at = self.now.plus(wait);
        let say = if lead.ballot.proposal.is_some() { Say::Accept } else { Say::Prepare };
        self.push_say(say);
    }

    /// Proposes once enough have promised and all that they hold is here.
    fn gather(&mut self) {
        let Some(mut lead) = self.lead.take() else { return };
        let promised = lead.ballot.promised();
        // Also those at whose place another life asks to join: that may be one of before, heard late.
        let awaited = self.others().without(self.suspects()).without(promised);
        let goal = lead.ballot.goal();
        self.note_ends(goal.ordered, &goal.marks);
        let is_majority = self.view.is_majority(promised) || self.mutants.has(Mutant::MinorityProposes);
        let is_enough = is_majority && (awaited.is_empty() || self.now >= lead.until);
        if is_enough && self.holds(goal.ordered, &goal.marks) {
            let joining: Vec<u64> = (0..self.joining.len()).map(|place| self.joiner(place)).collect();
            let from = lead.held.min(goal.ordered);
            let end = self.order.length_within(from, &goal.marks).min(goal.ordered);
            let change = (self.doomed(), &joining[..]);
            let proposal = lead.ballot.propose(&self.view, change, end, self.mutants).cloned();
            if let Some(proposal) = proposal
                && self.acceptor.accept(lead.ballot.epoch, &proposal, self.mutants)
            {
                lead.ballot.accepted.insert(self.own);
                lead.until = self.now.plus(self.patience());
                lead.repeat_at = self.now.plus(self.gaps.round_trip());
                self.push_say(Say::Accept);
            }
        }
        self.lead = Some(lead);
    }

    /// Ends the view once the proposal is decided and all who go on hold what they need, or were waited for. A member that lacks
    /// something begins a new life. So while most of those who go on lack something, those who are heard are waited for longer. Nobody
    /// knows whether the others come back; a next view without a majority tells its users that it is stopped, which a frozen one does
    /// not. A member that leaves is waited for until then only: one that still lacks something is told so.
    fn confirm(&mut self) {
        let Some(lead) = &self.lead else { return };
        let Some(proposal) = &lead.ballot.proposal else { return };
        let is_enough = lead.ballot.is_decided(&self.view) || self.mutants.has(Mutant::MinorityProposes);
        let stays = |place: &usize| proposal.next.lives[*place] == self.view.lives[*place];
        let staying = self.view.members().iter().filter(stays).count();
        let lacking: Vec<usize> =
            self.view.members().without(lead.ballot.accepted).iter().filter(stays).collect();
        let is_most = 2 * lacking.len() < staying || self.mutants.has(Mutant::MinorityProposes);
        let is_gone = |&place: &usize| self.peers[place].is_suspected() || self.joiner(place) != 0;
        let are_gone = || lacking.iter().all(is_gone);
        let awaits_leavers = || {
            let promised = lead.ballot.promised().without(lead.ballot.accepted);
            promised.iter().any(|place| !stays(&place) && !is_gone(&place))
                && !self.mutants.has(Mutant::LeaverForgotten)
        };
        let is_ready = match self.now >= lead.until {
            true => is_most || are_gone(),
            false => lacking.is_empty() && !awaits_leavers(),
        };
        if is_enough && is_ready {
            let proposal = proposal.clone();
            self.close_view(proposal);
            self.push_say(Say::InstallAll);
        }
    }

    /// When the ballot that this member leads needs it.
    pub(super) fn lead_at(&self) -> Nanos {
        self.lead.as_ref().map_or(Nanos::NEVER, |lead| {
            if self.now < lead.until { lead.until.min(lead.repeat_at) } else { lead.repeat_at }
        })
    }

    pub(super) fn handle_prepare(&mut self, place: usize, epoch: u64) {
        if leader_of(epoch) != Some(place) {
            return;
        }
        if !self.acceptor.promise(epoch, self.mutants) {
            return self.push_say(Say::Status(place));
        }
        if self.pending.as_ref().is_some_and(|(_, pending, _)| *pending < epoch) {
            self.pending = None;
        }
        self.push_say(Say::Promise(place));
        self.timing.change_at = Some(self.now.plus(self.delay()));
    }

    /// Returns true if a proposal can be one for the end of this view.
    fn is_possible(&self, proposal: &Proposal) -> bool {
        let places = self.options.roster.len();
        proposal.cut.len() == places && proposal.next.lives.len() == places
    }

    pub(super) fn handle_promise(&mut self, head: &Head, accepted: Option<(u64, Proposal)>, marks: Vec<u64>) {
        let is_possible = accepted.as_ref().is_none_or(|(_, proposal)| self.is_possible(proposal));
        if let Some(lead) = self.lead.as_mut().filter(|lead| lead.ballot.epoch == head.epoch)
            && is_possible
            && marks.len() == self.options.roster.len()
        {
            lead.ballot.add_promise(head.place, Promise { accepted, ordered: head.ordered, marks });
        }
    }

    pub(super) fn handle_accept(&mut self, place: usize, epoch: u64, proposal: Proposal) {
        let is_possible =
            self.is_possible(&proposal) && proposal.next.number == self.view.number.saturating_add(1);
        if leader_of(epoch) != Some(place) || !is_possible {
            return;
        }
        if !self.acceptor.promise(epoch, self.mutants) {
            return self.push_say(Say::Status(place));
        }
        self.note_ends(proposal.order_end, &proposal.cut);
        self.pending = Some((place, epoch, proposal));
        self.timing.change_at = Some(self.now.plus(self.delay()));
    }

    fn try_accept(&mut self) {
        let Some((place, epoch, proposal)) = self.pending.take() else { return };
        let is_held = self.holds(proposal.order_end, &proposal.cut);
        if !is_held && !self.mutants.has(Mutant::AcceptedUnheld) {
            self.pending = Some((place, epoch, proposal));
        } else if self.acceptor.accept(epoch, &proposal, self.mutants) {
            self.push_say(Say::Accepted(place));
        }
    }

    pub(super) fn handle_accepted(&mut self, place: usize, epoch: u64) {
        let is_meant = |lead: &&mut Lead| lead.ballot.epoch == epoch && lead.ballot.proposal.is_some();
        if let Some(lead) = self.lead.as_mut().filter(is_meant) {
            lead.ballot.accepted.insert(place);
        }
    }

    /// Somebody says by what a view came to be.
    pub(super) fn handle_install(&mut self, head: &Head, proposal: &Proposal) {
        if !self.is_possible(proposal) {
            return;
        }
        if self.view.includes(head.place, head.life) {
            self.timing.status_due |= self.peers[head.place].hear(self.now);
        }
        self.note_view(head, proposal.next.number);
        if self.closing.is_none() && proposal.next.number > self.view.number {
            self.install(proposal);
        }
        self.confirm_install(head, proposal);
        self.part();
    }

    fn install(&mut self, proposal: &Proposal) {
        let is_included = proposal.next.includes(self.own, self.life);
        match self.phase {
            Phase::Joining if is_included => self.begin_view(proposal.clone()),
            Phase::Joining | Phase::Parting | Phase::Left => {}
            Phase::Member => {
                let is_next = proposal.next.number == self.view.number.saturating_add(1);
                let goes_on = is_included || self.is_leaving();
                let is_held = self.holds(proposal.order_end, &proposal.cut);
                if is_next && goes_on && (is_held || self.mutants.has(Mutant::AcceptedUnheld)) {
                    self.close_view(proposal.clone());
                } else {
                    self.begin_anew(proposal.clone());
                }
            }
        }
    }

    /// The view ends here: the rest of it is delivered, and nothing else. A member that goes on has passed no more of the order than is
    /// kept, since it promised what it has. A member that is put out may have passed places beyond that, where other frames stand now:
    /// it tells nothing more.
    fn close_view(&mut self, proposal: Proposal) {
        let begun = u64::from(self.unpacked.messages > 0);
        let is_beyond = self.progress.next + begun > proposal.order_end;
        self.has_diverged = is_beyond && !proposal.next.includes(self.own, self.life);
        self.order.close(proposal.order_end, &proposal.cut);
        self.closing = Some(proposal);
        (self.lead, self.pending) = (None, None);
        // From here on the order holds frames that others may never have had there: a member that asked for a part of it is told how
        // the view ended.
        self.repairs.drop_orders();
        self.say.retain(|say| !matches!(say, Say::Promise(_)));
        (self.timing.change_at, self.timing.turn_due) = (None, true);
        self.timing.rest();
        self.gaps.note(false, self.now);
    }

    /// All of the old view was delivered.
    pub(super) fn finish_view(&mut self) {
        let Some(proposal) = self.closing.take() else { return };
        if proposal.next.includes(self.own, self.life) {
            self.begin_view(proposal);
        } else if self.is_leaving() && !self.has_diverged {
            self.installed = Some(proposal);
            self.begin_parting();
        } else {
            self.begin_anew(proposal);
        }
    }

    /// Nothing that belongs to a view is kept.
    fn forget_view(&mut self) {
        self.frames.iter_mut().for_each(Frames::clear);
        self.assemblies.iter_mut().flatten().for_each(Assembly::clear);
        self.early.clear();
        self.delivered.fill(0);
        self.order.clear();
        self.repairs.clear();
        self.outgoing.begin();
        self.gaps.note(false, self.now);
        self.has_diverged = false;
        (self.progress, self.acceptor, self.whole) = (Progress::default(), Acceptor::default(), None);
        self.unpacked = Unpacked::default();
        (self.lead, self.pending, self.closing, self.epoch_seen) = (None, None, None, 0);
        self.timing.begin(self.now);
        self.say.retain(|say| matches!(say, Say::InstallAll));
    }

    fn begin_view(&mut self, proposal: Proposal) {
        for place in 0..self.peers.len() {
            let slow_before = self.slow_before(place, &proposal.next);
            let life = self.view.life(place).unwrap_or(0);
            let stays = life != 0 && proposal.next.includes(place, life);
            self.peers[place].begin(slow_before, (life, stays), self.now);
        }
        self.forget_view();
        (self.phase, self.is_stopped) = (Phase::Member, false);
        self.forget_refusal();
        self.view = proposal.next.clone();
        self.installed = Some(proposal);
        for (place, joining) in self.joining.iter_mut().enumerate() {
            if self.view.includes(place, joining.0) {
                joining.0 = 0;
            }
        }
        (self.timing.status_due, self.timing.turn_due) = (true, true);
        self.events.push_back(Event::View(self.view.clone()));
        // Before anything can be broadcast: a view may be too small.
        self.update_stopped();
    }

    /// The others go on without this life, in the view that was proposed: another one begins.
    fn begin_anew(&mut self, proposal: Proposal) {
        self.forget_view();
        self.heard_view = proposal.next.number;
        // Those who go on may know it from nobody else.
        self.installed = Some(proposal);
        self.account.expelled += 1;
        if self.is_leaving() {
            self.note_loss();
            return self.begin_parting();
        }
        self.outgoing.abandon();
        self.joining.fill((0, Nanos(0)));
        (self.phase, self.is_stopped) = (Phase::Joining, false);
        (self.view, self.timing.join_at) = (View::nobody(self.options.roster.len()), self.now);
        if !self.mutants.has(Mutant::LifeReused) {
            self.life = life_after(self.life);
        }
        self.events.push_back(Event::Expelled);
    }
}
