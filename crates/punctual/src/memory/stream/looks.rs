//! When a publication looks who reads it though nobody told it to.

use std::time::Duration;

use punctual_machine::clock::{Pace, Ticks};

/// Interval at which readers that hold a full ring back, or have read nothing, are asked whether they still live.
const LIVENESS_EVERY: Duration = Duration::from_millis(10);

/// Interval at which readers are looked for without a visit: a peer may have cut short the file in which visits are counted.
const READERS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Looks {
    liveness: Pace,
    readers: Pace,
}

impl Looks {
    pub(super) fn new() -> Self {
        Self { liveness: Pace::new(LIVENESS_EVERY), readers: Pace::new(READERS_EVERY) }
    }

    /// True if readers are to be asked whether they live.
    pub(super) fn is_liveness_due(&mut self, now: Ticks) -> bool {
        self.liveness.is_due(now)
    }

    /// True if readers are to be searched for.
    pub(super) fn is_search_due(&mut self, now: Ticks) -> bool {
        self.readers.is_due(now)
    }
}
