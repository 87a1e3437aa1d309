//! Observations of a vehicle's thread, in windows that end at quiet instants: half a period after values were due, when none is on its
//! way. To ask the kernel while fifteen processes take turns on a few processors would make the later ones wait.

use std::time::Duration;

use punctual_machine::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use super::protocol::{Assignment, Part};
use crate::explain::kept::{ThreadWindows, WindowLog};

/// Values that are due less far apart leave no quiet instant.
const SPACING_NS_MIN: u64 = 2_000_000;

/// Windows kept of a thread, one a period.
const WINDOWS_MAX: usize = 1 << 14;

/// When nothing is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuietPlan {
    /// From one value that is due to the next.
    spacing_ns: u64,
    period_ns: u64,
    /// Time after a value was due.
    offset_ns: u64,
    count: usize,
}

impl QuietPlan {
    /// Of a process; `None` where values are due all the while, and of several components, whose samples do not say whose a value is.
    /// Processes look one after the other, so that none waits for another.
    pub(super) fn of(assignment: &Assignment) -> Option<Self> {
        let settings = &assignment.settings;
        let spacing_ns = settings.spacing_ns();
        let place = match assignment.part {
            Part::Vehicle(number) => u64::from(number),
            Part::Roadside(_) | Part::Listener => 0,
        };
        let offset_ns = spacing_ns / 2 + place * (spacing_ns / 8) / settings.asked.vehicles.max(1) as u64;
        let plan = Self { spacing_ns, period_ns: settings.period_ns(), offset_ns, count: settings.count };
        (spacing_ns >= SPACING_NS_MIN && settings.asked.components == 1).then_some(plan)
    }

    /// The first quiet instant after `now_ns`, if values are due from `start_ns` on.
    fn after(&self, start_ns: u64, now_ns: u64) -> u64 {
        let first_ns = start_ns + self.offset_ns;
        let passed = now_ns.checked_sub(first_ns).map_or(0, |ns| ns / self.period_ns + 1);
        first_ns + passed * self.period_ns
    }

    /// Returns true if it is still quiet.
    fn is_quiet(&self, start_ns: u64, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(start_ns + self.offset_ns) % self.period_ns;
        since_ns < self.spacing_ns / 4
    }
}

/// The windows of one thread, as they go to the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ComponentWindows {
    pub(super) sends: bool,
    pub(super) receives: bool,
    pub(super) of: ThreadWindows,
}

/// Keeps the windows of the thread that made it.
#[derive(Debug)]
pub(super) struct QuietLog {
    plan: QuietPlan,
    start_ns: u64,
    next_ns: u64,
    log: WindowLog,
    /// It sends, and it receives.
    does: (bool, bool),
}

impl QuietLog {
    /// Of the calling thread, from when values travel on.
    pub(super) fn of_this_thread(plan: QuietPlan, start_ns: u64, does: (bool, bool)) -> Self {
        let log = WindowLog::of_this_thread(plan.count.saturating_add(64).min(WINDOWS_MAX));
        Self { plan, start_ns, next_ns: plan.after(start_ns, monotonic_ns()), log, does }
    }

    fn look_if_quiet(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        // A thread that comes late has something to do: the next quiet instant will do.
        if self.plan.is_quiet(self.start_ns, now_ns) {
            self.log.close(0, true);
        }
        self.next_ns = self.plan.after(self.start_ns, now_ns);
    }

    /// All windows, the last of which ends now.
    pub(super) fn finish(mut self) -> ComponentWindows {
        self.log.close(0, true);
        let (sends, receives) = self.does;
        ComponentWindows { sends, receives, of: self.log.finish() }
    }
}

/// Time to wait until a look, at most `left`; without a log, `left`.
pub(super) fn until_look(log: Option<&QuietLog>, left: Duration) -> Duration {
    let until = log.map(|log| Duration::from_nanos(log.next_ns.saturating_sub(monotonic_ns())));
    until.map_or(left, |until| left.min(until))
}

/// Nothing is here: asks the kernel about this thread, if it is time to.
pub(super) fn look(log: &mut Option<QuietLog>) {
    if let Some(log) = log {
        log.look_if_quiet(monotonic_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::BusPlan;
    use crate::vehicles::option::tests::settings_of;

    /// Goal: no thread looks at itself where nobody could use what it sees, or where no instant is quiet.
    #[test]
    fn windows_are_kept_where_they_can_explain() {
        let plan = |options: &str| {
            let options = format!("--mode callback --period 10ms --messages 9 {options}");
            let settings = settings_of(&options).expect("options that go together");
            let bus = BusPlan::Shared("quiet".to_owned());
            let assignment = Assignment { part: Part::Vehicle(1), bus, keys: None, others: 1, settings };
            QuietPlan::of(&assignment).map(|plan| plan.spacing_ns)
        };
        assert_eq!((plan("--vehicles 2"), plan("--vehicles 2 --components 2")), (Some(10_000_000), None));
        assert_eq!((plan("--vehicles 2 --spread"), plan("--vehicles 10 --spread")), (Some(5_000_000), None));
    }

    /// Goal: looks lie between two values that are due, each period once, and none is made where it is no longer quiet.
    #[test]
    fn it_is_quiet_between_two_values() {
        let plan = QuietPlan { spacing_ns: 100, period_ns: 100, offset_ns: 50, count: 9 };
        assert_eq!(
            [0, 49, 50, 149, 150].map(|now| plan.after(1_000, 1_000 + now)),
            [1_050, 1_050, 1_150, 1_150, 1_250]
        );
        assert_eq!(plan.after(1_000, 0), 1_050, "before the barrier");
        assert_eq!(
            [1_050, 1_074, 1_075, 1_149, 1_151].map(|now| plan.is_quiet(1_000, now)),
            [true, true, false, false, true]
        );
        let spread = QuietPlan { spacing_ns: 20, period_ns: 100, offset_ns: 10, count: 9 };
        assert_eq!(spread.after(0, 11), 110);
        assert!(spread.is_quiet(0, 112) && !spread.is_quiet(0, 120));
    }
}
