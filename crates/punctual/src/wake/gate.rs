//! What wakes the users' event loops when a message comes for a node: closed while a component of the node waits for it.
//!
//! A medium of the kernel stays readable until somebody reads it. While a component drives the engine that is its business:
//! an event loop beside it would only be woken again and again to find the engine taken. Whoever takes the engine closes the
//! gate; whoever leaves it to the event loops opens it, and looks at the medium afterwards, so nothing slips between.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::epoll::EpollSet;

use super::epoll_set;

/// An epoll set that can be told to be quiet. Who calls holds the node's receiving half.
#[derive(Debug)]
pub(crate) struct Gate {
    set: EpollSet,
    /// 1 while it is closed. Written by who holds the receiving half only.
    closed: Counter,
}

impl Gate {
    pub(crate) fn new(
        event: &punctual_machine::event_fd::EventFd,
        medium: &[Option<OwnedFd>; 2],
    ) -> Result<Self, SystemError> {
        let [first, second] = medium;
        let descriptors = [first, second].map(|descriptor| descriptor.as_ref().map(AsFd::as_fd));
        Ok(Self { set: epoll_set(event, descriptors)?, closed: Counter::default() })
    }

    /// Nobody is woken from here on.
    pub(crate) fn close(&self, event: BorrowedFd<'_>, medium: &[Option<OwnedFd>; 2]) {
        self.turn(event, medium, true);
    }

    /// From here on, and for what is there already, event loops are woken.
    pub(crate) fn open(&self, event: BorrowedFd<'_>, medium: &[Option<OwnedFd>; 2]) {
        self.turn(event, medium, false);
    }

    fn turn(&self, event: BorrowedFd<'_>, medium: &[Option<OwnedFd>; 2], closed: bool) {
        if (self.closed.get() == 1) == closed {
            return;
        }
        self.closed.set(u64::from(closed));
        let members = medium.iter().flatten().map(AsFd::as_fd).chain([event]);
        for member in members {
            // All of them are in the set for as long as it exists.
            let turned = self.set.watch(member, !closed);
            debug_assert!(turned.is_ok(), "{turned:?}");
        }
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
