//! Pauses between looks at something that nobody tells of.

use std::time::Duration;

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
