//! The kernel's stamp of a message, as a reading of the node's clock.
//!
//! The kernel stamps by `CLOCK_REALTIME`, which people and their daemons set. A stamp is believed if that clock was not set
//! between two looks around it; it is then nearer to the arrival than anything that a thread reads after waking.

use punctual_machine::clock::{Clock, monotonic_ns, realtime_ns};
use punctual_proto::Nanos;

/// What two readings in a row may lie apart, and what slewing may make of the age of a stamp, nanoseconds.
const LOOK_ERROR_NS: u64 = 2_000;

/// A clock that moved by more than this during a wait was set, nanoseconds. Slewing is 500 parts in a million at most.
const MOVED_MAX_NS: u64 = 100_000;

/// Stamps older than this are not believed: slewing would make more of them than [`LOOK_ERROR_NS`].
const AGE_MAX_NS: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct KernelTime {
    clock: &'static Clock,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC` before the wait.
    before: i128,
}

fn difference() -> i128 {
    i128::from(realtime_ns()) - i128::from(monotonic_ns())
}

impl KernelTime {
    pub(super) fn new(clock: &'static Clock) -> Self {
        Self { clock, before: difference() }
    }

    /// Looks at the clocks before a wait.
    pub(super) fn note(&mut self) {
        self.before = difference();
    }

    /// When a message came that the kernel stamped, in nanoseconds of the node's clock: not before it did, and by little
    /// later. `None` if the stamp cannot be believed.
    pub(super) fn arrival(&self, kernel_ns: u64) -> Option<Nanos> {
        let real = realtime_ns();
        let here = self.clock.now();
        let after = difference();
        let age = real.checked_sub(kernel_ns).filter(|&age| age <= AGE_MAX_NS)?;
        // Whatever the clock was set or slewed by since the wait began may lie between the stamp and now.
        let moved = u64::try_from((after - self.before).unsigned_abs()).unwrap_or(u64::MAX);
        let error = moved.saturating_add(LOOK_ERROR_NS);
        (error <= MOVED_MAX_NS).then_some(())?;
        Some(Nanos(self.clock.nanos(here).saturating_sub(age).saturating_add(error)))
    }
}
