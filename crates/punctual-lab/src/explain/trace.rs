//! A part of the kernel's trace: the threads that ran on each CPU, the wake-ups with their wakers, and the interrupts. Instants are
//! those of the run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::units::micros;

/// The number of every CPU's idle task.
pub const IDLE: u32 = 0;

/// A system call that is known by its number alone is called this, and the number.
pub const UNKNOWN_CALL: &str = "system call ";

/// Trace of some time by the recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The threads by their numbers.
    pub tasks: BTreeMap<u32, TaskInfo>,
    /// Devices by the numbers of their interrupts.
    pub interrupts: BTreeMap<u32, String>,
    /// Kinds of the devices that have them, by the same numbers, where the host told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<u32, DeviceKind>,
    /// System calls by their numbers, where calls were recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<u32, String>,
    /// Threads in a control group of version 1 that may be frozen, where the host has those.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub freezable: BTreeSet<u32>,
    /// Threads of processes, where those are known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<u32, u32>,
    /// Letters of `/proc` for the states of threads when the recording ended, where somebody looked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<u32, char>,
    /// Every CPU.
    pub cpus: Vec<CpuEvents>,
}

/// Kind of a device that interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A network device.
    Network,
    /// A disk, or a controller of some.
    Storage,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Name of the thread.
    pub name: String,
    /// The kernel's priority when it was last seen: below 0 deadline, below 100 real-time, from 100 ordinary.
    pub priority: i32,
    /// It is one of the kernel's own, where that is known.
    #[serde(default)]
    pub is_kernel: Option<bool>,
}

/// The events of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuEvents {
    /// Number of the CPU.
    pub cpu: u32,
    /// Nothing is known of the time before.
    pub since_ns: u64,
    /// Nothing is known of the time after.
    pub until_ns: u64,
    /// Events that were lost in between.
    pub lost: u64,
    /// When: between the two instants of each some events are missing.
    pub gaps: Vec<(u64, u64)>,
    /// In the order of time.
    pub events: Vec<Event>,
}

/// One event: when, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event(pub u64, pub What);

/// Event on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// One thread left it, and why; another runs on it.
    Switch {
        /// The thread that left.
        left: u32,
        /// Why.
        why: Leaving,
        /// The thread that runs.
        runs: u32,
    },
    /// A thread was made ready.
    Wake {
        /// The woken thread.
        woken: u32,
        /// The thread that ran where that happened.
        waker: u32,
        /// An interrupt did it, not that thread.
        by_interrupt: bool,
    },
    /// A thread began its life, ready.
    Birth {
        /// The new thread.
        born: u32,
        /// The thread that ran where that happened, and had it begin.
        parent: u32,
    },
    /// A thread that is to run was placed on another CPU.
    Placed {
        /// The thread.
        thread: u32,
        /// Where it was, or ran last.
        from: u32,
        /// Where it is from then on.
        to: u32,
    },
    /// A device's interrupt began.
    Interrupt(u32),
    /// It ended.
    InterruptEnd(u32),
    /// The kernel's deferred work of a kind began.
    SoftInterrupt(u32),
    /// It ended.
    SoftInterruptEnd(u32),
    /// A signal interrupted a thread.
    Signal {
        /// The thread.
        thread: u32,
        /// Number of the signal.
        number: u32,
    },
    /// A thread had to take memory back from others before it got its own.
    Reclaim {
        /// The thread.
        thread: u32,
        /// Its control group may have no more; else the machine has none.
        is_limited: bool,
    },
    /// It went on.
    ReclaimEnd(u32),
    /// A thread called the kernel, by the number of the call.
    Call {
        /// The thread.
        thread: u32,
        /// Which, of [`Trace::calls`].
        number: u32,
    },
    /// The call returned to this thread.
    CallEnd(u32),
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// It did not want to.
    Ready,
    /// It waits for something.
    Asleep,
    /// The same, and no signal wakes it.
    Uninterruptible,
    /// A signal stopped it.
    Stopped,
    /// A debugger holds it.
    Traced,
    /// It ended.
    Ended,
}

impl What {
    /// Threads that it is about.
    pub fn threads(self) -> impl Iterator<Item = u32> {
        let (one, other) = match self {
            Self::Switch { left, runs, .. } => (Some(left), Some(runs)),
            Self::Wake { woken, waker, .. } => (Some(woken), Some(waker)),
            Self::Birth { born, parent } => (Some(born), Some(parent)),
            Self::Placed { thread, .. } => (Some(thread), None),
            _ => (None, None),
        };
        one.into_iter().chain(other)
    }
}

impl CpuEvents {
    /// Its events between two instants, both included.
    pub fn within(&self, (from, to): (u64, u64)) -> &[Event] {
        let first = self.events.partition_point(|event| event.0 < from);
        let last = self.events.partition_point(|event| event.0 <= to);
        self.events.get(first..last).unwrap_or_default()
    }
}

/// A wake-up of a thread, as a CPU noted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// Instant.
    pub at_ns: u64,
    /// The CPU that noted it.
    pub cpu: u32,
    /// The thread that ran on that CPU.
    pub waker: u32,
    /// An interrupt woke it, while that thread ran.
    pub by_interrupt: bool,
}

/// Checks the ends of a span that a file has.
pub(super) fn check_span((from, to): (u64, u64)) -> Result<(), &'static str> {
    if from <= to { Ok(()) } else { Err("its span ends before it begins") }
}

impl Trace {
    /// Checks that a recorder can have written it: a file from outside need not come from one.
    ///
    /// # Errors
    /// Says what no trace has.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut cpus: Vec<u32> = self.cpus.iter().map(|cpu| cpu.cpu).collect();
        cpus.sort_unstable();
        // The interrupts of one CPU do not overlap.
        if !cpus.is_sorted_by(|one, next| one < next) {
            return Err("it has a CPU twice");
        }
        for cpu in &self.cpus {
            if !cpu.events.is_sorted_by_key(|event| event.0) {
                return Err("its events are not in the order of time");
            }
            if !cpu.gaps.iter().all(|(from, to)| from <= to) {
                return Err("a gap ends before it begins");
            }
        }
        Ok(())
    }

    /// The last wake-up of a thread in an interval, ends included.
    pub fn last_wake_up(&self, thread: u32, span: (u64, u64)) -> Option<WakeUp> {
        let last_there = |cpu: &CpuEvents| {
            cpu.within(span).iter().rev().find_map(|&Event(at_ns, what)| match what {
                What::Wake { woken, waker, by_interrupt } if woken == thread => {
                    Some(WakeUp { at_ns, cpu: cpu.cpu, waker, by_interrupt })
                }
                _ => None,
            })
        };
        self.cpus.iter().filter_map(last_there).max_by_key(|wake_up| wake_up.at_ns)
    }

    /// When everything is known of every CPU, in the order of time.
    pub fn known(&self) -> Vec<(u64, u64)> {
        let since = self.cpus.iter().map(|cpu| cpu.since_ns).max();
        let until = self.cpus.iter().map(|cpu| cpu.until_ns).min();
        let Some((since, until)) = since.zip(until) else { return Vec::new() };
        let mut gaps: Vec<(u64, u64)> = self.cpus.iter().flat_map(|cpu| cpu.gaps.iter().copied()).collect();
        gaps.sort_unstable();
        gaps.push((until, u64::MAX));
        let (mut known, mut from) = (Vec::new(), since);
        for (gap, end) in gaps {
            let to = gap.min(until);
            if from < to {
                known.push((from, to));
            }
            from = from.max(end);
        }
        known
    }

    /// True if everything is known of all of an interval.
    pub fn knows(&self, (from, to): (u64, u64)) -> bool {
        self.known().iter().any(|&(begin, end)| begin <= from && to <= end)
    }

    /// Its lack at the beginning of an interval, in words: a busy CPU overwrites its ring.
    pub fn begins_late(&self, (from, to): (u64, u64)) -> Option<String> {
        let begin = self.cpus.iter().map(|cpu| cpu.since_ns).max().unwrap_or(u64::MAX).min(to);
        let late = begin.checked_sub(from).filter(|&late_ns| late_ns > 0)?;
        Some(format!("a trace of the whole stage: this one begins {} µs after it", micros(late as f64)))
    }

    /// Part of the trace in an interval, with the threads that occur in it.
    #[must_use]
    pub fn within(&self, (from, to): (u64, u64)) -> Self {
        let mut tasks = BTreeMap::new();
        let mut keep = |thread: u32| {
            if let Some(task) = self.tasks.get(&thread) {
                tasks.entry(thread).or_insert_with(|| task.clone());
            }
        };
        let cut = |cpu: &CpuEvents| {
            let events = cpu.within((from, to)).to_vec();
            events.iter().flat_map(|event| event.1.threads()).for_each(&mut keep);
            CpuEvents {
                cpu: cpu.cpu,
                since_ns: cpu.since_ns.max(from),
                until_ns: cpu.until_ns.min(to),
                lost: if cpu.gaps.iter().any(|gap| gap.0 < to && gap.1 > from) { cpu.lost } else { 0 },
                gaps: cpu.gaps.iter().copied().filter(|gap| gap.0 < to && gap.1 > from).collect(),
                events,
            }
        };
        let cpus = self.cpus.iter().map(cut).collect();
        Self {
            tasks,
            interrupts: self.interrupts.clone(),
            kinds: self.kinds.clone(),
            calls: self.calls.clone(),
            freezable: self.freezable.clone(),
            cpus,
            ..Self::default()
        }
    }

    /// Events lost, over all CPUs.
    pub fn lost(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.lost).sum()
    }

    /// Name of a thread, with its number.
    pub fn name(&self, thread: u32) -> String {
        match self.tasks.get(&thread) {
            Some(task) => format!("{} ({thread})", task.name),
            None => format!("thread {thread}"),
        }
    }
}
