//! Making way: a thread that drives an engine lets others have it.

use std::time::Duration;

/// Turns in which the driver gives its processor away: enough for visitors as urgent as it is, and for those on another processor.
const YIELDS_MAX: u32 = 100;

/// Length of its sleeps after that. A visitor that has to be woken, or that is less urgent on the same processor, comes meanwhile: a
/// thread that yields in real time gives way to none of those.
const SLEEP: Duration = Duration::from_micros(50);

/// Turns in a row in which a thread made way. A lock alone would go to the thread that is awake.
#[derive(Debug, Default)]
pub(crate) struct Way {
    turns: u32,
}

impl Way {
    /// Gives the processor away for a turn. The caller looks for visitors before the next one. Returns true if the thread slept.
    #[cold]
    pub(crate) fn make(&mut self) -> bool {
        let sleeps = self.turns >= YIELDS_MAX;
        if sleeps {
            std::thread::sleep(SLEEP);
        } else {
            self.turns += 1;
            std::thread::yield_now();
        }
        sleeps
    }

    /// Nobody has to be let in now.
    pub(crate) fn is_free(&mut self) {
        self.turns = 0;
    }
}
