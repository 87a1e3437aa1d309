//! Waits that no signal ends, and the reasons for their end in a trace. Such a wait may be for a disk, for a lock of the kernel, or for
//! much else: a child begun by vfork, a grace period (RCU), a time, the thread that moves others.

use super::account::{Account, Part};
use super::trace::{Event, Leaving, TaskInfo, Trace, What};

/// Why waits of one kind ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitEnd {
    /// Nothing tells.
    #[default]
    Unknown,
    /// Another program's thread ended them, as one does that lets go of a lock.
    Lock,
    /// The thread's own child did, in whose place it waited.
    Child,
    /// A device or a thread of a file system did.
    Storage,
}

/// The kernel's threads that write and read files, as their names begin.
const OF_STORAGE: [&str; 13] = [
    "jbd2/",
    "kjournald",
    "xfsaild/",
    "xfs-",
    "btrfs-",
    "f2fs_",
    "txg_sync",
    "z_rd_",
    "z_wr_",
    "dmcrypt_write",
    "kcryptd",
    "loop",
    "md",
];

/// Longest time until the consequence of a device's interrupt: deferred work, another CPU, or a worker is told first.
const AFTER_DEVICE_NS: u64 = 200_000;

/// Why the waits that are this part of an account ended, if no signal would have ended them.
pub(super) fn wait_end(trace: &Trace, account: &Account, part: Part) -> WaitEnd {
    let Part::Blocked { woken_by: Some(waker), is_interrupt, is_uninterruptible: Some(true) } = part else {
        return WaitEnd::Unknown;
    };
    let task = trace.tasks.get(&waker).filter(|_| !is_interrupt);
    let name = task.map_or("", |task| task.name.as_str());
    let mostly = |is_so: &dyn Fn((u64, u64)) -> bool| {
        let ns: u64 = account.spans(part).filter(|&span| is_so(span)).map(|(from, to)| to - from).sum();
        ns * 2 >= account.time_of(part).max(1)
    };
    let is_after_device = || {
        mostly(&|(_, to)| {
            has_device_interrupt(trace, if is_interrupt { to } else { told_at(trace, waker, to) })
        })
    };
    match task.and_then(|task: &TaskInfo| task.is_kernel) {
        Some(false) if mostly(&|(from, _)| is_child(trace, waker, from)) => WaitEnd::Child,
        Some(false) => WaitEnd::Lock,
        _ if OF_STORAGE.iter().any(|begin| name.starts_with(begin)) => WaitEnd::Storage,
        _ if (is_interrupt || name.starts_with("kworker/")) && is_after_device() => WaitEnd::Storage,
        _ => WaitEnd::Unknown,
    }
}

/// When a worker was last woken: it may have waited for a CPU since.
fn told_at(trace: &Trace, worker: u32, at_ns: u64) -> u64 {
    let is_told = |event: &&Event| matches!(event.1, What::Wake { woken, .. } if woken == worker);
    let last = trace.cpus.iter().filter_map(|cpu| cpu.within((0, at_ns)).iter().rev().find(is_told));
    last.map(|event| event.0).max().unwrap_or(at_ns)
}

/// A device interrupted some CPU shortly before. Timers are no devices that are waited for.
fn has_device_interrupt(trace: &Trace, at_ns: u64) -> bool {
    let is_timer = |number| trace.interrupts.get(&number).is_some_and(|name| name.contains("timer"));
    let is_one = |event: &Event| matches!(event.1, What::Interrupt(number) if !is_timer(number));
    let span = (at_ns.saturating_sub(AFTER_DEVICE_NS), at_ns);
    trace.cpus.iter().any(|cpu| cpu.within(span).iter().any(is_one))
}

/// From the birth of a child until its parent waits in its place (vfork) the parent runs no longer than this.
const VFORK_NS: u64 = 50_000;

/// The wait that begins at an instant is that of a thread that began this one right before, and did nothing else since. A thread that
/// waits later for a lock that its child has is no parent in this sense.
fn is_child(trace: &Trace, born: u32, from_ns: u64) -> bool {
    let events = |from| trace.cpus.iter().flat_map(move |cpu| cpu.within((from, from_ns)));
    let parent = events(0).find_map(|event| match event.1 {
        What::Birth { born: of, parent } if of == born => Some((event.0, parent)),
        _ => None,
    });
    let Some((born_ns, parent)) = parent else { return false };
    // Why it left its CPU; nothing where it has one again.
    let turn = |event: &Event| match event.1 {
        What::Switch { left, why, .. } if left == parent => Some((event.0, Some(why))),
        What::Switch { runs, .. } if runs == parent => Some((event.0, None)),
        _ => None,
    };
    let mut turns: Vec<(u64, Option<Leaving>)> = events(born_ns).filter_map(turn).collect();
    turns.sort_by_key(|&(at, _)| at);
    let (mut since_ns, mut ran_ns) = (born_ns, 0);
    for (place, &(at, why)) in turns.iter().enumerate() {
        match why {
            None => since_ns = at,
            Some(Leaving::Ready) => ran_ns += at - since_ns,
            Some(why) => {
                let is_last = place + 1 == turns.len();
                let is_soon = ran_ns + (at - since_ns) <= VFORK_NS;
                return why == Leaving::Uninterruptible && is_last && is_soon;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::account::account;
    use super::super::account::tests::{switch, wake};
    use super::super::trace::{CpuEvents, IDLE};
    use super::*;

    const LATE: u32 = 7;
    const WAKER: u32 = 8;
    const US: u64 = 1000;

    /// End of a wait from 100 to 900 µs. This thread, or an interrupt during it, ended the wait; `more` has further events.
    fn end(name: &str, is_kernel: Option<bool>, by_interrupt: bool, more: &[Event]) -> WaitEnd {
        let mut events = vec![
            switch(100 * US, LATE, Leaving::Uninterruptible, IDLE),
            wake(900 * US, LATE, WAKER, by_interrupt),
            switch(910 * US, IDLE, Leaving::Ready, LATE),
        ];
        events.extend(more);
        events.sort_by_key(|event| event.0);
        let cpu = CpuEvents { until_ns: 1000 * US, events, ..CpuEvents::default() };
        let task = TaskInfo { name: name.to_owned(), priority: 120, is_kernel };
        let interrupts = [(24, "virtio1-req.0".to_owned()), (11, "arch_timer".to_owned())].into();
        let trace = Trace { cpus: vec![cpu], tasks: [(WAKER, task)].into(), interrupts, ..Trace::default() };
        let late = account(&trace, LATE, (50 * US, 950 * US));
        let part = late.sums()[0].0;
        assert!(matches!(part, Part::Blocked { is_uninterruptible: Some(true), .. }), "{late:?}");
        wait_end(&trace, &late, part)
    }

    /// Goal: a wait is storage's or a lock's where the trace says so. A grace period, a move, a child, a time and what is not known are
    /// neither.
    #[test]
    fn a_wait_that_no_signal_ends_is_named_by_its_end_alone() {
        let device = [Event(880 * US, What::Interrupt(24)), Event(890 * US, What::InterruptEnd(24))];
        let early = [Event(600 * US, What::Interrupt(24)), Event(605 * US, What::InterruptEnd(24))];
        let queued = [early[0], early[1], wake(620 * US, WAKER, 3, true)];
        let timer = [Event(895 * US, What::Interrupt(11)), Event(905 * US, What::InterruptEnd(11))];
        let kernel = Some(true);
        for (name, is_kernel, by_interrupt, more, expected) in [
            ("writer", Some(false), false, &[][..], WaitEnd::Lock),
            ("jbd2/vda-8", kernel, false, &[], WaitEnd::Storage),
            ("jbd2/vda-8", None, false, &[], WaitEnd::Storage),
            ("kworker/0:1", kernel, false, &device, WaitEnd::Storage),
            ("kworker/0:1", kernel, false, &early, WaitEnd::Unknown),
            ("kworker/0:1", kernel, false, &queued, WaitEnd::Storage),
            ("rcu_preempt", kernel, false, &device, WaitEnd::Unknown),
            ("migration/0", kernel, false, &device, WaitEnd::Unknown),
            ("kthreadd", kernel, false, &[], WaitEnd::Unknown),
            ("writer", None, false, &[], WaitEnd::Unknown),
            ("writer", Some(false), true, &device, WaitEnd::Storage),
            ("writer", Some(false), true, &[], WaitEnd::Unknown),
            ("writer", Some(false), true, &timer, WaitEnd::Unknown),
        ] {
            assert_eq!(
                end(name, is_kernel, by_interrupt, more),
                expected,
                "{name} {is_kernel:?} {by_interrupt}"
            );
        }
        let birth = |parent| [Event(90 * US, What::Birth { born: WAKER, parent })];
        assert_eq!(end("child", Some(false), false, &birth(LATE)), WaitEnd::Child);
        assert_eq!(end("child", Some(false), false, &birth(99)), WaitEnd::Lock, "another's");
        let long_before = [Event(40 * US, What::Birth { born: WAKER, parent: LATE })];
        assert_eq!(end("child", Some(false), false, &long_before), WaitEnd::Lock, "a thread that has a lock");
        let taken = [
            long_before[0],
            switch(45 * US, LATE, Leaving::Ready, WAKER),
            switch(90 * US, WAKER, Leaving::Ready, LATE),
        ];
        assert_eq!(end("child", Some(false), false, &taken), WaitEnd::Child, "it had no CPU between");
    }
}
