//! Who was late, where, and why: each stall of a trial by side, stage and cause, from what user space can know.
//!
//! A stall's longest trip is divided into its stages. The stage that exceeds what is usual by most names the side; the
//! evidence of that side's thread in the window around the trip names the cause. Causes are those of
//! `docs/response.md`; where none fits, that is said, and nothing is made up.

use std::fmt;

use punctual::{Clock, Ticks};
use serde::{Deserialize, Serialize};

use super::client::{Testimony, Window};
use super::evidence::Evidence;
use super::option::Urgency;
use super::trips::{BEYOND, Trip, Trips, WIRE};
use crate::sample::{ABSENT_NS, Load, Outcome, RESPONDER, Samples};
use crate::stall::{self, Stall, StallRule};

/// Whose time it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The measuring host.
    Client,
    /// Between the two kernels; on a veth that runs in the sender's own call.
    Wire,
    /// The measured host.
    Responder,
    /// No stamp tells the wire from the responder.
    WireOrResponder,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Wire => "wire",
            Self::Responder => "responder",
            Self::WireOrResponder => "wire or responder",
        })
    }
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Ready to run, and others ran: contention for the CPU.
    RunQueue,
    /// As above, of a real-time thread for the time that the kernel keeps for others.
    RealTimeLimit,
    /// Neither running nor ready, and everything on that CPU was late: the process was stopped.
    Stopped,
    /// Everything on that CPU was late, and the hypervisor took time away.
    Steal,
    /// Memory was read from the disk.
    FaultsMajor,
    /// Memory was touched for the first time.
    FaultsMinor,
    /// The thread ran on another CPU afterwards.
    Migrated,
    /// The thread itself used the CPU all the while.
    Busy,
    /// Asleep, neither ready nor running, while the control thread was in time: the wake-up itself was late.
    WakeUp,
    /// None of this.
    Unknown,
}

impl Cause {
    fn words(self) -> &'static str {
        match self {
            Self::RunQueue => "ready to run, but the CPU was another's",
            Self::RealTimeLimit => "ready to run, but at the kernel's limit for real-time threads",
            Self::Stopped => "stood still: stopped, or its CPU was not there",
            Self::Steal => "the hypervisor took the CPU away",
            Self::FaultsMajor => "memory was read from the disk",
            Self::FaultsMinor => "memory was touched for the first time",
            Self::Migrated => "moved to another CPU",
            Self::Busy => "computed all the while",
            Self::WakeUp => {
                "its wake-up came late (idle CPU, interrupt, softirq: the kernel's own, not seen from here)"
            }
            Self::Unknown => "nothing that user space can see",
        }
    }

    /// What to try.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::RunQueue => {
                "give the thread a CPU of its own (--client-cpu, --responder-cpu, isolcpus), or --sched fifo:50"
            }
            Self::RealTimeLimit => {
                "do not spin in a real-time class on a shared CPU; isolate the CPU, or --sched nice:-20"
            }
            Self::Stopped => "find who stops it (SIGSTOP, a debugger, the freezer of its control group)",
            Self::Steal => "use a dedicated host",
            Self::FaultsMajor | Self::FaultsMinor => "touch and lock the memory before (mlockall)",
            Self::Migrated => "pin the thread",
            Self::Busy => "make the handler shorter, or give it more threads",
            Self::WakeUp => "keep the CPU awake: spin, a shorter gap, idle=poll or /dev/cpu_dma_latency",
            Self::Unknown => "look with tracepoints: perf trace, or trace-cmd, around the instant",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// One stall, explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The stall.
    pub stall: Stall,
    /// Time beyond a usual trip's.
    pub excess_ns: u64,
    /// Whose.
    pub side: Side,
    /// The stage that holds most of it.
    pub stage: String,
    /// Time in that stage beyond what is usual.
    pub stage_excess_ns: u64,
    /// Why.
    pub cause: Cause,
    /// How much of the excess the evidence accounts for, 0 to 1.
    pub confidence: f64,
    /// Its trip only waited its turn behind an earlier stall, that of this trip, whose cause is the cause of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// What was seen of the thread, in the window around the trip.
    pub evidence: Option<Evidence>,
}

impl Finding {
    /// What was seen of the thread, in words.
    #[must_use]
    pub fn seen(&self) -> String {
        let Some(seen) = &self.evidence else { return "nothing is known of that thread".to_owned() };
        let Evidence { wall_us, cpu_us, wait_us, control_late_us, faults_minor, faults_major, .. } = seen;
        format!(
            "of {wall_us} µs ran {cpu_us}, ready {wait_us}, control thread late {control_late_us}, faults {faults_minor}+{faults_major}"
        )
    }
}

/// What an explanation needs besides the trial itself.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Of both threads.
    pub urgency: Urgency,
    /// CPU time that the hypervisor took during the trial, ms.
    pub steal_ms: u64,
    /// When latency counts from.
    pub load: Load,
}

/// The stalls of a trial, longest first, explained.
#[must_use]
pub fn explain(
    trips: &Trips,
    samples: &Samples,
    testimony: &Testimony,
    rule: StallRule,
    given: &Circumstances,
) -> Vec<Finding> {
    let first = samples.index.first().copied().unwrap_or(0);
    let stages: Vec<u64> = samples.stages.iter().map(|stage| typical(&stage.ns)).collect();
    let total = typical(&samples.total_ns);
    let found = stall::stalls(samples, given.load, rule, |_| true);
    let mut findings: Vec<Finding> = found
        .into_iter()
        .filter_map(|stall| {
            let row = usize::try_from(stall.first_index.checked_sub(first)?).ok()?;
            let excess_ns = stall.longest_ns.saturating_sub(total);
            let (place, stage_excess_ns) = worst_stage(samples, &stages, row)?;
            let name = &samples.stages[place].name;
            let side = side_of(name, samples);
            let evidence = evidence_for(side, row, trips, testimony, given.load);
            let (cause, confidence) = cause_of(evidence.as_ref(), excess_ns, name, given);
            // Where no stamp tells the wire from the responder, its evidence may.
            let is_its_own = side == Side::WireOrResponder && confidence >= PART_MIN;
            let side = if is_its_own { Side::Responder } else { side };
            Some(Finding {
                stall,
                excess_ns,
                side,
                stage: name.clone(),
                stage_excess_ns,
                cause,
                confidence,
                behind: None,
                evidence,
            })
        })
        .collect();
    charge_backlog(&mut findings, samples, given.load);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.stall.longest_ns));
    findings
}

/// Whoever moves again after a standstill takes what waited meanwhile in turn. On a slow machine that is not one release
/// but many, each a stall by the rule, and the later ones' trips were on their way before the earlier ones' release: where
/// their own evidence says nothing else, they are the same standstill.
fn charge_backlog(findings: &mut [Finding], samples: &Samples, load: Load) {
    findings.sort_by_key(|finding| finding.stall.release_ns);
    let first = samples.index.first().copied().unwrap_or(0);
    let start = |finding: &Finding| {
        let row = finding.stall.first_index.checked_sub(first).and_then(|row| usize::try_from(row).ok());
        row.map_or(u64::MAX, |row| samples.start_ns(row, load))
    };
    for place in 1..findings.len() {
        let (earlier, later) = findings.split_at_mut(place);
        let Some(finding) = later.first_mut() else { continue };
        let Some(ahead) = earlier.iter().rev().find(|ahead| ahead.side == finding.side) else { continue };
        let waited_behind = start(finding) < ahead.stall.release_ns;
        // Time taken by the hypervisor is known of the trial as a whole only: the least of evidence.
        let is_its_own =
            finding.confidence >= PART_MIN && finding.cause != ahead.cause && finding.cause != Cause::Steal;
        if waited_behind && !is_its_own && ahead.confidence >= PART_MIN {
            finding.cause = ahead.cause;
            finding.confidence = ahead.confidence;
            finding.behind = Some(ahead.behind.unwrap_or(ahead.stall.first_index));
        }
    }
}

/// What is usual: a tenth of the trips is faster. Not the median, which may itself lie in a standstill.
fn typical(ns: &[u64]) -> u64 {
    let mut known: Vec<u64> = ns.iter().copied().filter(|&ns| ns != ABSENT_NS).collect();
    if known.is_empty() {
        return 0;
    }
    let place = known.len() / 10;
    *known.select_nth_unstable(place).1
}

/// Which trips are late enough to be explained: by the rule of stalls, from what is usual.
#[must_use]
pub fn rule_for(samples: &Samples) -> StallRule {
    let answered = (0..samples.len()).filter(|&row| samples.outcome[row] == Outcome::Answered);
    let ns: Vec<u64> = answered.map(|row| samples.total_ns[row]).collect();
    StallRule::for_median(typical(&ns))
}

/// The stage that exceeds what is usual by most. `None` for a trip without stamps.
fn worst_stage(samples: &Samples, usual: &[u64], row: usize) -> Option<(usize, u64)> {
    if samples.outcome[row] != Outcome::Answered {
        return None;
    }
    let excess = |place: usize| match samples.stages[place].ns[row] {
        ABSENT_NS => None,
        ns => Some((place, ns.saturating_sub(usual[place]))),
    };
    (0..samples.stages.len()).filter_map(excess).max_by_key(|&(_, excess)| excess)
}

fn side_of(stage: &str, samples: &Samples) -> Side {
    let has = |name: &str| samples.stages.iter().any(|stage| stage.name == name);
    match stage {
        "request.sent" | "request.tx" | "reply.woken" | "reply.read" => Side::Client,
        "request.woken" if !has("request.rx") && !has(WIRE) => Side::WireOrResponder,
        "request.woken" | "request.read" | "reply.tx" => Side::Responder,
        RESPONDER => Side::Responder,
        BEYOND => Side::WireOrResponder,
        _ => Side::Wire,
    }
}

/// What the side's thread went through while it held the trip: on a slow machine that is many windows.
fn evidence_for(
    side: Side,
    row: usize,
    trips: &Trips,
    testimony: &Testimony,
    load: Load,
) -> Option<Evidence> {
    let trip = trips.rows().get(row)?;
    match side {
        Side::Responder | Side::WireOrResponder => over(&testimony.responder, held_by_responder(trip, load)?),
        // On a veth the wire runs in the sender's own call, and nothing else is known of it.
        Side::Client | Side::Wire => {
            let clock = Clock::get();
            let span = (clock.nanos(start_of(trip, load)), clock.nanos(trip.seen.done));
            over(&testimony.client, span)
        }
    }
}

fn start_of(trip: &Trip, load: Load) -> Ticks {
    if load == Load::Open { trip.due } else { trip.sent }
}

/// From the kernel's stamp to the reply, on the responder's own clock; without a stamp, from no earlier than the trip's
/// start.
fn held_by_responder(trip: &Trip, load: Load) -> Option<(u64, u64)> {
    let record = trip.record?;
    let woken = record.woken_ns();
    let end = woken.saturating_add(u64::from(record.read_ns)).saturating_add(record.application_ns.into());
    let total_ns = || Clock::get().nanos(trip.seen.done.since(start_of(trip, load)));
    let begin =
        record.stack_ns.map_or_else(|| end.saturating_sub(total_ns()), |ns| woken.saturating_sub(ns.into()));
    Some((begin, end))
}

/// The windows, in the order of time, that overlap with this span, as one. Of each no more than the overlap is counted.
fn over(windows: &[Window], (from, to): (u64, u64)) -> Option<Evidence> {
    let mut sum: Option<Evidence> = None;
    let first = windows.partition_point(|window| window.span.1 <= from);
    for Window { evidence, span } in windows[first..].iter().take_while(|window| window.span.0 < to) {
        let overlap_us = span.1.min(to).saturating_sub(span.0.max(from)) / 1000;
        if overlap_us == 0 {
            continue;
        }
        let overlap_us = u32::try_from(overlap_us).unwrap_or(u32::MAX);
        let sum = sum.get_or_insert(Evidence { number: evidence.number, ..Evidence::default() });
        let add = |sum: &mut u32, us: u32| *sum = sum.saturating_add(us.min(overlap_us));
        add(&mut sum.wall_us, evidence.wall_us);
        add(&mut sum.cpu_us, evidence.cpu_us);
        add(&mut sum.wait_us, evidence.wait_us);
        add(&mut sum.control_late_us, evidence.control_late_us);
        sum.faults_minor = sum.faults_minor.saturating_add(evidence.faults_minor);
        sum.faults_major = sum.faults_major.saturating_add(evidence.faults_major);
        sum.switches_involuntary = sum.switches_involuntary.saturating_add(evidence.switches_involuntary);
        sum.migrations = sum.migrations.saturating_add(evidence.migrations);
    }
    sum
}

/// A cause accounts for a stall when its time is at least so much of the excess.
const PART_MIN: f64 = 0.4;

/// Page faults that cost a stall: each takes about half a microsecond, and as much as two when memory is cleared.
const FAULTS_MIN: u16 = 32;

/// What a real-time thread must leave to others, and the kernel's imprecision in that.
const LIMIT_MS: std::ops::RangeInclusive<u64> = 40..=60;

fn cause_of(seen: Option<&Evidence>, excess_ns: u64, stage: &str, given: &Circumstances) -> (Cause, f64) {
    let Some(seen) = seen else { return (Cause::Unknown, 0.0) };
    let excess_us = (excess_ns / 1000).max(1) as f64;
    let part = |us: f64| (us / excess_us).min(1.0);
    let waited = part(seen.wait_us.into());
    // Who is ready and does not run makes the control thread late as well.
    let stood = part(seen.control_late_us.saturating_sub(seen.wait_us).into());
    let stolen = part((given.steal_ms * 1000) as f64);
    let busy = part(seen.cpu_us.into());
    if waited >= PART_MIN && waited >= stood {
        let limited = given.urgency.is_real_time() && LIMIT_MS.contains(&(excess_ns / 1_000_000));
        return (if limited { Cause::RealTimeLimit } else { Cause::RunQueue }, waited);
    }
    if stood >= PART_MIN {
        return if stolen >= PART_MIN { (Cause::Steal, stolen) } else { (Cause::Stopped, stood) };
    }
    if seen.faults_major > 0 {
        return (Cause::FaultsMajor, 0.5);
    }
    if seen.faults_minor >= FAULTS_MIN {
        return (Cause::FaultsMinor, 0.5);
    }
    if seen.migrations > 0 {
        return (Cause::Migrated, 0.3);
    }
    let asleep = stage.ends_with("woken");
    if !asleep && busy >= PART_MIN {
        return (Cause::Busy, busy);
    }
    if asleep && busy < PART_MIN {
        // What is left of the window: neither running nor ready.
        let idle = seen.wall_us.saturating_sub(seen.cpu_us).saturating_sub(seen.wait_us);
        return (Cause::WakeUp, part(idle.into()) / 2.0);
    }
    (Cause::Unknown, 0.0)
}

/// How often which cause met which side and stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Whose time.
    pub side: Side,
    /// In which stage.
    pub stage: String,
    /// Why.
    pub cause: Cause,
    /// Stalls; what waited behind one is part of it.
    pub stalls: u64,
    /// Trips in them.
    pub trips: u64,
    /// Their longest trips' excess, together: of trips that waited behind one another the time would count twice.
    pub excess_ns: u64,
}

/// Findings by side, stage and cause, those with the most time first.
#[must_use]
pub fn shares(findings: &[Finding]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for finding in findings {
        let key = |share: &Share| (share.side, share.cause) == (finding.side, finding.cause);
        // What waited behind a stall is part of it, whichever of its own stages was the longest.
        let of_stage = |share: &Share| finding.behind.is_some() || share.stage == finding.stage;
        let place = shares.iter().position(|share| key(share) && of_stage(share));
        let place = place.unwrap_or_else(|| {
            let (side, cause) = (finding.side, finding.cause);
            shares.push(Share {
                side,
                stage: finding.stage.clone(),
                cause,
                stalls: 0,
                trips: 0,
                excess_ns: 0,
            });
            shares.len() - 1
        });
        let share = &mut shares[place];
        share.trips += finding.stall.messages;
        if finding.behind.is_none() {
            share.stalls += 1;
            share.excess_ns += finding.excess_ns;
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.excess_ns));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: Circumstances = Circumstances { urgency: Urgency::Other, steal_ms: 0, load: Load::Closed };

    fn window(cpu_us: u32, wait_us: u32, control_late_us: u32) -> Evidence {
        Evidence { wall_us: 5000, cpu_us, wait_us, control_late_us, ..Evidence::default() }
    }

    #[test]
    fn evidence_names_the_cause() {
        let named =
            |seen: Evidence, stage, given: &Circumstances| cause_of(Some(&seen), 4_000_000, stage, given).0;
        assert_eq!(named(window(100, 3900, 4000), "reply.woken", &OTHER), Cause::RunQueue);
        assert_eq!(named(window(100, 0, 3900), "reply.woken", &OTHER), Cause::Stopped);
        let stolen = Circumstances { steal_ms: 10, ..OTHER };
        assert_eq!(named(window(100, 0, 3900), "reply.woken", &stolen), Cause::Steal);
        assert_eq!(named(window(3900, 0, 0), RESPONDER, &OTHER), Cause::Busy);
        assert_eq!(named(window(50, 20, 30), "request.woken", &OTHER), Cause::WakeUp);
        let faults = Evidence { faults_minor: 900, ..window(900, 0, 0) };
        assert_eq!(named(faults, RESPONDER, &OTHER), Cause::FaultsMinor);
        assert_eq!(named(window(100, 1700, 4000), "request.woken", &OTHER), Cause::Stopped);
        assert_eq!(cause_of(None, 4_000_000, RESPONDER, &OTHER), (Cause::Unknown, 0.0));
        let urgent = Circumstances { urgency: Urgency::Fifo(50), ..OTHER };
        let limited = cause_of(Some(&window(0, 49_000, 50_000)), 50_000_000, "request.woken", &urgent);
        assert_eq!(limited.0, Cause::RealTimeLimit);
    }

    /// Goal: what a trip waited for lies in the windows before the one in which it was answered.
    #[test]
    fn a_trip_is_charged_with_every_window_it_waited_in() {
        let at = |from_us: u64, cpu_us: u32, control_late_us: u32| {
            let wall_us = 1000;
            let span = (from_us * 1000, (from_us + 1000) * 1000);
            let evidence =
                Evidence { wall_us, cpu_us, control_late_us, faults_minor: 3, ..Evidence::default() };
            Window { evidence, span }
        };
        let windows = [at(0, 500, 0), at(1000, 10, 990), at(2000, 900, 0)];
        let seen = over(&windows, (1_200_000, 2_100_000)).expect("two windows");
        assert_eq!((seen.wall_us, seen.cpu_us, seen.control_late_us), (900, 110, 800));
        assert_eq!(seen.faults_minor, 6);
        assert_eq!(over(&windows, (5_000_000, 6_000_000)), None);
    }

    fn finding(first_index: u64, release_ns: u64, cause: Cause, confidence: f64) -> Finding {
        Finding {
            stall: Stall { release_ns, first_index, messages: 1, longest_ns: 900_000 },
            excess_ns: 900_000,
            side: Side::Responder,
            stage: "request.woken".to_owned(),
            stage_excess_ns: 900_000,
            cause,
            confidence,
            behind: None,
            evidence: None,
        }
    }

    /// Goal: what queued behind a standstill is part of it, and what came after it is not.
    #[test]
    fn a_backlog_is_charged_to_its_standstill() {
        let mut samples = Samples::default();
        for (index, sent_ns) in (0..4).zip([0, 100_000, 200_000, 5_000_000]) {
            samples.push(index, sent_ns, sent_ns, 900_000, Outcome::Answered);
        }
        let mut findings = [
            finding(3, 5_900_000, Cause::WakeUp, 0.2),
            finding(0, 900_000, Cause::Stopped, 0.9),
            finding(1, 1_000_000, Cause::Unknown, 0.0),
            finding(2, 1_100_000, Cause::WakeUp, 0.1),
        ];
        charge_backlog(&mut findings, &samples, Load::Open);
        let causes = findings.each_ref().map(|finding| (finding.cause, finding.behind));
        let behind = (Cause::Stopped, Some(0));
        assert_eq!(causes, [(Cause::Stopped, None), behind, behind, (Cause::WakeUp, None)]);
        let shares = shares(&findings);
        let sums = (shares[0].cause, shares[0].stalls, shares[0].trips, shares[0].excess_ns);
        assert_eq!(sums, (Cause::Stopped, 1, 3, 900_000), "{shares:?}");
    }
}
