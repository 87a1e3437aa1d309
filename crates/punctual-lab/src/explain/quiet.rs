//! Quiet times of a run whose messages are due at fixed instants: between two of them, when none is on its way. To ask the kernel while
//! many processes take turns on a few processors would make the later ones wait.

use std::time::Duration;

use punctual_machine::clock::monotonic_ns;

use super::kept::{ThreadWindows, WindowLog};

/// Windows kept of a thread, one a period.
const WINDOWS_MAX: usize = 1 << 14;

/// A part of each period in which nothing is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietTime {
    /// When messages begin to be due, nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// From one message of a sender to its next.
    pub period_ns: u64,
    /// Beginning of the quiet time behind that of the period.
    pub offset_ns: u64,
    /// Its length.
    pub length_ns: u64,
}

impl QuietTime {
    /// The first beginning after `now_ns`.
    fn after(&self, now_ns: u64) -> u64 {
        let first_ns = self.start_ns + self.offset_ns;
        let passed = now_ns.checked_sub(first_ns).map_or(0, |ns| ns / self.period_ns + 1);
        first_ns + passed * self.period_ns
    }

    /// Returns true if it is quiet then.
    pub fn has(&self, now_ns: u64) -> bool {
        let first_ns = (self.start_ns + self.offset_ns) % self.period_ns;
        (now_ns + self.period_ns - first_ns) % self.period_ns < self.length_ns
    }
}

/// Keeps the windows of the thread that made it; they end in quiet times.
#[derive(Debug)]
pub struct QuietLog {
    log: Option<(QuietTime, WindowLog)>,
    next_ns: u64,
}

impl QuietLog {
    /// Of the calling thread, for so many periods; without a quiet time it keeps nothing.
    pub fn of_this_thread(quiet: Option<QuietTime>, periods: usize) -> Self {
        let windows_max = periods.saturating_add(64).min(WINDOWS_MAX);
        let log = quiet.map(|quiet| (quiet, WindowLog::of_this_thread(windows_max)));
        Self { log, next_ns: quiet.map_or(u64::MAX, |quiet| quiet.after(monotonic_ns())) }
    }

    /// Time to wait until a look, at most `left`.
    pub fn until_look(&self, left: Duration) -> Duration {
        match self.next_ns {
            u64::MAX => left,
            next_ns => left.min(Duration::from_nanos(next_ns.saturating_sub(monotonic_ns()))),
        }
    }

    /// Nothing is here: asks the kernel about this thread, if it is time to.
    pub fn look(&mut self) {
        let Some((quiet, log)) = &mut self.log else { return };
        let now_ns = monotonic_ns();
        if now_ns >= self.next_ns {
            // A thread that comes late has something to do: the next quiet time will do.
            if quiet.has(now_ns) {
                log.close(0, true);
            }
            self.next_ns = quiet.after(now_ns);
        }
    }

    /// All windows, the last of which ends now.
    pub fn finish(self) -> Option<ThreadWindows> {
        let (_, mut log) = self.log?;
        log.close(0, true);
        Some(log.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: looks lie between two values that are due, each period once, and none is made where it is no longer quiet.
    #[test]
    fn it_is_quiet_between_two_values() {
        let quiet = QuietTime { start_ns: 1_000, period_ns: 100, offset_ns: 50, length_ns: 25 };
        assert_eq!(
            [0, 49, 50, 149, 150].map(|now| quiet.after(1_000 + now)),
            [1_050, 1_050, 1_150, 1_150, 1_250]
        );
        assert_eq!(quiet.after(0), 1_050, "before the barrier");
        assert_eq!(
            [1_000, 1_050, 1_074, 1_075, 1_149, 1_151].map(|now| quiet.has(now)),
            [false, true, true, false, false, true]
        );
        let spread = QuietTime { start_ns: 0, period_ns: 100, offset_ns: 10, length_ns: 5 };
        assert_eq!(spread.after(11), 110);
        assert!(spread.has(112) && !spread.has(120));
    }
}
