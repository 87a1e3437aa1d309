//! An instant that wakes any thread that waits for a descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::SystemError;
use crate::calls;
use crate::event_fd::timespec;

const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A timerfd on the monotonic clock, non-blocking and closed on exec.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A timer that is not set.
    pub fn new() -> Result<Self, SystemError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let created = timerfd_create(TimerfdClockId::Monotonic, flags);
        created.map(Self).map_err(|error| SystemError::new("create", "timerfd", error))
    }

    /// It can be read from so long on, and not before, regardless of its earlier setting.
    pub fn set(&self, left: Duration) {
        // Zero would mean never.
        self.set_to(timespec(left.max(Duration::from_nanos(1))));
    }

    /// It cannot be read from, regardless of its earlier setting.
    pub fn clear(&self) {
        self.set_to(NEVER);
    }

    fn set_to(&self, value: Timespec) {
        calls::note();
        let set = timerfd_settime(
            &self.0,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: NEVER, it_value: value },
        );
        debug_assert!(set.is_ok(), "a duration is a valid time: {set:?}");
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_fd::wait_readable;

    /// Goal: it goes off when it was set to, and setting it anew takes back that it went off.
    #[test]
    fn it_goes_off_as_it_was_set_last() {
        let timer = TimerFd::new().unwrap();
        let goes_off = |limit| wait_readable(timer.as_fd(), limit).unwrap();
        assert!(!goes_off(Some(Duration::from_millis(2))), "not set");
        timer.set(Duration::ZERO);
        assert!(goes_off(None));
        timer.set(Duration::from_secs(3_600));
        assert!(!goes_off(Some(Duration::from_millis(2))), "set anew");
        timer.set(Duration::MAX);
        assert!(!goes_off(Some(Duration::from_millis(2))), "as good as never");
        timer.set(Duration::ZERO);
        assert!(goes_off(None));
        timer.clear();
        assert!(!goes_off(Some(Duration::from_millis(2))), "cleared");
        let began = std::time::Instant::now();
        timer.set(Duration::from_millis(3));
        assert!(goes_off(None) && began.elapsed() >= Duration::from_millis(3));
    }
}
