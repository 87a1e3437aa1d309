//! The causes of a late stage, and the time that each took. A cause is named for the time that it took, never for having been there.

use serde::{Deserialize, Serialize};

use super::account::{Absence, Account, Interruption, Part};
use super::cause::Cause;
pub use super::clue::Excess;
use super::clue::{Clue, HeldBy, Kind, passed_over_ns};
use super::seen::{Seen, cause_of};
use super::trace::Trace;
use super::wait_end::{WaitEnd, wait_end};
use super::waker::Chain;
use crate::units::micros;

/// A cause, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedCause {
    /// The cause.
    pub name: Cause,
    /// Time that it took, nanoseconds.
    pub ns: u64,
    /// Of the message's excess, 0 to 1.
    pub share: f64,
    /// The culprits, as far as they are known, with the time of each.
    pub evidence: String,
    /// A remedy to try.
    pub fix: String,
    /// A way to see whether that helped.
    pub verify: String,
}

impl NamedCause {
    /// It took no longer than this.
    pub(super) fn shorten(&mut self, ns_max: u64) {
        let ns = self.ns.min(ns_max);
        self.share *= ns as f64 / self.ns.max(1) as f64;
        self.ns = ns;
    }

    /// It took this as well.
    pub(super) fn lengthen(&mut self, more: &Self) {
        self.ns += more.ns;
        self.share = (self.share + more.share).min(1.0);
    }
}

/// Cause and time of a part, and its culprit.
type Taken = (Cause, u64, String);

/// The causes by an account of the stage, those that took most first, and the time without a named cause. Of its usual time nothing is
/// charged.
pub fn from_account(
    account: &Account,
    trace: &Trace,
    excess: &Excess<'_>,
    seen: Option<&Seen>,
) -> (Vec<NamedCause>, u64) {
    let (nobody, tracers) = (Chain::default(), &account.tracers[..]);
    let waits = account.uninterruptible_waits();
    let beyond = beyond_usual(account, excess);
    let passed_over_ns = passed_over_ns(account, trace);
    let clue = |kind: Kind, ns: u64| Clue {
        kind,
        ns,
        waits,
        end: WaitEnd::Unknown,
        passed_over_ns,
        held_by: None,
        perhaps_by: None,
        chain: &nobody,
        tracers,
        trace,
        excess,
        seen,
    };
    let chains: Vec<Chain> = beyond.iter().map(|&(part, ns)| chain(account, trace, (part, ns))).collect();
    let of_part = |(&(part, ns), chain)| {
        let end = wait_end(trace, account, part);
        Clue { chain, end, ..clue(Kind::Part(part), ns) }
    };
    let mut clues: Vec<Clue<'_>> = beyond.iter().zip(&chains).map(of_part).collect();
    if let Some(seen) = seen {
        HeldBy::ALL.into_iter().for_each(|holder| mark_held(&mut clues, holder, seen));
        let faulting_ns = charge_faults(&mut clues, seen);
        let stolen_ns = charge_steal(&mut clues, seen);
        clues.push(clue(Kind::Faulting, faulting_ns));
        clues.push(clue(Kind::Stolen, stolen_ns));
    }
    let taken = clues.iter().filter(|clue| clue.ns > 0).map(|clue| {
        let (cause, who) = Cause::of(clue);
        (cause, clue.ns, who)
    });
    let taken: Vec<Taken> = taken.collect();
    let is_unnamed = |&&(cause, ..): &&Taken| cause == Cause::UNEXPLAINED;
    let unnamed_ns = taken.iter().filter(is_unnamed).map(|(_, ns, _)| ns).sum();
    (named(taken, excess), unnamed_ns)
}

/// The threads that it waited for, if some of that time is beyond the usual.
fn chain(account: &Account, trace: &Trace, (part, ns): (Part, u64)) -> Chain {
    if ns == 0 { Chain::default() } else { Chain::behind(trace, account, part) }
}

/// Time of each part beyond the usual time of the stage.
fn beyond_usual(account: &Account, excess: &Excess<'_>) -> Vec<(Part, u64)> {
    // A stage may exceed its usual time by more than the message does: other stages were faster than usual then.
    let mut usual_ns = excess.usual_ns + excess.stage_ns.saturating_sub(excess.message_ns);
    let mut sums = account.sums();
    sums.sort_by_key(|(part, _)| order_of_use(*part));
    for (_, ns) in &mut sums {
        let used = usual_ns.min(*ns);
        usual_ns -= used;
        *ns -= used;
    }
    sums
}

/// The usual time of a stage is spent like this, first by running.
fn order_of_use(part: Part) -> usize {
    match part {
        Part::Running => 0,
        Part::Interrupted(_) | Part::Signalled(_) | Part::Reclaiming { .. } => 1,
        Part::NotThere(Absence::CpuAsleep) => 2,
        Part::Blocked { .. } => 3,
        _ => 4,
    }
}

/// Marks the parts that a counter explains: those of which it counted at least half for certain. Where it may have counted half
/// elsewhere, the part may be the holder's or another's, and is marked so. Parts in which nobody ran come first, then the longest. Each
/// part uses up what it took, so no counter explains more than twice what it counted, or leaves more than that open.
pub(super) fn mark_held(clues: &mut [Clue<'_>], holder: HeldBy, seen: &Seen) {
    let (mut least_ns, mut most_ns) = holder.bounds_ns(seen);
    let may_be = |clue: &&mut Clue<'_>| clue.ns > 0 && clue.held_by.is_none() && clue.may_be(holder);
    let mut parts: Vec<&mut Clue<'_>> = clues.iter_mut().filter(may_be).collect();
    parts.sort_by_key(|clue| (clue.neighbour().is_some(), std::cmp::Reverse(clue.ns)));
    for clue in parts {
        if least_ns.saturating_mul(2) >= clue.ns {
            clue.held_by = Some(holder);
            least_ns = least_ns.saturating_sub(clue.ns);
        } else if most_ns.saturating_mul(2) >= clue.ns {
            clue.perhaps_by = Some(holder);
        } else {
            continue;
        }
        most_ns = most_ns.saturating_sub(clue.ns);
    }
}

/// The time that page faults took for certain, while the thread ran. The time that they may have taken beyond that is nobody's.
fn charge_faults(clues: &mut [Clue<'_>], seen: &Seen) -> u64 {
    let [least_ns, most_ns] = [seen.faults_us, seen.faults_us_most].map(|us| u64::from(us) * 1000);
    let mut sum_ns = 0;
    for clue in clues.iter_mut().filter(|clue| clue.is_own_work()) {
        let faults_ns = clue.ns.min(least_ns);
        clue.ns -= clue.ns.min(most_ns.max(least_ns));
        sum_ns += faults_ns;
    }
    sum_ns
}

/// A CPU that the hypervisor took looks like one that computes, for this thread or for another, or that sleeps. The thread's own clock
/// stood still meanwhile. Time that it cannot have computed is the hypervisor's as far as the hypervisor is known to have taken it, and
/// else unexplained.
fn charge_steal(clues: &mut Vec<Clue<'_>>, seen: &Seen) -> u64 {
    let mut over: Vec<Clue<'_>> = Vec::new();
    for clue in clues.iter_mut().filter(|clue| clue.is_own_work()) {
        let over_ns = clue.ns.saturating_sub(u64::from(seen.cpu_us_most) * 1000);
        clue.ns -= over_ns;
        over.push(Clue { kind: Kind::Part(Part::Unexplained), ns: over_ns, ..*clue });
    }
    clues.append(&mut over);
    let (mut stolen_ns, mut sum_ns) = (u64::from(seen.stolen_us) * 1000, 0);
    for turn in 0..=3 {
        for clue in clues.iter_mut().filter(|clue| clue.may_be_stolen() == Some(turn)) {
            let moved_ns = stolen_ns.min(clue.ns);
            clue.ns -= moved_ns;
            stolen_ns -= moved_ns;
            sum_ns += moved_ns;
        }
    }
    sum_ns
}

/// The cause that half of the excess is surely due to, by what the thread saw of itself.
pub fn from_windows(seen: &Seen, excess: &Excess<'_>) -> Vec<NamedCause> {
    let (cause, part) = cause_of(Some(seen), excess);
    let ns = (part * excess.message_ns as f64) as u64;
    let tracer = excess.tracer.filter(|_| cause == Cause::named("traced"));
    named(vec![(cause, ns, tracer.unwrap_or_default().to_owned())], excess)
}

/// Equal causes together.
fn named(mut taken: Vec<Taken>, excess: &Excess<'_>) -> Vec<NamedCause> {
    taken.retain(|(cause, ns, _)| *ns > 0 && *cause != Cause::UNEXPLAINED);
    taken.sort_by_key(|(cause, ns, _)| (*cause, std::cmp::Reverse(*ns)));
    let whole = excess.message_ns.max(1) as f64;
    let one = |equal: &[Taken]| {
        let (name, ns) = (equal[0].0, equal.iter().map(|(_, ns, _)| ns).sum());
        NamedCause {
            name,
            ns,
            share: (ns as f64 / whole).min(1.0),
            evidence: listed(equal),
            fix: name.fix().to_owned(),
            verify: name.verify().to_owned(),
        }
    };
    let mut named: Vec<NamedCause> = taken.chunk_by(|one, other| one.0 == other.0).map(one).collect();
    named.sort_by_key(|cause| (std::cmp::Reverse(cause.ns), cause.name));
    named
}

/// The culprits that took most, of many the first three.
fn listed(taken: &[Taken]) -> String {
    let who: Vec<String> = taken
        .iter()
        .filter(|(.., who)| !who.is_empty())
        .map(|(_, ns, who)| format!("{who} {} µs", micros(*ns as f64)))
        .collect();
    match who.len() {
        0..=3 => who.join(", "),
        more => format!("{} and {} more", who[..3].join(", "), more - 3),
    }
}

/// The kernel's deferred work by its kind, as `/proc/softirqs` orders it.
const DEFERRED: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The interruption, in words.
pub fn interruption(what: Interruption, trace: &Trace) -> String {
    match what {
        Interruption::Device(number) => match trace.interrupts.get(&number) {
            Some(name) => format!("interrupt {number} ({name})"),
            None => format!("interrupt {number}"),
        },
        Interruption::Deferred(kind) => {
            let name = usize::try_from(kind).ok().and_then(|kind| DEFERRED.get(kind));
            format!("softirq {}", name.map_or_else(|| kind.to_string(), ToString::to_string))
        }
    }
}

/// A part in words.
pub fn part_words(part: Part, trace: &Trace) -> String {
    match part {
        Part::Running => "ran".to_owned(),
        Part::Interrupted(what) => format!("in {}", interruption(what, trace)),
        Part::Signalled(number) => format!("interrupted by signal {number} again and again"),
        Part::Reclaiming { is_limited: true } => "took memory back, its group's at the limit".to_owned(),
        Part::Reclaiming { is_limited: false } => "took memory back, the machine's all used".to_owned(),
        Part::Ready { instead } => format!("ready while {} ran", trace.name(instead)),
        Part::Moving { by: None } => "moved to another CPU".to_owned(),
        Part::Moving { by: Some(by) } => format!("moved to another CPU, as {} asked", trace.name(by)),
        Part::Blocked { woken_by: None, .. } => "waited".to_owned(),
        Part::Blocked { woken_by: Some(waker), is_uninterruptible: Some(true), .. } => {
            format!("waited for {}, and no signal would have woken it", trace.name(waker))
        }
        Part::Blocked { woken_by: Some(waker), is_uninterruptible: None, is_interrupt: false } => {
            format!("waited for {}, since before the trace", trace.name(waker))
        }
        Part::Blocked { woken_by: Some(waker), is_interrupt: true, .. } => {
            format!("waited until an interrupt while {} ran", trace.name(waker))
        }
        Part::Blocked { woken_by: Some(waker), .. } => format!("waited for {}", trace.name(waker)),
        Part::NotThere(Absence::Stopped) => "stopped".to_owned(),
        Part::NotThere(Absence::Traced) => "held by a debugger".to_owned(),
        Part::NotThere(Absence::CpuAsleep) => "woken, its CPU idle".to_owned(),
        Part::NotThere(Absence::Withheld) => "ready, its CPU idle".to_owned(),
        Part::Unexplained => "unexplained".to_owned(),
    }
}

#[cfg(test)]
mod tests;
