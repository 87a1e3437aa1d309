//! Events of the recorder: switches, wake-ups and interrupts.

/// The tracepoints, as `system/name`. Their order is that of [`super::record::Layouts`].
pub(super) const NAMES: [&str; 15] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "signal/signal_deliver",
    "vmscan/mm_vmscan_memcg_reclaim_begin",
    "vmscan/mm_vmscan_memcg_reclaim_end",
    "vmscan/mm_vmscan_direct_reclaim_begin",
    "vmscan/mm_vmscan_direct_reclaim_end",
    "compaction/mm_compaction_begin",
    "compaction/mm_compaction_end",
    "sched/sched_wakeup_new",
    "sched/sched_migrate_task",
];

/// The place of the first that every kernel has behind those that only some have.
pub(super) const BIRTH: usize = 13;

/// Places of those that only kernels with control groups of memory, or with compaction, have.
pub(super) const OPTIONAL: std::ops::Range<usize> = 7..BIRTH;

/// System calls of chosen threads, recorded where they are asked for: they come behind [`NAMES`].
pub(super) const CALL_NAMES: [&str; 2] = ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"];

/// A thread, as the scheduler sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its number; 0 is the CPU's idle task.
    pub thread: u32,
    /// The kernel's priority: below 0 deadline, below 100 real-time, from 100 ordinary.
    pub priority: i32,
    /// Its name.
    pub name: String,
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It did not want to: others ran, or it may not.
    Ready,
    /// It sleeps until something happens.
    Asleep,
    /// The same, and no signal wakes it: mostly a device or a lock of the kernel.
    Uninterruptible,
    /// A signal stopped it.
    Stopped,
    /// A debugger holds it.
    Traced,
    /// It ended.
    Ended,
}

/// Where a wake-up came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakingFrom {
    /// The waking thread itself.
    Thread,
    /// An interrupt, regardless of the interrupted thread.
    Interrupt,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A CPU goes on with another thread.
    Switch {
        /// The thread that left it.
        previous: Task,
        /// Why.
        state: TaskState,
        /// The thread that has it now.
        next: Task,
    },
    /// A thread is made ready.
    Waking {
        /// The thread that ran on the CPU where that happened.
        waker: u32,
        /// Origin of the wake-up: that thread, or an interrupt.
        from: WakingFrom,
        /// The woken thread.
        woken: Task,
        /// The CPU where it last ran.
        target_cpu: u32,
    },
    /// A thread begins its life, ready.
    Birth {
        /// The thread that ran on the CPU where that happened: its parent.
        parent: u32,
        /// The new thread.
        born: Task,
    },
    /// A thread that is to run is placed on another CPU.
    Placed {
        /// The thread.
        task: Task,
        /// The CPU where it was, or ran last.
        from_cpu: u32,
        /// The CPU where it is from now on.
        to_cpu: u32,
    },
    /// A device's interrupt begins.
    InterruptEntry {
        /// Its number.
        number: u32,
        /// Name of its owner.
        name: String,
    },
    /// It ends.
    InterruptExit {
        /// Its number.
        number: u32,
    },
    /// The kernel's deferred work begins.
    SoftInterruptEntry {
        /// Its kind, as `/proc/softirqs` orders them.
        vector: u32,
    },
    /// It ends.
    SoftInterruptExit {
        /// Its kind.
        vector: u32,
    },
    /// A thread is interrupted by a signal.
    Signal {
        /// The thread.
        thread: u32,
        /// Number of the signal.
        number: u32,
    },
    /// A thread begins to look for memory itself, because the memory that it asked for is not there.
    ReclaimEntry {
        /// The thread.
        thread: u32,
        /// Its control group may have no more; else the machine has none, or none in one piece.
        is_limited: bool,
    },
    /// It goes on.
    ReclaimExit {
        /// The thread.
        thread: u32,
    },
    /// A thread calls the kernel.
    CallEntry {
        /// The thread.
        thread: u32,
        /// The call, by its number in this processor's kernels ([`super::call_name`]).
        number: u32,
    },
    /// It has its answer.
    CallExit {
        /// The thread.
        thread: u32,
    },
}

/// An event, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEvent {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at_ns: u64,
    /// The event.
    pub event: TraceEvent,
}

/// Contents of a dump for one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTrace {
    /// Number of the CPU.
    pub cpu: u32,
    /// Nothing is known of the time before.
    pub since_ns: u64,
    /// Nothing is known of the time after.
    pub until_ns: u64,
    /// Events lost in between.
    pub lost: u64,
    /// When: between the two instants some events are missing.
    pub gaps: Vec<(u64, u64)>,
    /// Bytes that could not be understood ended the reading; [`Self::since_ns`] says where.
    pub is_damaged: bool,
    /// In the order of time.
    pub events: Vec<TracedEvent>,
}
