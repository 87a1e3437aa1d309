//! A check whether an instant that somebody waits for has passed.

use std::time::Duration;

use super::{Clock, Ticks};

/// Two processors' counters differ by less.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// When a thread that waits looked at the clock last. A counter that is far behind that began anew, as it may over a suspend. An instant
/// that was still to come at that look is one of the counter's former life: it has passed, though by the new one it may be hours away.
#[derive(Debug)]
pub struct LastLook {
    at: Ticks,
    behind_max: Ticks,
}

impl LastLook {
    /// Nobody has looked yet.
    pub fn none() -> Self {
        Self { at: Ticks(0), behind_max: Clock::get().ticks(BEHIND_MAX) }
    }

    /// The clock is looked at, and a wait begins.
    pub fn note(&mut self, now: Ticks) {
        self.at = now;
    }

    /// Returns true if `instant` has passed, by a look at the clock now. [`Ticks::NEVER`] has not, ever.
    #[inline]
    pub fn finds_past(&mut self, now: Ticks, instant: Ticks) -> bool {
        let last = std::mem::replace(&mut self.at, now);
        let is_anew = last.since(now) > self.behind_max;
        instant != Ticks::NEVER && (now >= instant || is_anew && instant > last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a counter that begins anew ends waits for instants that it was to read before, and no others.
    #[test]
    fn an_instant_of_a_former_life_has_passed() {
        let mut look = LastLook::none();
        let second = look.behind_max.0;
        let (old, new) = (Ticks(36_000 * second), Ticks(5 * second));
        assert!(!look.finds_past(old, Ticks(old.0 + 1)) && look.finds_past(old, old));
        assert!(!look.finds_past(Ticks(old.0 - second), Ticks(old.0 + 1)), "another processor's counter");
        assert!(look.finds_past(new, Ticks(old.0 + 1)));
        assert!(!look.finds_past(old, Ticks::NEVER) && !look.finds_past(new, Ticks::NEVER));
        assert!(!look.finds_past(old, Ticks(old.0 + 1)));
        assert!(!look.finds_past(new, Ticks(new.0 + second)), "a wait that began in the new life");
        assert!(look.finds_past(Ticks(new.0 + second), Ticks(new.0 + second)));
    }
}
