//! Ends a sleep on descriptors at an instant that rings nothing: a socket may have room again, or something held back is due.

use std::os::fd::{AsFd, BorrowedFd};

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::timer_fd::TimerFd;

/// A timer for a set of descriptors. One thread at a time sets it.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: TimerFd,
    /// When it goes off; 0 while it is not set.
    due: Counter,
}

impl Alarm {
    /// One that is not set.
    pub(crate) fn new() -> Result<Self, SystemError> {
        Ok(Self { timer: TimerFd::new()?, due: Counter::default() })
    }

    /// It goes off at this instant at the latest: one before, which is still to come, stays. Not at all if nothing is due.
    pub(crate) fn set(&self, due: Option<Ticks>) {
        let Some(due) = due else { return self.clear() };
        let clock = Clock::get();
        let now = clock.now();
        if (now.0..=due.0).contains(&self.due.get()) {
            return;
        }
        self.timer.set(clock.duration(due.since(now)));
        self.due.set(due.0.max(1));
    }

    /// It does not go off, and has not.
    pub(crate) fn clear(&self) {
        if self.due.get() != 0 {
            self.timer.clear();
            self.due.set(0);
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_machine::event_fd::wait_readable;

    use super::*;

    /// Goal: it goes off by the earliest instant for which it was set, and not once it is cleared. One that went off is set anew.
    #[test]
    fn it_goes_off_by_the_earliest_instant() {
        let (alarm, clock) = (Alarm::new().unwrap(), Clock::get());
        let after = |seconds| Some(clock.now().plus(clock.ticks(Duration::from_secs(seconds))));
        let has_gone_off = || wait_readable(alarm.as_fd(), Some(Duration::from_millis(2))).unwrap();
        for round in 0..3 {
            alarm.set(after(3_600));
            alarm.set(after(0));
            alarm.set(after(3_600));
            assert!(round % 2 == 0 || !has_gone_off(), "it had gone off and was set anew");
            alarm.set(after(0));
            assert!(wait_readable(alarm.as_fd(), None).unwrap());
            alarm.set(None);
            assert!(!has_gone_off());
        }
    }
}
