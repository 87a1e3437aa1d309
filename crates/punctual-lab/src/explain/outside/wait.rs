//! Waits: idle, perhaps idle, or late, by the system call and by the thread or interrupt that ended them.

use std::collections::BTreeMap;

use crate::explain::timeline::{State, Stretch};
use crate::explain::trace::{Event, Trace, UNKNOWN_CALL, What};

/// Kind of a wait: without work for the waiting thread, perhaps without, or with work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// It waits for events or for a time.
    Idle,
    /// Another thread ended it: a lock was free, or there was something to do again.
    PerhapsIdle,
    /// It wanted something that it did not get.
    Late,
}

/// Calls in which a thread waits until there is something to do, or until a time.
const IDLE: [&str; 28] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "nanosleep",
    "clock_nanosleep",
    "accept",
    "accept4",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "pause",
    "rt_sigtimedwait",
    "rt_sigsuspend",
    "wait4",
    "waitid",
    "io_uring_enter",
    "io_getevents",
    "io_pgetevents",
    "mq_timedreceive",
    "msgrcv",
    "restart_syscall",
    "sched_yield",
    "exit",
    "exit_group",
];

/// Calls in which a thread waits for what it needs, or for something to do.
const PERHAPS: [&str; 7] = ["futex", "futex_wait", "futex_waitv", "read", "readv", "semop", "semtimedop"];

/// Calls of threads, with when each began and ended.
pub(super) struct Calls<'a> {
    trace: &'a Trace,
    of_thread: BTreeMap<u32, Vec<(u64, Option<u32>)>>,
}

impl<'a> Calls<'a> {
    pub(super) fn of(trace: &'a Trace) -> Self {
        let mut of_thread: BTreeMap<u32, Vec<(u64, Option<u32>)>> = BTreeMap::new();
        for &Event(at, what) in trace.cpus.iter().flat_map(|cpu| &cpu.events) {
            match what {
                What::Call { thread, number } => {
                    of_thread.entry(thread).or_default().push((at, Some(number)));
                }
                What::CallEnd(thread) => of_thread.entry(thread).or_default().push((at, None)),
                _ => {}
            }
        }
        of_thread.values_mut().for_each(|calls| calls.sort_by_key(|&(at, _)| at));
        Self { trace, of_thread }
    }

    /// The call in which a thread was at an instant, if that is known since another.
    fn at(&self, thread: u32, at_ns: u64, since_ns: u64) -> Option<u32> {
        let calls = self.of_thread.get(&thread)?;
        let last = calls.get(calls.partition_point(|&(at, _)| at <= at_ns).checked_sub(1)?)?;
        last.1.filter(|_| last.0 >= since_ns)
    }

    /// Kind of the wait of a blocked thread, and the call in which it waits. No event is missing since an instant.
    pub(super) fn wait(&self, thread: u32, state: &Stretch<State>, since_ns: u64) -> (Wait, Option<u32>) {
        let State::Blocked { waker, is_uninterruptible } = state.what else { return (Wait::Late, None) };
        let call = self.at(thread, state.from_ns, since_ns);
        let name = call.and_then(|number| self.trace.calls.get(&number)).map(String::as_str);
        let name = name.filter(|name| !name.starts_with(UNKNOWN_CALL));
        let is_interrupt = waker.is_some_and(|waker| waker.is_interrupt);
        let wait = match name {
            _ if is_uninterruptible == Some(true) => Wait::Late,
            // It has not ended: nobody knows for what it waits.
            _ if waker.is_none() => Wait::Idle,
            Some(name) if IDLE.contains(&name) => Wait::Idle,
            Some(name) if !PERHAPS.contains(&name) => Wait::Late,
            // A time was over, or a device had something.
            _ if is_interrupt => Wait::Idle,
            _ => Wait::PerhapsIdle,
        };
        (wait, call)
    }
}
