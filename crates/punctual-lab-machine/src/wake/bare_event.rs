//! The bare eventfd, and a set of them under epoll: a write for each message, a read for each wait, and no protocol.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};

use punctual_machine::SystemError;
use punctual_machine::event_fd::timespec;
use punctual_machine::slept::Slept;

/// Amount that a read takes from an eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// All of it: the sum of what was written since the read before.
    Sum,
    /// One, as from a semaphore (`EFD_SEMAPHORE`).
    Semaphore,
}

/// An eventfd whose read blocks.
#[derive(Debug)]
pub struct BareEvent(OwnedFd);

impl BareEvent {
    /// A new counter at zero.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(counting: Counting) -> Result<Self, SystemError> {
        let more = match counting {
            Counting::Sum => EventfdFlags::empty(),
            Counting::Semaphore => EventfdFlags::SEMAPHORE,
        };
        let created = eventfd(0, EventfdFlags::CLOEXEC | more);
        created.map(Self).map_err(|error| SystemError::new("create", "eventfd", error))
    }

    /// The same counter, made by another process of ours.
    pub fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Adds to the counter. Blocks only at 2⁶⁴ − 2, which nobody reaches.
    #[inline]
    pub fn write(&self, count: u64) {
        let _interrupted = rustix::io::write(&self.0, &count.to_ne_bytes());
    }

    /// Waits until the counter is not zero, without a limit, and takes from it. `None` when a signal came first.
    #[inline]
    pub fn read(&self) -> Option<u64> {
        let mut count = [0; 8];
        rustix::io::read(&self.0, &mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }
}

impl AsFd for BareEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Descriptors that one wait reports, as in the work log's reader.
const EVENTS_MAX: usize = 5;

/// Eventfds in one level-triggered epoll set.
#[derive(Debug)]
pub struct BareEpoll {
    set: OwnedFd,
    events: Vec<Arc<BareEvent>>,
}

impl BareEpoll {
    /// A set of so many new counters.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(count: usize, counting: Counting) -> Result<Self, SystemError> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| SystemError::new("create", "epoll set", error))?;
        let events = (0..count).map(|_| BareEvent::new(counting).map(Arc::new));
        let events: Vec<Arc<BareEvent>> = events.collect::<Result<_, _>>()?;
        for (place, event) in events.iter().enumerate() {
            let data = epoll::EventData::new_u64(place as u64);
            epoll::add(&set, event.as_fd(), data, epoll::EventFlags::IN)
                .map_err(|error| SystemError::new("add to epoll set", "eventfd", error))?;
        }
        Ok(Self { set, events })
    }

    /// Its counters, for the writer.
    pub fn events(&self) -> &[Arc<BareEvent>] {
        &self.events
    }

    /// `epoll_wait`, then a read of every counter that it names. Returns what was read in all, and whether the limit ended it.
    pub fn wait(&self, timeout: Duration) -> (u64, Slept) {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let outcome = epoll::wait(&self.set, &mut buffer, Some(&timespec(timeout)));
        let Ok((ready, _)) = outcome else { return (0, Slept::Less) };
        let named = ready.iter().filter_map(|event| self.events.get(event.data.u64() as usize));
        let taken = named.filter_map(|event| event.read()).sum();
        (taken, Slept::to_the_limit(ready.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_AT_ALL: Duration = Duration::ZERO;

    /// Goal: writes that nobody has read become one event, whose number is their sum; of a semaphore each stays one.
    #[test]
    fn several_writes_are_one_read_or_as_many() {
        let sum = BareEvent::new(Counting::Sum).unwrap();
        let semaphore = BareEvent::new(Counting::Semaphore).unwrap();
        for event in [&sum, &semaphore] {
            event.write(1);
            event.write(1);
            event.write(3);
        }
        assert_eq!(sum.read(), Some(5), "three writes, one read");
        assert_eq!([(); 5].map(|()| semaphore.read()), [Some(1); 5], "a read for each");
    }

    /// Goal: epoll reports a counter once for its sum, but a semaphore until it is zero: as many waits as were written.
    #[test]
    fn epoll_reports_until_the_counter_is_zero() {
        for (counting, reads) in [(Counting::Sum, &[3][..]), (Counting::Semaphore, &[1, 1, 1])] {
            let set = BareEpoll::new(1, counting).unwrap();
            for _ in 0..3 {
                set.events()[0].write(1);
            }
            for &read in reads {
                assert_eq!(set.wait(NOT_AT_ALL), (read, Slept::Less), "{counting:?}");
            }
            assert_eq!(set.wait(NOT_AT_ALL), (0, Slept::ToTheLimit), "{counting:?}: empty");
        }
    }

    /// Goal: each descriptor of a set wakes, and what more than one wait can name is left for the next.
    #[test]
    fn every_descriptor_of_a_set_wakes() {
        let set = BareEpoll::new(64, Counting::Sum).unwrap();
        for event in set.events() {
            event.write(1);
            assert_eq!(set.wait(NOT_AT_ALL), (1, Slept::Less));
        }
        for event in set.events() {
            event.write(2);
        }
        let waits: Vec<u64> =
            std::iter::repeat_with(|| set.wait(NOT_AT_ALL).0).take_while(|&taken| taken > 0).collect();
        assert_eq!((waits.len(), waits.iter().sum::<u64>()), (64_usize.div_ceil(EVENTS_MAX), 128));
    }
}
