//! Limit of a component's sleep.

use std::time::Duration;

use punctual_machine::clock::Ticks;

use super::Core;

/// The pause before the next try where the medium had no room. A link of 1 Gbit/s takes twice as long to empty a usual socket's buffer.
pub(super) const CATCH_UP_EVERY: Duration = Duration::from_millis(1);

/// Limit of a waiter's sleep: until the deadline, never past the next housekeeping, and not for long while frames wait to be sent.
pub(crate) struct Limit<'a> {
    core: &'a Core,
    deadline: Option<Ticks>,
    /// The deadline comes first.
    is_deadline: bool,
}

impl<'a> Limit<'a> {
    pub(crate) fn new(core: &'a Core, deadline: Option<Ticks>) -> Self {
        Self { core, deadline, is_deadline: false }
    }

    /// Now, and how long a sleep that begins now may last.
    pub(crate) fn begin(&mut self) -> (Ticks, Ticks) {
        let longest = if self.core.is_behind() { CATCH_UP_EVERY } else { super::HOUSEKEEPING_EVERY };
        let (now, longest) = (self.core.about.clock.now(), self.core.about.clock.ticks(longest));
        let left = self.deadline.map_or(longest, |deadline| deadline.since(now));
        self.is_deadline = left < longest;
        (now, left.min(longest))
    }

    pub(crate) fn duration(&self, timeout: Ticks) -> Duration {
        self.core.about.clock.duration(timeout)
    }

    /// True if the sleep that began last was to end with the housekeeping, not with a caller's deadline.
    pub(crate) fn is_the_nodes(&self) -> bool {
        !self.is_deadline
    }
}
