//! The recorder of a trial: keeps the kernel's rings, and copies them when a message was late, between two messages.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use punctual_lab_machine::host;
use punctual_lab_machine::trace_point::{
    CpuTrace, Task, TaskState, TraceDump, TraceEvent, TraceRecorder, WakingFrom, call_name,
};
use punctual_machine::clock::{Ticks, monotonic_ns};
use punctual_machine::process::ProcessIdentity;

use super::evidence::{EvidenceDump, Recording};
use super::kept::{ClockLine, ClockPair};
use super::trace::{CpuEvents, DeviceKind, Event, IDLE, Leaving, TaskInfo, Trace, UNKNOWN_CALL, What};

/// Time before a late message that is dumped too: the last event of a thread tells its state then. A thread that was stopped while it
/// waited for the message was stopped before the message was sent.
pub(super) const BEFORE_NS: u64 = 50_000_000;

/// Dumps of one trial: as many as its slowest messages that anybody reads.
const DUMPS_MAX: usize = 48;

/// Bytes of all dumps of one trial.
const DUMPED_MAX: usize = 64 << 20;

/// A dump is taken in this much free time at least.
const DUMP_NS_MIN: u64 = 300_000;

/// A dump, and what it was taken for.
#[derive(Debug)]
struct Dumped {
    /// Instants of `CLOCK_MONOTONIC` between which the message was under way.
    span: (u64, u64),
    dump: TraceDump,
    /// Both clocks when it was taken: its instants are turned into those of the run by them.
    clocks: ClockPair,
}

/// Records from when it is started.
#[derive(Debug)]
pub struct LateRecorder {
    recorder: TraceRecorder,
    dumps: Vec<Dumped>,
    pending: Option<(u64, u64)>,
    /// Time of the longest dump.
    dump_ns: u64,
    skipped: u64,
}

impl LateRecorder {
    /// Starts to record.
    ///
    /// # Errors
    /// Says what is missing here, and what to do.
    pub fn start() -> Result<Self, String> {
        let recorder = TraceRecorder::start().map_err(|error| error.to_string())?;
        let dumps = Vec::with_capacity(DUMPS_MAX);
        Ok(Self { recorder, dumps, pending: None, dump_ns: DUMP_NS_MIN, skipped: 0 })
    }

    /// A message was late; between these instants of `CLOCK_MONOTONIC` it was under way.
    pub fn note(&mut self, from_ns: u64, to_ns: u64) {
        self.pending = Some(match self.pending {
            Some((from, to)) => (from.min(from_ns), to.max(to_ns)),
            None => (from_ns, to_ns),
        });
    }

    /// Dumps the trace around the noted messages, if there are any and time enough for it. Returns true if it dumped.
    pub fn dump_within(&mut self, free: Option<Duration>) -> bool {
        let has_time = free.is_none_or(|free| free.as_nanos() >= u128::from(2 * self.dump_ns));
        let noted = self.pending.take_if(|_| has_time);
        noted.into_iter().for_each(|span| self.dump(span));
        noted.is_some()
    }

    fn dump(&mut self, span: (u64, u64)) {
        let begin = monotonic_ns();
        let used: usize = self.dumps.iter().map(|one| one.dump.size()).sum();
        if used >= DUMPED_MAX || self.dumps.len() >= DUMPS_MAX {
            let lasts = |span: (u64, u64)| span.1 - span.0;
            let shortest = (0..self.dumps.len()).min_by_key(|&place| lasts(self.dumps[place].span));
            self.skipped += 1;
            match shortest.filter(|&place| lasts(self.dumps[place].span) < lasts(span)) {
                Some(place) => drop(self.dumps.swap_remove(place)),
                None => return,
            }
        }
        match self.recorder.dump(span.0.saturating_sub(BEFORE_NS)) {
            Ok(dump) => self.dumps.push(Dumped { span, dump, clocks: ClockPair::now() }),
            Err(_) => self.skipped += 1,
        }
        self.dump_ns = self.dump_ns.max(monotonic_ns().saturating_sub(begin));
    }

    /// Dumps what is still noted after the trial, and returns all dumps, at instants of the run, which began at `start`. `clocks` are
    /// those at the ends of the trial.
    pub fn finish(mut self, clocks: [ClockPair; 2], start: Ticks) -> (Recording, Vec<EvidenceDump>) {
        self.dump_within(None);
        let line = ClockLine::new(clocks, self.dumps.iter().map(|one| one.clocks), start);
        let to_run = |at_ns| line.run_ns(at_ns);
        self.dumps.sort_by_key(|one| one.span);
        let dumps = self.dumps.iter().map(|Dumped { span, dump, .. }| EvidenceDump {
            span: (to_run(span.0), to_run(span.1)),
            trace: trace_here(&self.recorder.read(dump), &to_run),
        });
        let dumps = dumps.collect();
        (Recording::On { skipped: self.skipped }, dumps)
    }
}

/// The parent of all of them.
pub(super) const KERNEL_THREADS: u32 = 2;

/// True if it is one of the kernel's own threads. Of those that have gone only workers were: the others stay.
fn is_kernel_thread(task: &Task) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", task.thread));
    let parent =
        |stat: String| stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse::<u32>().ok();
    match stat {
        Ok(stat) => Some(task.thread == KERNEL_THREADS || parent(stat) == Some(KERNEL_THREADS)),
        Err(_) if task.thread == IDLE || task.name.starts_with("kworker/") => Some(true),
        // A process that may not look at others, as under `hidepid`, takes no thread for a program's.
        Err(_) => (!are_others_hidden()).then_some(false),
    }
}

/// Inode of the first namespace of processes (`PROC_PID_INIT_INO` in `linux/nsfs.h`): only there are kernel threads.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// True where there are kernel threads, and this process may not see them.
fn are_others_hidden() -> bool {
    let is_hidden = || !std::fs::exists(format!("/proc/{KERNEL_THREADS}/stat")).unwrap_or(false);
    ProcessIdentity::of_self().namespace == FIRST_NAMESPACE && is_hidden()
}

/// A dump of the recorder, just taken, its instants turned into those of a run.
pub(super) fn trace_here(cpus: &[CpuTrace], to_run: &impl Fn(u64) -> u64) -> Trace {
    let mut trace = trace_of(cpus, to_run, &is_kernel_thread);
    let known = host::device_interrupts().into_iter();
    let occurring = known.filter(|(number, _)| trace.interrupts.contains_key(number));
    trace.kinds = occurring.map(|(number, kind)| (number, kind.into())).collect();
    trace.freezable = freezable(trace.tasks.keys());
    trace
}

/// Those of these threads that are in a control group which the freezer of version 1 may hold. A host without that freezer has none.
fn freezable<'a>(threads: impl Iterator<Item = &'a u32>) -> BTreeSet<u32> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if freezer_of(&read("/proc/self/cgroup")).is_none() {
        return BTreeSet::new();
    }
    threads.copied().filter(|thread| is_in_freezer(&read(&format!("/proc/{thread}/cgroup")))).collect()
}

/// True if a thread with these groups is in one that may be frozen: the root may not.
fn is_in_freezer(groups: &str) -> bool {
    freezer_of(groups).is_some_and(|group| group != "/")
}

/// The group of a thread in the hierarchy of that freezer, where there is one.
fn freezer_of(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|one| one == "freezer").then_some(group)
    })
}

impl From<host::DeviceKind> for DeviceKind {
    fn from(kind: host::DeviceKind) -> Self {
        match kind {
            host::DeviceKind::Network => Self::Network,
            host::DeviceKind::Storage => Self::Storage,
        }
    }
}

/// The same of any host; `is_kernel` says of a thread whether it is one of the kernel's own.
pub(super) fn trace_of(
    cpus: &[CpuTrace],
    to_run: &impl Fn(u64) -> u64,
    is_kernel: &dyn Fn(&Task) -> Option<bool>,
) -> Trace {
    let mut trace = Trace::default();
    let mut seen = LastSeen::default();
    for cpu in cpus {
        let mut events = Vec::with_capacity(cpu.events.len());
        for traced in &cpu.events {
            let mut known = |task: &Task, trace: &mut Trace| {
                seen.note(task, traced.at_ns, trace, is_kernel);
                task.thread
            };
            events.push(Event(to_run(traced.at_ns), translated(&traced.event, &mut trace, &mut known)));
        }
        trace.cpus.push(CpuEvents {
            cpu: cpu.cpu,
            since_ns: to_run(cpu.since_ns),
            until_ns: to_run(cpu.until_ns),
            lost: cpu.lost,
            gaps: cpu.gaps.iter().map(|&(from, to)| (to_run(from), to_run(to))).collect(),
            events,
        });
    }
    trace
}

/// When each thread was last seen, on whichever CPU.
#[derive(Default)]
struct LastSeen(HashMap<u32, u64>);

impl LastSeen {
    /// Name and urgency of a thread, as it was last seen. It begins with the name and the urgency of its parent. A holder of a lock
    /// that an urgent thread waits for is as urgent as that one until it lets go.
    fn note(
        &mut self,
        task: &Task,
        at_ns: u64,
        trace: &mut Trace,
        is_kernel: &dyn Fn(&Task) -> Option<bool>,
    ) {
        let last_ns = self.0.entry(task.thread).or_insert(at_ns);
        let info = || TaskInfo { is_kernel: is_kernel(task), ..TaskInfo::default() };
        let known = trace.tasks.entry(task.thread).or_insert_with(info);
        if at_ns >= *last_ns {
            *last_ns = at_ns;
            known.name.clone_from(&task.name);
            known.priority = task.priority;
        }
    }
}

fn translated(
    event: &TraceEvent,
    trace: &mut Trace,
    known: &mut dyn FnMut(&Task, &mut Trace) -> u32,
) -> What {
    match event {
        TraceEvent::Switch { previous, state, next } => {
            let why = match state {
                TaskState::Ready => Leaving::Ready,
                TaskState::Asleep => Leaving::Asleep,
                TaskState::Uninterruptible => Leaving::Uninterruptible,
                TaskState::Stopped => Leaving::Stopped,
                TaskState::Traced => Leaving::Traced,
                TaskState::Ended => Leaving::Ended,
            };
            What::Switch { left: known(previous, trace), why, runs: known(next, trace) }
        }
        TraceEvent::Waking { waker, from, woken, .. } => {
            let by_interrupt = *from == WakingFrom::Interrupt;
            What::Wake { woken: known(woken, trace), waker: *waker, by_interrupt }
        }
        TraceEvent::Birth { parent, born } => What::Birth { born: known(born, trace), parent: *parent },
        TraceEvent::Placed { task, from_cpu, to_cpu } => {
            What::Placed { thread: known(task, trace), from: *from_cpu, to: *to_cpu }
        }
        TraceEvent::InterruptEntry { number, name } => {
            trace.interrupts.entry(*number).or_insert_with(|| name.clone());
            What::Interrupt(*number)
        }
        TraceEvent::InterruptExit { number } => What::InterruptEnd(*number),
        TraceEvent::SoftInterruptEntry { vector } => What::SoftInterrupt(*vector),
        TraceEvent::SoftInterruptExit { vector } => What::SoftInterruptEnd(*vector),
        TraceEvent::Signal { thread, number } => What::Signal { thread: *thread, number: *number },
        TraceEvent::ReclaimEntry { thread, is_limited } => {
            What::Reclaim { thread: *thread, is_limited: *is_limited }
        }
        TraceEvent::ReclaimExit { thread } => What::ReclaimEnd(*thread),
        TraceEvent::CallEntry { thread, number } => {
            let unknown = || format!("{UNKNOWN_CALL}{number}");
            let name = || call_name(*number).map_or_else(unknown, str::to_owned);
            trace.calls.entry(*number).or_insert_with(name);
            What::Call { thread: *thread, number: *number }
        }
        TraceEvent::CallExit { thread } => What::CallEnd(*thread),
    }
}

#[cfg(test)]
mod tests {
    use punctual_lab_machine::trace_point::TracedEvent;
    use punctual_machine::skipped;

    use super::*;

    /// Goal: a thread that was urgent for a moment, as it held a lock that an urgent thread waited for, is no real-time thread. A
    /// thread that became one is. Method: two CPUs, read one after the other. The last event is on the first CPU.
    #[test]
    fn a_priority_that_was_lent_is_given_back() {
        let task = |thread, priority: i32, name: &str| Task { thread, priority, name: name.to_owned() };
        let idle = || task(IDLE, 120, "swapper");
        let switch = |at_ns, previous, next| TracedEvent {
            at_ns,
            event: TraceEvent::Switch { previous, state: TaskState::Ready, next },
        };
        let cpu = |cpu, events| CpuTrace { cpu, until_ns: 100, events, ..CpuTrace::default() };
        let cpus = [
            cpu(0, vec![switch(50, task(7, 120, "holder"), idle()), switch(60, task(8, 49, "lane"), idle())]),
            cpu(
                1,
                vec![
                    switch(10, task(7, 120, "holder"), idle()),
                    switch(20, idle(), task(8, 120, "parent")),
                    switch(30, task(7, 49, "holder"), idle()),
                ],
            ),
        ];
        let trace = trace_of(&cpus, &|ns| ns, &|_| Some(false));
        let of = |thread: u32| (trace.tasks[&thread].name.as_str(), trace.tasks[&thread].priority);
        assert_eq!((of(7), of(8)), (("holder", 120), ("lane", 49)));
    }

    /// Goal: a thread in a group of the freezer of version 1 is told from one in its root, and from groups of version 2.
    #[test]
    fn a_first_freezer_is_found() {
        let inside = "9:name=systemd:/\n5:net_cls,freezer:/box/in\n0::/\n";
        assert!(is_in_freezer(inside));
        let root = "5:freezer:/\n0::/box\n";
        assert!(freezer_of(root).is_some() && !is_in_freezer(root));
        for without in ["", "0::/box/freezer\n", "4:cpu:/freezer\n"] {
            assert_eq!(freezer_of(without), None, "{without}");
        }
    }

    /// Goal: a trace of this host keeps the kinds of the devices whose interrupts are in it, and of no others.
    #[test]
    fn the_kinds_of_devices_that_interrupted_are_kept() {
        let Some((number, kind)) = host::device_interrupts().pop_first() else {
            return skipped!("sysfs has no interrupts of network devices or disks here");
        };
        let entry = |number| {
            let event = TraceEvent::InterruptEntry { number, name: "some".to_owned() };
            TracedEvent { at_ns: 1, event }
        };
        let cpu =
            CpuTrace { until_ns: 9, events: vec![entry(number), entry(u32::MAX)], ..CpuTrace::default() };
        let trace = trace_here(&[cpu], &|ns| ns);
        assert_eq!(trace.kinds, [(number, kind.into())].into());
        assert_eq!(trace.within((5, 9)).kinds, trace.kinds, "a part of it keeps them");
    }
}
