//! The control thread: sleeps on the CPU of a measuring thread, and notes how late it is woken.
//!
//! It does nothing else, so what makes it late makes anything on that CPU late: when it and the client are late together,
//! the CPU was not to be had; when the client alone is, the cause is the client's own.

use std::sync::Arc;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::scheduling::{sleep_precisely, sleep_until};

use super::{Job, Urgency};

/// It looks so often. More would be noise in the p99 of what it watches.
pub const PERIOD: Duration = Duration::from_millis(10);

/// Lateness below this is that of any timer.
const LATE_MIN: Duration = Duration::from_micros(200);

/// Looks kept, in a ring: a bit less than half a minute.
const LOOKS: usize = 4096;

#[derive(Debug, Default)]
struct Look {
    /// When it ran, ticks.
    at: Counter,
    /// Its lateness then, ns.
    late_ns: Counter,
}

#[derive(Debug, Default)]
struct Shared {
    /// Looks so far.
    count: Counter,
    /// When it was to begin, ticks: 0 if nobody looks.
    begun: Counter,
    looks: Vec<Look>,
    late_ns_max: Counter,
    late_count: Counter,
}

impl Shared {
    fn new(begun: Ticks) -> Self {
        let shared = Self { looks: (0..LOOKS).map(|_| Look::default()).collect(), ..Self::default() };
        shared.begun.set(begun.0);
        shared
    }
}

/// A control thread, until it is dropped.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    _job: Option<Job<()>>,
}

impl Control {
    /// Nobody looks: for what must not be disturbed.
    pub fn absent() -> Self {
        Self { shared: Arc::new(Shared::new(Ticks(0))), _job: None }
    }

    /// Starts it on this CPU, as urgent as the thread that it stands for.
    pub fn start(cpu: Option<usize>, urgency: Urgency) -> Self {
        // Until its first look it is as late as that is: it may have no CPU.
        let shared = Arc::new(Shared::new(Clock::get().now()));
        let watched = Arc::clone(&shared);
        let job = Job::start("control", move |stop| {
            if let Some(cpu) = cpu {
                // Elsewhere it says less, and nothing wrong.
                let _unpinned = punctual_machine::cpu::pin_to(cpu);
            }
            if urgency.can_be_pinned() {
                let _ordinary = urgency.apply();
            }
            watch(&watched, stop);
        });
        // Without a thread there is no second witness: nobody says that the CPU was to be had.
        Self { shared, _job: job.ok() }
    }

    /// Its lateness since `begin`, µs: the part of each late look after `begin`, and the age of a look that is due and has not come.
    pub fn late_us_since(&self, begin: Ticks) -> u32 {
        let clock = Clock::get();
        let count = self.shared.count.get_published();
        let newest = (0..count).rev().take(LOOKS);
        let looks = newest.map(|number| &self.shared.looks[(number as usize) % LOOKS]);
        let after = looks.take_while(|look| look.at.get() >= begin.0);
        let late_ns: u64 = after.map(|look| late_within(look, begin, clock)).sum();
        let newest = count.checked_sub(1).map(|number| self.shared.looks[(number as usize) % LOOKS].at.get());
        let last = newest.or(Some(self.shared.begun.get()).filter(|&begun| begun > 0));
        let overdue_ns = last.map_or(0, |last| {
            let due = Ticks(last).plus(clock.ticks(PERIOD));
            clock.nanos(clock.now().since(due.max(begin)))
        });
        u32::try_from(late_ns.saturating_add(overdue_ns) / 1000).unwrap_or(u32::MAX)
    }

    /// Looks so far, those that were late, and the latest, µs.
    pub fn totals(&self) -> (u64, u64, u64) {
        let Shared { count, late_count, late_ns_max, .. } = &*self.shared;
        (count.get(), late_count.get(), late_ns_max.get() / 1000)
    }
}

fn late_within(look: &Look, begin: Ticks, clock: &Clock) -> u64 {
    look.late_ns.get().min(clock.nanos(Ticks(look.at.get()).since(begin)))
}

fn watch(shared: &Shared, stop: &Flag) {
    sleep_precisely();
    let clock = Clock::get();
    let mut due = monotonic_ns();
    while !stop.is_raised() {
        due += PERIOD.as_nanos() as u64;
        sleep_until(due);
        let (now, at) = (monotonic_ns(), clock.now());
        let late = now.saturating_sub(due);
        let count = shared.count.get();
        let look = &shared.looks[(count as usize) % LOOKS];
        look.late_ns.set(late);
        look.at.set(at.0);
        shared.count.publish(count + 1);
        shared.late_ns_max.set(shared.late_ns_max.get().max(late));
        if late > LATE_MIN.as_nanos() as u64 {
            shared.late_count.add_alone(1);
            // A thread that slept through several looks does not make up for them.
            due = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_and_says_how_late_it_was() {
        let begin = Clock::get().now();
        let control = Control::start(None, Urgency::Other);
        assert!(control.shared.begun.get() >= begin.0, "it is late from its start on");
        while control.totals().0 < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (_, _, latest_us) = control.totals();
        assert!(u64::from(control.late_us_since(begin)) <= latest_us + 100_000);
        assert_eq!(Control::start(None, Urgency::Other).late_us_since(Clock::get().now()), 0);
    }

    /// Goal: a thread that has no CPU from its start, or that could not be started, is late; where nobody looks, nobody is.
    #[test]
    fn a_thread_that_never_looked_is_late() {
        let clock = Clock::get();
        let begin = clock.now();
        let never = Control { shared: Arc::new(Shared::new(begin)), _job: None };
        std::thread::sleep(Duration::from_millis(50));
        assert!(never.late_us_since(begin) >= 40_000);
        assert_eq!(Control::absent().late_us_since(begin), 0);
    }
}
