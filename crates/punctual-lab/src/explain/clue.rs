//! Signs of a cause: a part of a thread's account (tier 1), or facts that its own windows are sure of (tier 0).
//!
//! Signatures exclude one another by themselves, never by their order: where one cause is not known, its time is unexplained and no
//! other's.

use super::account::{Absence, Account, Part};
use super::seen::Seen;
use super::stage::Side;
use super::trace::Trace;
use super::wait_end::WaitEnd;
use super::waker::Chain;
use crate::sample::RESPONDER;
use crate::scheduling::Urgency;

/// The excess to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Excess<'a> {
    /// Of the whole message.
    pub message_ns: u64,
    /// Of the stage.
    pub stage_ns: u64,
    /// Time that the stage usually takes.
    pub usual_ns: u64,
    /// The stage.
    pub stage: &'a str,
    /// Its side.
    pub side: Side,
    /// Urgency of its thread.
    pub urgency: Urgency,
    /// Its thread runs code of a program, which may sleep. The laboratory's own does not.
    pub runs_handlers: bool,
    /// A thread beside it on its CPU said how late it was itself.
    pub has_control: bool,
    /// The tracer of the thread meanwhile, by name, as the kernel tells it (`TracerPid`).
    pub tracer: Option<&'a str>,
}

impl Excess<'_> {
    /// True if its thread's work in the stage is not awaited: while the message is under way, or while the thread goes to sleep.
    fn is_of_another(&self) -> bool {
        self.is_on_wire() || self.is_before_listener()
    }

    /// It slept for the message, or looked for it.
    fn is_before_listener(&self) -> bool {
        ["woken", "medium"].iter().any(|stage| self.stage.ends_with(stage))
    }

    fn is_on_wire(&self) -> bool {
        [Side::Wire, Side::WireOrResponder, Side::Medium].contains(&self.side)
    }
}

#[cfg(test)]
impl<'a> Excess<'a> {
    /// Of a message that was in one stage all the time, of an ordinary thread with a control.
    pub(in crate::explain) fn in_one_stage(ns: u64, stage: &'a str, side: Side) -> Self {
        Self {
            message_ns: ns,
            stage_ns: ns,
            usual_ns: 0,
            stage,
            side,
            urgency: Urgency::Other,
            runs_handlers: false,
            has_control: true,
            tracer: None,
        }
    }
}

/// Kind of some time of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A part of its account.
    Part(Part),
    /// It ran, and page faults took it.
    Faulting,
    /// The hypervisor took it.
    Stolen,
}

/// Holder that keeps a thread back and is counted apart, for its group or its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// The group's quota had run out.
    Quota,
    /// The process was stopped.
    Stop,
    /// The group was frozen.
    Freezer,
}

impl HeldBy {
    /// All of them. A wait that a stop explains is not the freezer's, too.
    pub const ALL: [Self; 3] = [Self::Quota, Self::Stop, Self::Freezer];

    /// Time that it held the thread by the counter, at least and at most.
    pub(super) fn bounds_ns(self, seen: &Seen) -> (u64, u64) {
        let (least_us, most_us) = match self {
            Self::Quota => (seen.throttled_us, seen.throttled_us_most),
            Self::Stop => (seen.stopped_us, seen.stopped_us),
            Self::Freezer => (seen.frozen_us, seen.frozen_us_most),
        };
        (u64::from(least_us) * 1000, u64::from(most_us.max(least_us)) * 1000)
    }
}

/// Some time of a thread, with all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Clue<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Time of all of its kind together.
    pub ns: u64,
    /// If no signal would have ended its wait: so many such waits were there in all.
    pub waits: usize,
    /// Why its waits of that kind ended.
    pub end: WaitEnd,
    /// It was ready for so long at one stretch while ordinary threads ran, or while nobody did.
    pub passed_over_ns: u64,
    /// The holder that kept it back meanwhile, by the least of the holder's own counter.
    pub held_by: Option<HeldBy>,
    /// A holder that may have, by the most of that counter. The time is then nobody's.
    pub perhaps_by: Option<HeldBy>,
    /// If it waited, whom for.
    pub chain: &'a Chain,
    /// Threads that let this one go on when it was held as by a debugger.
    pub tracers: &'a [u32],
    /// The kernel's trace.
    pub trace: &'a Trace,
    /// The excess to be explained.
    pub excess: &'a Excess<'a>,
    /// The thread's observations of itself.
    pub seen: Option<&'a Seen>,
}

/// Lowest number of an ordinary thread's kernel priority.
const ORDINARY: i32 = 100;

/// A real-time thread that was woken has the CPU of an ordinary one after a tick at the latest. A tick is no longer than 10 ms (HZ =
/// 100). A thread that runs beyond that was let in by the limit. Several threads may share the time that the limit gives.
pub const LIMIT_NS_MIN: u64 = 11_000_000;

impl Clue<'_> {
    /// It ran, and its own work is what is waited for.
    pub fn is_own_work(&self) -> bool {
        self.kind == Kind::Part(Part::Running) && !self.excess.is_of_another()
    }

    /// Page faults took it.
    pub fn is_faulting(&self) -> bool {
        self.kind == Kind::Faulting
    }

    /// The hypervisor took it.
    pub fn is_stolen(&self) -> bool {
        self.kind == Kind::Stolen
    }

    /// The ordinary thread that ran while it was ready, and not because real-time threads are limited.
    pub fn ordinary_neighbour(&self) -> Option<u32> {
        let is_own =
            |thread| self.is_ordinary(thread) && !self.is_deferred(thread) && !self.is_tracer(thread);
        self.neighbour().filter(|&thread| is_own(thread) && !self.is_limited() && !self.may_be_throttled())
    }

    /// The same, the kernel's thread for what interrupts left over.
    pub fn deferred_neighbour(&self) -> Option<u32> {
        let is_one = |thread| self.is_ordinary(thread) && self.is_deferred(thread);
        self.neighbour().filter(|&thread| is_one(thread) && !self.is_limited() && !self.may_be_throttled())
    }

    /// The same, a real-time thread.
    pub fn urgent_neighbour(&self) -> Option<u32> {
        self.neighbour().filter(|&thread| !self.is_ordinary(thread) && !self.is_tracer(thread))
    }

    /// The time is its tracer's: the thread was held, or its tracer ended its wait or had its CPU. The tracer's name, as far as it is
    /// known.
    pub fn tracers(&self) -> Option<String> {
        let is_passed_over = !self.is_limited() && !self.may_be_throttled();
        let is_neighbour = self.neighbour().is_some_and(|thread| self.is_tracer(thread)) && is_passed_over;
        let is_held = self.absence_without_quota() == Some(Absence::Traced);
        (is_held || is_neighbour || self.awaited() == Some(Awaited::Tracer)).then(|| {
            let names = self.tracers.iter().map(|&thread| self.trace.name(thread));
            let named = names.collect::<Vec<String>>().join(", ");
            if named.is_empty() { self.excess.tracer.unwrap_or_default().to_owned() } else { named }
        })
    }

    fn is_tracer(&self, thread: u32) -> bool {
        self.tracers.contains(&thread)
    }

    /// A real-time thread left the CPU to others for as long as the kernel's limit asks.
    pub fn is_at_limit(&self) -> bool {
        let is_withheld = self.absence() == Some(Absence::Withheld) && !self.may_be_throttled();
        let is_left = self.neighbour().is_some_and(|thread| self.is_ordinary(thread));
        self.is_limited() && (is_withheld || is_left)
    }

    /// Kind of its absence, if its quota cannot be why.
    pub fn absence_without_quota(&self) -> Option<Absence> {
        self.absence().filter(|_| !self.may_be_throttled())
    }

    /// The group's own counter says that its quota had run out for half of this time. A thread whose quota is used up does not run,
    /// whichever other threads do.
    pub fn is_throttled(&self) -> bool {
        self.held_by == Some(HeldBy::Quota)
    }

    /// The same, or that counter does not rule it out.
    fn may_be_throttled(&self) -> bool {
        self.is_throttled() || self.perhaps_by == Some(HeldBy::Quota)
    }

    /// True if that holder may have held it back. A quota shows as a thread that is not there, or passed over for an ordinary one. A
    /// freezer shows as a wait that another thread ended. A thread that slept then left its CPU long before. A stop shows so where its
    /// beginning is not in the trace: there the thread leaves its CPU stopped.
    pub(super) fn may_be(&self, holder: HeldBy) -> bool {
        let is_held = |absence| [Absence::Stopped, Absence::Traced].contains(&absence);
        match holder {
            HeldBy::Quota => {
                let is_absent = self.absence().is_some_and(|absence| !is_held(absence));
                let is_passed_over = |thread| self.is_ordinary(thread) && !self.is_limited();
                is_absent || self.neighbour().is_some_and(is_passed_over)
            }
            HeldBy::Stop => self.awaited() == Some(Awaited::Untold),
            HeldBy::Freezer => self.is_awaiting_thread(),
        }
    }

    fn is_awaiting_thread(&self) -> bool {
        matches!(self.wait(), Some(Awaited::Thread | Awaited::PreemptedThread | Awaited::Untold))
    }

    /// It waited, and not for its message: for what. The end of a sleep for the message tells of nothing that delayed that.
    pub fn awaited(&self) -> Option<Awaited> {
        let is_of_message = |awaited| [Awaited::Thread, Awaited::Interrupt].contains(&awaited);
        self.wait().filter(|&awaited| !self.excess.is_before_listener() || !is_of_message(awaited))
    }

    /// It waited, and not for its packet to come over the wire: for what.
    fn wait(&self) -> Option<Awaited> {
        let Kind::Part(Part::Blocked { woken_by: Some(waker), is_interrupt, is_uninterruptible }) = self.kind
        else {
            return None;
        };
        if self.excess.is_on_wire() {
            return None;
        }
        Some(match (is_uninterruptible, is_interrupt) {
            (Some(true), _) => return self.awaited_deaf(),
            (Some(false), true) => Awaited::Interrupt,
            (None, true) => return None,
            (_, false) if self.is_tracer(waker) => Awaited::Tracer,
            (_, false) if self.held_by == Some(HeldBy::Stop) => Awaited::Continuation,
            (_, false) if self.held_by == Some(HeldBy::Freezer) => Awaited::Thaw,
            (_, false) if self.perhaps_by.is_some() => return None,
            (None, false) => Awaited::Untold,
            (Some(false), false) if self.chain.is_preempted_by().is_some() => Awaited::PreemptedThread,
            (Some(false), false) => Awaited::Thread,
        })
    }

    /// The same where no signal would have ended it. A wait that nothing tells of is neither a lock nor a disk.
    fn awaited_deaf(&self) -> Option<Awaited> {
        match self.end {
            WaitEnd::Lock => Some(Awaited::KernelLock),
            WaitEnd::Child => None,
            WaitEnd::Storage if self.is_of_faults() => Some(Awaited::Page),
            WaitEnd::Storage => Some(Awaited::Device),
            WaitEnd::Unknown => None,
        }
    }

    /// It waited no more than twice as often as it had page faults with the disk.
    fn is_of_faults(&self) -> bool {
        self.seen
            .is_some_and(|seen| usize::from(seen.faults_major) * 2 >= self.waits && seen.faults_major > 0)
    }

    /// The threads that it waited for, in words.
    pub fn wakers(&self) -> String {
        self.chain.words(self.trace)
    }

    /// Order in which this time is taken for the hypervisor's, if it may be. Unexplained time comes first, then a CPU that seems to
    /// sleep, then one that seems to compute. Last comes one on which another thread seems to compute.
    pub(super) fn may_be_stolen(&self) -> Option<u8> {
        match self.kind {
            Kind::Part(Part::Unexplained) => Some(0),
            Kind::Part(_) if self.perhaps_by == Some(HeldBy::Quota) => Some(0),
            Kind::Part(Part::NotThere(absence)) if !self.is_throttled() => match absence {
                Absence::Withheld => (!self.is_at_limit()).then_some(0),
                Absence::CpuAsleep => Some(1),
                Absence::Stopped | Absence::Traced => None,
            },
            Kind::Part(Part::Running) if self.is_own_work() => Some(2),
            Kind::Part(Part::Running) => Some(0),
            Kind::Part(Part::Ready { .. }) if !self.is_throttled() && !self.is_at_limit() => Some(3),
            _ => None,
        }
    }

    /// The thread that ran while it was ready.
    pub(super) fn neighbour(&self) -> Option<u32> {
        if let Kind::Part(Part::Ready { instead }) = self.kind { Some(instead) } else { None }
    }

    fn absence(&self) -> Option<Absence> {
        if let Kind::Part(Part::NotThere(absence)) = self.kind { Some(absence) } else { None }
    }

    /// Name of the thread that ran while it was ready, if any did.
    pub fn neighbour_name(&self) -> String {
        self.neighbour().map_or_else(String::new, |thread| self.trace.name(thread))
    }

    fn is_deferred(&self, thread: u32) -> bool {
        self.trace.tasks.get(&thread).is_some_and(|task| task.name.starts_with("ksoftirqd/"))
    }

    fn is_ordinary(&self, thread: u32) -> bool {
        is_ordinary(self.trace, thread)
    }

    /// While the hypervisor has a processor, the thread that was on it looks as if it ran: that time is no limit's.
    fn is_limited(&self) -> bool {
        let stolen_ns = self.seen.map_or(0, |seen| u64::from(seen.stolen_us) * 1000);
        self.excess.urgency.is_real_time() && self.passed_over_ns.saturating_sub(stolen_ns) >= LIMIT_NS_MIN
    }
}

fn is_ordinary(trace: &Trace, thread: u32) -> bool {
    trace.tasks.get(&thread).is_none_or(|task| task.priority >= ORDINARY)
}

/// Longest stretch for which a thread was ready while ordinary ones ran, or while nobody did. Interrupts do not end it.
pub(super) fn passed_over_ns(account: &Account, trace: &Trace) -> u64 {
    let (mut longest_ns, mut ns) = (0, 0);
    for piece in &account.pieces {
        ns = match piece.part {
            Part::Ready { instead } if is_ordinary(trace, instead) => ns + piece.ns(),
            Part::NotThere(Absence::Withheld) => ns + piece.ns(),
            Part::Interrupted(_) => ns,
            _ => 0,
        };
        longest_ns = longest_ns.max(ns);
    }
    longest_ns
}

/// Object of a thread's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Another thread, who did something else meanwhile.
    Thread,
    /// Another thread, whose CPU another had.
    PreemptedThread,
    /// The same, in a way whose beginning is not in the trace: it may have slept, or been stopped.
    Untold,
    /// An interrupt, of a timer or of a device.
    Interrupt,
    /// Its process was stopped, and was continued.
    Continuation,
    /// Its control group was frozen, and was thawed.
    Thaw,
    /// Its tracer, which ended its wait.
    Tracer,
    /// A lock of the kernel: another program's thread ended a wait that no signal ends.
    KernelLock,
    /// A disk, where no signal wakes: a device or a thread of a file system ended the wait.
    Device,
    /// The same, to have a page that was not in memory.
    Page,
}

/// Evidence of a thread's own windows about the stage.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    /// Observations of it.
    pub seen: &'a Seen,
    /// The excess to be explained.
    pub excess: &'a Excess<'a>,
}

/// A control thread looks so often.
const CONTROL_PERIOD_US: u32 = crate::scheduling::CONTROL_PERIOD.as_micros() as u32;

/// A control thread that is later than this was kept from its CPU. Its timer alone makes it late by less.
const CONTROL_NOTICES_US: u32 = 500;

impl Glance<'_> {
    /// Ready while another thread ran, at least: time taken by a quota or the hypervisor may be counted as ready too.
    pub fn ready_us(&self) -> u32 {
        let Seen { throttled_us_most, frozen_us_most, stolen_us, wait_us, .. } = *self.seen;
        let ready_us =
            [throttled_us_most, frozen_us_most, stolen_us].into_iter().fold(wait_us, u32::saturating_sub);
        self.beyond_usual(ready_us)
    }

    /// The usual time of the stage. A stage may exceed it by more than the message does: other stages were faster than usual then.
    fn usual_us(&self) -> u32 {
        let Excess { message_ns, stage_ns, usual_ns, .. } = *self.excess;
        let usual_ns = usual_ns.saturating_add(stage_ns.saturating_sub(message_ns));
        u32::try_from(usual_ns.div_ceil(1000)).unwrap_or(u32::MAX)
    }

    /// Time of the thread's own activity, beyond the usual. Its usual activity is unknown: it may fill all of the usual time.
    fn own_beyond_usual(&self, us: u32) -> u32 {
        us.saturating_sub(self.usual_us())
    }

    /// Time that was taken from the thread, beyond the usual. The usual time is its own activity, as far as it ran or slept so long.
    pub fn beyond_usual(&self, us: u32) -> u32 {
        let seen = self.seen;
        let others = [seen.cpu_us_most, seen.wait_us_most, seen.throttled_us_most, seen.frozen_us_most];
        let slept_us = others.into_iter().fold(seen.wall_us, u32::saturating_sub);
        let slept_us = slept_us.saturating_sub(seen.stolen_us).saturating_sub(seen.stopped_us);
        us.saturating_sub(self.usual_us().saturating_sub(seen.cpu_us).saturating_sub(slept_us))
    }

    /// Stopped, at least. Only the end of a stop is known, and of a continuation not whether there was a stop. In code of its own
    /// a thread may have slept before: then its control thread was not late for as long, or it left its CPU more than once.
    pub fn stopped_us(&self) -> u32 {
        let Seen { stopped_us, stolen_us, control_late_us, switches_voluntary, .. } = *self.seen;
        // A thread that left its CPU once did so for the stop, and the control thread may have slept through the first of it.
        let unnoticed_us = if switches_voluntary <= 1 { CONTROL_PERIOD_US } else { 0 };
        let most_us = match (self.is_in_own_code(), self.excess.has_control) {
            (false, _) => u32::MAX,
            (true, true) if control_late_us >= CONTROL_NOTICES_US => {
                control_late_us.saturating_add(unnoticed_us)
            }
            (true, false) if !self.excess.runs_handlers || switches_voluntary <= 1 => u32::MAX,
            (true, _) => 0,
        };
        self.beyond_usual(stopped_us.min(most_us).saturating_sub(stolen_us))
    }

    /// Of the time that it ran for certain, what its page faults took, at least.
    pub fn faults_us(&self) -> u32 {
        self.own_beyond_usual(self.seen.faults_us.min(self.seen.cpu_us))
    }

    /// It waited in code of its own, and nobody traced it who may have held it there.
    pub fn blocked_us(&self) -> u32 {
        if self.is_in_own_code() && self.excess.tracer.is_none() { self.absent_us() } else { 0 }
    }

    /// A tracer was attached, and it was not there when it should have worked: no more than that is known without a trace.
    pub fn traced_us(&self) -> u32 {
        let is_at_work = self.is_in_own_code() || self.is_sending();
        if is_at_work && self.excess.tracer.is_some() { self.absent_us() } else { 0 }
    }

    /// Time in which it neither ran nor was ready, and nothing was withheld, at least, while its program did not listen. A CPU that was
    /// taken away unseen, for instance by the quota of a group that it cannot see, looks the same. Then the control thread was late too.
    /// Without a control thread, an involuntary switch tells that the CPU was taken away.
    fn absent_us(&self) -> u32 {
        let Seen { wall_us, cpu_us_most, wait_us_most, throttled_us_most, frozen_us_most, stolen_us, .. } =
            *self.seen;
        let present = [cpu_us_most, wait_us_most, throttled_us_most, frozen_us_most, stolen_us];
        let absent_us = present.into_iter().fold(wall_us, u32::saturating_sub);
        let is_free = if self.excess.has_control {
            self.seen.control_late_us < absent_us / 2
        } else {
            self.seen.switches_involuntary == 0
        };
        let is_by_itself = self.seen.stopped_us == 0 && self.seen.switches_voluntary > 0;
        if is_by_itself && is_free { self.own_beyond_usual(absent_us) } else { 0 }
    }

    /// The stage is one in which its program does not wait for a message.
    pub fn is_in_own_code(&self) -> bool {
        self.excess.stage == RESPONDER || self.excess.stage.ends_with("elsewhere")
    }

    /// The stage is one of a message that is due and has not left.
    fn is_sending(&self) -> bool {
        ["sent", "sealed", "posted"].iter().any(|stage| self.excess.stage.ends_with(stage))
    }

    /// It ran for its own work, at least. Its computing before the wake-up, or while the message was on the wire, was not awaited.
    pub fn work_us(&self) -> u32 {
        if self.excess.is_of_another() {
            0
        } else {
            self.own_beyond_usual(self.seen.cpu_us.saturating_sub(self.seen.faults_us_most))
        }
    }
}
