//! What a client notes while it measures: ticks, in memory touched beforehand. Nanoseconds are made after the trial.

use punctual::{Clock, Stage, Stages, Ticks};

use super::ping::StageTicks;
use crate::sample::{ABSENT_NS, Outcome, RESPONDER, Samples, StageColumn};

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// When it should have left.
    pub due: Ticks,
    /// When it left.
    pub sent: Ticks,
    /// When its answer was there, or when the trial ended.
    pub done: Ticks,
    /// How it ended.
    pub outcome: Outcome,
    /// When the responder's application had it; 0 = not known.
    pub delivered: Ticks,
    /// The request's stages; `u32::MAX` where not known.
    pub request: StageTicks,
    /// The answer's stages and the instant at which it was sent, where they were stamped.
    pub reply: Option<Stages>,
}

impl Row {
    fn sent_at(due: Ticks, sent: Ticks) -> Self {
        let request = [u32::MAX; Stage::ALL.len()];
        Self {
            due,
            sent,
            done: sent,
            outcome: Outcome::Unfinished,
            delivered: Ticks(0),
            request,
            reply: None,
        }
    }
}

/// The messages of one trial, by number.
#[derive(Debug)]
pub struct Recording {
    rows: Vec<Row>,
    capacity: usize,
    /// Answers that came twice.
    pub duplicated: u64,
    /// Answers that came after a younger one's.
    pub reordered: u64,
    newest_answered: Option<u64>,
}

impl Recording {
    /// Room for `capacity` messages, touched now so that noting one faults no page.
    pub fn new(capacity: usize) -> Self {
        let mut rows = vec![Row::sent_at(Ticks(1), Ticks(1)); capacity];
        rows.clear();
        Self { rows, capacity, duplicated: 0, reordered: 0, newest_answered: None }
    }

    /// Messages noted.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether there is room for another.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.rows.len() < self.capacity
    }

    /// Notes that the next message was sent.
    #[inline]
    pub fn note_sent(&mut self, due: Ticks, sent: Ticks) {
        self.rows.push(Row::sent_at(due, sent));
    }

    /// Notes an answer; `false` if it is to no open question.
    #[inline]
    pub fn note_answer(&mut self, sequence: u64, done: Ticks) -> Option<&mut Row> {
        let row = self.rows.get_mut(usize::try_from(sequence).ok()?)?;
        if row.outcome == Outcome::Answered {
            self.duplicated += 1;
            return None;
        }
        if self.newest_answered.is_some_and(|newest| sequence < newest) {
            self.reordered += 1;
        }
        self.newest_answered = self.newest_answered.max(Some(sequence));
        row.done = done;
        row.outcome = Outcome::Answered;
        Some(row)
    }

    /// Notes an answer with wrong bytes: it is charged to the oldest open question.
    pub fn note_mismatch(&mut self, done: Ticks) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.outcome == Outcome::Unfinished) {
            row.done = done;
            row.outcome = Outcome::Mismatched;
        }
    }

    /// Messages without an answer yet.
    pub fn open(&self) -> usize {
        self.rows.iter().filter(|row| row.outcome == Outcome::Unfinished).count()
    }

    /// The trial is over: what was waited for long enough is lost, the rest is unfinished at its age.
    pub fn close(&mut self, now: Ticks, patience: Ticks) {
        for row in self.rows.iter_mut().filter(|row| row.outcome == Outcome::Unfinished) {
            row.done = now;
            if now.since(row.sent) >= patience {
                row.outcome = Outcome::Lost;
            }
        }
    }

    /// The round trips in nanoseconds since `start`; `first_index` is the first message's index in its cell.
    pub fn round_trips(&self, clock: &Clock, start: Ticks, first_index: u64, open_load: bool) -> Samples {
        let mut samples = Samples::with_capacity(self.rows.len());
        for (row, index) in self.rows.iter().zip(first_index..) {
            let from = if open_load { row.due } else { row.sent };
            let total = clock.nanos(row.done.since(from));
            let at = |instant: Ticks| clock.nanos(instant.since(start));
            samples.push(index, at(row.due), at(row.sent), total, row.outcome);
        }
        if self.rows.iter().any(|row| row.reply.is_some()) {
            samples.stages = self.round_trip_stages(clock, open_load);
        }
        samples
    }

    fn round_trip_stages(&self, clock: &Clock, open_load: bool) -> Vec<StageColumn> {
        let ns = |ticks: Option<u32>| ticks.map_or(ABSENT_NS, |ticks| clock.nanos(Ticks(ticks.into())));
        let known = |ticks: u32| (ticks != u32::MAX).then_some(ticks);
        let mut columns = Vec::new();
        for (place, stage) in Stage::ALL.into_iter().enumerate().filter(|(_, stage)| *stage != Stage::Sent) {
            let request = self.rows.iter().map(|row| ns(known(row.request[place]))).collect();
            columns.push(StageColumn { name: format!("request.{}", stage.name()), ns: request });
            let reply = |row: &Row| row.reply.and_then(|reply| reply.time_in(stage));
            let reply = self
                .rows
                .iter()
                .map(|row| reply(row).map_or(ABSENT_NS, |ticks| clock.nanos(ticks)))
                .collect();
            columns.push(StageColumn { name: format!("reply.{}", stage.name()), ns: reply });
        }
        let responder = |row: &Row| {
            let reply = row.reply.filter(|reply| reply.one_clock && row.delivered.0 != 0)?;
            Some(clock.nanos(Ticks(reply.sender.sent).since(row.delivered)))
        };
        let responder = self.rows.iter().map(|row| responder(row).unwrap_or(ABSENT_NS)).collect();
        columns.push(StageColumn { name: RESPONDER.to_owned(), ns: responder });
        if open_load {
            let late = |row: &Row| {
                if row.reply.is_some() { clock.nanos(row.sent.since(row.due)) } else { ABSENT_NS }
            };
            columns.push(StageColumn {
                name: "request.sent".to_owned(),
                ns: self.rows.iter().map(late).collect(),
            });
        }
        columns
    }

    /// The requests' way alone, where both ends read one clock. `None` if no row knows it.
    pub fn one_ways(
        &self,
        clock: &Clock,
        start: Ticks,
        first_index: u64,
        open_load: bool,
    ) -> Option<Samples> {
        if !self.rows.iter().any(|row| row.delivered.0 != 0) {
            return None;
        }
        let mut samples = Samples::with_capacity(self.rows.len());
        for (row, index) in self.rows.iter().zip(first_index..) {
            let from = if open_load { row.due } else { row.sent };
            let at = |instant: Ticks| clock.nanos(instant.since(start));
            // Without an answer the request's way is as unknown as the whole: it keeps its place and its age.
            let known = row.outcome == Outcome::Answered && row.delivered.0 != 0;
            let done = if known { row.delivered } else { row.done };
            let outcome =
                if known || row.outcome != Outcome::Answered { row.outcome } else { Outcome::Unfinished };
            samples.push(index, at(row.due), at(row.sent), clock.nanos(done.since(from)), outcome);
        }
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            if stage == Stage::Sent && !open_load {
                continue;
            }
            let known =
                |ticks: u32| if ticks == u32::MAX { ABSENT_NS } else { clock.nanos(Ticks(ticks.into())) };
            let ns = self.rows.iter().map(|row| known(row.request[place])).collect();
            samples.stages.push(StageColumn { name: stage.name().to_owned(), ns });
        }
        Some(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_keeps_its_row() {
        let clock = Clock::get();
        let mut recording = Recording::new(8);
        for number in 0..4 {
            recording.note_sent(Ticks(number * 1000), Ticks(number * 1000 + 10));
        }
        assert!(recording.note_answer(2, Ticks(2500)).is_some());
        assert!(recording.note_answer(0, Ticks(2600)).is_some());
        assert!(recording.note_answer(0, Ticks(2700)).is_none());
        assert!(recording.note_answer(99, Ticks(2700)).is_none());
        recording.note_mismatch(Ticks(2800));
        recording.close(Ticks(5000), Ticks(1500));
        assert_eq!((recording.duplicated, recording.reordered), (1, 1));
        let samples = recording.round_trips(clock, Ticks(0), 100, false);
        assert_eq!(samples.index, [100, 101, 102, 103]);
        use Outcome::{Answered, Lost, Mismatched};
        assert_eq!(samples.outcome, [Answered, Mismatched, Answered, Lost]);
        assert!(recording.one_ways(clock, Ticks(0), 0, false).is_none());
    }
}
