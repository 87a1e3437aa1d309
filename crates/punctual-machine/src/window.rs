//! The history of a thread, in windows of time: by the kernel's reports to the thread itself, in user space alone.
//!
//! A thread asks between two messages, never inside one: at least every [`WINDOW_MAX`], and at once after a slow one. A window so lies close around what was slow, and costs nothing that is measured.

use std::time::Duration;

use crate::clock::{Clock, Ticks, monotonic_ns};
use crate::cpu::ThreadUsage;
use crate::namespace::thread_id;
use crate::scheduling::SchedStat;
use crate::signal::continuations;
use crate::withheld::{GroupLimits, Steal, Throttled, ThrottledTime, certain_steal_ns};

/// A window ends after so long, if nothing slow ended it before. Events in the rest of a window may have happened in the trip, or
/// beside it: the shorter the window, the more is certain.
pub const WINDOW_MAX: Duration = Duration::from_millis(1);

/// Interval between readings of the hypervisor's share, unless something slow asks for it: a look costs as much as a few trips.
const STEAL_EVERY: Duration = Duration::from_millis(100);

/// A thread that was frozen ends its window late. After a shorter one its freezer is not asked.
const FROZEN_MIN: Duration = WINDOW_MAX.saturating_mul(2);

/// Interval between looks for limits that were set since, after something slow: a look opens a file for each level of control groups.
const QUOTAS_EVERY: Duration = Duration::from_secs(1);

/// Something came between two readings of a thread's counters if they took this much longer than they can.
const READING_SLACK: Duration = Duration::from_micros(40);

/// So often they are read anew then.
const READINGS_MAX: u32 = 4;

/// Evidence about one thread in one window. Times that do not fit stop at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Evidence {
    /// Counts windows, from 1.
    pub number: u32,
    /// Length of the window.
    pub wall_us: u32,
    /// CPU time of the thread.
    pub cpu_us: u32,
    /// Time that the thread was ready to run and did not (`schedstat`).
    pub wait_us: u32,
    /// Time that the thread slept on purpose, before it had a trip: nothing else can have happened to it then.
    pub idle_us: u32,
    /// Lateness of the control thread on the same CPU in it.
    pub control_late_us: u32,
    /// Time that the quota took that took most, over all CPUs of its group.
    pub throttled_us: u32,
    /// Time that quotas of other groups took, below it or above it: perhaps the same time.
    pub throttled_also_us: u32,
    /// Time that its control group was frozen, at most.
    pub frozen_us: u32,
    /// Time that the hypervisor took of the thread's CPU, at least.
    pub stolen_us: u32,
    /// Time from the last continuation of the process to the end of the window, if it was noticed in it.
    pub continued_age_us: Option<u32>,
    /// Page faults without the disk: a second holds millions.
    pub faults_minor: u32,
    /// Page faults with it.
    pub faults_major: u16,
    /// Times that it gave the CPU up to wait for something.
    pub switches_voluntary: u16,
    /// Times taken off the CPU.
    pub switches_involuntary: u16,
    /// Times found on another CPU.
    pub migrations: u16,
}

/// A window of one thread, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Window {
    /// Evidence about it.
    pub evidence: Evidence,
    /// Its beginning and end, nanoseconds of a clock that the keeper of the window knows.
    pub span: (u64, u64),
}

/// Watches the thread that made it.
#[derive(Debug)]
pub struct SchedSampler {
    /// The thread that it watches, by the kernel's number.
    thread: u32,
    schedstat: SchedStat,
    since: Ticks,
    usage: ThreadUsage,
    wait_ns: u64,
    cpu: usize,
    number: u32,
    window: Ticks,
    idle_ns: u64,
    /// When limits were last looked for.
    quotas_looked: Ticks,
    /// Longest time that reading the counters takes, if nothing comes between.
    reading: Ticks,
    groups: GroupLimits,
    throttled: Throttled,
    /// Times that the quotas of its groups had run out when it began, or was moved to them.
    throttled_before: u64,
    /// Times that those of the groups before ran out.
    throttled_elsewhere: u64,
    frozen_ns: u64,
    steal: Steal,
    /// When the hypervisor's share was last read, of which CPU, and what it was.
    stolen: Option<(Ticks, usize, u64)>,
    steal_every: Ticks,
    continuations: u64,
}

/// A thread's counters at one instant.
struct Counters {
    now: Ticks,
    usage: ThreadUsage,
    wait_ns: u64,
    throttled: Throttled,
}

impl SchedSampler {
    /// Begins to watch the calling thread.
    pub fn of_this_thread() -> Self {
        let clock = Clock::get();
        let groups = GroupLimits::of_this_thread();
        let throttled = groups.quotas.now();
        let mut sampler = Self {
            thread: thread_id(),
            schedstat: SchedStat::of_this_thread(),
            since: clock.now(),
            usage: ThreadUsage::now(),
            wait_ns: 0,
            cpu: crate::cpu::current(),
            number: 0,
            window: clock.ticks(WINDOW_MAX),
            idle_ns: 0,
            quotas_looked: clock.now(),
            reading: Ticks(u64::MAX),
            throttled,
            throttled_before: throttled.times,
            throttled_elsewhere: 0,
            groups,
            frozen_ns: 0,
            steal: Steal::default(),
            stolen: None,
            steal_every: clock.ticks(STEAL_EVERY),
            continuations: continuations().0,
        };
        let reading = (0..READINGS_MAX).map(|_| {
            let from = clock.now();
            sampler.wait_ns = sampler.read().wait_ns;
            clock.now().since(from)
        });
        let fastest = reading.min().unwrap_or_default();
        sampler.reading = fastest.plus(fastest).plus(clock.ticks(READING_SLACK));
        sampler.frozen_ns = sampler.groups.freezer.frozen_ns().unwrap_or(0);
        sampler.read_stolen(sampler.since, 0);
        sampler.since = clock.now();
        sampler
    }

    /// The thread that it watches, by the kernel's number.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// When the window in the making began.
    pub fn since(&self) -> Ticks {
        self.since
    }

    /// Returns true if the window has lasted long enough.
    #[inline]
    pub fn is_due(&self, now: Ticks) -> bool {
        now.since(self.since) >= self.window
    }

    /// The thread slept on purpose, without a trip.
    #[inline]
    pub fn note_idle(&mut self, slept: Ticks) {
        self.idle_ns += Clock::get().nanos(slept);
    }

    /// Number of times that a quota ran out since it began to watch.
    pub fn throttled_times(&self) -> u64 {
        let here = self.groups.quotas.now().times.saturating_sub(self.throttled_before);
        self.throttled_elsewhere + here
    }

    /// Ends the window, and begins the next. After something slow more is asked for.
    pub fn close(&mut self, control_late_us: u32, was_slow: bool) -> Evidence {
        let clock = Clock::get();
        let Counters { now, usage, wait_ns, throttled } = self.read();
        let cpu = crate::cpu::current();
        let passed = usage.since(self.usage);
        let wall_ns = clock.nanos(now.since(self.since));
        let (withheld, frozen_us) = self.read_withheld(&throttled, wall_ns, was_slow);
        self.number = self.number.wrapping_add(1);
        let evidence = Evidence {
            number: self.number,
            wall_us: micros(wall_ns),
            cpu_us: micros(passed.cpu_ns),
            wait_us: micros(wait_ns.saturating_sub(self.wait_ns)),
            idle_us: micros(std::mem::take(&mut self.idle_ns)),
            control_late_us,
            throttled_us: micros(withheld.least_ns),
            throttled_also_us: micros(withheld.most_ns - withheld.least_ns),
            frozen_us,
            stolen_us: if self.wants_stolen(now, was_slow) { self.read_stolen(now, wall_ns) } else { 0 },
            continued_age_us: self.read_continuation(),
            faults_minor: u32::try_from(passed.faults_minor).unwrap_or(u32::MAX),
            faults_major: short(passed.faults_major),
            switches_voluntary: short(passed.switches_voluntary),
            switches_involuntary: short(passed.switches_involuntary),
            migrations: u16::from(cpu != self.cpu),
        };
        (self.since, self.usage, self.wait_ns, self.cpu) = (now, usage, wait_ns, cpu);
        if self.wants_quotas(now, was_slow) {
            self.look_for_quotas(now);
        }
        evidence
    }

    /// Time that the control groups withheld in this window. If it was moved to others meanwhile, no counter tells of all of it: none is
    /// certain. That is looked at where it matters: where something was withheld, or slow.
    fn read_withheld(&mut self, throttled: &Throttled, wall_ns: u64, was_slow: bool) -> (ThrottledTime, u32) {
        let withheld = throttled.since(&self.throttled);
        let frozen_us = self.read_frozen(wall_ns);
        let is_asked = was_slow || withheld.most_ns > 0 || frozen_us > 0;
        let had_quota = !self.groups.quotas.is_empty();
        if !(is_asked && self.groups.follow()) {
            self.throttled = *throttled;
            return (withheld, frozen_us);
        }
        self.begin_anew(throttled.times);
        let may_be_throttled = had_quota || !self.groups.quotas.is_empty();
        let most_ns = if may_be_throttled { wall_ns } else { 0 };
        (ThrottledTime { least_ns: 0, most_ns }, 0)
    }

    /// Counts from now by the groups that it was moved to.
    fn begin_anew(&mut self, times_before: u64) {
        self.throttled_elsewhere += times_before.saturating_sub(self.throttled_before);
        self.throttled = self.groups.quotas.now();
        self.throttled_before = self.throttled.times;
        self.frozen_ns = self.groups.freezer.frozen_ns().unwrap_or(0);
    }

    /// Time that a quota took before this look found it is in no window.
    fn look_for_quotas(&mut self, now: Ticks) {
        let before = self.groups.quotas.now();
        self.quotas_looked = now;
        if self.groups.quotas.look_anew() {
            self.throttled = self.groups.quotas.now();
            self.throttled_before += self.throttled.times.saturating_sub(before.times);
        }
    }

    /// The counters at one instant. A thread is taken off its CPU, and its quota runs out, above all where it leaves the kernel:
    /// between two of these readings. A wait there would stand in one window, and the time of it in the next.
    fn read(&self) -> Counters {
        let clock = Clock::get();
        let mut left = READINGS_MAX;
        loop {
            let now = clock.now();
            let (usage, wait_ns) = (ThreadUsage::now(), self.read_wait_ns());
            let throttled =
                if self.groups.quotas.is_empty() { self.throttled } else { self.groups.quotas.now() };
            left -= 1;
            if left == 0 || clock.now().since(now) <= self.reading {
                return Counters { now, usage, wait_ns, throttled };
            }
        }
    }

    fn wants_quotas(&self, now: Ticks, was_slow: bool) -> bool {
        was_slow && now.since(self.quotas_looked) >= Clock::get().ticks(QUOTAS_EVERY)
    }

    fn wants_stolen(&self, now: Ticks, was_slow: bool) -> bool {
        was_slow || self.stolen.is_none_or(|(at, ..)| now.since(at) >= self.steal_every)
    }

    /// Time that the hypervisor took in this window for certain: all of it may be of the time between the last look and the window.
    fn read_stolen(&mut self, now: Ticks, wall_ns: u64) -> u32 {
        let cpu = crate::cpu::current();
        let Some(stolen_ns) = self.steal.from_cpu(cpu) else { return 0 };
        let Some((at, of, before_ns)) = self.stolen.replace((now, cpu, stolen_ns)) else { return 0 };
        let outside_ns = Clock::get().nanos(now.since(at)).saturating_sub(wall_ns);
        let certain_ns = if of == cpu { certain_steal_ns(before_ns, stolen_ns) } else { 0 };
        micros(certain_ns.saturating_sub(outside_ns))
    }

    /// Frozen time since the last look is of this window, unless it was too short to be looked at before.
    fn read_frozen(&mut self, wall_ns: u64) -> u32 {
        if u128::from(wall_ns) < FROZEN_MIN.as_nanos() {
            return 0;
        }
        let Some(now_ns) = self.groups.freezer.frozen_ns() else { return 0 };
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.frozen_ns, now_ns));
        micros(passed_ns.min(wall_ns))
    }

    fn read_continuation(&mut self) -> Option<u32> {
        let (count, at_ns) = continuations();
        let is_new = std::mem::replace(&mut self.continuations, count) != count;
        is_new.then(|| micros(monotonic_ns().saturating_sub(at_ns)))
    }

    /// Time on the run queue.
    fn read_wait_ns(&self) -> u64 {
        self.schedstat.read().map_or(self.wait_ns, |times| times.queued_ns)
    }
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}

fn short(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Flag;
    use crate::withheld::tests::throttled;

    #[test]
    fn a_window_holds_what_the_thread_did() {
        let mut sampler = SchedSampler::of_this_thread();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let from = Clock::get().now();
        std::thread::sleep(Duration::from_millis(20));
        let now = Clock::get().now();
        sampler.note_idle(now.since(from));
        assert!(sampler.is_due(now));
        let evidence = sampler.close(3, true);
        assert_eq!((evidence.number, evidence.control_late_us), (1, 3));
        assert!(evidence.wall_us >= 40_000, "{evidence:?}");
        assert!(evidence.cpu_us > 0 && evidence.cpu_us < evidence.wall_us, "{evidence:?}");
        // Falling asleep and waking are CPU time of the rest.
        let parts_us = evidence.idle_us + evidence.cpu_us;
        assert!(evidence.idle_us >= 20_000 && parts_us <= evidence.wall_us + 5_000, "{evidence:?}");
        let next = sampler.close(0, false);
        assert_eq!((next.number, next.idle_us), (2, 0));
    }

    /// Goal: a wait stands in the window whose time it took. That holds although a thread is taken off its CPU where it leaves the
    /// kernel, which is while it reads its counters.
    #[test]
    fn a_wait_stands_in_the_window_that_it_took() {
        let cpu = crate::cpu::allowed()[0];
        let hogs_end = Flag::default();
        let mut waits = Vec::new();
        std::thread::scope(|scope| {
            let hog = || {
                crate::cpu::pin_to(cpu).expect("it may run there");
                while !hogs_end.is_raised() {
                    std::hint::spin_loop();
                }
            };
            (0..6).for_each(|_| drop(scope.spawn(hog)));
            scope.spawn(|| {
                crate::cpu::pin_to(cpu).expect("it may run there");
                let mut sampler = SchedSampler::of_this_thread();
                let begin = std::time::Instant::now();
                while waits.len() < 20 && begin.elapsed() < Duration::from_secs(10) {
                    if sampler.is_due(Clock::get().now()) {
                        let window = sampler.close(0, false);
                        let is_taken = window.wall_us >= 5000 && window.switches_involuntary > 0;
                        waits.extend(is_taken.then_some((window.wait_us, window.wall_us)));
                    }
                }
                hogs_end.raise();
            });
        });
        let Ok(_) = std::fs::metadata("/proc/thread-self/schedstat") else {
            crate::skipped!("this kernel has no schedstat");
            return;
        };
        let right = waits.iter().filter(|(wait_us, wall_us)| wait_us * 2 > *wall_us).count();
        assert!(waits.len() >= 10 && right * 2 > waits.len(), "{waits:?}");
    }

    /// Goal: a window in which the thread was moved to other groups claims nothing of their counters. The next one counts from there, and
    /// what was counted before stays.
    #[test]
    fn a_move_to_other_groups_is_no_time_that_they_took() {
        let mut sampler = SchedSampler::of_this_thread();
        let before = throttled(9, &[u64::MAX]);
        (sampler.throttled_before, sampler.frozen_ns) = (4, 0);
        sampler.groups.forget();
        let withheld = sampler.read_withheld(&before, 50_000_000, true);
        assert_eq!((withheld.0.least_ns, withheld.1), (0, 0));
        assert!(sampler.throttled_times() >= 5, "it had run out five times there");
        assert!(!sampler.groups.follow(), "it is there");
        // Where nothing was slow and nothing withheld, nobody looks.
        sampler.groups.forget();
        let as_before = sampler.throttled;
        sampler.read_withheld(&as_before, 1_000, false);
        assert!(sampler.groups.follow());
    }

    /// Goal: limits are looked for after something slow, seldom, and time that a quota took before it was found is in no window.
    #[test]
    fn limits_are_looked_for_seldom() {
        let second = Clock::get().ticks(QUOTAS_EVERY);
        let mut sampler = SchedSampler::of_this_thread();
        let since = sampler.quotas_looked;
        assert!(!sampler.wants_quotas(since.plus(second), false));
        assert!(!sampler.wants_quotas(since, true) && sampler.wants_quotas(since.plus(second), true));
        sampler.quotas_looked = Ticks(0);
        sampler.close(0, true);
        assert!(sampler.quotas_looked > since);
    }
}
