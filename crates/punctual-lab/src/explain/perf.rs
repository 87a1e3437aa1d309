//! The trace that `perf sched record` wrote, as one of ours.

use punctual_lab_machine::trace_point::{PerfThread, Task, read_perf_data};

use super::recorder::{KERNEL_THREADS, trace_of};
use super::trace::{IDLE, Trace};

/// Largest file that is read, bytes: a minute of a busy host.
pub const PERF_SIZE_MAX: u64 = 1 << 30;

/// Reads a file of perf; instants are those of its clock.
///
/// # Errors
/// Says that it is another kind of file, or that something is missing, and gives the remedy.
pub fn read(bytes: &[u8]) -> Result<Trace, String> {
    let data = read_perf_data(bytes)?;
    let is_kernel = |task: &Task| {
        let of_kernel =
            |thread: &PerfThread| thread.process == KERNEL_THREADS || thread.parent == Some(KERNEL_THREADS);
        match data.threads.get(&task.thread) {
            _ if task.thread == IDLE || task.name.starts_with("kworker/") => Some(true),
            Some(thread) => Some(of_kernel(thread)),
            None => None,
        }
    };
    let mut trace = trace_of(&data.cpus, &|at_ns| at_ns, &is_kernel);
    let known = data.threads.iter().filter(|(thread, _)| trace.tasks.contains_key(thread));
    trace.processes = known.map(|(thread, known)| (*thread, known.process)).collect();
    Ok(trace)
}
