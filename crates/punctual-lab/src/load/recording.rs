//! Notes that a client takes while it measures: ticks, in memory touched beforehand. Each message, and each packet that arrives, ends
//! in exactly one class, and the sums are checked. Nanoseconds are made after the trial.
//!
//! Time is an argument; nothing here reads a clock.

use punctual::{Clock, Ticks};
use serde::{Deserialize, Serialize};

use crate::run::room_for;
use crate::sample::{Load, Outcome, Samples};

/// One message. `D` is what its way says of it besides.
#[derive(Clone, Copy, Debug)]
pub struct Row<D> {
    /// When it should have left.
    pub due: Ticks,
    /// When it left.
    pub sent: Ticks,
    /// When its answer was there, or when the trial ended.
    pub done: Ticks,
    /// Its outcome.
    pub outcome: Outcome,
    /// Other details.
    pub detail: D,
}

impl<D: Default> Row<D> {
    fn sent_at(due: Ticks, sent: Ticks) -> Self {
        Self { due, sent, done: sent, outcome: Outcome::Unfinished, detail: D::default() }
    }

    /// When its latency begins.
    pub fn start(&self, load: Load) -> Ticks {
        match load {
            Load::Open => self.due,
            Load::Closed => self.sent,
        }
    }
}

/// Every packet that arrived is in exactly one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// All.
    pub all: u64,
    /// The right answer to an open question.
    pub answers: u64,
    /// To one that had ended already.
    pub duplicates: u64,
    /// Damaged, and charged to a question.
    pub mismatches: u64,
    /// Damaged, and no question was open that it could be charged to.
    pub damaged_strays: u64,
    /// Of another run, or to a question that was never asked.
    pub strays: u64,
}

impl Arrivals {
    /// Nothing vanished and nothing was invented.
    pub fn sums(&self) -> bool {
        self.all == self.answers + self.duplicates + self.mismatches + self.damaged_strays + self.strays
    }
}

/// Number of messages by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TripEnds {
    /// Sent.
    pub sent: u64,
    /// The right answer came.
    pub answered: u64,
    /// None came in time.
    pub lost: u64,
    /// A wrong one came.
    pub mismatched: u64,
    /// None had come when the trial ended, but there was time left.
    pub unfinished: u64,
}

impl TripEnds {
    /// Every message ended in exactly one way.
    pub fn sums(&self) -> bool {
        self.sent == self.answered + self.lost + self.mismatched + self.unfinished
    }
}

/// The messages of one trial, by number.
#[derive(Debug)]
pub struct Recording<D> {
    rows: Vec<Row<D>>,
    capacity: usize,
    open: usize,
    /// No message before this one is open.
    oldest_open: usize,
    /// Messages before this one are waited for no longer.
    awaited_from: usize,
    /// So many of those are open still.
    overdue: usize,
    /// The newest that was answered, by flow.
    newest: Vec<Option<u64>>,
    arrivals: Arrivals,
    reordered: u64,
}

impl<D: Copy + Default> Recording<D> {
    /// Room for `capacity` messages over `flows` flows, taken in turn.
    pub fn new(capacity: usize, flows: usize) -> Self {
        let rows = room_for(capacity, Row::sent_at(Ticks(1), Ticks(1)));
        let newest = vec![None; flows.max(1)];
        let arrivals = Arrivals::default();
        Self {
            rows,
            capacity,
            open: 0,
            oldest_open: 0,
            awaited_from: 0,
            overdue: 0,
            newest,
            arrivals,
            reordered: 0,
        }
    }

    /// Messages noted.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if no message was noted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True if there is room for another message.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.rows.len() < self.capacity
    }

    /// Messages without an answer yet.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Of those the ones that were sent less than `lost_after` before `now`: the others are lost, or as good as that.
    pub fn under_way(&mut self, now: Ticks, lost_after: Ticks) -> usize {
        while let Some(row) = self.rows.get(self.awaited_from)
            && now.since(row.sent) >= lost_after
        {
            self.overdue += usize::from(row.outcome == Outcome::Unfinished);
            self.awaited_from += 1;
        }
        self.open - self.overdue
    }

    /// The message at this place is open no longer.
    #[inline]
    fn note_end(&mut self, place: usize) {
        self.open -= 1;
        self.overdue -= usize::from(place < self.awaited_from);
    }

    /// All messages.
    pub fn rows(&self) -> &[Row<D>] {
        &self.rows
    }

    /// A message, to note more of it.
    pub fn row_mut(&mut self, sequence: u64) -> Option<&mut Row<D>> {
        self.rows.get_mut(usize::try_from(sequence).ok()?)
    }

    /// Counts of arrivals.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// Notes that the next message was sent.
    #[inline]
    pub fn note_sent(&mut self, due: Ticks, sent: Ticks) {
        self.rows.push(Row::sent_at(due, sent));
        self.open += 1;
    }

    /// Notes an answer; nothing if it is to no open question.
    #[inline]
    pub fn note_answer(&mut self, sequence: u64, done: Ticks) -> Option<&mut Row<D>> {
        self.arrivals.all += 1;
        let place = usize::try_from(sequence).unwrap_or(usize::MAX);
        let Some(row) = self.rows.get_mut(place) else {
            self.arrivals.strays += 1;
            return None;
        };
        if row.outcome != Outcome::Unfinished {
            self.arrivals.duplicates += 1;
            return None;
        }
        (row.outcome, row.done) = (Outcome::Answered, done);
        self.arrivals.answers += 1;
        self.note_end(place);
        let flow = (sequence % self.newest.len() as u64) as usize;
        let newest = &mut self.newest[flow];
        self.reordered += u64::from(newest.is_some_and(|newest| sequence < newest));
        *newest = (*newest).max(Some(sequence));
        self.rows.get_mut(place)
    }

    /// Notes what is of another run.
    pub fn note_stray(&mut self) {
        self.arrivals.all += 1;
        self.arrivals.strays += 1;
    }

    /// Notes an answer with wrong bytes: it is charged to the question that it names if that is open, else to the oldest open one.
    pub fn note_damage(&mut self, sequence: Option<u64>, done: Ticks) -> Option<&mut Row<D>> {
        self.arrivals.all += 1;
        let is_open =
            |place: &usize| self.rows.get(*place).is_some_and(|row| row.outcome == Outcome::Unfinished);
        let named = sequence.and_then(|sequence| usize::try_from(sequence).ok()).filter(is_open);
        while self.oldest_open < self.rows.len() && !is_open(&self.oldest_open) {
            self.oldest_open += 1;
        }
        let place = named.unwrap_or(self.oldest_open);
        let Some(row) = self.rows.get_mut(place) else {
            self.arrivals.damaged_strays += 1;
            return None;
        };
        (row.outcome, row.done) = (Outcome::Mismatched, done);
        self.arrivals.mismatches += 1;
        self.note_end(place);
        self.rows.get_mut(place)
    }

    /// The trial is over: messages that were waited for so long are lost, the rest is unfinished at its age.
    pub fn close(&mut self, now: Ticks, lost_after: Ticks) {
        for row in self.rows.iter_mut().filter(|row| row.outcome == Outcome::Unfinished) {
            row.done = now;
            if now.since(row.sent) >= lost_after {
                row.outcome = Outcome::Lost;
            }
        }
        (self.open, self.overdue, self.awaited_from) = (0, 0, self.rows.len());
    }

    /// Number of messages by outcome, counted anew.
    pub fn ends(&self) -> TripEnds {
        let mut ends = TripEnds { sent: self.rows.len() as u64, ..TripEnds::default() };
        for row in &self.rows {
            match row.outcome {
                Outcome::Answered => ends.answered += 1,
                Outcome::Lost => ends.lost += 1,
                Outcome::Mismatched => ends.mismatched += 1,
                // No trip is refused: a responder that does not answer is silent.
                Outcome::Unfinished | Outcome::Refused => ends.unfinished += 1,
            }
        }
        ends
    }

    /// The messages in nanoseconds since `start`, without stages; `first_index` is the first one's index in its cell.
    pub fn samples(&self, clock: &Clock, start: Ticks, first_index: u64, load: Load) -> Samples {
        let mut samples = Samples::with_capacity(self.rows.len());
        for (row, index) in self.rows.iter().zip(first_index..) {
            let at = |instant: Ticks| clock.nanos(instant.since(start));
            let total = clock.nanos(row.done.since(row.start(load)));
            samples.push(index, at(row.due), at(row.sent), total, row.outcome);
        }
        samples.facts.duplicated = self.arrivals.duplicates;
        samples.facts.reordered = self.reordered;
        samples
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_message_and_every_arrival_has_its_class() {
        let mut recording = Recording::<()>::new(8, 1);
        for number in 0..6 {
            recording.note_sent(Ticks(100 * number), Ticks(100 * number + 1));
        }
        assert!(recording.note_answer(2, Ticks(700)).is_some());
        assert!(recording.note_answer(0, Ticks(710)).is_some());
        assert!(recording.note_answer(0, Ticks(720)).is_none());
        assert!(recording.note_answer(99, Ticks(730)).is_none());
        recording.note_stray();
        assert!(recording.note_damage(Some(4), Ticks(750)).is_some());
        assert!(recording.note_damage(Some(4), Ticks(760)).is_some());
        recording.close(Ticks(900), Ticks(500));
        let samples = recording.samples(Clock::get(), Ticks(0), 100, Load::Closed);
        assert_eq!(samples.index, [100, 101, 102, 103, 104, 105]);
        use Outcome::{Answered, Lost, Mismatched, Unfinished};
        assert_eq!(samples.outcome, [Answered, Mismatched, Answered, Lost, Mismatched, Unfinished]);
        assert_eq!((samples.facts.reordered, samples.facts.duplicated), (1, 1));
        assert_eq!(recording.arrivals().strays, 2);
        assert!(recording.ends().sums() && recording.arrivals().sums());
    }

    proptest! {
        /// Goal: both sums hold for any arrivals in any order.
        #[test]
        fn both_sums_hold(sent in 0..40_u64, events in proptest::collection::vec((0..4_u8, 0..50_u64), 0..120)) {
            let mut recording = Recording::<()>::new(40, 3);
            for number in 0..sent {
                recording.note_sent(Ticks(number), Ticks(number));
            }
            let mut open = sent;
            for (now, (kind, number)) in (0..).zip(&events) {
                let before = recording.arrivals();
                match kind {
                    0 | 1 => assert!(recording.note_answer(*number, Ticks(*number)).is_none_or(|row| row.sent.0 == *number)),
                    2 => {
                        let named = (number % 3 > 0).then_some(*number);
                        let charged = recording.note_damage(named, Ticks(*number));
                        assert!(charged.is_none_or(|row| row.outcome == Outcome::Mismatched));
                    }
                    _ => recording.note_stray(),
                }
                let after = recording.arrivals();
                open -= after.answers - before.answers + after.mismatches - before.mismatches;
                prop_assert_eq!(recording.open() as u64, open);
                // Those that are waited for, counted one by one.
                let is_awaited = |row: &&Row<()>| row.outcome == Outcome::Unfinished && Ticks(now).since(row.sent) < Ticks(9);
                let awaited = recording.rows().iter().filter(is_awaited).count();
                prop_assert_eq!(recording.under_way(Ticks(now), Ticks(9)), awaited);
            }
            recording.close(Ticks(60), Ticks(50));
            prop_assert!(recording.ends().sums() && recording.arrivals().sums());
            prop_assert_eq!(recording.ends().answered, recording.arrivals().answers);
            prop_assert_eq!(recording.ends().mismatched, recording.arrivals().mismatches);
            prop_assert_eq!(recording.arrivals().all, events.len() as u64);
        }
    }
}
