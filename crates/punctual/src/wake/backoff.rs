//! Spins, then yields, then sleeps.

use std::time::Duration;

use super::{Bed, Waited, Waiter};

/// Polls before the first yield: some microseconds in shared memory, some hundred where each poll is a system call.
/// Chosen, not measured for each machine.
const SPINS: u32 = 500;

/// Yields before the first sleep. Each lets another ready thread of this CPU run.
const YIELDS: u32 = 20;

#[derive(Debug)]
pub(super) struct Backoff<S> {
    sleep: S,
    waits: u32,
}

impl<S> Backoff<S> {
    pub(super) fn new(sleep: S) -> Self {
        Self { sleep, waits: 0 }
    }
}

impl<S: Waiter> Waiter for Backoff<S> {
    fn wait(
        &mut self,
        bed: &mut Bed<'_>,
        timeout: &dyn Fn() -> Option<Duration>,
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        self.waits = self.waits.saturating_add(1);
        match self.waits {
            0..=SPINS => std::hint::spin_loop(),
            waits if waits <= SPINS + YIELDS => std::thread::yield_now(),
            _ => return self.sleep.wait(bed, timeout, is_ready),
        }
        Waited::AWAKE
    }

    fn handle_found(&mut self) {
        self.waits = 0;
    }

    fn sleeps_in_set(&self) -> bool {
        self.sleep.sleeps_in_set()
    }
}
