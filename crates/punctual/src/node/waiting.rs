//! How long a component may sleep.

use std::time::Duration;

use punctual_machine::clock::Ticks;

use super::Core;

/// How long a waiter may sleep: until the deadline, and never past the next housekeeping.
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
        let (now, housekeeping) =
            (self.core.about.clock.now(), self.core.about.clock.ticks(super::HOUSEKEEPING_EVERY));
        let left = self.deadline.map_or(housekeeping, |deadline| deadline.since(now));
        self.is_deadline = left < housekeeping;
        (now, left.min(housekeeping))
    }

    pub(crate) fn duration(&self, timeout: Ticks) -> Duration {
        self.core.about.clock.duration(timeout)
    }

    /// Whether the sleep that began last was to end with the housekeeping, not with a caller's deadline.
    pub(crate) fn is_the_nodes(&self) -> bool {
        !self.is_deadline
    }
}
