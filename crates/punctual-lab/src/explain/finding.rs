//! Findings: each stall of a trial once, with its side, stage, account and causes. Pure: from samples and stored evidence.

use serde::{Deserialize, Serialize};

use super::account::{Account, Part, account};
use super::attached::Attached;
use super::cause::Cause;
use super::evidence::{EvidenceDump, EvidenceThread, Recording, TrialEvidence};
use super::naming::{Excess, NamedCause, from_account, from_windows, part_words};
use super::seen::{PART_MIN, Seen, over};
use super::stage::{Side, StageOwner, interval, rule_for, typical_answered, worst_stage};
use super::trace::Trace;
use crate::sample::{ABSENT_NS, Load, Samples};
use crate::scheduling::Urgency;
use crate::stall::{self, Stall};
use crate::units::{count, plural};
use punctual_machine::fault_cost::FAULT_NS_MIN;

/// One stall, explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Its side, as the evidence says.
    pub side: Option<Side>,
    /// The role of the thread whose time it is.
    pub role: Option<String>,
    /// The owner of the thread, where several threads have that role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When that stage was, since the start of the run, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<(u64, u64)>,
    /// The parts of that thread's time in the stage, the longest first; empty without a trace.
    pub parts: Vec<PartTime>,
    /// Stages of other threads of that side that were late too, and by how much: their causes count as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<PartTime>,
    /// Causes, the largest first.
    pub causes: Vec<NamedCause>,
    /// Excess that no cause accounts for.
    pub unexplained_ns: u64,
    /// That thread's observations of itself in the stage, if it kept windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// It waited its turn behind the stall of this message, whose causes are its causes.
    pub behind: Option<u64>,
    /// Late messages of other places that waited for the same.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub elsewhere: u64,
    /// Evidence that would make it more certain.
    pub would_help: Option<String>,
    /// It is counted with another stall, which tells more of the same.
    #[serde(skip)]
    pub is_told_elsewhere: bool,
}

/// A part of an account, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTime {
    /// Its description.
    pub part: String,
    /// Its time in all.
    pub ns: u64,
}

impl Explained {
    /// One of which nothing is known yet but that it was late.
    pub fn of_stall(stall: Stall, instant_ns: u64, excess_ns: u64) -> Self {
        Self { instant_ns, stall, excess_ns, unexplained_ns: excess_ns, ..Self::default() }
    }

    /// Its parts and causes, by the account of its thread in a trace, or by what that saw of itself.
    pub(super) fn charge(
        &mut self,
        traced: Option<(&Trace, &Account)>,
        excess: &Excess<'_>,
        seen: Option<&Seen>,
    ) {
        self.seen = seen.copied();
        let from_windows = seen.map(|seen| from_windows(seen, excess)).unwrap_or_default();
        if let Some((trace, account)) = traced {
            let part = |(part, ns): (Part, u64)| PartTime { part: part_words(part, trace), ns };
            self.parts = account.sums().into_iter().map(part).collect();
            let (causes, unnamed_ns) = from_account(account, trace, excess, seen);
            self.causes = causes;
            from_windows.into_iter().for_each(|one| self.complete(one, unnamed_ns));
        } else {
            self.causes = from_windows;
        }
        self.sum_up();
    }

    /// Where the trace names no cause, the thread's own windows may know one: more of a cause than the trace does.
    fn complete(&mut self, mut from_windows: NamedCause, unnamed_ns: u64) {
        let whole = from_windows.name.name();
        let is_of_it = |told: &&NamedCause| {
            let without = told.name.definition().and_then(|known| known.without_trace);
            told.name.name() == whole || without == Some(whole)
        };
        let told_ns: u64 = self.causes.iter().filter(is_of_it).map(|told| told.ns).sum();
        let more_ns = from_windows.ns.saturating_sub(told_ns);
        let most_ns = unnamed_ns + unnamed_ns / COUNTED_MORE;
        if from_windows.share < PART_MIN || more_ns == 0 || more_ns > most_ns {
            return;
        }
        from_windows.shorten(more_ns.min(unnamed_ns));
        match self.causes.iter_mut().find(|told| told.name == from_windows.name) {
            Some(told) => told.lengthen(&from_windows),
            None => self.causes.push(from_windows),
        }
        self.causes.sort_by_key(|cause| (std::cmp::Reverse(cause.ns), cause.name));
    }

    /// Charges stages that came one after the other, each by itself: equal causes together, as shares of the whole message.
    fn charge_stages(&mut self, stages: Vec<Self>) {
        let mut all: Vec<NamedCause> = Vec::new();
        for cause in stages.into_iter().flat_map(|stage| stage.causes) {
            match all.iter_mut().find(|other| other.name == cause.name) {
                Some(other) => {
                    other.ns += cause.ns;
                    let evidence = [std::mem::take(&mut other.evidence), cause.evidence];
                    other.evidence =
                        evidence.into_iter().filter(|who| !who.is_empty()).collect::<Vec<_>>().join("; ");
                }
                None => all.push(cause),
            }
        }
        // The stages together may exceed the usual by more than the message: others were faster than usual then. Times in words stay those
        // of the stages.
        let sum_ns = all.iter().map(|cause| cause.ns).fold(0, u64::saturating_add);
        let (whole_ns, most_ns) = (self.excess_ns.max(1), sum_ns.max(self.excess_ns).max(1));
        for cause in &mut all {
            cause.ns = (u128::from(cause.ns) * u128::from(whole_ns) / u128::from(most_ns)) as u64;
            cause.share = (cause.ns as f64 / whole_ns as f64).min(1.0);
        }
        all.sort_by_key(|cause| (std::cmp::Reverse(cause.ns), cause.name));
        self.causes = all;
        self.sum_up();
    }

    /// Computes the excess that no cause accounts for.
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
    /// Its thread.
    pub thread: Option<&'a EvidenceThread>,
    /// The trace over it, and the account of it.
    pub traced: Option<(&'a EvidenceDump, Account)>,
}

/// Counters of a window may claim more by this part than the trace leaves unnamed: that of a quota is the sum of all CPUs.
const COUNTED_MORE: u64 = 16;

/// Another stage is late too from this part of the slowest one's excess on.
const ALSO_MIN: f64 = 0.1;

/// A trial with what is known of it, and what is usual in it.
struct Place<'a> {
    samples: &'a Samples,
    load: Load,
    evidence: Option<&'a TrialEvidence>,
    /// Of each stage.
    usual: Vec<u64>,
    /// Of a whole message.
    usual_ns: u64,
}

impl<'a> Place<'a> {
    fn new(samples: &'a Samples, load: Load, evidence: Option<&'a TrialEvidence>) -> Self {
        let usual = samples.stages.iter().map(|stage| typical_answered(samples, &stage.ns)).collect();
        Self { samples, load, evidence, usual, usual_ns: typical_answered(samples, &samples.total_ns) }
    }

    /// The slowest stage of a message, with its thread.
    fn late_stage(&self, row: usize) -> Option<LateStage<'a>> {
        let (place, excess_ns) = worst_stage(self.samples, &self.usual, row)?;
        let owner = self.owner(place);
        let sender = self.samples.sender.get(row).copied();
        let thread = |role: &Option<String>| self.evidence?.thread(role.as_ref()?, sender);
        let known = |role: &Option<String>| {
            thread(role).map(|thread| self.stage_of(row, place, excess_ns, Some(thread)))
        };
        let first = owner.and_then(|owner| known(&owner.role));
        // A thread that looked for a message all the while did not hold it up: then the other thread did.
        let was_there = first.as_ref().is_some_and(|late| ran_ns(late) >= excess_ns / 2);
        let other = owner.filter(|_| was_there).and_then(|owner| known(&owner.or_role));
        Some(other.or(first).unwrap_or_else(|| self.stage_of(row, place, excess_ns, None)))
    }

    fn stage_of(
        &self,
        row: usize,
        place: usize,
        excess_ns: u64,
        thread: Option<&'a EvidenceThread>,
    ) -> LateStage<'a> {
        let interval = interval(self.samples, row, self.load, place);
        let number = thread.and_then(|thread| thread.thread);
        let dump = self.evidence.and_then(|evidence| evidence.dump_over(interval));
        let traced = dump.zip(number).map(|(dump, number)| (dump, account(&dump.trace, number, interval)));
        LateStage { place, excess_ns, usual_ns: self.usual[place], interval, thread, traced }
    }

    fn owner(&self, place: usize) -> Option<&'a StageOwner> {
        self.evidence?.owner(&self.samples.stages[place].name)
    }

    /// Adds the parts of the time of a stage's thread, and their causes.
    fn charge(&self, explained: &mut Explained, owner: &StageOwner, late: &LateStage<'_>) {
        let excess = Excess {
            message_ns: explained.excess_ns,
            stage_ns: late.excess_ns,
            usual_ns: late.usual_ns,
            stage: &owner.stage,
            side: owner.side,
            urgency: late.thread.map_or(Urgency::Other, |thread| thread.urgency),
            runs_handlers: false,
            has_control: late.thread.is_some_and(|thread| thread.has_control),
            tracer: late.thread.and_then(|thread| Attached::over(&thread.attached, late.interval)),
        };
        let seen: Option<Seen> =
            late.thread.and_then(|thread| over(&thread.windows, late.interval, self.fault_ns()));
        let traced = late.traced.as_ref().map(|(dump, account)| (&dump.trace, account));
        explained.charge(traced, &excess, seen.as_ref());
    }

    /// Time of a page fault on the host of the trial.
    fn fault_ns(&self) -> u64 {
        self.evidence.map_or(FAULT_NS_MIN, |evidence| evidence.fault_ns)
    }

    /// A stall whose longest message has this row.
    fn explain(&self, (stall, row): (Stall, usize)) -> Explained {
        let late = self.late_stage(row);
        let excess_ns = stall.longest_ns.saturating_sub(self.usual_ns);
        let mut explained = Explained::of_stall(stall, self.samples.start_ns(row, self.load), excess_ns);
        explained.would_help = would_help(late.as_ref(), self.evidence);
        if let Some(late) = &late {
            self.add_stage(&mut explained, row, late);
        }
        explained
    }

    /// Stages of a message that were late too, of other threads of the same side: a cause that keeps one from running keeps them all.
    fn others(
        &self,
        row: usize,
        owner: &StageOwner,
        late: &LateStage<'a>,
    ) -> Vec<(&'a StageOwner, LateStage<'a>)> {
        let sender = self.samples.sender.get(row).copied();
        let other = |place: usize| {
            let of = self.owner(place)?;
            let thread = self.evidence?.thread(of.role.as_ref()?, sender)?;
            let is_another =
                of.side == owner.side && late.thread.is_some_and(|late| late.thread != thread.thread);
            let excess_ns = self.excess_ns(row, place)?;
            let is_large = excess_ns as f64 >= ALSO_MIN * late.excess_ns as f64;
            (is_another && is_large).then(|| (of, self.stage_of(row, place, excess_ns, Some(thread))))
        };
        (0..self.samples.stages.len()).filter(|&place| place != late.place).filter_map(other).collect()
    }

    /// Time of a stage beyond the usual.
    fn excess_ns(&self, row: usize, place: usize) -> Option<u64> {
        let ns = self.samples.stages[place].ns[row];
        (ns != ABSENT_NS).then(|| ns.saturating_sub(self.usual[place]))
    }

    /// Adds the parts of the time of the slowest stage's thread, their causes, and the causes of other late stages of its side.
    fn charge_all(&self, explained: &mut Explained, row: usize, owner: &StageOwner, late: &LateStage<'a>) {
        let others = self.others(row, owner, late);
        self.charge(explained, owner, late);
        if others.is_empty() {
            return;
        }
        let by_itself = |owner: &StageOwner, late: &LateStage<'_>| {
            let mut stage = Explained::of_stall(explained.stall, explained.instant_ns, late.excess_ns);
            self.charge(&mut stage, owner, late);
            stage
        };
        let mut stages = vec![by_itself(owner, late)];
        stages.extend(others.iter().map(|(owner, late)| by_itself(owner, late)));
        explained.charge_stages(stages);
        let also =
            others.iter().map(|(owner, late)| PartTime { part: owner.stage.clone(), ns: late.excess_ns });
        explained.also = also.collect();
    }

    fn add_stage(&self, explained: &mut Explained, row: usize, late: &LateStage<'a>) {
        explained.stage = Some(self.samples.stages[late.place].name.clone());
        explained.stage_excess_ns = late.excess_ns;
        explained.during = Some(late.interval);
        let Some(owner) = self.owner(late.place) else { return };
        self.charge_all(explained, row, owner, late);
        let role = late.thread.map(|thread| &thread.role);
        explained.role = role.or(owner.role.as_ref()).cloned();
        explained.owner = late.thread.and_then(|thread| thread.owner.clone());
        // Between two threads it is nobody's, unless the evidence of one says that it was kept from its work.
        let is_named = explained.cause() != Cause::UNEXPLAINED;
        let is_known = owner.side != Side::Medium || is_named;
        let is_open = matches!(owner.side, Side::Medium | Side::WireOrResponder);
        let of_role = || explained.role.as_deref().and_then(Side::of_role);
        explained.side = if is_open && is_named { of_role() } else { None }.or(Some(owner.side));
        explained.role = explained.role.take().filter(|_| is_known);
        explained.owner = explained.owner.take().filter(|_| is_known);
    }
}

/// Time that the thread of a stage ran in it, for certain.
fn ran_ns(late: &LateStage<'_>) -> u64 {
    match (&late.traced, late.thread) {
        (Some((_, account)), _) => account.time_of(Part::Running),
        (None, Some(thread)) => {
            over(&thread.windows, late.interval, FAULT_NS_MIN).map_or(0, |seen| u64::from(seen.cpu_us) * 1000)
        }
        (None, None) => 0,
    }
}

/// The slowest stage of a message, with what evidence there is.
pub fn late_stage<'a>(
    samples: &'a Samples,
    row: usize,
    load: Load,
    evidence: Option<&'a TrialEvidence>,
) -> Option<LateStage<'a>> {
    Place::new(samples, load, evidence).late_stage(row)
}

/// The stalls of a trial, longest first, explained.
pub fn explain(samples: &Samples, load: Load, evidence: Option<&TrialEvidence>) -> Vec<Explained> {
    let place = Place::new(samples, load, evidence);
    let stalls = stall::stalls_with_rows(samples, load, rule_for(samples), |_| true);
    let mut found: Vec<Explained> = stalls.into_iter().map(|found| place.explain(found)).collect();
    charge_backlog(&mut found);
    found.sort_by_key(|one| (std::cmp::Reverse(one.stall.longest_ns), one.instant_ns));
    found
}

/// Evidence that was not there to look at.
fn would_help(late: Option<&LateStage<'_>>, evidence: Option<&TrialEvidence>) -> Option<String> {
    let Some(late) = late else {
        return Some("not certain: its messages carry no stamps, so no stage is known".to_owned());
    };
    let Some(evidence) = evidence else {
        return Some(
            "not certain: the run holds no evidence: an older version made it, or its file is gone"
                .to_owned(),
        );
    };
    if late.thread.is_some_and(|thread| thread.thread.is_none()) {
        return Some(
            "not certain: the thread is on another host, of which there is no trace of the kernel".to_owned(),
        );
    }
    let ended = late.thread.filter(|thread| {
        thread.windows_left_out > 0 && over(&thread.windows, late.interval, FAULT_NS_MIN).is_none()
    });
    if let Some(thread) = ended.filter(|_| late.traced.is_none()) {
        let left_out = count(thread.windows_left_out);
        return Some(format!(
            "more certain with a shorter run: {left_out} windows of its thread were not kept"
        ));
    }
    match (&evidence.recording, &late.traced) {
        (Recording::On { .. }, Some((dump, _))) if dump.trace.lost() > 0 => {
            Some(format!("not certain: the recorder lost {}", plural(dump.trace.lost(), "event")))
        }
        (Recording::On { .. }, Some((dump, _))) => {
            dump.trace.begins_late(late.interval).map(|lack| format!("more certain with {lack}"))
        }
        (Recording::On { .. }, None) => Some(
            "not certain: no dump covers it: it was below the recorder's threshold, or one of too many"
                .to_owned(),
        ),
        (Recording::Off, _) => {
            Some("more certain with a trace of the kernel: run it with --trace, as root".to_owned())
        }
        (Recording::Missing { reason }, _) => {
            Some(format!("more certain with a trace of the kernel: {reason}"))
        }
    }
}

/// A thread that moves again after a stall takes its backlog message by message, each a stall by the rule. A message that was on its
/// way before the first release belongs to the first stall. It does not if its own evidence names something else, or if most of its
/// time came before the first stall or after that release.
pub(super) fn charge_backlog(found: &mut [Explained]) {
    found.sort_by_key(|one| one.stall.release_ns);
    for place in 1..found.len() {
        let (earlier, later) = found.split_at_mut(place);
        let Some(one) = later.first_mut() else { continue };
        let is_same = |ahead: &&Explained| (&ahead.role, &ahead.owner) == (&one.role, &one.owner);
        let ahead = earlier.iter().rev().find(|ahead| is_same(ahead) && ahead.role.is_some());
        let Some(ahead) = ahead.filter(|ahead| is_backlog_of(one, ahead)) else { continue };
        let own = one.cause();
        let is_its_own = ![Cause::UNEXPLAINED, ahead.cause()].contains(&own) && !own.is_work();
        if !is_its_own && ahead.cause() != Cause::UNEXPLAINED {
            one.behind = Some(ahead.behind.unwrap_or(ahead.stall.first_index));
        }
    }
}

/// It was under way when the one ahead was released, and while that one was, except for half of its excess or less.
fn is_backlog_of(one: &Explained, ahead: &Explained) -> bool {
    let own_release_ns = one.instant_ns.saturating_add(one.stall.longest_ns);
    let later_ns = own_release_ns.saturating_sub(ahead.stall.release_ns);
    let earlier_ns = ahead.instant_ns.saturating_sub(one.instant_ns);
    one.instant_ns < ahead.stall.release_ns && earlier_ns + later_ns <= one.excess_ns / 2
}

#[cfg(test)]
pub(crate) mod tests;
