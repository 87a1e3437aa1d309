//! Values that a component publishes, and their times.

use std::sync::Arc;
use std::time::Duration;

use punctual::interest::Due;
use punctual::{Clock, Nanos, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::sleep_until;
use punctual_machine::signal::interrupted;

use super::components::Shared;
use super::option::VehiclesSettings;
use super::protocol::{Assignment, Skipped};
use super::value::{Origin, Value};
use crate::endpoint::VALUE_SIZE;
use crate::explain::quiet::QuietTime;
use crate::run::lock;

/// A value as it travels.
pub(super) type Bytes = [u8; VALUE_SIZE];

/// When a component publishes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) vehicle: u16,
    pub(super) component: u16,
    pub(super) count: u32,
    pub(super) period_ns: u64,
    phase_ns: u64,
}

impl Schedule {
    pub(super) fn new(settings: &VehiclesSettings, vehicle: u16, component: u16) -> Self {
        Self {
            vehicle,
            component,
            count: u32::try_from(settings.count).unwrap_or(u32::MAX),
            period_ns: settings.period_ns(),
            phase_ns: settings.behind_ns((vehicle, component)),
        }
    }

    /// When its number `number` is due, if the barrier opens at `start_ns`.
    pub(super) fn due_ns(&self, start_ns: u64, number: u32) -> u64 {
        start_ns + self.phase_ns + u64::from(number) * self.period_ns
    }

    /// A period before its first message is due.
    pub(super) fn begins(&self, start_ns: u64) -> Nanos {
        Nanos(self.due_ns(start_ns, 0) - self.period_ns)
    }

    /// Half a period after its last message was due.
    pub(super) fn end_ns(&self, start_ns: u64) -> u64 {
        self.due_ns(start_ns, self.count) - self.period_ns.div_ceil(2)
    }

    /// A value, stamped with the instants at which it was due and is sent: this one.
    pub(super) fn value(&self, number: u32, due_ns: u64) -> Bytes {
        let clock = Clock::get();
        let origin = Origin { vehicle: self.vehicle, component: self.component, number };
        let mut bytes = Value { origin, ..Value::default() }.bytes();
        let late = clock.ticks(Duration::from_nanos(monotonic_ns().saturating_sub(due_ns)));
        let sent = clock.now();
        Value::stamp(&mut bytes, Ticks(sent.0.saturating_sub(late.0)), sent);
        bytes
    }

    /// Where there is no node: sends each value when it is due, by `send`, which says whether there was room, and counts it.
    pub(super) fn send_all(&self, start_ns: u64, shared: &Shared, mut send: impl FnMut(&Bytes) -> bool) {
        let mut number = 0;
        while number < self.count && !interrupted() {
            let due_ns = self.due_ns(start_ns, number);
            sleep_until(due_ns);
            if monotonic_ns() < due_ns {
                // A signal ended the sleep.
                continue;
            }
            let taken = send(&self.value(number, due_ns));
            if taken { &shared.sent } else { &shared.refused }.add(1);
            number += 1;
        }
    }
}

/// The values that a component publishes: each carries the number of its instant.
pub(super) struct Source {
    schedule: Schedule,
    shared: Arc<Shared>,
    next: u32,
}

impl Source {
    pub(super) fn new(schedule: Schedule, shared: &Arc<Shared>) -> Self {
        Self { schedule, shared: Arc::clone(shared), next: 0 }
    }

    pub(super) fn value(&mut self, due: &Due) -> Bytes {
        let due_ns = due.instant.due.0;
        if due.at_once {
            // A newcomer is served before the barrier opens, or after it was thought dead.
            return self.schedule.value(u32::MAX, due_ns);
        }
        let periods = due.instant.offset_us * 1_000 / self.schedule.period_ns;
        let number = u32::try_from(periods.saturating_sub(1)).unwrap_or(u32::MAX);
        self.skip_until(number.min(self.schedule.count));
        if number < self.schedule.count {
            self.next += 1;
            self.shared.sent.add(1);
        }
        self.schedule.value(number, due_ns)
    }

    /// Those before it were superseded before they could be sent.
    fn skip_until(&mut self, number: u32) {
        if number > self.next {
            let (component, first) = (self.schedule.component, self.next);
            lock(&self.shared.noted).skipped.push(Skipped { component, first, count: number - first });
            self.next = number;
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if !interrupted() && !self.shared.stop.is_raised() {
            self.skip_until(self.schedule.count);
        }
        self.shared.finished.add(1);
    }
}

/// Values that are due less far apart leave no quiet time.
const SPACING_NS_MIN: u64 = 2_000_000;

/// When a process has nothing to do; `None` where values are due all the while, and of several components, whose samples do not say
/// whose a value is. Processes look one after the other, so that none waits for another.
pub(super) fn quiet(assignment: &Assignment, start_ns: u64) -> Option<QuietTime> {
    let Assignment { part, settings, .. } = assignment;
    let spacing_ns = settings.spacing_ns();
    let place = part.vehicle().map_or(0, u64::from);
    let offset_ns = spacing_ns / 2 + place * (spacing_ns / 8) / settings.asked.vehicles as u64;
    let period_ns = settings.period_ns();
    let is_there = spacing_ns >= SPACING_NS_MIN && settings.asked.components == 1;
    is_there.then_some(QuietTime { start_ns, period_ns, offset_ns, length_ns: spacing_ns / 4 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::BusPlan;
    use crate::vehicles::option::tests::settings_of;
    use crate::vehicles::protocol::Part;

    /// Goal: no thread looks at itself where nobody could use what it sees, or where no instant is quiet.
    #[test]
    fn windows_are_kept_where_they_can_explain() {
        let plan = |options: &str| {
            let options = format!("--mode callback --period 10ms --messages 9 {options}");
            let settings = settings_of(&options).expect("options that go together");
            let bus = BusPlan::Shared("quiet".to_owned());
            let assignment = Assignment { part: Part::Vehicle(1), bus, keys: None, others: 1, settings };
            quiet(&assignment, 0).map(|quiet| 4 * quiet.length_ns)
        };
        assert_eq!((plan("--vehicles 2"), plan("--vehicles 2 --components 2")), (Some(10_000_000), None));
        assert_eq!((plan("--vehicles 2 --spread"), plan("--vehicles 10 --spread")), (Some(5_000_000), None));
    }

    /// Goal: a schedule of the library that begins there serves the first number at the barrier, and no number twice.
    #[test]
    fn numbers_are_the_periods_since_it_begins() {
        let schedule =
            Schedule { vehicle: 2, component: 0, count: 3, period_ns: 1_000_000, phase_ns: 70_000 };
        let (start_ns, begins) = (5_000_000_000, schedule.begins(5_000_000_000));
        let mut periods = punctual::interest::Schedule::new(begins);
        assert_eq!(periods.offset_us(Nanos(schedule.due_ns(start_ns, 0))), 1_000);
        assert!(periods.poll_due(Nanos(start_ns)).is_none());
        assert_eq!(schedule.due_ns(start_ns, 2), start_ns + 2_070_000);
        assert_eq!(schedule.end_ns(start_ns), start_ns + 2_570_000);
    }
}
