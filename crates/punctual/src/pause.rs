//! Pauses between looks at something that nobody tells of, and when they have an end.

use std::time::Duration;

use punctual_machine::clock::{Clock, LastLook, Ticks};

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
    /// When that is, and the last look whether it is past.
    end: Option<(Ticks, LastLook)>,
}

impl TimeLimit {
    pub(crate) const fn new(time: Duration) -> Self {
        Self { time, end: None }
    }

    /// Its end. It begins now, if it has not begun before.
    pub(crate) fn end(&mut self) -> Ticks {
        self.begun().0
    }

    fn begun(&mut self) -> &mut (Ticks, LastLook) {
        let (clock, time) = (Clock::get(), self.time);
        self.end.get_or_insert_with(|| (clock.now().plus(clock.ticks(time)), LastLook::none()))
    }

    /// It is over too if the clock begins anew meanwhile, as some do while the machine sleeps.
    pub(crate) fn is_over(&mut self) -> bool {
        let (end, last_look) = self.begun();
        last_look.finds_past(Clock::get().now(), *end)
    }
}
