//! The gate that wakes the users' event loops when a message comes for a node: closed while a component of the node waits for it.
//!
//! A medium of the kernel stays readable until somebody reads it. While a component drives the engine that is its business: an event
//! loop beside it would only be woken again and again to find the engine taken. A component that takes the engine closes the gate. A
//! component that leaves it to the event loops opens the gate, and looks at the medium afterwards, so nothing slips between.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use punctual_machine::SystemError;
use punctual_machine::clock::Ticks;
use punctual_machine::counter::Counter;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;

use super::{Alarm, epoll_set};

/// An epoll set that can be told to be quiet. The caller holds the node's receiving half.
#[derive(Debug)]
pub(crate) struct Gate {
    set: EpollSet,
    /// For what rings nothing. Set while it is open only.
    alarm: Alarm,
    /// 1 while it is closed. Written by the holder of the receiving half only, as the next.
    closed: Counter,
    /// 1 once the medium is in the set: from its first opening on, as a set costs every sender to a socket in it.
    joined: Counter,
}

impl Gate {
    /// A closed one.
    pub(crate) fn new(event: &EventFd) -> Result<Self, SystemError> {
        let alarm = Alarm::new()?;
        let gate = Self {
            set: epoll_set(event, [Some(alarm.as_fd()), None])?,
            alarm,
            closed: Counter::default(),
            joined: Counter::default(),
        };
        gate.close(event.as_fd(), &[None, None]);
        Ok(gate)
    }

    /// Nobody is woken from here on.
    pub(crate) fn close(&self, event: BorrowedFd<'_>, medium: &[Option<OwnedFd>; 2]) {
        if self.closed.get() == 1 {
            return;
        }
        self.closed.set(1);
        self.alarm.clear();
        let joined = self.joined.get() == 1;
        for member in medium.iter().flatten().filter(|_| joined).map(AsFd::as_fd).chain([event]) {
            self.watch(member, false);
        }
    }

    /// From here on, and for what is there already, event loops are woken. `false` if the kernel has no room for that: then
    /// they must not sleep.
    #[must_use]
    pub(crate) fn open(&self, event: BorrowedFd<'_>, medium: &[Option<OwnedFd>; 2]) -> bool {
        if self.closed.get() == 0 {
            return true;
        }
        let members = || medium.iter().flatten().map(AsFd::as_fd);
        if self.joined.get() == 1 {
            members().for_each(|member| self.watch(member, true));
        } else {
            // One that is in it already is no obstacle.
            let refused = |error: &SystemError| error.kind() != ErrorKind::AlreadyExists;
            if members().any(|member| self.set.add(member).is_err_and(|error| refused(&error))) {
                // While it is closed none of them is watched.
                members().for_each(|member| self.set.remove(member));
                return false;
            }
            self.joined.set(1);
        }
        self.watch(event, true);
        self.closed.set(0);
        true
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get() == 1
    }

    /// While it is open, event loops are woken at this instant too, at the latest.
    pub(crate) fn wake_at(&self, due: Option<Ticks>) {
        self.alarm.set(due);
    }

    fn watch(&self, member: BorrowedFd<'_>, watched: bool) {
        // It is in the set, which the kernel then has no reason to refuse.
        let done = self.set.watch(member, watched);
        debug_assert!(done.is_ok(), "{done:?}");
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use punctual_machine::event_fd::wait_readable;

    use super::*;

    /// Goal: a gate that could not open, as the kernel refused the second descriptor of a medium, lets nothing of the first through.
    /// Method: no set takes a file.
    #[test]
    fn a_gate_that_could_not_open_is_closed() {
        let (event, file) = (EventFd::new().unwrap(), File::open("/proc/self/exe").unwrap());
        let (here, mut there) = UnixStream::pair().unwrap();
        let readable = here.as_fd().try_clone_to_owned().unwrap();
        let gate = Gate::new(&event).unwrap();
        there.write_all(b"x").unwrap();
        let wakes = |gate: &Gate| wait_readable(gate.as_fd(), Some(Duration::ZERO)).unwrap();
        let medium = [Some(here.into()), Some(file.into())];
        assert!(!gate.open(event.as_fd(), &medium) && !wakes(&gate));
        assert!(gate.open(event.as_fd(), &[Some(readable), None]) && wakes(&gate));
    }
}
