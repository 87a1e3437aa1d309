//! Pauses between looks at something that nobody tells of, and when they have an end.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

/// No pause is longer.
const LONGEST: Duration = Duration::from_millis(1);

/// Pauses of a thread, each twice as long as the one before, up to a millisecond.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(crate) const fn from(first: Duration) -> Self {
        Self { next: first }
    }

    /// Sleeps for the next one.
    pub(crate) fn sleep(&mut self) {
        std::thread::sleep(self.next);
        self.next = (self.next * 2).min(LONGEST);
    }
}

/// A time that begins when somebody first asks for its end, or whether it is over. A caller that need not wait looks at no clock: two
/// looks before each message took 36 ns one way (Intel Xeon, `docs/speed.md`).
#[derive(Debug)]
pub(crate) struct TimeLimit {
    time: Duration,
    end: Option<Ticks>,
}

impl TimeLimit {
    pub(crate) const fn new(time: Duration) -> Self {
        Self { time, end: None }
    }

    /// Its end. It begins now, if it has not begun before.
    pub(crate) fn end(&mut self) -> Ticks {
        let (clock, time) = (Clock::get(), self.time);
        *self.end.get_or_insert_with(|| clock.now().plus(clock.ticks(time)))
    }

    pub(crate) fn is_over(&mut self) -> bool {
        let end = self.end();
        Clock::get().now() >= end
    }
}
