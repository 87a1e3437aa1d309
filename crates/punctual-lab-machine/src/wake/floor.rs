//! Mechanisms without the doorbell: their writer calls the kernel for every message. What nothing built on them can beat.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::Waited;
use super::bare_event::{BareEpoll, BareEvent, Counting};
use super::ends::{Sleeper, Waker};
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
    pub fn open(self) -> Result<BareEnds, SystemError> {
        Ok(match self {
            Self::Futex => BareEnds { sleeper: Box::new(WordOfPage), waker: Box::new(WordOfPage) },
            Self::EventFd => {
                let event = Arc::new(BareEvent::new(Counting::Sum)?);
                let waker = Box::new(WriteInTurn(vec![Arc::clone(&event)]));
                BareEnds { sleeper: Box::new(SleepInRead(event)), waker }
            }
            Self::Epoll => in_a_set(1)?,
            Self::EpollEight => in_a_set(8)?,
            Self::EpollSixtyFour => in_a_set(64)?,
        })
    }

    /// The writer's end in another process than the reader's, with the descriptors of the reader's own. `None` if there are none, but
    /// should be.
    pub fn waker_elsewhere(self, descriptors: Vec<OwnedFd>) -> Option<Box<dyn Waker>> {
        if self == Self::Futex {
            return Some(Box::new(WordOfPage));
        }
        let events = descriptors.into_iter().map(BareEvent::from_descriptor).map(Arc::new);
        let events: Vec<Arc<BareEvent>> = events.collect();
        (!events.is_empty()).then(|| Box::new(WriteInTurn(events)) as Box<dyn Waker>)
    }
}

/// Both ends of a bare mechanism.
#[derive(Debug)]
pub struct BareEnds {
    /// For the thread that opened it.
    pub sleeper: Box<dyn Sleeper>,
    /// For any other.
    pub waker: Box<dyn Waker>,
}

/// A set of so many eventfds.
fn in_a_set(count: usize) -> Result<BareEnds, SystemError> {
    let set = BareEpoll::new(count, Counting::Sum)?;
    let waker = Box::new(WriteInTurn(set.events().to_vec()));
    Ok(BareEnds { sleeper: Box::new(set), waker })
}

/// Either end of the bare futex, which is a word of the page.
#[derive(Debug)]
struct WordOfPage;

impl Sleeper for WordOfPage {
    #[inline]
    fn sleep(&mut self, words: &WakeWords, timeout: Duration, is_ready: &mut dyn FnMut() -> bool) -> Waited {
        let seen = words.bare.seen();
        let parked = !is_ready();
        let to_the_limit = parked && words.bare.sleep(seen, timeout) == Slept::ToTheLimit;
        Waited { parked, to_the_limit, rung: false }
    }

    fn calls(&self) -> u32 {
        1
    }
}

impl Waker for WordOfPage {
    #[inline]
    fn wake(&self, words: &WakeWords) -> u32 {
        words.bare.wake();
        1
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// A sleep in the read itself, which has no limit.
#[derive(Debug)]
struct SleepInRead(Arc<BareEvent>);

// Both floors of eventfds call the kernel for every message: to look at its number first would be a protocol already, and leave a
// token behind.
impl Sleeper for SleepInRead {
    #[inline]
    fn sleep(&mut self, _: &WakeWords, _: Duration, _: &mut dyn FnMut() -> bool) -> Waited {
        self.0.read();
        Waited { parked: true, ..Waited::default() }
    }

    fn may_look(&self) -> bool {
        false
    }

    fn calls(&self) -> u32 {
        1
    }
}

impl Sleeper for BareEpoll {
    #[inline]
    fn sleep(&mut self, _: &WakeWords, timeout: Duration, _: &mut dyn FnMut() -> bool) -> Waited {
        let (_, slept) = self.wait(timeout);
        Waited { parked: true, to_the_limit: slept == Slept::ToTheLimit, rung: false }
    }

    fn may_look(&self) -> bool {
        false
    }

    fn calls(&self) -> u32 {
        2
    }
}

/// A write every time, to one after the other.
#[derive(Debug)]
struct WriteInTurn(Vec<Arc<BareEvent>>);

impl Waker for WriteInTurn {
    #[inline]
    fn wake(&self, words: &WakeWords) -> u32 {
        let place = words.sent.0.get() % self.0.len() as u64;
        self.0[place as usize].write(1);
        1
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(|event| event.as_fd()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the floors of eventfds call the kernel for each message, whatever the reader does, and wake it by every descriptor.
    #[test]
    fn a_floor_calls_for_every_message() {
        for floor in &Floor::ALL[1..] {
            let words = WakeWords::default();
            let BareEnds { mut sleeper, waker } = floor.open().unwrap();
            assert!(sleeper.calls() > 0 && !sleeper.may_look());
            for message in 1..=100 {
                words.sent.0.publish(message);
                assert_eq!(waker.wake(&words), 1, "{}", floor.name());
                let waited = sleeper.sleep(&words, Duration::from_secs(10), &mut || true);
                assert!(waited.parked && !waited.to_the_limit, "{}: {waited:?}", floor.name());
            }
        }
    }
}
