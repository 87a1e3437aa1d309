//! The intake of a worker: tasks come to it, and it and others see without a lock that there are some.
//!
//! Tasks that come are pushed into an inbox. A thread that chooses from the worker's line first moves them from there into the line:
//! the worker, or a thief that has nothing else to do. The line stands elsewhere, behind a lock; the first class in it is noted here.
//!
//! Rules:
//! 1. A thread that changes the line has its lock, and notes the line's first class before it gives the lock back: [`Intake::choose`]
//!    and [`Intake::change`] do both.
//! 2. A worker that sleeps looks between the fences of its own bell. A thread that pushes rings the worker's bell behind its push.
//! 3. Between the move and the note a look finds neither: the inbox is empty, and the line is said to be. So a thread that leaves
//!    something in line rings behind its note, a thief by [`Intake::hand_back`]. It may itself serve none of what it leaves.
//!
//! The rules for ringing are in [`awake`](crate::awake), with the models of both.

use crate::counter::Counter;
use crate::doorbell::{Doorbell, Notification};
use crate::inbox::{Entries, Entry, Inbox};
use crate::mutant::without;

/// In place of a class where nothing is in line.
const NOBODY: u64 = u64::MAX;

/// A worker's tasks as others see them, and the way to wake it.
#[derive(Debug)]
pub struct Intake<T> {
    /// The last class that its worker serves.
    pub last_class: u8,
    inbox: Inbox<T>,
    /// The most important class in line, or [`NOBODY`].
    first_class: Counter,
    /// The worker's.
    pub bell: Doorbell,
}

impl<T> Intake<T> {
    /// The intake of a worker that serves the classes up to one.
    #[must_use]
    pub fn new(last_class: u8) -> Self {
        let (inbox, bell) = (Inbox::default(), Doorbell::default());
        let intake = Self { last_class, inbox, first_class: Counter::default(), bell };
        intake.first_class.set(NOBODY);
        intake
    }

    /// Puts a value into the inbox. The bell is the caller's to ring.
    pub fn push(&self, entry: Box<Entry<T>>, value: T) {
        self.inbox.push(entry, value);
    }

    /// Takes out what came, oldest first, for an end: nothing is noted of a line.
    pub fn take_new(&self) -> Entries<T> {
        // An exchange only where there is something.
        if self.has_no_news() { Entries::default() } else { self.inbox.take_all() }
    }

    /// Changes the line, whose lock the caller has. `change` says what it came to, and what the line's first class is then: that is
    /// noted, and given back with the rest.
    pub fn change<L, R>(
        &self,
        line: &mut L,
        change: impl FnOnce(&mut L) -> (R, Option<u8>),
    ) -> (R, Option<u8>) {
        let (outcome, first) = change(line);
        self.first_class.set(first.map_or(NOBODY, u64::from));
        (outcome, first)
    }

    /// The same, for a thread that moves all that came into the line, oldest first, and takes from it.
    pub fn choose<L, R>(
        &self,
        line: &mut L,
        choose: impl FnOnce(&mut L, Entries<T>) -> (R, Option<u8>),
    ) -> (R, Option<u8>) {
        self.change(line, |line| choose(line, self.take_new()))
    }

    /// Returns true if nothing is in the inbox, as far as this thread sees.
    pub fn has_no_news(&self) -> bool {
        self.inbox.is_empty()
    }

    /// The most important class in line, as far as this thread sees. Of what came since it does not tell.
    pub fn first_class(&self) -> Option<u8> {
        u8::try_from(self.first_class.get()).ok()
    }

    /// A class of which something may wait: the most important one in line. Where nothing is in line and something has come, whose class
    /// is not known, it is the last one that its worker serves.
    pub fn waiting_class(&self) -> Option<u8> {
        self.first_class().or_else(|| (!self.inbox.is_empty()).then_some(self.last_class))
    }

    /// Returns true if there may be something of these classes, as far as this thread sees. A hint: a thread that acts on it takes the
    /// line.
    pub fn has_up_to(&self, last_class: u8) -> bool {
        !self.inbox.is_empty() || self.first_class().is_some_and(|first| first <= last_class)
    }

    /// A thief, when it has noted what it leaves in line: rings the worker, which may have looked meanwhile. Returns the notification
    /// that must now be sent; if none, one for another worker that may have looked is due, whose bell needs no other fence.
    pub fn hand_back(&self) -> Option<Notification> {
        if without!("intake_hand_back") {
            return None;
        }
        self.bell.ring()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn new_and_waiting_tasks_are_seen() {
        let intake = Intake::new(u8::MAX);
        assert!(intake.has_no_news() && !intake.has_up_to(u8::MAX));
        intake.push(Entry::new(), 'a');
        assert!(!intake.has_no_news() && intake.has_up_to(0), "its class is not known yet");
        assert_eq!(intake.waiting_class(), Some(u8::MAX));
        let mut line = Vec::new();
        let chosen = intake.choose(&mut line, |line, new| {
            line.extend(new.filter_map(|mut entry| entry.take()));
            (line.len(), Some(5))
        });
        assert_eq!((chosen, &line[..]), ((1, Some(5)), &['a'][..]));
        assert!(intake.has_no_news() && intake.has_up_to(5) && !intake.has_up_to(4));
        assert_eq!(intake.waiting_class(), Some(5));
        intake.change(&mut line, |line| (line.clear(), None));
        assert!(!intake.has_up_to(u8::MAX) && intake.first_class().is_none());
    }
}
