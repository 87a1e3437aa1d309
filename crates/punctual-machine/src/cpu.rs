//! Where a thread runs and how it is scheduled.

use std::{fmt, io};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::SystemError;

/// The class in which the kernel schedules a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingClass {
    /// The ordinary class.
    Other,
    /// Only when nobody else wants the CPU.
    Idle,
    /// First in, first out, at this priority (1–99). A thread that spins in it can take a CPU away from everybody.
    Fifo(u8),
    /// Round robin, at this priority (1–99).
    RoundRobin(u8),
}

impl fmt::Display for SchedulingClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Idle => f.write_str("idle"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
        }
    }
}

/// Binds the calling thread to one CPU.
pub fn pin_to(cpu: usize) -> Result<(), SystemError> {
    pin_to_any(&[cpu])
}

/// Binds the calling thread, and those that it starts, to some CPUs.
pub fn pin_to_any(cpus: &[usize]) -> Result<(), SystemError> {
    let whose = || cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let refused = |source: io::Error| SystemError::new("pin thread to cpu", whose(), source);
    if cpus.iter().any(|&cpu| cpu >= CpuSet::MAX_CPU) {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).map_err(|error| refused(error.into()))
}

/// The CPUs that the calling thread may use.
pub fn allowed() -> Vec<usize> {
    sched_getaffinity(None).map_or_else(|_| vec![0], |set| listed(&set))
}

/// The CPUs that a thread of this process may use; none if it has ended.
pub fn allowed_to(thread: u32) -> Vec<usize> {
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
    let set = thread.and_then(|thread| sched_getaffinity(Some(thread)).ok());
    set.map_or_else(Vec::new, |set| listed(&set))
}

fn listed(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps the calling thread from one CPU, if there is another that it may have. Others are allowed to it again, as far as the
/// kernel lets this process have them.
pub(crate) fn avoid(cpu: usize) {
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&other| other != cpu).for_each(|other| set.set(other));
    let _only_that_one = sched_setaffinity(None, &set);
}

/// CPUs of this machine that are switched on, also those that this process may not use.
pub fn count_online() -> usize {
    // SAFETY: the call takes an integer, and touches no memory of ours.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// The CPU that the calling thread runs on at this instant.
pub fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// Sets the calling thread's scheduling class. The real-time classes need `CAP_SYS_NICE` or `ulimit -r`.
pub fn set_scheduling_class(class: SchedulingClass) -> Result<(), SystemError> {
    let (policy, priority) = match class {
        SchedulingClass::Other => (libc::SCHED_OTHER, 0),
        SchedulingClass::Idle => (libc::SCHED_IDLE, 0),
        SchedulingClass::Fifo(priority) => (libc::SCHED_FIFO, priority),
        SchedulingClass::RoundRobin(priority) => (libc::SCHED_RR, priority),
    };
    let parameters = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: the pointer is to a live, initialised structure; pid 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        -1 => Err(SystemError::last("set scheduling class", class.to_string())),
        _ => Ok(()),
    }
}

/// Locks all present and future pages of the process into memory. Needs `ulimit -l` or `CAP_IPC_LOCK`.
pub fn lock_memory() -> Result<(), SystemError> {
    // SAFETY: the call takes no pointers.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        -1 => Err(SystemError::last("lock memory of", "this process")),
        _ => Ok(()),
    }
}

/// Page faults and context switches of the calling thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Faults served without the disk.
    pub faults_minor: u64,
    /// Faults that read from the disk.
    pub faults_major: u64,
    /// Times the thread gave up the CPU to wait.
    pub switches_voluntary: u64,
    /// Times the thread was taken off the CPU.
    pub switches_involuntary: u64,
    /// CPU time in user space and kernel, nanoseconds.
    pub cpu_ns: u64,
}

impl ThreadUsage {
    /// The counters now.
    pub fn now() -> Self {
        let usage = usage_of(libc::RUSAGE_THREAD);
        Self {
            faults_minor: count(usage.ru_minflt),
            faults_major: count(usage.ru_majflt),
            switches_voluntary: count(usage.ru_nvcsw),
            switches_involuntary: count(usage.ru_nivcsw),
            cpu_ns: crate::clock::thread_cpu_ns(),
        }
    }

    /// The usage added since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            faults_minor: self.faults_minor - earlier.faults_minor,
            faults_major: self.faults_major - earlier.faults_major,
            switches_voluntary: self.switches_voluntary - earlier.switches_voluntary,
            switches_involuntary: self.switches_involuntary - earlier.switches_involuntary,
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
        }
    }
}

/// Page faults of this process since it began, with and without the disk.
pub fn process_faults() -> u64 {
    let usage = usage_of(libc::RUSAGE_SELF);
    count(usage.ru_minflt) + count(usage.ru_majflt)
}

fn usage_of(whom: libc::c_int) -> libc::rusage {
    // SAFETY: `rusage` is plain integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer is to a live structure of the type that the call fills.
    let answer = unsafe { libc::getrusage(whom, &raw mut usage) };
    debug_assert_eq!(answer, 0, "threads are known since Linux 2.6.26, processes always");
    usage
}

fn count(value: libc::c_long) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_pins_to_a_cpu_it_may_use_and_to_no_other() {
        std::thread::spawn(|| {
            let cpu = *allowed().last().unwrap();
            pin_to(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
            assert_eq!(current(), cpu);
            assert!(pin_to(CpuSet::MAX_CPU).unwrap_err().to_string().starts_with("pin thread to cpu 1024"));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn usage_grows() {
        let (before, of_process) = (ThreadUsage::now(), process_faults());
        let touched = vec![1_u8; 1 << 22];
        std::hint::black_box(&touched);
        assert!(ThreadUsage::now().since(before).faults_minor > 0);
        assert!(process_faults() > of_process);
    }
}
