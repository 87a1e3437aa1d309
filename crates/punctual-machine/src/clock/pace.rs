//! Pace at which something is done.

use std::time::Duration;

use super::{Clock, Ticks};

/// When something was last done that has to be done from time to time. A counter that goes back, as it may over a suspend, makes it due.
#[derive(Debug)]
pub struct Pace {
    every: Ticks,
    last: Ticks,
}

impl Pace {
    /// Due at once, and then each time that so long has passed.
    pub fn new(every: Duration) -> Self {
        let every = Clock::get().ticks(every);
        Self { every, last: Ticks(0_u64.wrapping_sub(every.0)) }
    }

    /// Returns true if it is time again; if so, it was done now. An instant a little earlier than the last one, as counters of two
    /// processors may say it, makes nothing due.
    #[inline]
    pub fn is_due(&mut self, now: Ticks) -> bool {
        let distance = now.0.wrapping_sub(self.last.0).cast_signed().unsigned_abs();
        let due = distance >= self.every.0;
        if due {
            self.last = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_at_once_and_from_time_to_time() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let every = pace.every.0;
        assert!(pace.is_due(Ticks(7)) && !pace.is_due(Ticks(7)) && !pace.is_due(Ticks(6 + every)));
        assert!(pace.is_due(Ticks(7 + every)) && !pace.is_due(Ticks(8 + every)));
    }

    /// Goal: threads whose processors' counters differ a little do not make it due for each other.
    #[test]
    fn a_counter_that_is_a_little_behind_makes_nothing_due() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let every = pace.every.0;
        assert!(pace.is_due(Ticks(5 * every)) && !pace.is_due(Ticks(5 * every - 1)));
    }

    /// Goal: a counter that begins anew while the host sleeps stops nothing for as long as it had run.
    #[test]
    fn a_counter_that_goes_back_makes_it_due() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let uptime = 1_000_000 * pace.every.0;
        assert!(pace.is_due(Ticks(uptime)) && pace.is_due(Ticks(5)) && !pace.is_due(Ticks(6)));
    }
}
