//! Making way: a thread that drives something lets in threads that want it for a moment.

use std::time::Duration;

/// Number of times that the driver gives its processor away: enough for visitors as urgent as it is, and for those on another
/// processor.
const YIELDS_MAX: u32 = 100;

/// Length of its sleep then. A visitor that has to be woken, or that is less urgent on the same processor, comes meanwhile: a thread
/// that yields in real time gives way to none of those.
const SLEEP: Duration = Duration::from_micros(50);

/// Lets visitors in, for a thread that wants to drive on: a lock alone would go to the thread that is awake. It returns though none has
/// come: the caller looks again.
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
