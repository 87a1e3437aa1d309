//! Yields, then sleeps: a thread that drives an engine lets others have it.

use std::time::Duration;

/// Yields of the driver: enough for visitors as urgent as it is, and for those on another processor.
const YIELDS_MAX: u32 = 100;

/// Length of its sleeps after that. A visitor that has to be woken, or that is less urgent on the same processor, comes meanwhile: a
/// thread that yields in real time gives way to none of those.
const SLEEP: Duration = Duration::from_micros(50);

/// Steps in a row in which a thread gave its processor away. A lock alone would go to the thread that is awake.
#[derive(Debug, Default)]
pub(crate) struct YieldThenSleep {
    yields: u32,
}

impl YieldThenSleep {
    /// Yields, or sleeps after many yields. The caller looks for visitors before the next step. Returns true if the thread slept.
    #[cold]
    pub(crate) fn step(&mut self) -> bool {
        let sleeps = self.yields >= YIELDS_MAX;
        if sleeps {
            std::thread::sleep(SLEEP);
        } else {
            self.yields += 1;
            std::thread::yield_now();
        }
        sleeps
    }

    /// The next step is a first one.
    pub(crate) fn reset(&mut self) {
        self.yields = 0;
    }
}
