//! Findings: each stall of a trial once, with its side, stage, account and causes. Pure: from samples and stored evidence.

use serde::{Deserialize, Serialize};

use super::account::{Account, Part, account};
use super::cause::Cause;
use super::evidence::{EvidenceDump, EvidenceThread, Recording, TrialEvidence};
use super::naming::{Excess, NamedCause, from_account, from_windows, part_words};
use super::seen::{PART_MIN, Seen, over};
use super::stage::{Side, interval, rule_for, typical, worst_stage};
use super::trace::Trace;
use crate::sample::{Load, Samples};
use crate::scheduling::Urgency;
use crate::stall::{self, Stall};
use punctual_machine::fault_cost::FAULT_NS_MIN;

/// One stall, explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Since the start of the run its longest message began, nanoseconds.
    pub instant_ns: u64,
    /// The stall.
    pub stall: Stall,
    /// Time beyond a usual message's.
    pub excess_ns: u64,
    /// The stage that holds most of it, as far as messages carry stamps.
    pub stage: Option<String>,
    /// Time in that stage beyond what is usual.
    pub stage_excess_ns: u64,
    /// Whose it is, as the evidence says.
    pub side: Option<Side>,
    /// The role of the thread whose time it is.
    pub role: Option<String>,
    /// What that thread went through in the stage, the longest first; empty without a trace.
    pub parts: Vec<PartTime>,
    /// Causes, the largest first.
    pub causes: Vec<NamedCause>,
    /// Excess that no cause accounts for.
    pub unexplained_ns: u64,
    /// It waited its turn behind the stall of this message, whose causes are its causes.
    pub behind: Option<u64>,
    /// What would make it more certain.
    pub would_help: Option<String>,
}

/// A part of an account, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTime {
    /// What it is.
    pub part: String,
    /// How long it took in all.
    pub ns: u64,
}

impl Explained {
    /// One of which nothing is known yet but that it was late.
    pub(super) fn of_stall(stall: Stall, instant_ns: u64, excess_ns: u64) -> Self {
        Self {
            instant_ns,
            stall,
            excess_ns,
            stage: None,
            stage_excess_ns: 0,
            side: None,
            role: None,
            parts: Vec::new(),
            causes: Vec::new(),
            unexplained_ns: excess_ns,
            behind: None,
            would_help: None,
        }
    }

    /// Its parts and causes, by the account of its thread in a trace, or by what that saw of itself.
    pub(super) fn charge(
        &mut self,
        traced: Option<(&Trace, &Account)>,
        excess: &Excess<'_>,
        seen: Option<&Seen>,
    ) {
        let from_windows = seen.map(|seen| from_windows(seen, excess)).unwrap_or_default();
        if let Some((trace, account)) = traced {
            let part = |(part, ns): (Part, u64)| PartTime { part: part_words(part, trace), ns };
            self.parts = account.sums().into_iter().map(part).collect();
            self.causes = from_account(account, trace, excess, seen);
            // Where events are missing, the thread's own windows may know what the trace does not tell.
            let untold_ns = account.time_of(Part::Unexplained);
            if from_windows.first().is_some_and(|one| one.share >= PART_MIN && one.ns <= untold_ns) {
                self.causes = from_windows;
            }
        } else {
            self.causes = from_windows;
        }
        self.sum_up();
    }

    /// What no cause accounts for.
    pub(super) fn sum_up(&mut self) {
        let named: u64 = self.causes.iter().map(|cause| cause.ns).sum();
        self.unexplained_ns = self.excess_ns.saturating_sub(named);
    }

    /// The cause that half of the excess is due to, if there is one.
    pub fn cause(&self) -> Cause {
        let largest = self.causes.first().filter(|cause| cause.share >= PART_MIN);
        largest.map_or(Cause::UNEXPLAINED, |cause| cause.name)
    }
}

/// The stage that is to be explained, and what is known of its thread.
pub struct LateStage<'a> {
    /// Its place among the stages of the samples.
    pub place: usize,
    /// Time beyond the usual.
    pub excess_ns: u64,
    /// Time that it usually takes.
    pub usual_ns: u64,
    /// When it was.
    pub interval: (u64, u64),
    /// Whose it is.
    pub thread: Option<&'a EvidenceThread>,
    /// The trace over it, and the account of it.
    pub traced: Option<(&'a EvidenceDump, Account)>,
}

/// The slowest stage of a message, with what evidence there is.
pub fn late_stage<'a>(
    samples: &Samples,
    row: usize,
    load: Load,
    evidence: Option<&'a TrialEvidence>,
) -> Option<LateStage<'a>> {
    let usual: Vec<u64> = samples.stages.iter().map(|stage| typical(&stage.ns)).collect();
    late_stage_of(samples, &usual, row, load, evidence)
}

fn late_stage_of<'a>(
    samples: &Samples,
    usual: &[u64],
    row: usize,
    load: Load,
    evidence: Option<&'a TrialEvidence>,
) -> Option<LateStage<'a>> {
    let (place, excess_ns) = worst_stage(samples, usual, row)?;
    let interval = interval(samples, row, load, place);
    let owner = evidence.and_then(|evidence| evidence.owner(&samples.stages[place].name));
    let role = owner.and_then(|owner| owner.role.as_deref());
    let thread = evidence.zip(role).and_then(|(evidence, role)| evidence.thread(role));
    let number = thread.and_then(|thread| thread.thread);
    let dump = evidence.and_then(|evidence| evidence.dump_over(interval));
    let traced = dump.zip(number).map(|(dump, number)| (dump, account(&dump.trace, number, interval)));
    Some(LateStage { place, excess_ns, usual_ns: usual[place], interval, thread, traced })
}

/// The stalls of a trial, longest first, explained.
pub fn explain(samples: &Samples, load: Load, evidence: Option<&TrialEvidence>) -> Vec<Explained> {
    let first = samples.index.first().copied().unwrap_or(0);
    let usual: Vec<u64> = samples.stages.iter().map(|stage| typical(&stage.ns)).collect();
    let total_ns = typical(&samples.total_ns);
    let stalls = stall::stalls(samples, load, rule_for(samples), |_| true);
    let mut found: Vec<Explained> = stalls
        .into_iter()
        .filter_map(|stall| {
            let row = usize::try_from(stall.first_index.checked_sub(first)?).ok()?;
            let late = late_stage_of(samples, &usual, row, load, evidence);
            let excess_ns = stall.longest_ns.saturating_sub(total_ns);
            let instant_ns = samples.start_ns(row, load);
            Some(one(samples, stall, instant_ns, excess_ns, late, evidence))
        })
        .collect();
    charge_backlog(&mut found);
    found.sort_by_key(|one| (std::cmp::Reverse(one.stall.longest_ns), one.instant_ns));
    found
}

fn one(
    samples: &Samples,
    stall: Stall,
    instant_ns: u64,
    excess_ns: u64,
    late: Option<LateStage<'_>>,
    evidence: Option<&TrialEvidence>,
) -> Explained {
    let mut explained = Explained::of_stall(stall, instant_ns, excess_ns);
    explained.would_help = would_help(late.as_ref(), evidence);
    let Some(late) = late else { return explained };
    let stage = &samples.stages[late.place].name;
    explained.stage = Some(stage.clone());
    explained.stage_excess_ns = late.excess_ns;
    let Some(owner) = evidence.and_then(|evidence| evidence.owner(stage)) else { return explained };
    explained.side = Some(owner.side);
    explained.role.clone_from(&owner.role);
    let excess = Excess {
        message_ns: excess_ns,
        stage_ns: late.excess_ns,
        usual_ns: late.usual_ns,
        stage,
        side: owner.side,
        urgency: late.thread.map_or(Urgency::Other, |thread| thread.urgency),
        fault_ns: evidence.map_or(FAULT_NS_MIN, |evidence| evidence.fault_ns),
    };
    let seen: Option<Seen> = late.thread.and_then(|thread| over(&thread.windows, late.interval));
    let traced = late.traced.as_ref().map(|(dump, account)| (&dump.trace, account));
    explained.charge(traced, &excess, seen.as_ref());
    explained
}

/// What was not there to look at.
fn would_help(late: Option<&LateStage<'_>>, evidence: Option<&TrialEvidence>) -> Option<String> {
    let Some(evidence) = evidence else {
        return Some("the run holds no evidence: run response with --trace stores it".to_owned());
    };
    let Some(late) = late else {
        return Some("its messages carry no stamps, so no stage is known".to_owned());
    };
    if late.thread.is_some_and(|thread| thread.thread.is_none()) {
        return Some("the thread is on another host: evidence is of this host only".to_owned());
    }
    match (&evidence.recording, &late.traced) {
        (Recording::On { .. }, Some((dump, _))) if dump.trace.lost() > 0 => {
            Some(format!("the recorder lost {} events", dump.trace.lost()))
        }
        (Recording::On { .. }, Some(_)) => None,
        (Recording::On { .. }, None) => {
            Some("no dump covers it: it was below the recorder's threshold, or one of too many".to_owned())
        }
        (Recording::Off, _) => Some("a trace of the kernel: run it with --trace, as root".to_owned()),
        (Recording::Missing { reason }, _) => Some(format!("a trace of the kernel: {reason}")),
    }
}

/// Whoever moves again after a stall takes its backlog message by message, each a stall by the rule. A message that was on its
/// way before the first release belongs to the first stall, unless its own evidence names something else.
pub(super) fn charge_backlog(found: &mut [Explained]) {
    found.sort_by_key(|one| one.stall.release_ns);
    for place in 1..found.len() {
        let (earlier, later) = found.split_at_mut(place);
        let Some(one) = later.first_mut() else { continue };
        let ahead = earlier.iter().rev().find(|ahead| ahead.role == one.role && ahead.role.is_some());
        let Some(ahead) = ahead.filter(|ahead| one.instant_ns < ahead.stall.release_ns) else { continue };
        let own = one.cause();
        let is_its_own = ![Cause::UNEXPLAINED, ahead.cause()].contains(&own) && !own.is_work();
        if !is_its_own && ahead.cause() != Cause::UNEXPLAINED {
            one.behind = Some(ahead.behind.unwrap_or(ahead.stall.first_index));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
