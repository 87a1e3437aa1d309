//! Urgency of threads beyond the classes of `cpu`: nice values, deadlines, and sleeps until an instant. Times that threads ran and
//! waited for a CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::SystemError;
use crate::event_fd::timespec;

/// Niceness that a thread can have; the lowest is the most urgent.
pub const NICE_RANGE: std::ops::RangeInclusive<i32> = -20..=19;

/// Sets the calling thread's nice value. Below its own it needs `CAP_SYS_NICE` or `ulimit -e`.
pub fn set_nice(nice: i32) -> Result<(), SystemError> {
    let refused = |source: io::Error| SystemError::new("set nice value", nice.to_string(), source);
    if !NICE_RANGE.contains(&nice) {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    // SAFETY: the call takes no pointers; `who` 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        -1 => Err(refused(io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// The promise to a thread of the deadline class: `runtime` in each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// CPU time in each period.
    pub runtime: Duration,
    /// Also the deadline.
    pub period: Duration,
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadline:{}/{}", self.runtime.as_micros(), self.period.as_micros())
    }
}

/// `SCHED_DEADLINE` of the kernel's interface.
const POLICY_DEADLINE: u32 = 6;

/// The kernel's `sched_attr`, first published version (48 bytes).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Puts the calling thread into the deadline class. Needs `CAP_SYS_NICE`, and a thread that may run on every CPU: the
/// kernel refuses a pinned one.
pub fn set_deadline(reservation: Reservation) -> Result<(), SystemError> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: POLICY_DEADLINE,
        runtime: ns(reservation.runtime),
        deadline: ns(reservation.period),
        period: ns(reservation.period),
        ..Attributes::default()
    };
    // SAFETY: the pointer is to a live structure whose size it states; pid 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        -1 => Err(SystemError::last("set scheduling class", reservation.to_string())),
        _ => Ok(()),
    }
}

/// `SCHED_FLAG_RESET_ON_FORK` of the kernel's interface.
const RESET_ON_FORK: u64 = 1;

/// Those of a thread of this process; 0 is the calling one.
fn attributes_of(thread: u32) -> Option<Attributes> {
    let mut found = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: the pointer is to a live structure of the size that is stated.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut found, size, 0) };
    (answer != -1).then_some(found)
}

/// Slices that the kernel takes for threads of the ordinary class: it moves others to the nearest of these.
pub const SLICE_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_millis(100);

/// Sets how long the calling thread, of the ordinary class, wants to run at once (Linux 6.12). A thread that asks for a shorter slice
/// than its neighbours gets the CPU sooner, and has it for less long. Its nice value stays. No privilege is needed.
pub fn set_slice(slice: Duration) -> Result<(), SystemError> {
    let refused = |source: io::Error| SystemError::new("set slice", format!("{slice:?}"), source);
    if !SLICE_RANGE.contains(&slice) {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    // The call sets attributes that it is not given to 0, which takes a privilege if that is less than the value before.
    let now = attributes_of(0).ok_or_else(|| refused(io::Error::last_os_error()))?;
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        nice: now.nice,
        flags: now.flags & RESET_ON_FORK,
        runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        ..Attributes::default()
    };
    // SAFETY: the pointer is to a live structure whose size it states; pid 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        -1 => Err(refused(io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// Urgency of a thread of this process, as `nice:N`, `fifo:N`, `rr:N`, `deadline:RUNTIME/PERIOD` in microseconds; `other` for all else.
/// `unknown` if it has ended.
pub fn urgency_of(thread: u32) -> String {
    let Some(found) = attributes_of(thread) else { return "unknown".to_owned() };
    match i32::try_from(found.policy) {
        Ok(libc::SCHED_FIFO) => format!("fifo:{}", found.priority),
        Ok(libc::SCHED_RR) => format!("rr:{}", found.priority),
        _ if found.policy == POLICY_DEADLINE => {
            format!("deadline:{}/{}", found.runtime / 1000, found.period / 1000)
        }
        Ok(libc::SCHED_OTHER) if found.nice != 0 => format!("nice:{}", found.nice),
        _ => "other".to_owned(),
    }
}

/// Lets the calling thread's sleeps end as near to their time as the kernel can: ordinary ones may be 50 µs late.
pub fn sleep_precisely() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and no pointer; it cannot fail for a positive one.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Sleeps until `CLOCK_MONOTONIC` shows `instant_ns`: an absolute timer, so that lateness does not add up. A signal
/// ends it early.
pub fn sleep_until(instant_ns: u64) {
    let instant = timespec(Duration::from_nanos(instant_ns));
    // Interrupted is the caller's to see; other errors cannot be with this clock.
    let _interrupted = clock_nanosleep_absolute(ClockId::Monotonic, &instant);
}

/// The kernel's counters of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTimes {
    /// CPU time.
    pub ran_ns: u64,
    /// Time that it was ready and did not run.
    pub queued_ns: u64,
}

/// A thread's `schedstat`, which is read without allocation. It says nothing where /proc is absent, or once the thread has ended.
#[derive(Debug)]
pub struct SchedStat(Option<File>);

impl SchedStat {
    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        Self::of_task(Path::new("/proc/thread-self"))
    }

    /// Of the thread that has this directory in /proc.
    pub fn of_task(task: &Path) -> Self {
        Self(File::open(task.join("schedstat")).ok())
    }

    /// As of now.
    pub fn read(&self) -> Option<SchedTimes> {
        let mut text = [0; 96];
        let size = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        parse_schedstat(&text[..size])
    }
}

fn parse_schedstat(text: &[u8]) -> Option<SchedTimes> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(SchedTimes { ran_ns: numbers.next()??, queued_ns: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_read_by_its_first_two_numbers() {
        let times = SchedTimes { ran_ns: 123, queued_ns: 456 };
        assert_eq!(parse_schedstat(b"123 456 789\n"), Some(times));
        for wrong in [&b""[..], b"1", b"1 x", b"\xff \xff"] {
            assert_eq!(parse_schedstat(wrong), None);
        }
    }

    #[test]
    fn a_sleep_ends_after_its_instant() {
        sleep_precisely();
        let instant = crate::clock::monotonic_ns() + 2_000_000;
        sleep_until(instant);
        assert!(crate::clock::monotonic_ns() >= instant);
    }

    /// Goal: a thread that is less urgent than others stays so with a slice, and needs no privilege for it.
    #[test]
    fn a_slice_leaves_the_nice_value() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        for is_privileged in [true, false] {
            let set = std::thread::spawn(move || {
                set_nice(19).expect("less urgent than any");
                if !is_privileged {
                    let mut ours = capabilities(None).expect("of this thread");
                    ours.effective -= CapabilitySet::SYS_NICE;
                    set_capabilities(None, ours).expect("they may be given up");
                }
                let set = set_slice(Duration::from_millis(1));
                let id = rustix::thread::gettid().as_raw_pid();
                set.map(|()| urgency_of(id.cast_unsigned()))
            });
            let urgency = set.join().expect("the thread ends");
            assert_eq!(urgency.expect("it needs no privilege"), "nice:19");
        }
    }

    /// Goal: the kernel keeps the slice that was asked for, where it knows of slices.
    #[test]
    fn a_slice_is_kept() {
        let slice = Duration::from_millis(1);
        let kept = std::thread::spawn(move || {
            set_slice(slice)?;
            Ok::<u64, SystemError>(attributes_of(0).expect("it is there").runtime)
        });
        match kept.join().expect("the thread ends").expect("it needs no privilege") {
            0 => crate::skipped!("this kernel has no slices (Linux 6.12)"),
            runtime => assert_eq!(u128::from(runtime), slice.as_nanos()),
        }
        for outside in [Duration::ZERO, Duration::from_micros(99), Duration::from_secs(1)] {
            assert!(set_slice(outside).is_err(), "{outside:?}");
        }
    }

    #[test]
    fn nice_values_outside_the_range_are_refused() {
        assert!(set_nice(20).unwrap_err().to_string().starts_with("set nice value 20"));
        let nice = std::thread::spawn(|| {
            set_nice(5).unwrap();
            urgency_of(crate::namespace::thread_id())
        });
        assert_eq!(nice.join().unwrap(), "nice:5");
    }

    #[test]
    fn a_deadline_is_granted_or_refused_in_words() {
        let reservation =
            Reservation { runtime: Duration::from_millis(1), period: Duration::from_millis(10) };
        let outcome = std::thread::spawn(move || set_deadline(reservation)).join().unwrap();
        if let Err(error) = outcome {
            crate::skipped!("{error}");
            let said = error.to_string();
            assert!(said.starts_with("set scheduling class deadline:1000/10000"), "{said}");
        }
    }
}
