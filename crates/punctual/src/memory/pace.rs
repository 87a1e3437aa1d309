//! How long is waited, and how often something is done.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

/// How long to wait for others.
#[derive(Debug)]
pub(super) struct Patience {
    clock: &'static Clock,
    give_up: Ticks,
}

impl Patience {
    pub(super) fn new(time: Duration) -> Self {
        let clock = Clock::get();
        Self { clock, give_up: clock.now().plus(clock.ticks(time)) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.clock.now() >= self.give_up
    }
}

/// When something was last done that has to be done from time to time.
#[derive(Debug)]
pub(super) struct Pace {
    every: Ticks,
    next: Ticks,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Self {
        Self { every: Clock::get().ticks(every), next: Ticks(0) }
    }

    /// Whether it is time again; if so, the next time is set.
    pub(super) fn is_due(&mut self, now: Ticks) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now.plus(self.every);
        }
        due
    }
}
