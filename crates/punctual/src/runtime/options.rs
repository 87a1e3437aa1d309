//! The user's choices: workers, classes, lanes; and of each task its class and deadline.

use std::fmt;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::cpu::{SchedulingClass, set_scheduling_class};
use punctual_machine::scheduling::set_nice;
use punctual_proto::classes::{ClassOptions, ClassesError, Policy};

/// Classes where nobody says how many.
const CLASSES: usize = 8;

/// Thousandths of a worker's time that each of them gets at least.
const FLOOR_PERMILLE: u32 = 20;

/// Tasks at a time where nobody says how many: a connection has one to three.
const TASKS: usize = 1 << 16;

/// Workers of one runtime: a wake looks at each of them for one that is idle.
pub const WORKERS_MAX: usize = 64;

/// Threads beyond its workers that the tasks of one runtime can have, because they block or go on after they did
/// ([`super::blocking`]). So many blocked threads are a fault of their own, and cost some MB.
pub const BLOCKING_MAX: usize = 256;

/// A runtime before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// Its name where others of this host read its counters ([`super::read_all`], `punctual stat`), cut to 32 bytes. By default the
    /// program's name.
    pub name: String,
    /// Threads that serve every class. 1 to [`WORKERS_MAX`], those of lanes included.
    pub workers: usize,
    /// Urgency of these threads to the kernel. Threads less urgent than a lane give the processor to it in the middle of a poll.
    /// [`Urgency::Nice`] above the own value makes them less urgent, and needs no privilege.
    pub urgency: Urgency,
    /// Threads that serve important classes alone.
    pub lanes: Vec<Lane>,
    /// Share of each worker's time that each class is promised.
    pub classes: Vec<ClassOptions>,
    /// Rule by which the next task is chosen.
    pub policy: Policy,
    /// Tasks at a time, 4,194,304 (2^22) at most. Memory for their places in line is reserved for each worker and class, and used when they are.
    pub tasks_max: usize,
    /// After so long [`super::yield_if_due`] yields.
    pub turn: Duration,
    /// A poll that lasts longer is counted as long, and its task is named.
    pub long_poll: Duration,
}

/// One worker, eight classes with a floor of 2 % each, the recommended policy.
impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            name: program(),
            workers: 1,
            urgency: Urgency::Inherited,
            lanes: Vec::new(),
            classes: vec![ClassOptions { floor_permille: FLOOR_PERMILLE, sheds: false }; CLASSES],
            policy: Policy::Floors,
            tasks_max: TASKS,
            turn: Duration::from_micros(200),
            long_poll: Duration::from_millis(10),
        }
    }
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

impl RuntimeOptions {
    /// Workers in all, those of lanes included.
    pub(super) fn count_workers(&self) -> Result<usize, StartError> {
        let reserved = self.lanes.iter().fold(0, |sum: usize, lane| sum.saturating_add(lane.workers));
        let workers = self.workers.saturating_add(reserved);
        if self.workers == 0 || workers > WORKERS_MAX {
            return Err(StartError::Workers(workers));
        }
        Ok(workers)
    }
}

/// Workers that are reserved for the classes up to one. The order of tasks cannot take the processor from a poll of 50 ms; the
/// kernel can, and gives it to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Threads; with none it is no lane.
    pub workers: usize,
    /// The last class that they serve.
    pub last_class: u8,
    /// Their urgency to the kernel.
    pub urgency: Urgency,
}

/// Urgency of a thread to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// As the thread that starts the runtime.
    #[default]
    Inherited,
    /// This nice value. Below the own one it needs `CAP_SYS_NICE` or `ulimit -e`.
    Nice(i32),
    /// `SCHED_RR` at this priority. Needs `CAP_SYS_NICE` or `ulimit -r`.
    RealTime(u8),
}

impl Urgency {
    /// Gives it to the calling thread.
    pub(super) fn take(self) -> Result<(), SystemError> {
        match self {
            Self::Inherited => Ok(()),
            Self::Nice(nice) => set_nice(nice),
            Self::RealTime(priority) => set_scheduling_class(SchedulingClass::RoundRobin(priority)),
        }
    }
}

/// Why there is no such runtime.
#[derive(Debug)]
pub enum StartError {
    /// No worker that serves every class, or more workers than there can be.
    Workers(usize),
    /// Classes that cannot be.
    Classes(ClassesError),
    /// The kernel refused: a thread, its urgency, a descriptor.
    System(SystemError),
    /// The calling thread is in no runtime of tokio. Only with the feature `tokio`.
    NoTokio,
    /// Workers or a lane want an urgency of their own, and are no threads. Only with the feature `tokio`.
    UrgencyOnTokio,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers(count) => {
                write!(f, "{count} workers: 1 to {WORKERS_MAX} are needed, one of them for every class")
            }
            Self::Classes(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
            Self::NoTokio => {
                f.write_str("no tokio runtime here: call it from a task, or after `Runtime::enter`")
            }
            Self::UrgencyOnTokio => f.write_str(
                "workers and lanes on tokio are tasks and have no urgency of their own: use `Urgency::Inherited`",
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<SystemError> for StartError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

/// The name of a task that was given none.
pub(super) const UNNAMED: &str = "task";

/// A task before it is spawned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOptions {
    /// Its class: 0 is the most important. One that does not exist counts as the last.
    pub class: u8,
    /// Its name where long polls are named, and in a [`JoinError`](super::JoinError).
    pub name: &'static str,
    /// A request that wakes it is to be done so long after it came.
    pub deadline: Option<Duration>,
    /// True if it takes over the request, with its instant and deadline, of a task of the same runtime that wakes it. So a request
    /// keeps its deadline through all stages. A request without a deadline is not taken over.
    pub inherits: bool,
}

impl TaskOptions {
    /// Of a class, without a deadline of its own.
    #[must_use]
    pub const fn of_class(class: u8) -> Self {
        Self { class, name: UNNAMED, deadline: None, inherits: true }
    }

    /// The same under a name.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The same with a deadline for each request.
    #[must_use]
    pub const fn within(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }
}
