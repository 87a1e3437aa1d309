//! Actions of a member when nothing comes: heartbeats, suspicion, questions, and a look after its last messages.

use super::{Event, Member, Phase, Progress, Say};
use crate::broadcast::view::{Places, View};
use crate::time::Nanos;

/// News of a stream waits for more: an eighth of a heartbeat, at most so long. Ten members on two processors take 0.6 ms for a quarter
/// of a window.
const NEWS_WAIT: Nanos = Nanos::from_micros(1_250);

/// Times at which a member's actions are due.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// Something was said to all a heartbeat before.
    heartbeat_at: Nanos,
    /// If nothing has moved by then, the others are asked what they hold (tail probe).
    probe_at: Nanos,
    probe_wait: Nanos,
    /// Probes since something moved last.
    pub(super) probes: u32,
    /// When something moved last, or everything was settled.
    moved_at: Nanos,
    /// Amounts held, ordered, uniform, and held by a majority without order, when something moved last.
    seen: [u64; 4],
    pub(super) join_at: Nanos,
    /// A node that asks to join before then may be gone: this member was not run for as long as one that leaves waits.
    pub(super) joins_from: Nanos,
    /// A view that is heard of anew is asked for at once from then on.
    pub(super) asks_again_from: Nanos,
    /// When this life asked to join last.
    pub(super) asked_at: Option<Nanos>,
    /// When this member leads a change of views, if nobody does before.
    pub(super) change_at: Option<Nanos>,
    pub(super) status_due: bool,
    pub(super) asks: bool,
    /// Others said to this one alone what they hold, and hear from it what a majority does.
    pub(super) spreads: bool,
    /// In the last heartbeat half a window and more was held anew; since when the next one is counted, and what was held then.
    pub(super) is_fast: bool,
    counted_from: (Nanos, u64),
    /// Since when there is something that was not said.
    news_at: Option<Nanos>,
    /// When this member told the sequencer alone.
    pub(super) alone_at: Option<Nanos>,
    /// Messages that the user took, or a new view, have consequences.
    pub(super) turn_due: bool,
    /// Since when the view is frozen.
    pub(super) frozen_at: Option<Nanos>,
    /// Since when too few are heard, or are in the view.
    pub(super) stopped_at: Option<Nanos>,
}

impl Timing {
    pub(super) fn starting(now: Nanos) -> Self {
        Self {
            heartbeat_at: now,
            probe_at: Nanos::NEVER,
            probe_wait: Nanos(0),
            probes: 0,
            moved_at: now,
            seen: [0; 4],
            join_at: now,
            joins_from: Nanos(0),
            asks_again_from: now,
            asked_at: None,
            change_at: None,
            status_due: false,
            asks: false,
            spreads: false,
            is_fast: false,
            counted_from: (now, 0),
            news_at: None,
            alone_at: None,
            turn_due: false,
            frozen_at: None,
            stopped_at: None,
        }
    }

    /// A view begins.
    pub(super) fn begin(&mut self, now: Nanos) {
        *self = Self { join_at: self.join_at, joins_from: self.joins_from, ..Self::starting(now) };
    }

    /// Nobody waits for anything.
    pub(super) fn rest(&mut self) {
        self.probe_at = Nanos::NEVER;
    }

    /// All were told something.
    pub(super) fn said(&mut self, now: Nanos, heartbeat: Nanos) {
        self.heartbeat_at = now.plus(heartbeat);
        self.news_at = None;
    }

    /// The sequencer was told alone.
    pub(super) fn said_alone(&mut self, now: Nanos) {
        (self.alone_at, self.news_at) = (Some(now), None);
    }
}

impl Member {
    /// It is this late. A member does something with each heartbeat at least. If it was not run for longer, what others said meanwhile
    /// may lie unread: time beyond a heartbeat does not count as their silence.
    pub(super) fn note_time(&mut self, now: Nanos) {
        let since = now.since(self.now);
        let absence = Nanos(since.0.saturating_sub(self.options.heartbeat.0));
        if absence > Nanos(0) {
            self.peers.iter_mut().for_each(|peer| peer.excuse(absence, now));
        }
        if since >= self.options.suspect_after {
            self.timing.joins_from = now.plus(Nanos(2 * self.options.heartbeat.0));
        }
        self.now = now;
    }

    /// Finds out whether much comes, once in a heartbeat.
    pub(super) fn note_pace(&mut self) {
        let (from, held_then) = self.timing.counted_from;
        if self.now.since(from) >= self.options.heartbeat {
            let held = self.progress.held;
            self.timing.is_fast = 2 * (held - held_then) >= self.options.window as u64;
            self.timing.counted_from = (self.now, held);
        }
    }

    /// News that was not said waits for more of it from now on.
    pub(super) fn note_news(&mut self) {
        if !self.has_news() || self.view.size() == 1 {
            self.timing.news_at = None;
        } else if self.timing.news_at.is_none() {
            self.timing.news_at = Some(self.now);
        }
    }

    /// When what is new has waited long enough for more: a round trip, or [`NEWS_WAIT`]. Where nothing is lost no round trip is
    /// measured.
    pub(super) fn news_due(&self) -> Nanos {
        let wait = self.gaps.round_trip().max(NEWS_WAIT.min(Nanos(self.options.heartbeat.0 / 8)));
        self.timing.news_at.map_or(Nanos::NEVER, |since| since.plus(wait))
    }

    /// Does what is due by now. Returns true if there was anything.
    pub(super) fn handle_times(&mut self) -> bool {
        let now = self.now;
        self.timing.turn_due = false;
        if self.phase == Phase::Joining {
            if now >= self.timing.join_at {
                self.join_or_leave();
            }
            return true;
        }
        if self.phase == Phase::Parting {
            for place in self.awaited().iter() {
                self.peers[place].suspect(now, self.options.suspect_after);
            }
            self.part();
            return true;
        }
        let mut is_due = false;
        for place in self.others().iter() {
            is_due |= self.peers[place].suspect(now, self.options.suspect_after);
        }
        is_due |= now >= self.timing.heartbeat_at;
        self.timing.status_due |= is_due;
        if now >= self.timing.probe_at {
            is_due = true;
            (self.timing.asks, self.timing.probes) = (true, self.timing.probes + 1);
            self.timing.probe_wait = Nanos(2 * self.timing.probe_wait.0).min(self.options.heartbeat);
            self.timing.probe_at = now.plus(self.timing.probe_wait);
        }
        if now >= self.gaps.due() {
            is_due = true;
            self.gaps.ask(now, Places::NONE);
            self.gaps.targets = self.holders();
        }
        is_due
    }

    fn join_or_leave(&mut self) {
        if self.is_leaving() {
            return match self.timing.asked_at {
                Some(asked_at) => self.leave_before_joining(asked_at),
                None => self.end(),
            };
        }
        // A user that does not even take the news of its expulsion would hold the next view up too.
        if !self.events.contains(&Event::Expelled) && !self.is_kept_out {
            self.push_say(Say::Join);
            self.timing.asked_at = Some(self.now);
        }
        self.timing.join_at = self.now.plus(self.options.heartbeat);
    }

    /// Members but this one.
    pub(super) fn others(&self) -> Places {
        self.view.members().without(Places::only(self.own))
    }

    /// A member that is asked in place of the source; numbers that follow each other choose different ones.
    fn other_holder(&self, source: usize, number: u32) -> usize {
        let others = self.others().without(Places::only(source));
        let alive = others.without(self.suspects());
        let choice = if alive.is_empty() { others } else { alive };
        let turn = number as usize + self.own;
        choice.iter().nth(turn % choice.len().max(1)).unwrap_or(source)
    }

    /// The member to ask after so many questions without an answer: the source and other members in turn, as they may hold what the
    /// source does not send.
    fn holder(&self, source: usize, unanswered: u32) -> usize {
        let is_turn = unanswered.is_multiple_of(2);
        let asks_source = is_turn && source != self.own && !self.peers[source].is_suspected();
        if asks_source { source } else { self.other_holder(source, unanswered / 2) }
    }

    /// The origin is asked alone while it answers: then its answers go out in one run.
    pub(super) fn holder_of_frames(&self, origin: usize) -> usize {
        self.holder(origin, self.gaps.unanswered(origin))
    }

    /// The member to ask for frames of the sequencer; if none are missing, the sequencer and others in turn, as nothing tells whether
    /// an order record is an answer.
    pub(super) fn holder_of_order(&self) -> usize {
        let sequencer = self.view.sequencer().unwrap_or(self.own);
        if self.frames[sequencer].has_gap() {
            self.holder_of_frames(sequencer)
        } else {
            self.holder(sequencer, self.gaps.attempt() + 1)
        }
    }

    /// Returns true if order must be asked for: frames of the sequencer bring their places, if it is asked for them itself.
    pub(super) fn wants_order(&self) -> bool {
        let are_brought = |sequencer: usize| {
            self.holder_of_frames(sequencer) == sequencer
                && self.frames[sequencer].missing_count() >= self.order.missing_count()
        };
        self.order.has_gap() && !self.view.sequencer().is_some_and(are_brought)
    }

    fn holders(&self) -> Places {
        let mut holders = Places::NONE;
        if self.wants_order() {
            holders.insert(self.holder_of_order());
        }
        for (origin, _) in self.frames.iter().enumerate().filter(|(_, frames)| frames.has_gap()) {
            holders.insert(self.holder_of_frames(origin));
        }
        holders.without(Places::only(self.own))
    }

    /// Sets the tail probe: two round trips after something moved, if something is still under way. It does not wait for statuses that
    /// wait for more: a frame that was lost at the end of a run would be missed for as long.
    pub(super) fn note_settled(&mut self) {
        let Progress { held, uniform, .. } = self.progress;
        let seen = [held, self.order.mark(), uniform, self.early.progress()];
        if self.is_settled() || self.view.size() == 1 {
            (self.timing.probe_at, self.timing.moved_at) = (Nanos::NEVER, self.now);
        } else if seen != self.timing.seen || self.timing.probe_at == Nanos::NEVER {
            self.timing.probe_wait = Nanos(2 * self.gaps.round_trip().0);
            self.timing.probes = 0;
            (self.timing.probe_at, self.timing.moved_at) = (self.now.plus(self.timing.probe_wait), self.now);
        }
        self.timing.seen = seen;
    }

    /// Returns true if something is under way and nothing of it has moved for so long that somebody must hold it up.
    pub(super) fn is_stuck(&self) -> bool {
        let usual = self.options.heartbeat.max(Nanos(4 * self.gaps.round_trip().0));
        self.timing.probe_at != Nanos::NEVER && self.now.since(self.timing.moved_at) >= usual
    }

    /// Returns true if a member's user has taken nothing for too long while the own one took more, if such members are expelled. A
    /// member that was not heard in this view yet has not even taken what is left of the one before. So those who have taken most are
    /// accused by nobody, and the group goes on with them.
    pub(super) fn is_slow(&self, place: usize) -> bool {
        let Some(after) = self.options.expel_slow_after else { return false };
        self.is_behind_own(place) && self.slow_for(place) >= after
    }

    fn is_behind_own(&self, place: usize) -> bool {
        let peer = &self.peers[place];
        peer.taken < self.progress.taken || peer.view < self.view.number
    }

    /// For how long a member's user has taken nothing, in this view and those before. Nothing can be taken of a frozen view, so there
    /// time does not count.
    fn slow_for(&self, place: usize) -> Nanos {
        let until = self.timing.frozen_at.unwrap_or(self.now);
        self.peers[place].slow_for(self.is_behind_own(place), until)
    }

    /// The part of that time that counts in the next view; of another life's, none. Two heartbeats remain, in which is heard what is
    /// taken there.
    pub(super) fn slow_before(&self, place: usize, next: &View) -> Nanos {
        let stays = self.view.life(place).is_some_and(|life| next.includes(place, life));
        let after = self.options.expel_slow_after.filter(|_| stays).unwrap_or(Nanos(0));
        self.slow_for(place).min(Nanos(after.0.saturating_sub(2 * self.options.heartbeat.0)))
    }

    pub(super) fn next_timeout(&self) -> Nanos {
        match self.phase {
            Phase::Left => Nanos::NEVER,
            Phase::Joining => self.timing.join_at,
            Phase::Parting => self.parting_at(),
            Phase::Member => {
                if self.timing.turn_due || self.is_behind || self.wants_status() {
                    return self.now;
                }
                let suspicion = |place: usize| self.peers[place].suspicion_at(self.options.suspect_after);
                let first = self.others().iter().map(suspicion).min().unwrap_or(Nanos::NEVER);
                let timing = &self.timing;
                let change_at = timing.change_at.unwrap_or(Nanos::NEVER);
                let times = [
                    timing.heartbeat_at,
                    timing.probe_at,
                    self.gaps.due(),
                    change_at,
                    self.lead_at(),
                    first,
                    self.news_due(),
                ];
                times.into_iter().min().unwrap_or(Nanos::NEVER)
            }
        }
    }
}
