//! Faults of a runtime, in words: [`Metrics::verdicts`](super::Metrics::verdicts) finds them.

use std::fmt;

use super::page::LongPolls;

/// A sentence names so many kinds of tasks.
const NAMED_MAX: usize = 3;

/// A fault of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Workers wait for a lock whose holder is off the processor.
    Convoy {
        /// The worker.
        worker: usize,
        /// Thousandths of the time in which it waited.
        permille: u64,
    },
    /// A worker could run and has no processor.
    CpuStarvation {
        /// The worker.
        worker: usize,
        /// Thousandths of the time in which it waited.
        permille: u64,
    },
    /// More important classes leave too little to one.
    PriorityStarvation {
        /// The first such class.
        class: usize,
    },
    /// A class waits as long, and it is not known why: more important ones had little, or less than itself.
    LongLine {
        /// The first such class.
        class: usize,
    },
    /// Tasks keep a worker for long.
    LongPolls {
        /// Polls that were.
        count: u64,
        /// Of which tasks they are, as far as that is known, those that took most time first.
        by: Vec<LongPolls>,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convoy { worker, permille } => write!(
                f,
                "convoy: worker {worker} waited for a lock for {permille} ‰ of the time; use fewer workers than processors"
            ),
            Self::CpuStarvation { worker, permille } => write!(
                f,
                "CPU starvation: worker {worker} had no processor for {permille} ‰ of the time; use fewer workers, or other CPUs"
            ),
            Self::PriorityStarvation { class } => {
                write!(
                    f,
                    "priority starvation: class {class} waits for a second and more; raise its floor (policy floors), or shed"
                )
            }
            Self::LongLine { class } => {
                write!(
                    f,
                    "long line: class {class} waits for a second and more, why is not known; ask for less, add workers, or shed"
                )
            }
            Self::LongPolls { count, by } => {
                write!(f, "long polls: {count}")?;
                for LongPolls { name, class, count, ran } in by.iter().take(NAMED_MAX) {
                    write!(f, ", {count} of them by {name:?} of class {class} in {} ms", ran.0 / 1_000_000)?;
                }
                f.write_str("; yield in them, block elsewhere, or give a lane to what is urgent")
            }
        }
    }
}
