//! Faults that were asked for, on what arrives from memory.

use std::collections::VecDeque;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::sim::Rng;

use super::message::{Fate, MessageHandler, Noted, StreamHead, StreamMessage};
use super::payload::Payload;
use crate::engine::faulty::{Faults, HELD_MAX, OVERTAKING_MAX, next_released};
use crate::ledger::{Count, Page};

/// A message that is held back, in memory of our own.
#[derive(Debug)]
struct Held {
    head: StreamHead,
    payload: Vec<u8>,
    /// When it is let go at the latest; at once after the next message, if it is only to be overtaken.
    release: Ticks,
    overtaken: bool,
}

/// Faults for one subscription.
#[derive(Debug)]
pub(super) struct Faulty {
    faults: Faults,
    rng: Rng,
    delay: Ticks,
    held: VecDeque<Held>,
}

impl Faulty {
    /// Of sealed messages bits have been turned over already, below the seal.
    pub(super) fn new(faults: &Faults, sealed: bool) -> Self {
        let delay = Clock::get().ticks(faults.delay);
        let corruption_permille = if sealed { 0 } else { faults.corruption_permille };
        Self {
            faults: Faults { corruption_permille, ..*faults },
            rng: Rng::new(faults.seed),
            delay,
            held: VecDeque::with_capacity(HELD_MAX),
        }
    }

    /// When something is let go that rings nothing.
    pub(super) fn next_due(&self) -> Option<Ticks> {
        self.held.iter().map(|held| held.release).min()
    }

    /// Messages that are held back.
    pub(super) fn waiting(&self) -> u64 {
        self.held.len() as u64
    }

    /// Shows messages that are to be let go, at most `limit`: those that are due, and the oldest if there is room for no more.
    pub(super) fn release(
        &mut self,
        now: Ticks,
        limit: usize,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> usize {
        let mut shown = 0;
        while shown < limit
            && let Some(position) = self.next_released(now)
        {
            // It arrives now, as far as its reader can know.
            let held = &mut self.held[position];
            held.head.noted = held.head.noted.map(|noted| Noted { read: now, opened: now, ..noted });
            let message = StreamMessage::new(&held.head, Payload::Private(&held.payload));
            if !handler.handle(&message) {
                break;
            }
            shown += usize::from(message.fate.get() != Fate::Gathered);
            self.held.remove(position);
        }
        shown
    }

    fn next_released(&self, now: Ticks) -> Option<usize> {
        let due = next_released(self.held.iter().map(|held| held.release), now);
        due.or_else(|| self.is_full().then_some(0))
    }

    fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX
    }

    /// Applies faults to one message; returns true if it was taken, by `handler` or by a fault.
    pub(super) fn suffer(
        &mut self,
        message: &StreamMessage<'_>,
        now: Ticks,
        page: &Page,
        handler: &mut (impl MessageHandler + ?Sized),
    ) -> bool {
        let before = self.rng.clone();
        let Self { faults, rng, .. } = self;
        let lost = rng.happens(faults.loss_permille);
        let corrupt = !lost && rng.happens(faults.corruption_permille);
        if lost || corrupt {
            // Memory has no check value: an altered message is said to have been found out, and nobody sees it.
            message.fate.set(Fate::Lost);
            page.count(if corrupt { Count::LostBadFrame } else { Count::LostMedium }).add(1);
            page.count(Count::BadFrames).add(u64::from(corrupt));
            return true;
        }
        let twice = rng.happens(faults.duplication_permille);
        let overtaken = rng.happens(faults.reordering_permille);
        if overtaken || self.delay.0 > 0 {
            // In its ring it keeps its place, until the oldest that is held has been let go.
            if self.is_full() {
                self.rng = before;
                return false;
            }
            if !self.keep(message, now, overtaken) {
                return false;
            }
        } else {
            // This one overtakes those that wait for it.
            for waiting in self.held.iter_mut().filter(|waiting| waiting.overtaken) {
                (waiting.release, waiting.overtaken) = (now, false);
            }
            if !handler.handle(message) {
                self.rng = before;
                return false;
            }
        }
        // A message that arrives again is known by its number, and not delivered again.
        page.count(Count::Duplicates).add(twice.into());
        true
    }

    /// Holds a message back, unless it was written over while we copied.
    fn keep(&mut self, message: &StreamMessage<'_>, now: Ticks, overtaken: bool) -> bool {
        let payload = message.payload.to_vec();
        if !message.is_intact() {
            return false;
        }
        message.fate.set(Fate::Held);
        let overtaking = if overtaken { Clock::get().ticks(OVERTAKING_MAX).0 } else { 0 };
        let wait = Ticks(self.delay.0.saturating_add(overtaking));
        self.held.push_back(Held { head: *message.head, payload, release: now.plus(wait), overtaken });
        true
    }
}
