//! Times and targets of questions about gaps, and the questions of others.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::slots::Slots;
use super::view::Places;
use crate::limits::{BROADCAST_REPAIRS_MAX, BROADCAST_WINDOW_MAX};
use crate::time::Nanos;

/// A question is repeated after this many doublings of the round trip at most.
const DOUBLINGS_MAX: u32 = 4;

/// Frames that a question asks for at most, where questions are answered: all of a window.
const FRAMES_ASKED_MAX: u32 = BROADCAST_WINDOW_MAX as u32;

/// No round trip is taken to be shorter, so that questions have an end.
const ROUND_TRIP_MIN: Nanos = Nanos(500);

/// A repair that takes longer than so many round trips was lost once, or its question was.
const ROUND_TRIPS_MAX: u64 = 4;

/// Requests for frames of one origin.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// All frames before this one may have been asked for.
    before: u64,
    /// It was asked for frames, and none of them has come as a repair yet.
    is_open: bool,
    /// Questions in a row that brought none of its frames.
    unanswered: u32,
}

/// When to ask for what is missing. The first question goes out after a quarter of a round trip, as frames may overtake each other; the
/// next ones after a whole one with jitter, doubled each time that nothing came of the last. Where frames are lost all the time,
/// something is missing all the time: new losses do not wait for the end of earlier ones.
#[derive(Clone, Debug)]
pub(super) struct GapClock {
    round_trip: Nanos,
    /// From the first frame that is missing to the question: for so long frames may overtake each other.
    patience: Nanos,
    /// None is taken to be longer.
    round_trip_max: Nanos,
    /// The frame whose repair measures a round trip, and when it was asked for first.
    timed: Option<((usize, u64), Nanos)>,
    /// Of each origin.
    asked: Vec<Asked>,
    due: Option<Nanos>,
    attempt: u32,
    /// Questions of which nothing came, one after the other.
    futile: u32,
    jitter: u64,
    /// Members that are still to be asked in this round.
    pub(super) targets: Places,
    /// Frames that one question asks for at most. Frames that the medium cannot carry at once must be asked for in parts, or all of
    /// them may be lost each time.
    frames_max: u32,
    /// Repairs since it was asked last.
    repairs: u32,
}

impl GapClock {
    /// Of frames of so many origins. Round trips are taken to be a quarter of a heartbeat at most: nobody who sends is slower for long.
    pub(super) fn new(round_trip: Nanos, heartbeat: Nanos, (origins, seed): (usize, u64)) -> Self {
        Self {
            round_trip,
            patience: Nanos(round_trip.0 / 4),
            round_trip_max: round_trip.max(Nanos(heartbeat.0 / 4)),
            timed: None,
            asked: vec![Asked::default(); origins],
            due: None,
            attempt: 0,
            futile: 0,
            jitter: seed | 1,
            targets: Places::NONE,
            frames_max: FRAMES_ASKED_MAX,
            repairs: 0,
        }
    }

    /// Maximum number of frames that the next question asks for.
    pub(super) fn frames_max(&self) -> u32 {
        self.frames_max
    }

    pub(super) fn round_trip(&self) -> Nanos {
        self.round_trip
    }

    pub(super) fn due(&self) -> Nanos {
        self.due.unwrap_or(Nanos::NEVER)
    }

    /// Number of times that it was asked for what is missing.
    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Number of questions in a row that brought no frame of an origin.
    pub(super) fn unanswered(&self, origin: usize) -> u32 {
        self.asked[origin].unanswered
    }

    /// Something is missing, or nothing is.
    pub(super) fn note(&mut self, has_gap: bool, now: Nanos) {
        if !has_gap {
            (self.due, self.attempt, self.futile, self.targets) = (None, 0, 0, Places::NONE);
            self.timed = None;
            self.asked.fill(Asked::default());
        } else if self.due.is_none() {
            self.due = Some(now.plus(self.patience.min(Nanos(self.round_trip.0 / 4))));
        }
    }

    /// A part of the way up to `limit`, which nobody foresees.
    pub(super) fn jitter(&mut self, limit: Nanos) -> Nanos {
        // The multiplier of Knuth's MMIX.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Nanos(((u128::from(self.jitter) * u128::from(limit.0)) >> 64) as u64)
    }

    /// It is asked now.
    pub(super) fn ask(&mut self, now: Nanos, targets: Places) {
        if self.attempt > 0 {
            let is_futile = core::mem::take(&mut self.repairs) == 0;
            self.futile = if is_futile { self.futile + 1 } else { 0 };
            let frames_max = if is_futile { self.frames_max / 2 } else { self.frames_max * 2 };
            self.frames_max = frames_max.clamp(1, FRAMES_ASKED_MAX);
        }
        for asked in self.asked.iter_mut().filter(|asked| asked.is_open) {
            (asked.is_open, asked.unanswered) = (false, asked.unanswered + 1);
        }
        let wait = Nanos(self.round_trip.0 << self.futile.min(DOUBLINGS_MAX));
        let jitter = self.jitter(Nanos(wait.0 / 2));
        self.due = Some(now.plus(wait).plus(jitter));
        (self.attempt, self.targets) = (self.attempt + 1, targets);
    }

    /// It is asked for frames of an origin, the newest of which is this one. Only one that was never asked for before tells how long
    /// a repair takes: otherwise nobody knows which question it answers (Karn, Partridge 1987).
    pub(super) fn time(&mut self, (origin, number): (usize, u64), now: Nanos) {
        let asked = &mut self.asked[origin];
        let is_first = number >= asked.before;
        (asked.before, asked.is_open) = (asked.before.max(number + 1), true);
        if is_first && self.timed.is_none() {
            self.timed = Some(((origin, number), now));
        }
    }

    /// A frame has come that was missing, or might have been soon.
    pub(super) fn arrived(&mut self, frame: (usize, u64), is_repair: bool, now: Nanos) {
        if is_repair {
            self.repairs = self.repairs.saturating_add(1);
            let asked = &mut self.asked[frame.0];
            (asked.is_open, asked.unanswered) = (false, 0);
        }
        let Some((_, asked_at)) = self.timed.take_if(|(timed, _)| *timed == frame) else { return };
        if is_repair {
            let sample = now.since(asked_at).0.min(ROUND_TRIPS_MAX * self.round_trip.0);
            let round_trip = Nanos((7 * self.round_trip.0 + sample) / 8);
            self.round_trip = round_trip.min(self.round_trip_max).max(ROUND_TRIP_MIN);
        }
    }
}

/// Frames and order that others miss.
#[derive(Debug)]
pub(super) struct Repairs {
    /// Of each origin and slot, who misses the frame.
    askers: Vec<Slots<Places>>,
    frames: VecDeque<(usize, u64)>,
    /// Parts of the order: the member that misses them, their beginning and their end.
    orders: VecDeque<(usize, u64, u64)>,
}

impl Repairs {
    pub(super) fn new(places: usize, window: usize) -> Self {
        Self {
            askers: (0..places).map(|_| Slots::new(window, Places::NONE)).collect(),
            frames: VecDeque::with_capacity(BROADCAST_REPAIRS_MAX),
            orders: VecDeque::with_capacity(places),
        }
    }

    pub(super) fn clear(&mut self) {
        self.askers.iter_mut().for_each(|slots| slots.fill(Places::NONE));
        self.frames.clear();
        self.orders.clear();
    }

    /// Somebody misses a frame. A frame that does not fit is asked for again.
    pub(super) fn add_frame(&mut self, place: usize, (origin, number): (usize, u64)) {
        let askers = &mut self.askers[origin][number];
        if askers.is_empty() {
            if self.frames.len() == BROADCAST_REPAIRS_MAX {
                return;
            }
            self.frames.push_back((origin, number));
        }
        askers.insert(place);
    }

    /// The next frame, and the members that miss it.
    pub(super) fn next_frame(&mut self) -> Option<(usize, u64, Places)> {
        let (origin, number) = self.frames.pop_front()?;
        Some((origin, number, core::mem::take(&mut self.askers[origin][number])))
    }

    /// Somebody misses a part of the order; one part at a time.
    pub(super) fn add_order(&mut self, place: usize, from: u64, to: u64) {
        if from < to && self.orders.iter().all(|(asker, ..)| *asker != place) {
            self.orders.push_back((place, from, to));
        }
    }

    /// No part of the order is said any more.
    pub(super) fn drop_orders(&mut self) {
        self.orders.clear();
    }

    pub(super) fn next_order(&mut self) -> Option<(usize, u64, u64)> {
        self.orders.pop_front()
    }

    /// The rest of a part that did not fit into one record.
    pub(super) fn put_back_order(&mut self, rest: (usize, u64, u64)) {
        self.orders.push_front(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_wait_longer_each_time_and_end_with_the_gap() {
        let mut clock = GapClock::new(Nanos(1_000), Nanos(40_000), (2, 7));
        clock.note(true, Nanos(0));
        assert_eq!(clock.due(), Nanos(250));
        let mut waits = Vec::new();
        for _ in 0..6 {
            let now = clock.due();
            clock.ask(now, Places::only(1));
            waits.push(clock.due().since(now).0);
        }
        let within = |(wait, doublings): (&u64, u32)| (1_000 << doublings..1_500 << doublings).contains(wait);
        assert!(waits.iter().zip([0, 1, 2, 3, 4, 4]).all(within), "{waits:?}");
        clock.note(false, Nanos(0));
        assert_eq!((clock.due(), clock.attempt()), (Nanos::NEVER, 0));
    }

    /// Goal: while questions are answered they go out each round trip, however long something is missing.
    #[test]
    fn a_gap_under_repair_is_asked_for_without_delay() {
        let mut clock = GapClock::new(Nanos(1_000), Nanos(40_000), (2, 7));
        clock.note(true, Nanos(0));
        for _ in 0..20 {
            let now = clock.due();
            clock.ask(now, Places::only(1));
            assert!((1_000..1_500).contains(&clock.due().since(now).0));
            clock.arrived((0, 1), true, now.plus(Nanos(900)));
            clock.note(true, now);
        }
    }

    #[test]
    fn questions_without_an_answer_are_counted_for_each_origin() {
        let mut clock = GapClock::new(Nanos(1_000), Nanos(40_000), (2, 7));
        let mut ask = |answers: &[usize]| {
            clock.ask(Nanos(0), Places::only(1));
            [0, 1].into_iter().for_each(|origin| clock.time((origin, 5), Nanos(0)));
            answers.iter().for_each(|&origin| clock.arrived((origin, 5), true, Nanos(900)));
            [clock.unanswered(0), clock.unanswered(1)]
        };
        assert_eq!(ask(&[0, 1]), [0, 0]);
        assert_eq!(ask(&[1]), [0, 0], "an answer may be under way");
        assert_eq!(ask(&[1]), [1, 0]);
        assert_eq!(ask(&[]), [2, 0]);
        assert_eq!(ask(&[0]), [0, 1]);
        clock.note(false, Nanos(0));
        assert_eq!([clock.unanswered(0), clock.unanswered(1)], [0, 0]);
    }

    #[test]
    fn only_what_was_never_asked_for_before_measures_the_round_trip() {
        let mut clock = GapClock::new(Nanos(800), Nanos(4_000), (2, 7));
        clock.time((1, 5), Nanos(0));
        clock.arrived((1, 5), true, Nanos(1_600));
        assert_eq!(clock.round_trip(), Nanos(900));
        clock.time((1, 5), Nanos(5_000));
        clock.arrived((1, 5), true, Nanos(6_700));
        assert_eq!(clock.round_trip(), Nanos(900), "another question may have brought it");
        clock.time((1, 6), Nanos(7_000));
        clock.arrived((1, 6), false, Nanos(8_700));
        assert_eq!(clock.round_trip(), Nanos(900), "it was only late");
        clock.time((0, 2), Nanos(8_000));
        clock.time((0, 3), Nanos(9_000));
        clock.arrived((0, 3), true, Nanos(9_001));
        assert_eq!(clock.round_trip(), Nanos(900), "another one is waited for");
        clock.arrived((0, 2), true, Nanos(90_000));
        assert_eq!(clock.round_trip(), Nanos(1_000), "a quarter of a heartbeat at most");
    }

    #[test]
    fn members_that_miss_the_same_frame_are_kept_together() {
        let mut repairs = Repairs::new(2, 4);
        [2, 0].into_iter().for_each(|place| repairs.add_frame(place, (1, 6)));
        repairs.add_frame(0, (0, 6));
        assert_eq!(repairs.next_frame(), Some((1, 6, Places(0b101))));
        assert_eq!(repairs.next_frame(), Some((0, 6, Places(1))));
        assert_eq!(repairs.next_frame(), None);
    }
}
