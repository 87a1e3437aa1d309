//! Brings a message to one receiver: asks what has come, sends again what has not, and never more than there is room for.

use alloc::boxed::Box;

use super::receipt::{Progress, Question, Receipt, State};
use super::{Cut, Head};
use crate::limits::{
    FRAGMENT_ROOM_FIRST, FRAGMENT_ROOM_MIN, FRAGMENT_WINDOW, QUESTION_EVERY_MAX, QUESTION_EVERY_MIN,
    SILENCE_MAX,
};
use crate::recency::began_anew;
use crate::time::Nanos;

/// Windows in which questions are asked: while one is answered, the next is filled.
const QUESTIONS_PER_WINDOW: u32 = 4;

/// The next item to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// A fragment of the message.
    Fragment(Head),
    /// A question about it.
    Question(Question),
}

/// Outcome of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The receiver has all of it.
    Whole,
    /// The receiver has given it up.
    Lost,
    /// The receiver takes messages of so many bytes at most.
    Refused(u32),
    /// The receiver has not said anything new for too long. If all fragments were sent, they may all have come.
    Silent {
        /// True if all fragments were sent.
        all_sent: bool,
    },
}

/// Known state of a fragment in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Slot {
    /// It is to be sent, perhaps again.
    #[default]
    Due,
    /// It was sent before the question of this number.
    Sent(u32),
    /// It has come, as was known before the question of this number.
    Arrived(u32),
}

/// A message on its way to one receiver.
///
/// A fragment that was sent before a question and is missing from the receipt that answers it is lost, and is sent again. Questions and
/// receipts may be lost too: then the next one says the same. Fragments are under way if no answered question followed them. They are
/// as many as the receiver said that it has room for, and fewer after losses.
#[derive(Debug)]
pub struct Courier {
    /// Of the first fragment.
    message: Head,
    count: u32,
    patience: Nanos,
    /// All fragments before this one have come.
    base: u32,
    /// The first question that was asked when that was known.
    based: u32,
    /// Of each fragment from there on, by its number modulo the size.
    slots: Box<[Slot; FRAGMENT_WINDOW]>,
    /// No fragment before this one is due.
    next: u32,
    /// Fragments that were sent at least once: all before this one.
    reached: u32,
    /// Fragments that may be under way, and that are.
    window: u32,
    under_way: u32,
    /// The next question's number, and fragments that were sent since the last one.
    question: u32,
    unasked: u32,
    answered: u32,
    /// No loss before the answer to this question makes the window smaller again.
    spared: u32,
    ask_at: Nanos,
    ask_every: Nanos,
    news_at: Nanos,
    /// The first question that was asked when the receiver had already told of fragments that it has.
    begun: Option<u32>,
    ending: Option<Ending>,
}

impl Courier {
    /// Of a message that is cut so. It is given up when the receiver has said nothing new for as long as `patience`.
    pub fn new(cut: Cut, patience: Nanos, now: Nanos) -> Self {
        let message = Head { is_repaired: true, ..cut.next };
        let mut new = Self {
            message,
            count: message.count() as u32,
            patience,
            base: 0,
            based: 0,
            slots: Box::new([Slot::Due; FRAGMENT_WINDOW]),
            next: 0,
            reached: 0,
            window: 0,
            under_way: 0,
            question: 1,
            unasked: 0,
            answered: 0,
            spared: 0,
            ask_at: now.plus(QUESTION_EVERY_MIN),
            ask_every: QUESTION_EVERY_MIN,
            news_at: now,
            begun: None,
            ending: None,
        };
        new.window = new.fragments_in(FRAGMENT_ROOM_FIRST);
        new
    }

    /// The outcome, once sending has ended.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The item to send now, if there is one. It counts as sent: a caller without room for it keeps it, and sends it before asking
    /// again.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Say> {
        if self.ending.is_some() {
            return None;
        }
        let next = self.next_due();
        let may_send = next.is_some() && self.under_way < self.window;
        let wants_answer = self.unasked > 0 && !may_send
            || self.unasked * QUESTIONS_PER_WINDOW >= self.window.max(QUESTIONS_PER_WINDOW);
        if wants_answer || now >= self.ask_at {
            return Some(Say::Question(self.ask(now)));
        }
        next.filter(|_| may_send).map(|index| Say::Fragment(self.send(index)))
    }

    /// When [`Self::handle_timeout`] is to be called, and [`Self::poll_transmit`] after it.
    pub fn poll_timeout(&self) -> Nanos {
        self.ask_at.min(self.silent_at())
    }

    /// When nothing new was said for too long. A receiver that was sent everything may have all of it and be gone: it is not waited for
    /// without end.
    fn silent_at(&self) -> Nanos {
        let is_all_sent = self.reached == self.count;
        self.news_at.plus(if is_all_sent { self.patience.min(SILENCE_MAX) } else { self.patience })
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if began_anew(now.0, self.news_at.0) {
            // Instants of before, as of before a suspend, would be waited for as long as it had run.
            (self.news_at, self.ask_at) = (now, now);
        }
        if self.ending.is_none() && now >= self.silent_at() {
            self.ending = Some(Ending::Silent { all_sent: self.reached == self.count });
        }
    }

    /// The receiver's answer, perhaps; it may be of any message, late, or double.
    pub fn handle_receipt(&mut self, receipt: &Receipt, now: Nanos) {
        let is_asked = receipt.number == self.message.number && receipt.question < self.question;
        if !is_asked || self.ending.is_some() {
            return;
        }
        match receipt.progress.state {
            State::Whole => self.ending = Some(Ending::Whole),
            State::Lost => self.ending = Some(Ending::Lost),
            State::Refused => self.ending = Some(Ending::Refused(receipt.room)),
            State::Unknown | State::Partial if receipt.question <= self.answered => {}
            State::Unknown if self.begun.is_some() => {
                // The receiver has forgotten the message that it knew, whole or not: the message must not be made again. Unless it was
                // asked before, and answers late.
                if self.begun.is_some_and(|first| receipt.question >= first) {
                    self.ending = Some(Ending::Lost);
                }
            }
            State::Unknown | State::Partial => self.handle_progress(receipt, now),
        }
    }

    fn handle_progress(&mut self, receipt: &Receipt, now: Nanos) {
        let Progress { base, .. } = receipt.progress;
        // A fragment that was not sent cannot have come, and one that has come cannot be missing again.
        if base < self.base && receipt.question >= self.based {
            // It has begun anew: another life of the receiver, which lacks what was sent and has come.
            self.ending = Some(Ending::Lost);
        }
        if base < self.base || base > self.reached || base == self.count {
            return;
        }
        self.answered = receipt.question;
        (self.ask_every, self.ask_at) = (QUESTION_EVERY_MIN, now.plus(QUESTION_EVERY_MIN));
        let mut arrived = self.advance(base);
        let (mut lost, now_known, mut lacks_what_had_come) = (0, self.question, false);
        self.under_way = 0;
        for index in base..self.reached {
            let has_come = receipt.progress.has((index - base) as usize);
            let slot = self.slot(index);
            match *slot {
                Slot::Arrived(known) => lacks_what_had_come |= !has_come && receipt.question >= known,
                Slot::Due | Slot::Sent(_) if has_come => {
                    *slot = Slot::Arrived(now_known);
                    arrived += 1;
                }
                Slot::Sent(question) if question <= receipt.question => {
                    *slot = Slot::Due;
                    lost += 1;
                }
                Slot::Sent(_) => self.under_way += 1,
                Slot::Due => {}
            }
        }
        if lacks_what_had_come {
            self.ending = Some(Ending::Lost);
            return;
        }
        self.next = base;
        if arrived > 0 {
            self.news_at = now;
            self.begun = self.begun.or(Some(self.question));
        }
        self.fit_window(receipt, arrived, lost);
    }

    /// All fragments before `base` have come. Returns how many of them were not known to have come.
    fn advance(&mut self, base: u32) -> u32 {
        let mut news = 0;
        for index in self.base..base {
            let slot = core::mem::take(self.slot(index));
            news += u32::from(!matches!(slot, Slot::Arrived(_)));
        }
        if base > self.base {
            self.based = self.question;
        }
        self.base = base;
        news
    }

    /// Losses halve the amount under way, once for all losses of one window; arrivals make it larger again, up to the room that there
    /// is.
    fn fit_window(&mut self, receipt: &Receipt, arrived: u32, lost: u32) {
        if lost == 0 {
            self.window += (arrived / QUESTIONS_PER_WINDOW).max(1);
        } else if receipt.question >= self.spared {
            self.window /= 2;
            self.spared = self.question;
        }
        let room = self.fragments_in(receipt.room);
        self.window = self.window.max(self.fragments_in(FRAGMENT_ROOM_MIN)).min(room);
    }

    /// Fragments for which that many bytes are room; one at least, and as many as a receipt can tell of at most.
    fn fragments_in(&self, bytes: u32) -> u32 {
        (bytes / self.message.fragment_size).clamp(1, FRAGMENT_WINDOW as u32)
    }

    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize % FRAGMENT_WINDOW]
    }

    /// The first fragment that is due, within the window.
    fn next_due(&mut self) -> Option<u32> {
        let end = self.count.min(self.base + FRAGMENT_WINDOW as u32);
        while self.next < end && *self.slot(self.next) != Slot::Due {
            self.next += 1;
        }
        (self.next < end).then_some(self.next)
    }

    fn send(&mut self, index: u32) -> Head {
        *self.slot(index) = Slot::Sent(self.question);
        self.under_way += 1;
        self.unasked += 1;
        self.next = index + 1;
        self.reached = self.reached.max(self.next);
        Head { at: index * self.message.fragment_size, ..self.message }
    }

    /// Asks; and again if no answer comes, less and less often.
    fn ask(&mut self, now: Nanos) -> Question {
        let number = self.question;
        if self.unasked == 0 {
            self.ask_every = Nanos(2 * self.ask_every.0).min(QUESTION_EVERY_MAX);
        }
        self.ask_at = now.plus(self.ask_every);
        (self.question, self.unasked) = (number + 1, 0);
        Question { message: self.message, number }
    }
}
