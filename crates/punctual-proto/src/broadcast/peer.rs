//! A member's knowledge of another: the frames that it holds, and whether it seems to live.
//!
//! Suspicion adapts as that of an eventually perfect detector does (Chandra, Toueg 1996): each time that it was wrong, it waits
//! twice as long.

use super::view::Places;
use crate::time::Nanos;

/// Maximum number of times that the time of suspicion doubles.
const DOUBLINGS_MAX: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    heard_at: Nanos,
    doublings: u32,
    is_suspected: bool,
    /// It was when the view before ended, has stayed, and was not heard since.
    was_suspected: bool,
    /// Its life that a view left out while it was suspected, and that was not heard since; 0 if there is none.
    put_out: u64,
    /// Of how much of the order it holds the frames.
    pub(super) held: u64,
    /// Of how much of the order its user has taken the messages.
    pub(super) taken: u64,
    /// When that grew, or was no less than what the own user had taken.
    taken_at: Nanos,
    /// For how long it had taken nothing when this view began, less the time for which nothing has waited for it since: a new view
    /// frees nobody of that.
    slow_before: Nanos,
    /// The newest view that it said it is in, or of which it said that it has begun.
    pub(super) view: u64,
    /// Members that it suspects; itself if it wants to leave.
    pub(super) suspects: Places,
}

impl Peer {
    /// Sets the state known when a view begins, for a member whose user has taken nothing for so long in those before. The life of before
    /// may have stayed, or be left out. Only later shows that a suspicion was wrong.
    pub(super) fn begin(&mut self, slow_before: Nanos, (life, stays): (u64, bool), now: Nanos) {
        let Self { doublings, is_suspected, was_suspected, put_out, .. } = *self;
        let may_be_wrong = is_suspected || was_suspected;
        *self = Self {
            heard_at: now,
            taken_at: now,
            slow_before,
            doublings,
            was_suspected: may_be_wrong && stays,
            put_out: if may_be_wrong && !stays { life } else { put_out },
            ..Self::default()
        };
    }

    /// It lives. Says whether it was suspected.
    pub(super) fn hear(&mut self, now: Nanos) -> bool {
        self.heard_at = now;
        let was_suspected = core::mem::take(&mut self.is_suspected);
        if core::mem::take(&mut self.was_suspected) || was_suspected {
            self.double();
        }
        was_suspected
    }

    /// Another life than that of the view is heard. If suspicion put it out, it was wrong.
    pub(super) fn hear_former(&mut self, life: u64) {
        if self.put_out == life {
            self.put_out = 0;
            self.double();
        }
    }

    /// A life asks to join that the one of before began once it had heard that it was put out. A process that was started anew has a
    /// life of its own.
    pub(super) fn hear_successor(&mut self, life: u64) {
        if self.put_out != 0 && life_after(self.put_out) == life {
            self.put_out = 0;
            self.double();
        }
    }

    fn double(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
    }

    /// The own member was not run for so long, and may have read nothing of what this one said meanwhile.
    pub(super) fn excuse(&mut self, absence: Nanos, now: Nanos) {
        self.heard_at = self.heard_at.plus(absence).min(now);
        self.taken_at = self.taken_at.plus(absence).min(now);
    }

    pub(super) fn note_view(&mut self, view: u64) {
        self.view = self.view.max(view);
    }

    pub(super) fn is_suspected(&self) -> bool {
        self.is_suspected
    }

    /// When it will be suspected; never if it is.
    pub(super) fn suspicion_at(&self, after: Nanos) -> Nanos {
        if self.is_suspected { Nanos::NEVER } else { self.heard_at.plus(Nanos(after.0 << self.doublings)) }
    }

    /// Suspects it if it was silent for too long. Says whether that is new.
    pub(super) fn suspect(&mut self, now: Nanos, after: Nanos) -> bool {
        let is_new = now >= self.suspicion_at(after);
        self.is_suspected |= is_new;
        is_new
    }

    /// Its user has taken so much, and the own one `own`; `None` if the view is frozen there.
    pub(super) fn note_taken(&mut self, taken: u64, own: Option<u64>, now: Nanos) {
        if taken > self.taken {
            self.slow_before = Nanos(0);
        } else if own.is_some_and(|own| taken >= own) {
            // Nothing waits for its user. That shows little where nobody takes anything, so it counts for as long as it lasts.
            self.slow_before = Nanos(self.slow_before.0.saturating_sub(now.since(self.taken_at).0));
        }
        if taken > self.taken || own.is_none_or(|own| taken >= own) {
            self.taken_at = now;
        }
        self.taken = self.taken.max(taken);
    }

    /// For how long its user had taken nothing by then: of this view, if it `is_behind` there, and of those before.
    pub(super) fn slow_for(&self, is_behind: bool, until: Nanos) -> Nanos {
        let here = if is_behind { until.since(self.taken_at) } else { Nanos(0) };
        self.slow_before.plus(here)
    }

    /// Since when its user has taken nothing, while others took more.
    pub(super) fn taken_at(&self) -> Nanos {
        self.taken_at
    }
}

/// The life after another: as little like it as two that were drawn at random (a step of SplitMix64; Steele, Lea, Flood 2014).
pub(super) fn life_after(life: u64) -> u64 {
    let mut word = life.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time for which a user took nothing in the views before counts until it takes something, less the time for which nothing
    /// waited for it. In a frozen view it counts neither way.
    #[test]
    fn a_quiet_view_frees_a_slow_peer() {
        let mut peer = Peer::default();
        peer.begin(Nanos(80), (1, true), Nanos(1_000));
        for (taken, own, now, is_behind, slow) in [
            (0, Some(0), 1_030, false, 50),
            (0, None, 1_100, false, 50),
            (0, Some(1), 1_110, true, 60),
            (1, Some(2), 1_130, true, 0),
            (1, Some(2), 1_150, true, 20),
        ] {
            peer.note_taken(taken, own, Nanos(now));
            assert_eq!(peer.slow_for(is_behind, Nanos(now)), Nanos(slow), "{now}");
        }
        peer.begin(Nanos(80), (1, true), Nanos(2_000));
        peer.note_taken(0, Some(0), Nanos(9_000));
        assert_eq!(peer.slow_for(false, Nanos(9_000)), Nanos(0));
    }

    #[test]
    fn a_wrongly_suspected_peer_is_given_more_time() {
        let (mut peer, after) = (Peer::default(), Nanos(100));
        for (now, silent) in [(0, 100), (1_000, 200), (2_000, 400), (3_000, 800), (10_000, 800)] {
            peer.hear(Nanos(now));
            assert!(!peer.suspect(Nanos(now + silent - 1), after), "{now}");
            assert!(peer.suspect(Nanos(now + silent), after) && peer.is_suspected(), "{now}");
            assert_eq!(peer.suspicion_at(after), Nanos::NEVER);
        }
    }

    /// Goal: a suspicion counts as wrong also where a view began before its life was heard, with it or without it; and once each.
    #[test]
    fn a_view_does_not_end_the_proof_that_a_suspicion_was_wrong() {
        let (mut peer, after) = (Peer::default(), Nanos(100));
        assert!(peer.suspect(Nanos(100), after));
        peer.begin(Nanos(0), (7, false), Nanos(110));
        peer.hear_former(8);
        assert_eq!(peer.suspicion_at(after), Nanos(210), "that life was not suspected");
        peer.hear_former(7);
        peer.hear_former(7);
        assert_eq!(peer.suspicion_at(after), Nanos(310));
        assert!(peer.suspect(Nanos(310), after));
        peer.begin(Nanos(0), (9, true), Nanos(320));
        assert_eq!(peer.suspicion_at(after), Nanos(520));
        peer.hear(Nanos(400));
        peer.hear(Nanos(410));
        assert_eq!(peer.suspicion_at(after), Nanos(810));
    }

    /// Goal: time for which the own member was not run makes nobody silent, and nobody slow.
    #[test]
    fn an_absence_of_ones_own_is_nobodys() {
        let mut peer = Peer::default();
        peer.begin(Nanos(0), (1, true), Nanos(1_000));
        peer.note_taken(1, Some(2), Nanos(1_010));
        peer.excuse(Nanos(500), Nanos(1_530));
        assert_eq!(peer.slow_for(true, Nanos(1_530)), Nanos(20));
        assert_eq!(peer.suspicion_at(Nanos(100)), Nanos(1_600));
    }
}
