//! A recorder of the kernel's tracepoints: threads on their CPUs, wake-ups with their wakers, and interrupts in between.
//!
//! Each CPU has a ring that overwrites its oldest records, so that recording goes on for any time. A dump pauses the rings,
//! copies what is younger than asked for, and lets them go on.
//!
//! # Rules of access
//! 1. The kernel alone writes a ring; our mapping cannot be written.
//! 2. Records are read while the ring is paused. A record that was under way then may still be written, next to the
//!    oldest: the last `ring::MARGIN` bytes are never read.
mod call;
mod deferred;
mod event;
mod perf_data;
mod record;
mod ring;
mod tracefs;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;

pub use call::call_name;
use deferred::DeferredWork;
pub use event::{CpuTrace, Task, TaskState, TraceEvent, TracedEvent, WakingFrom};
pub use perf_data::{PerfData, PerfThread, read_perf_data};
use record::Layouts;
use ring::{Ring, RingError};

use crate::host::cpus_online;
use punctual_machine::SystemError;
use punctual_machine::clock::monotonic_ns;

/// Bytes of the ring of one CPU: a ring of 4 MiB holds 50,000 switches.
pub const RING_SIZE: usize = 4 << 20;

/// Records the scheduler and the interrupts of every CPU, from when it is made until it is dropped.
#[derive(Debug)]
pub struct TraceRecorder {
    layouts: Layouts,
    rings: Vec<(u32, Ring)>,
    has_calls: bool,
    /// Where it may, the kernel leaves out deferred work that is too short to matter.
    _deferred: Option<DeferredWork>,
    since_ns: u64,
    /// When recording was paused, of late: the oldest first.
    pauses: VecDeque<(u64, u64)>,
    paused_ns: Option<u64>,
}

/// Pauses that are remembered: more than a ring reaches back over, where a dump is taken every 20 ms.
const PAUSES_MAX: usize = 512;

impl TraceRecorder {
    /// Starts to record.
    ///
    /// # Errors
    /// Says which privilege or file system is missing, and what to do.
    pub fn start() -> Result<Self, SystemError> {
        Self::start_with(RING_SIZE)
    }

    fn start_with(ring_size: usize) -> Result<Self, SystemError> {
        Self::open(ring_size, None)
    }

    /// Starts to record with rings of about so many bytes for each CPU, a power of two of pages. Also records the system calls of these
    /// threads, where this kernel can tell them.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with_calls(ring_size: usize, threads: &[u32]) -> Result<Self, SystemError> {
        let pages = (ring_size / rustix::param::page_size()).max(2);
        let ring_size = (1 << pages.ilog2()) * rustix::param::page_size();
        let terms: Vec<String> = threads.iter().map(|thread| format!("common_pid == {thread}")).collect();
        let filter = CString::new(terms.join(" || ")).ok().filter(|_| !threads.is_empty());
        // A kernel without tracepoints of system calls, or with too many threads for its filter, still has the others.
        Self::open(ring_size, filter.as_deref()).or_else(|_| Self::open(ring_size, None))
    }

    /// Returns true if it records system calls.
    pub fn has_calls(&self) -> bool {
        self.has_calls
    }

    fn open(ring_size: usize, filter: Option<&CStr>) -> Result<Self, SystemError> {
        if threads_do_deferred_work() {
            return Self::open_as(ring_size, filter, false);
        }
        // Where programs may not be loaded, every piece of deferred work is recorded.
        Self::open_as(ring_size, filter, true).or_else(|_| Self::open_as(ring_size, filter, false))
    }

    fn open_as(ring_size: usize, filter: Option<&CStr>, filters_deferred: bool) -> Result<Self, SystemError> {
        check_process_ids()?;
        let has_calls = filter.is_some();
        let calls = if has_calls { &event::CALL_NAMES[..] } else { &[] };
        let names = [&event::NAMES[..], calls].concat();
        let layouts = Layouts::read(&tracefs::formats(&names, &event::OPTIONAL)?)
            .map_err(|text| SystemError::new("read", "the kernel's tracepoints", io::Error::other(text)))?;
        let cpus = cpus_online()
            .ok_or_else(|| SystemError::new("list", "the CPUs", io::Error::from(io::ErrorKind::NotFound)))?;
        let ids = layouts.ids(!filters_deferred);
        let mut rings = Vec::with_capacity(cpus.len());
        let locked = (cpus.len(), cpus.len() * ring_size);
        for cpu in cpus {
            let number = u32::try_from(cpu).unwrap_or(u32::MAX);
            let ring = Ring::open(number, &ids, calls.len(), ring_size)
                .map_err(|error| SystemError::new("trace", format!("CPU {cpu}"), advise_on(error, locked)))?;
            if let Some(filter) = filter {
                ring.filter(filter)
                    .map_err(|error| SystemError::new("filter", format!("CPU {cpu}"), error))?;
            }
            rings.push((number, ring));
        }
        let deferred = filters_deferred.then(|| filter_deferred_work(&mut rings));
        let deferred =
            deferred.transpose().map_err(|error| SystemError::new("load", "a BPF program", error))?;
        for (cpu, ring) in &rings {
            ring.enable().map_err(|error| SystemError::new("trace", format!("CPU {cpu}"), error))?;
        }
        let (since_ns, pauses) = (monotonic_ns(), VecDeque::with_capacity(PAUSES_MAX + 1));
        Ok(Self { layouts, rings, has_calls, _deferred: deferred, since_ns, pauses, paused_ns: None })
    }

    /// Stops recording for now. Events are lost, and counted, until [`Self::resume`].
    pub fn pause(&mut self) -> Result<(), SystemError> {
        self.paused_ns.get_or_insert_with(monotonic_ns);
        self.set_paused(true)
    }

    /// Goes on recording.
    pub fn resume(&mut self) -> Result<(), SystemError> {
        self.set_paused(false)?;
        self.pauses.extend(self.paused_ns.take().map(|paused_ns| (paused_ns, monotonic_ns())));
        if self.pauses.len() > PAUSES_MAX {
            // Of the time before a pause that is forgotten nothing is claimed.
            self.since_ns = self.pauses.pop_front().map_or(self.since_ns, |(_, resumed_ns)| resumed_ns);
        }
        Ok(())
    }

    fn set_paused(&mut self, paused: bool) -> Result<(), SystemError> {
        for (cpu, ring) in &mut self.rings {
            let operation = if paused { "pause the trace of" } else { "resume the trace of" };
            ring.set_paused(paused)
                .map_err(|error| SystemError::new(operation, format!("CPU {cpu}"), error))?;
        }
        Ok(())
    }

    /// Copies what happened since an instant of `CLOCK_MONOTONIC`, with one record more of each CPU where there is one. The
    /// rings are paused meanwhile, and go on afterwards.
    pub fn dump(&mut self, since_ns: u64) -> Result<TraceDump, SystemError> {
        // Rings are paused one after the other: behind this the first lacks what the last has.
        let until_ns = monotonic_ns();
        let (started_ns, pauses) = (self.since_ns, self.pauses.iter().copied().collect());
        self.pause()?;
        let copied = self.rings.iter_mut().map(|(cpu, ring)| {
            let copy = ring.copy(|record| record::time_of(record).is_none_or(|at| at >= since_ns));
            (*cpu, copy)
        });
        let copies = copied.collect();
        self.resume()?;
        Ok(TraceDump { copies, pauses, started_ns, until_ns })
    }

    /// Contents of a dump of this recorder, as a trace for each CPU.
    pub fn read(&self, dump: &TraceDump) -> Vec<CpuTrace> {
        let read = |(cpu, copy): &(u32, ring::RingCopy)| record::read(*cpu, copy, dump, &self.layouts);
        dump.copies.iter().map(read).collect()
    }
}

/// Bytes of the rings, not yet understood: to copy them takes a fraction of the time.
#[derive(Debug)]
pub struct TraceDump {
    copies: Vec<(u32, ring::RingCopy)>,
    /// When recording was paused before.
    pauses: Vec<(u64, u64)>,
    /// When recording began, or the last pause ended that is forgotten.
    started_ns: u64,
    /// Just before the rings were paused; later records in them are left out.
    until_ns: u64,
}

impl TraceDump {
    /// Bytes copied.
    pub fn size(&self) -> usize {
        self.copies.iter().map(|(_, copy)| copy.bytes.len()).sum()
    }
}

/// Returns true on a kernel with PREEMPT_RT. There the filter would time the thread that preempts such a thread. Kernels before 6.12, with
/// that as a patch, also have a file that says so.
fn threads_do_deferred_work() -> bool {
    rustix::system::uname().version().to_string_lossy().contains("PREEMPT_RT")
        || std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

/// Has the kernel record deferred work by programs of ours, once the rings are enabled.
fn filter_deferred_work(rings: &mut [(u32, Ring)]) -> io::Result<DeferredWork> {
    let cpus = rings.iter().map(|(cpu, _)| cpu + 1).max().unwrap_or(0);
    let mut deferred = DeferredWork::new(cpus)?;
    for (cpu, ring) in rings {
        deferred.record_to(*cpu, ring.open_output(*cpu)?)?;
    }
    deferred.enable()?;
    Ok(deferred)
}

/// The kernel's number of the first namespace of processes.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Tracepoints number threads as the first namespace does: in another, ours could not be told from theirs.
fn check_process_ids() -> Result<(), SystemError> {
    const PATH: &str = "/proc/self/ns/pid";
    let found = std::fs::read_link(PATH).map_err(|error| SystemError::new("read", PATH, error))?;
    if found.as_os_str() == FIRST_NAMESPACE {
        return Ok(());
    }
    let text = "threads have other numbers in this container than in the kernel: run it with the host's process namespace (--pid=host)";
    Err(SystemError::new("trace", "this host", io::Error::new(io::ErrorKind::Unsupported, text)))
}

/// Advice about a ring that could not be had, where the rings of so many CPUs lock so many bytes.
fn advise_on(error: RingError, (cpus, size): (usize, usize)) -> io::Error {
    match error {
        RingError::Event(error) => advise(error),
        // Beyond half a megabyte for each CPU the kernel checks the limit of locked memory. It answers as it does to a process that may
        // not trace.
        RingError::Memory(error) if error.raw_os_error() == Some(libc::EPERM) => {
            let size = size >> 20;
            let text = format!(
                "the rings of {cpus} CPUs lock {size} MiB: that needs CAP_IPC_LOCK, or a higher limit (ulimit -l)"
            );
            io::Error::new(error.kind(), text)
        }
        RingError::Memory(error) => error,
    }
}

fn advise(error: io::Error) -> io::Error {
    let text = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "tracepoints of a whole CPU need CAP_PERFMON: run as root (perf_event_open may be filtered, too)"
        }
        Some(libc::EMFILE) => "too many open files: raise the limit (ulimit -n)",
        Some(libc::ENOSYS) => "this kernel has no perf_event_open",
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests;
