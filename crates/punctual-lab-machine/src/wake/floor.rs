//! Mechanisms without the doorbell: their writer calls the kernel for every message. Nothing built on them can beat them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::Waited;
use super::bare_event::{BareEpoll, BareEvent, Counting};
use super::page::WakeWords;
use punctual_machine::SystemError;
use punctual_machine::slept::Slept;

/// A bare mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Floor {
    /// A futex: the writer calls the kernel every time.
    Futex,
    /// An eventfd: a write and a blocking read for every message.
    EventFd,
    /// The same under epoll: a write, `epoll_wait` and a read for every message.
    Epoll,
    /// Eight eventfds in one set, of which the writer writes to one after the other.
    EpollEight,
    /// Sixty-four of them.
    EpollSixtyFour,
}

impl Floor {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Futex, Self::EventFd, Self::Epoll, Self::EpollEight, Self::EpollSixtyFour];

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Futex => "floor-futex",
            Self::EventFd => "floor-eventfd",
            Self::Epoll => "floor-epoll",
            Self::EpollEight => "floor-epoll-8",
            Self::EpollSixtyFour => "floor-epoll-64",
        }
    }

    /// Opens both ends, for the calling thread to sleep on.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn open(self) -> Result<(BareSleeper, BareWaker), SystemError> {
        let set = match self {
            Self::Futex => return Ok((BareSleeper::Word, BareWaker::Word)),
            Self::EventFd => {
                let event = Arc::new(BareEvent::new(Counting::Sum)?);
                return Ok((BareSleeper::Read(Arc::clone(&event)), BareWaker::InTurn(vec![event])));
            }
            Self::Epoll => BareEpoll::new(1, Counting::Sum)?,
            Self::EpollEight => BareEpoll::new(8, Counting::Sum)?,
            Self::EpollSixtyFour => BareEpoll::new(64, Counting::Sum)?,
        };
        let waker = BareWaker::InTurn(set.events().to_vec());
        Ok((BareSleeper::Set(set), waker))
    }

    /// The writer's end in another process than the reader's, with the descriptors of the reader's own. `None` if there are none, but
    /// should be.
    pub fn waker_elsewhere(self, descriptors: Vec<OwnedFd>) -> Option<BareWaker> {
        if self == Self::Futex {
            return Some(BareWaker::Word);
        }
        let events = descriptors.into_iter().map(BareEvent::from_descriptor).map(Arc::new);
        let events: Vec<Arc<BareEvent>> = events.collect();
        (!events.is_empty()).then_some(BareWaker::InTurn(events))
    }
}

/// The reader's end. It belongs to the thread that opened it. It is an enum, and no trait behind a pointer. After a system call each
/// call and return that the processor must predict anew counts. A floor must have none that a program without any library would not
/// have.
#[derive(Debug)]
pub enum BareSleeper {
    /// The word of the page, on which it sleeps.
    Word,
    /// A sleep in the read itself, which has no limit.
    Read(Arc<BareEvent>),
    /// A sleep in `epoll_wait`, and a read.
    Set(BareEpoll),
}

impl BareSleeper {
    /// Sleeps once, and may wake early: the caller looks again.
    #[inline]
    pub fn sleep(&self, words: &WakeWords, timeout: Duration, is_ready: impl FnOnce() -> bool) -> Waited {
        match self {
            Self::Word => {
                let seen = words.bare.seen();
                let parked = !is_ready();
                let to_the_limit = parked && words.bare.sleep(seen, timeout) == Slept::ToTheLimit;
                Waited { parked, to_the_limit, rung: false }
            }
            Self::Read(event) => {
                event.read();
                Waited { parked: true, ..Waited::default() }
            }
            Self::Set(set) => {
                let (_, slept) = set.wait(timeout);
                Waited { parked: true, to_the_limit: slept == Slept::ToTheLimit, rung: false }
            }
        }
    }

    /// Returns true if a look at the message's number may take the place of the sleep. The floors of eventfds call the kernel for every
    /// message: to look first would be a protocol already, and leave a token behind.
    pub fn may_look(&self) -> bool {
        matches!(self, Self::Word)
    }

    /// System calls of one sleep.
    pub fn calls(&self) -> u32 {
        if matches!(self, Self::Set(_)) { 2 } else { 1 }
    }
}

/// The writer's end: a call for every message.
#[derive(Debug)]
pub enum BareWaker {
    /// The word of the page.
    Word,
    /// A write, to one eventfd after the other.
    InTurn(Vec<Arc<BareEvent>>),
}

impl BareWaker {
    /// The message's number is stored: wakes the reader. Returns the system calls that were made for it.
    #[inline]
    pub fn wake(&self, words: &WakeWords) -> u32 {
        match self {
            Self::Word => words.bare.wake(),
            Self::InTurn(events) => {
                let place = words.sent.0.get() % events.len() as u64;
                events[place as usize].write(1);
            }
        }
        1
    }

    /// Descriptors that another process needs to be the writer.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Word => Vec::new(),
            Self::InTurn(events) => events.iter().map(|event| event.as_fd()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the floors of eventfds call the kernel for each message, regardless of what the reader does, and wake it by every
    /// descriptor.
    #[test]
    fn a_floor_calls_for_every_message() {
        for floor in &Floor::ALL[1..] {
            let words = WakeWords::default();
            let (sleeper, waker) = floor.open().unwrap();
            assert!(sleeper.calls() > 0 && !sleeper.may_look());
            for message in 1..=100 {
                words.sent.0.publish(message);
                assert_eq!(waker.wake(&words), 1, "{}", floor.name());
                let waited = sleeper.sleep(&words, Duration::from_secs(10), || true);
                assert!(waited.parked && !waited.to_the_limit, "{}: {waited:?}", floor.name());
            }
        }
    }
}
