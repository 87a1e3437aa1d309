//! Waits that no signal ends, and the reasons for their end in a trace. Such a wait may be for a disk, for a lock of the kernel, or for
//! much else: a child begun by vfork, a grace period (RCU), a time, the thread that moves others.

use super::account::{Account, Part};
use super::trace::{CpuEvents, DeviceKind, Event, Leaving, TaskInfo, Trace, WakeUp, What};
use super::waker::longest;

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
const OF_STORAGE: [&str; 15] = [
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
    "mmcqd/",
    "cifsd",
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
    let spans = longest(account.spans(part).collect());
    let total_ns: u64 = spans.iter().map(|(from, to)| to - from).sum();
    let mostly = |is_so: &dyn Fn((u64, u64)) -> bool| {
        let ns: u64 = spans.iter().filter(|&&span| is_so(span)).map(|(from, to)| to - from).sum();
        ns * 2 >= total_ns.max(1)
    };
    let is_of_child = || {
        wait_for_child(trace, waker, account.thread)
            .is_some_and(|(begin, end)| mostly(&|(from, _)| (begin..end).contains(&from)))
    };
    let is_after_device =
        || mostly(&|span| last_told(trace, account.thread, part, span).is_by_device(trace, span.0));
    match task.and_then(|task: &TaskInfo| task.is_kernel) {
        Some(false) if is_of_child() => WaitEnd::Child,
        // In a freezer of version 1 a thread sleeps the same way, until the one that thaws it wakes it.
        Some(false) if trace.freezable.contains(&account.thread) => WaitEnd::Unknown,
        Some(false) => WaitEnd::Lock,
        _ if OF_STORAGE.iter().any(|begin| name.starts_with(begin)) => WaitEnd::Storage,
        _ if (is_interrupt || is_worker(trace, name)) && is_after_device() => WaitEnd::Storage,
        _ => WaitEnd::Unknown,
    }
}

/// A thread of the kernel does what a device's interrupt left to it, by its name.
fn is_worker(trace: &Trace, name: &str) -> bool {
    // "irq/24-nvme0q1", and of a second handler "irq/24-s-nvme0q1"; long names are cut.
    if let Some((number, device)) = name.strip_prefix("irq/").and_then(|rest| rest.split_once('-')) {
        let number = number.parse().ok();
        let named = Source::named(device.strip_prefix("s-").unwrap_or(device));
        return match number.and_then(|number| trace.kinds.get(&number)) {
            Some(kind) => *kind == DeviceKind::Storage,
            None => [number.map_or(named, |number| Source::of(trace, number)), named] == [Source::Device; 2],
        };
    }
    ["kworker/", "ksoftirqd/"].iter().any(|begin| name.starts_with(begin))
}

/// The instant at which the kernel told of the end of a wait.
#[derive(Clone, Copy, Debug)]
struct Told {
    at_ns: u64,
    /// The wake-up, if it was seen.
    noted: Option<WakeUp>,
    by_interrupt: bool,
}

/// The wake-up that tells of the end of a wait. A worker that ended it may have waited for a CPU since the kernel told it.
fn last_told(trace: &Trace, late: u32, part: Part, span: (u64, u64)) -> Told {
    let is_kernel = |thread| trace.tasks.get(&thread).is_some_and(|task| task.is_kernel == Some(true));
    let (worker, by_interrupt) = match part {
        Part::Blocked { woken_by: Some(worker), is_interrupt: false, .. } => (Some(worker), false),
        _ => (None, true),
    };
    let of_worker = worker.and_then(|worker| trace.last_wake_up(worker, span));
    let noted = of_worker
        .filter(|wake_up| wake_up.by_interrupt || is_kernel(wake_up.waker))
        .or_else(|| trace.last_wake_up(late, (span.1, span.1)));
    let at_ns = noted.map_or(span.1, |wake_up| wake_up.at_ns);
    Told { at_ns, noted, by_interrupt: noted.map_or(by_interrupt, |wake_up| wake_up.by_interrupt) }
}

impl Told {
    /// A device interrupted a CPU shortly before, and after this instant. A timer on the CPU that noted it says more than a device
    /// elsewhere.
    fn is_by_device(&self, trace: &Trace, since_ns: u64) -> bool {
        let span = (since_ns.max(self.at_ns.saturating_sub(AFTER_DEVICE_NS)), self.at_ns);
        let is_where = |cpu: &CpuEvents| self.noted.is_some_and(|wake_up| wake_up.cpu == cpu.cpu);
        let is_there = |is_own: bool, source: Source| {
            let cpus = trace.cpus.iter().filter(|cpu| is_where(cpu) == is_own);
            let mut events = cpus.flat_map(|cpu| cpu.within(span));
            events.any(
                |event| matches!(event.1, What::Interrupt(number) if Source::of(trace, number) == source),
            )
        };
        let is_by_timer = self.by_interrupt && is_there(true, Source::Timer);
        is_there(true, Source::Device) || !is_by_timer && is_there(false, Source::Device)
    }
}

/// Source of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Timer,
    Network,
    /// Any other, such as a disk.
    Device,
}

/// The interrupts of network devices, as their names begin: for hosts and stored traces that do not tell of whose devices they are.
const OF_NETWORK: [&str; 16] = [
    "eth", "enp", "ens", "eno", "enx", "ena-", "wl", "ww", "iwlwifi", "ath", "mlx", "mana", "bnxt", "ixgbe",
    "i40e", "vmxnet",
];

/// The same, as parts of their names.
const OF_NETWORK_WITHIN: [&str; 4] = ["-input.", "-output.", "TxRx", "netvsc"];

impl Source {
    fn of(trace: &Trace, number: u32) -> Self {
        match trace.kinds.get(&number) {
            Some(DeviceKind::Network) => Self::Network,
            Some(DeviceKind::Storage) => Self::Device,
            None => trace.interrupts.get(&number).map_or(Self::Device, |name| Self::named(name)),
        }
    }

    fn named(name: &str) -> Self {
        let is_of_network = OF_NETWORK.iter().any(|begin| name.starts_with(begin))
            || OF_NETWORK_WITHIN.iter().any(|part| name.contains(part));
        match name.contains("timer") {
            true => Self::Timer,
            false if is_of_network => Self::Network,
            false => Self::Device,
        }
    }
}

/// From the birth of a child until its parent waits in its place (vfork) the parent runs no longer than this.
const VFORK_NS: u64 = 50_000;

/// The wait of a thread that began this one right before, and did nothing else since: until it runs again. A thread that waits later for
/// a lock that its child has is no parent in this sense.
fn wait_for_child(trace: &Trace, born: u32, thread: u32) -> Option<(u64, u64)> {
    let events = |from| trace.cpus.iter().flat_map(move |cpu| cpu.within((from, u64::MAX)));
    let is_birth = |event: &&Event| event.1 == What::Birth { born, parent: thread };
    let born_ns = events(0).filter(is_birth).map(|event| event.0).max()?;
    // Why it left its CPU; nothing where it has one again.
    let turn = |event: &Event| match event.1 {
        What::Switch { left, why, .. } if left == thread => Some((event.0, Some(why))),
        What::Switch { runs, .. } if runs == thread => Some((event.0, None)),
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
                let is_soon = ran_ns + (at - since_ns) <= VFORK_NS;
                let end_ns = turns.get(place + 1).map_or(u64::MAX, |&(at, _)| at);
                return (why == Leaving::Uninterruptible && is_soon).then_some((at, end_ns));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::account::account;
    use super::super::account::tests::{switch, wake};
    use super::super::trace::IDLE;
    use super::*;

    const LATE: u32 = 7;
    const WAKER: u32 = 8;
    const PROGRAM: u32 = 3;
    const US: u64 = 1000;

    fn end(name: &str, is_kernel: Option<bool>, by_interrupt: bool, more: &[Event]) -> WaitEnd {
        end_beside(name, is_kernel, by_interrupt, more, &[])
    }

    /// End of a wait from 100 to 900 µs. This thread, or an interrupt during it, ended the wait; `more` has further events, and
    /// `elsewhere` those of another CPU.
    fn end_beside(
        name: &str,
        is_kernel: Option<bool>,
        by_interrupt: bool,
        more: &[Event],
        elsewhere: &[Event],
    ) -> WaitEnd {
        let mut events = vec![
            switch(100 * US, LATE, Leaving::Uninterruptible, IDLE),
            wake(900 * US, LATE, WAKER, by_interrupt),
            switch(910 * US, IDLE, Leaving::Ready, LATE),
        ];
        events.extend(more);
        events.sort_by_key(|event| event.0);
        let cpu = CpuEvents { until_ns: 1000 * US, events, ..CpuEvents::default() };
        let task = TaskInfo { name: name.to_owned(), priority: 120, is_kernel };
        let named = [
            (24, "virtio1-req.0"),
            (11, "arch_timer"),
            (25, "virtio0-input.0"),
            (26, "hinic3@pci:0"),
            (27, "ethdisk-req"),
        ];
        let interrupts = named.map(|(number, name)| (number, name.to_owned())).into();
        let kinds = [(26, DeviceKind::Network), (27, DeviceKind::Storage)].into();
        let tasks =
            [(WAKER, task), (PROGRAM, TaskInfo { is_kernel: Some(false), ..TaskInfo::default() })].into();
        let other =
            CpuEvents { cpu: 1, until_ns: 1000 * US, events: elsewhere.to_vec(), ..CpuEvents::default() };
        let mut trace = Trace { cpus: vec![cpu, other], tasks, interrupts, kinds, ..Trace::default() };
        let late = account(&trace, LATE, (50 * US, 950 * US));
        let part = late.sums()[0].0;
        assert!(matches!(part, Part::Blocked { is_uninterruptible: Some(true), .. }), "{late:?}");
        let end = wait_end(&trace, &late, part);
        trace.freezable.insert(LATE);
        let in_freezer = if end == WaitEnd::Lock { WaitEnd::Unknown } else { end };
        assert_eq!(
            wait_end(&trace, &late, part),
            in_freezer,
            "a thaw looks like a lock, and like nothing else"
        );
        end
    }

    /// Goal: a wait is storage's or a lock's where the trace says so. A grace period, a move, a child, a time and what is not known are
    /// neither.
    #[test]
    fn a_wait_that_no_signal_ends_is_named_by_its_end_alone() {
        let device = [Event(880 * US, What::Interrupt(24)), Event(890 * US, What::InterruptEnd(24))];
        let early = [Event(600 * US, What::Interrupt(24)), Event(605 * US, What::InterruptEnd(24))];
        let queued = [early[0], early[1], wake(620 * US, WAKER, PROGRAM, true)];
        let timer = [Event(895 * US, What::Interrupt(11)), Event(905 * US, What::InterruptEnd(11))];
        let kernel = Some(true);
        for (name, is_kernel, by_interrupt, more, expected) in [
            ("writer", Some(false), false, &[][..], WaitEnd::Lock),
            ("jbd2/vda-8", kernel, false, &[], WaitEnd::Storage),
            ("jbd2/vda-8", None, false, &[], WaitEnd::Storage),
            ("kworker/0:1", kernel, false, &device, WaitEnd::Storage),
            ("kworker/0:1", kernel, false, &early, WaitEnd::Unknown),
            ("kworker/0:1", kernel, false, &queued, WaitEnd::Storage),
            ("irq/24-virtio1-", kernel, false, &queued, WaitEnd::Storage),
            ("irq/9-mmc0", kernel, false, &queued, WaitEnd::Storage),
            ("irq/25-virtio0-", kernel, false, &queued, WaitEnd::Unknown),
            ("irq/9-s-eth0", kernel, false, &queued, WaitEnd::Unknown),
            ("irq/26-hinic3@p", kernel, false, &queued, WaitEnd::Unknown),
            ("irq/27-ethdisk-", kernel, false, &queued, WaitEnd::Storage),
            ("ksoftirqd/0", kernel, false, &queued, WaitEnd::Storage),
            ("cifsd", kernel, false, &[], WaitEnd::Storage),
            ("mmcqd/0", kernel, false, &[], WaitEnd::Storage),
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
    }

    /// Goal: a wait for a child is that of its parent alone, right after the birth.
    #[test]
    fn a_child_ends_the_wait_of_its_parent() {
        let birth = |parent| [Event(90 * US, What::Birth { born: WAKER, parent })];
        assert_eq!(end("child", Some(false), false, &birth(LATE)), WaitEnd::Child);
        let another_waits = [birth(99)[0], switch(95 * US, 99, Leaving::Uninterruptible, IDLE)];
        assert_eq!(
            end_beside("child", Some(false), false, &[], &another_waits),
            WaitEnd::Lock,
            "another's, which waits for it, too"
        );
        let long_before = [Event(40 * US, What::Birth { born: WAKER, parent: LATE })];
        assert_eq!(end("child", Some(false), false, &long_before), WaitEnd::Lock, "a thread that has a lock");
        let taken = [
            long_before[0],
            switch(45 * US, LATE, Leaving::Ready, WAKER),
            switch(90 * US, WAKER, Leaving::Ready, LATE),
        ];
        assert_eq!(end("child", Some(false), false, &taken), WaitEnd::Child, "it had no CPU between");
    }

    /// Goal: a device's interrupt ended a wait only if it came within the wait, and told the waker. Other frequent interrupts end none.
    #[test]
    fn an_interrupt_that_only_coincides_ends_no_wait() {
        let interrupt = |us: u64, number| {
            [Event(us * US, What::Interrupt(number)), Event((us + 5) * US, What::InterruptEnd(number))]
        };
        let (disk, network, timer) = (interrupt(880, 24), interrupt(880, 25), interrupt(890, 11));
        let by_interrupt =
            |more: &[Event], elsewhere: &[Event]| end_beside("writer", Some(false), true, more, elsewhere);
        assert_eq!(
            by_interrupt(&[], &network),
            WaitEnd::Unknown,
            "a network card, at the time of a timer that is not traced"
        );
        assert_eq!(by_interrupt(&network, &[]), WaitEnd::Unknown);
        assert_eq!(by_interrupt(&interrupt(880, 26), &[]), WaitEnd::Unknown, "a network card of any name");
        assert_eq!(by_interrupt(&interrupt(880, 27), &[]), WaitEnd::Storage, "a disk with a network's name");
        assert_eq!(by_interrupt(&timer, &disk), WaitEnd::Unknown, "the timer of the CPU that noted it");
        assert_eq!(by_interrupt(&[], &disk), WaitEnd::Storage, "one CPU told another");
        let by_worker = |more: &[Event]| end_beside("kworker/0:1", Some(true), false, more, &[]);
        let told = |disk_us, us, waker, by_interrupt| {
            let disk = interrupt(disk_us, 24);
            [disk[0], disk[1], wake(us * US, WAKER, waker, by_interrupt)]
        };
        assert_eq!(
            by_worker(&told(600, 620, WAKER, false)),
            WaitEnd::Storage,
            "a thread of the kernel told it"
        );
        assert_eq!(by_worker(&told(600, 620, PROGRAM, false)), WaitEnd::Unknown, "a program queued the work");
        assert_eq!(by_worker(&told(80, 90, PROGRAM, true)), WaitEnd::Unknown, "before the wait");
        assert_eq!(
            by_worker(&told(80, 110, PROGRAM, true)),
            WaitEnd::Unknown,
            "the interrupt was before the wait"
        );
    }
}
