//! Spins for as long as the last waits make worth while, then sleeps.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

use super::{Bed, Patience, Waited, Waiter};

/// Polls between two looks at the clock: a look costs about as much as a poll.
const POLLS_PER_LOOK: u32 = 8;

#[derive(Debug)]
pub(super) struct Adaptive<S> {
    sleep: S,
    patience: Patience,
    clock: &'static Clock,
    /// When this wait began.
    began: Option<Ticks>,
    polls: u32,
}

impl<S> Adaptive<S> {
    pub(super) fn new(sleep: S) -> Self {
        Self { sleep, patience: Patience::default(), clock: Clock::get(), began: None, polls: 0 }
    }

    fn has_spun_enough(&mut self) -> bool {
        let Some(began) = self.began else {
            (self.began, self.polls) = (Some(self.clock.now()), 0);
            return self.patience.spin_ns() == 0;
        };
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS_PER_LOOK)
            && self.clock.nanos(self.clock.now().since(began)) >= u64::from(self.patience.spin_ns())
    }
}

impl<S: Waiter> Waiter for Adaptive<S> {
    #[inline]
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        if self.has_spun_enough() {
            self.sleep.wait(bed, timeout, is_ready)
        } else {
            std::hint::spin_loop();
            Waited::AWAKE
        }
    }

    fn handle_found(&mut self) {
        if let Some(began) = self.began.take() {
            self.patience.note(self.clock.nanos(self.clock.now().since(began)));
        }
    }

    fn sleeps_in_set(&self) -> bool {
        self.sleep.sleeps_in_set()
    }
}
