//! Time limits of waiting for others.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

/// Time limit of waiting for others.
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
