//! How a thread that drives something makes way for those who want it for a moment.

use std::time::Duration;

/// How often the driver gives its processor away: that suffices for visitors as urgent as it is, and for those on another processor.
const YIELDS_MAX: u32 = 100;

/// How long it sleeps then. A visitor that has to be woken, or that is less urgent on the same processor, comes meanwhile: a thread
/// that yields in real time gives way to none of those.
const SLEEP: Duration = Duration::from_micros(50);

/// Lets visitors in, for whoever wants to drive on: a lock alone would go to who is awake. It returns though none has come: the caller
/// looks again.
#[cold]
pub(crate) fn make_way(has_visitors: impl Fn() -> bool) {
    for _ in 0..YIELDS_MAX {
        if !has_visitors() {
            return;
        }
        std::thread::yield_now();
    }
    std::thread::sleep(SLEEP);
}
