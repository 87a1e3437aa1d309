//! What a component publishes, and when.

use std::time::Duration;

use punctual::{Clock, Port, Target, Ticks};
use punctual_machine::clock::monotonic_ns;

use super::option::VALUE_SIZE;
use super::value::{Origin, Value};

/// When a component publishes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) origin: Origin,
    pub(super) count: u32,
    pub(super) period_ns: u64,
    pub(super) phase_ns: u64,
}

impl Schedule {
    pub(super) fn due_ns(&self, start_ns: u64) -> u64 {
        start_ns + self.phase_ns + u64::from(self.origin.number) * self.period_ns
    }
}

/// A value that is ready but for its instants.
pub(super) struct Publication {
    pub(super) clock: &'static Clock,
    pub(super) schedule: Schedule,
    pub(super) target: Target,
    pub(super) bytes: [u8; VALUE_SIZE],
}

impl Publication {
    pub(super) fn new(schedule: Schedule, port: Port) -> Self {
        let mut new =
            Self { clock: Clock::get(), schedule, target: Target::everyone_at(port), bytes: [0; VALUE_SIZE] };
        new.prepare();
        new
    }

    pub(super) fn prepare(&mut self) {
        self.bytes = Value { origin: self.schedule.origin, ..Value::default() }.bytes();
    }

    pub(super) fn is_over(&self) -> bool {
        self.schedule.origin.number == self.schedule.count
    }

    /// Gives it its instants: when it was due, on the clock of the stages, and now.
    pub(super) fn stamp(&mut self, due_ns: u64) -> Ticks {
        let late = self.clock.ticks(Duration::from_nanos(monotonic_ns().saturating_sub(due_ns)));
        let sent = self.clock.now();
        let due = Ticks(sent.0.saturating_sub(late.0));
        Value::stamp(&mut self.bytes, due, sent);
        due
    }

    pub(super) fn next(&mut self) {
        self.schedule.origin.number += 1;
        self.prepare();
    }
}
