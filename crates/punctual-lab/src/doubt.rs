//! Doubts about a number, each with advice.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{self, micros, plural};

/// Printed with the result it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Doubt {
    /// The observation.
    pub what: String,
    /// Advice to the reader.
    #[serde(rename = "do")]
    pub do_: String,
}

/// The doubts this laboratory knows. `subject` is the cell, the trial or the file concerned.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the line above a variant says what its fields hold")]
pub enum Cause {
    /// The clock cannot resolve what is measured.
    ClockCoarse { step_ns: u64 },
    /// A figure of fewer than ten clock steps.
    BelowResolution { subject: String, figure_ns: u64, step_ns: u64 },
    /// Somebody set a clock, by so many milliseconds against the clock that intervals come from.
    ClockStepped { subject: String, clock: &'static str, by_ms: i64 },
    /// A measuring thread changed its core.
    Migrated { subject: String, times: u64 },
    /// Sleeps that ended by the clock although a message was there.
    Rescued { subject: String, count: u64 },
    /// A repaired protocol slept over messages.
    WakeUpsLost { protocol: String, count: u64 },
    /// Memory was touched for the first time while measuring.
    PageFaults { subject: String, count: u64 },
    /// The hypervisor gave the processor to somebody else.
    Steal { subject: String, ms: u64 },
    /// The quota of the control group ran out.
    Throttled { subject: String, times: u64 },
    /// Other programs used our processors while we measured, so many of them on average.
    OthersRan { processors: f64 },
    /// Two processors' counters are apart, by so much at least.
    ClockSkew { by_ns: i64 },
    /// The sample supports no high quantile.
    FewSamples { subject: String, count: u64, quantile: &'static str },
    /// Fewer pairs of runs than a comparison needs.
    FewPairs { subject: String, pairs: usize, pairs_min: usize },
    /// Fewer values than an interval needs.
    FewValues { subject: String, count: usize, count_min: usize },
    /// Openings in which half of the messages of either side never came, so that their ratio is none.
    NoRatio { subject: String, floor: String, openings: usize },
    /// Runs in which nothing was said after the warm-up; of runs in turn each has a partner.
    SilentRuns { subject: String, runs: Vec<String>, in_turn: bool },
    /// Runs in turn of one side beyond those that have a partner.
    Unpaired { subject: String, side: &'static str, runs: usize },
    /// Messages that never came.
    Lost { subject: String, count: u64 },
    /// Wrong answers.
    Mismatched { subject: String, count: u64 },
    /// Messages without an answer at the end of the trial.
    Unfinished { subject: String, count: u64 },
    /// Rounds of which no message was answered that counts.
    Unanswered { subject: String, rounds: usize },
    /// Times that a process did not know of another when all began.
    Unheard { subject: String, times: u64 },
    /// Messages that were not sent, because there was no room for them.
    NoRoom { subject: String, count: u64 },
    /// Messages that were never sent.
    Skipped { subject: String, count: u64 },
    /// Messages came more than once.
    Duplicated { subject: String, count: u64 },
    /// Later messages came before earlier ones.
    Reordered { subject: String, count: u64 },
    /// The steady state begins slower than it ends.
    FirstSlow { subject: String, count: u64, first_ns: u64, median_ns: u64 },
    /// Stages add up to more than the total.
    StagesOverlap { subject: String, count: u64, of: u64 },
    /// A file of samples that ends too early or cannot be read.
    TrialUnreadable { file: String, reason: String },
    /// The summary is damaged; the samples are none the worse for it.
    SummaryUnreadable { reason: String },
    /// The run was cut short: by Ctrl-C, or it has no summary.
    CutShort { trials: usize },
    /// A comparison was cut short by Ctrl-C.
    PairsCutShort { pairs: usize },
    /// Runs of a comparison that ended with 1: they broke a promise, or a part of them crashed.
    PromisesBroken { runs: Vec<String> },
    /// Something was in the way of the rest of the run.
    Ended { reason: String },
    /// The process at the far end died amid a trial.
    FarEndGone { subject: String, reason: String },
    /// The machine was too busy for all trials.
    Overdue { trials: usize, left_out: usize },
    /// Both sides were taken at different times.
    NotInterleaved,
    /// The distance between runs of the same thing is unknown.
    DriftUnknown,
    /// Runs that are compared with themselves.
    OnBothSides { runs: Vec<String> },
    /// Something was left out of one run that others have.
    NotMeasured { what: String, reason: String },
    /// A cell exists on one side only.
    Unmatched { count: usize },
    /// Sides differ in the number of messages, which changes their maxima.
    UnequalCounts { subject: String, a: u64, b: u64 },
    /// The host facts of both sides differ.
    HostsDiffer { what: String },
    /// The processor may change its frequency under the measurement.
    Governor { name: String },
}

/// So many of something, by what is said of one and of others.
fn many(f: &mut fmt::Formatter<'_>, subject: &str, count: u64, said: [&str; 2]) -> fmt::Result {
    write!(f, "{subject}: {count} {}", said[usize::from(count != 1)])
}

/// Of a comparison whose runs were not taken in turn.
const SEPARATE: &str =
    "both sides were taken at different times, so a drift of the machine looks like a difference";

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockCoarse { step_ns } => write!(f, "the clock steps by {step_ns} ns"),
            Self::BelowResolution { subject, figure_ns, step_ns } => {
                write!(f, "{subject}: {figure_ns} ns is less than ten clock steps of {step_ns} ns")
            }
            Self::ClockStepped { subject, clock, by_ms } => {
                write!(f, "{subject}: {clock} was set by {by_ms:+} ms while measuring")
            }
            Self::Migrated { subject, times } => many(f, subject, *times, ["change of core", "changes of core"]),
            Self::Rescued { subject, count } => many(f, subject, *count, ["wake-up was lost and rescued by the clock", "wake-ups were lost and rescued by the clock"]),
            Self::WakeUpsLost { protocol, count } => many(f, protocol, *count, ["wake-up was lost, which its model rules out", "wake-ups were lost, which its model rules out"]),
            Self::PageFaults { subject, count } => many(f, subject, *count, ["page fault while measuring", "page faults while measuring"]),
            Self::Steal { subject, ms } => write!(f, "{subject}: the hypervisor took {ms} ms away"),
            Self::Throttled { subject, times } => {
                write!(f, "{subject}: the CPU quota ran out {}", plural(*times, "time"))
            }
            Self::OthersRan { processors } => {
                write!(f, "other programs used {processors:.1} of our processors while we measured")
            }
            Self::ClockSkew { by_ns } => {
                write!(f, "the counters of the two processors are {by_ns:+} ns apart at least")
            }
            Self::FewSamples { subject, count, quantile } => {
                write!(f, "{subject}: as few as {count} messages, which support no {quantile}")
            }
            Self::FewPairs { subject, pairs, pairs_min } => few_pairs(f, subject, *pairs, *pairs_min),
            Self::FewValues { subject, count, count_min } => {
                write!(f, "{subject}: taken {count} times, where an interval and a verdict need {count_min}")
            }
            Self::NoRatio { subject, floor, openings } => no_ratio(f, [subject, floor], *openings),
            Self::SilentRuns { subject, runs, in_turn } => silent_runs(f, subject, runs, *in_turn),
            Self::Unpaired { subject, side, runs } => unpaired(f, subject, side, *runs),
            Self::Lost { subject, count } => many(f, subject, *count, ["message was lost", "messages were lost"]),
            Self::Mismatched { subject, count } => many(f, subject, *count, ["answer was wrong", "answers were wrong"]),
            Self::Unfinished { subject, count } => many(f, subject, *count, ["message had no answer yet when the trial ended", "messages had no answer yet when the trial ended"]),
            Self::Unanswered { subject, rounds } => unanswered(f, subject, *rounds),
            Self::Unheard { subject, times } => write!(f, "{subject}: {} a process had not heard of another when all began", plural(*times, "time")),
            Self::NoRoom { subject, count } => many(f, subject, *count, ["message found no room and was not sent", "messages found no room and were not sent"]),
            Self::Skipped { subject, count } => many(f, subject, *count, ["message was never sent", "messages were never sent"]),
            Self::Duplicated { subject, count } => many(f, subject, *count, ["message arrived once more", "messages arrived once more"]),
            Self::Reordered { subject, count } => many(f, subject, *count, ["message arrived after a younger one", "messages arrived after a younger one"]),
            Self::FirstSlow { subject, count, first_ns, median_ns } => {
                first_slow(f, subject, *count, [*first_ns, *median_ns])
            }
            Self::StagesOverlap { subject, count, of } => stages_overlap(f, subject, [*count, *of]),
            Self::TrialUnreadable { file, reason } => write!(f, "{file} cannot be read: {reason}"),
            Self::SummaryUnreadable { reason } => write!(f, "summary.json cannot be read: {reason}"),
            Self::CutShort { trials } => write!(f, "the run was cut short after {}", plural(*trials as u64, "trial")),
            Self::PairsCutShort { pairs } => pairs_cut_short(f, *pairs),
            Self::PromisesBroken { runs } => write!(f, "a promise did not hold in {}", runs.join(", ")),
            Self::Ended { reason } => write!(f, "the run ended early: {reason}"),
            Self::FarEndGone { subject, reason } => write!(f, "{subject}: {reason}"),
            Self::Overdue { trials, left_out } => {
                write!(f, "{left_out} of {} trials were left out: those before took twice their time", trials + left_out)
            }
            Self::NotInterleaved => f.write_str(SEPARATE),
            Self::DriftUnknown => f.write_str(
                "how far runs of the same thing lie apart is unknown here: three times as far as trials is assumed, and 10 % at least",
            ),
            Self::OnBothSides { runs } => write!(f, "on both sides: {}", runs.join(", ")),
            Self::NotMeasured { what, reason } => write!(f, "not measured: {what}: {reason}"),
            Self::Unmatched { count: 1 } => f.write_str("1 cell exists in some of the runs only"),
            Self::Unmatched { count } => write!(f, "{count} cells exist in some of the runs only"),
            Self::UnequalCounts { subject, a, b } => {
                write!(f, "{subject}: {a} messages against {b}; a longer sample has a larger max")
            }
            Self::HostsDiffer { what } => write!(f, "the hosts differ: {what}"),
            Self::Governor { name } => write!(f, "the frequency governor is {name}, not performance"),
        }
    }
}

impl Cause {
    /// Advice to the reader about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::ClockCoarse { .. } => "read nothing into differences below ten steps",
            Self::BelowResolution { .. } => "measure batches of messages, or a machine with an invariant TSC",
            Self::ClockStepped { .. } => {
                "intervals come from the TSC and stand unless two clocks jumped alike; stop what sets clocks, run again"
            }
            Self::Migrated { .. } => "pin the threads: taskset, or isolate their processors",
            Self::Rescued { .. } | Self::WakeUpsLost { .. } => {
                "report it with the run: no wake-up may be lost"
            }
            Self::PageFaults { .. } => {
                "weigh the slowest messages less, as a fault delays one; `run response` locks its memory if asked (--lock-memory)"
            }
            Self::Steal { .. } => "use a dedicated host, or run again and compare the trials",
            Self::Throttled { .. } => "raise cpu.max of the control group, or block instead of spinning",
            Self::OthersRan { .. } => "stop the other programs and run again",
            Self::ClockSkew { .. } => "believe round trips only: one way is wrong by as much",
            Self::FewSamples { .. } => "measure for longer, or more messages: `--help` names the option",
            Self::FewPairs { .. } => "play at least five pairs (--pairs)",
            Self::FewValues { .. } => {
                "raise --rounds and --starts to five at least, and read the medians alone until then"
            }
            Self::SilentRuns { .. } => "take these runs again, with a longer --duration or a larger --count",
            Self::Unpaired { .. } => "take as many runs of both, in turn: punctual compare --interleave",
            Self::DriftUnknown => {
                "take runs of both in turn (punctual compare --interleave), or five of the same kind on this host"
            }
            Self::Lost { .. } | Self::NoRatio { .. } => {
                "see its stalls, and whether a receive buffer was full: punctual explain RUN"
            }
            Self::Mismatched { .. } => "do not use this route: messages do not arrive as they were sent",
            Self::Unfinished { .. } => "raise --duration, or take the longer period (--gap 1ms)",
            Self::Unanswered { .. } => "raise --duration, or stop the other programs",
            Self::Unheard { .. } => {
                "start fewer processes at once, or stop the other programs: first values may be missing"
            }
            Self::NoRoom { .. } => "send less often, or from fewer: medium or receiver cannot keep up",
            Self::Skipped { .. } => {
                "see which nodes did not run at their instants, and why; before the first was heard, nobody asked"
            }
            Self::Duplicated { .. } => "do not act on a message of this route twice: number them",
            Self::Reordered { .. } => "do not rely on the order of this route",
            Self::FirstSlow { .. } => {
                "look at the plot by message index; a longer run (--duration) weighs it less"
            }
            Self::StagesOverlap { .. } => {
                "believe no stage of such a message; if they are more than one in a thousand, no stage of the cell: report it"
            }
            Self::TrialUnreadable { .. } => "trials that can be read are complete; measure this cell again",
            Self::SummaryUnreadable { .. } => {
                "the figures are made anew from the samples; facts that only the summary had are missing: measure again for them"
            }
            Self::Overdue { .. } => "stop the other programs and run again, or raise --duration",
            Self::Ended { .. } => "stored trials are complete; see whether the far end still runs, run again",
            Self::FarEndGone { .. } => {
                "see what it said before it ended, and the kernel's log; messages that it did not answer count as lost"
            }
            Self::CutShort { trials: 0 } => "nothing was stored: run it again",
            Self::CutShort { .. } | Self::PairsCutShort { .. } => {
                "stored trials are complete; run again for the rest"
            }
            Self::PromisesBroken { .. } => "see the line that it wrote: a crash is in no figure",
            Self::NotInterleaved => "take runs of both in turn: punctual compare --interleave",
            Self::OnBothSides { .. } => "name each run on one side only",
            Self::NotMeasured { .. } => "take all runs with the same rights, on a machine that can do it",
            Self::Unmatched { .. } => "take both runs with the same plan",
            Self::UnequalCounts { .. } => "take both sides with the same --count",
            Self::HostsDiffer { .. } => "compare runs of the same host only",
            Self::Governor { .. } => "cpupower frequency-set -g performance, as root",
        }
    }
}

fn first_slow(f: &mut fmt::Formatter<'_>, subject: &str, count: u64, ns: [u64; 2]) -> fmt::Result {
    let [first, rest] = ns.map(|ns| micros(ns as f64));
    write!(
        f,
        "{subject}: right after the warm-up {count} messages of all trials still take {first} µs, the rest {rest} µs"
    )
}

fn few_pairs(f: &mut fmt::Formatter<'_>, subject: &str, pairs: usize, pairs_min: usize) -> fmt::Result {
    write!(f, "{subject}: {} of runs where {pairs_min} are needed", plural(pairs as u64, "pair"))
}

fn no_ratio(f: &mut fmt::Formatter<'_>, [subject, floor]: [&String; 2], openings: usize) -> fmt::Result {
    let openings = plural(openings as u64, "opening");
    write!(
        f,
        "{subject}: half of the messages never came in {openings} of it or of {floor}, so their ratio is unknown"
    )
}

fn pairs_cut_short(f: &mut fmt::Formatter<'_>, pairs: usize) -> fmt::Result {
    write!(f, "the comparison was cut short after {} of runs", plural(pairs as u64, "pair"))
}

fn silent_runs(f: &mut fmt::Formatter<'_>, subject: &str, runs: &[String], in_turn: bool) -> fmt::Result {
    let left_out = if in_turn { "left out, each with its partner" } else { "left out" };
    write!(f, "{subject}: no message after the warm-up in {}; {left_out}", runs.join(", "))
}

fn unpaired(f: &mut fmt::Formatter<'_>, subject: &str, side: &str, runs: usize) -> fmt::Result {
    write!(f, "{subject}: {} of {side} without a partner; left out", plural(runs as u64, "run"))
}

fn unanswered(f: &mut fmt::Formatter<'_>, subject: &str, rounds: usize) -> fmt::Result {
    let rounds = plural(rounds as u64, "round");
    write!(f, "{subject}: {rounds} without an answer after the warm-up, left out of what layers cost")
}

fn stages_overlap(f: &mut fmt::Formatter<'_>, subject: &str, counts: [u64; 2]) -> fmt::Result {
    let [count, of] = counts.map(units::count);
    write!(f, "{subject}: the stages of {count} exceed their total, of {of} messages")
}

impl From<Cause> for Doubt {
    fn from(cause: Cause) -> Self {
        Self { what: cause.to_string(), do_: cause.advice().to_owned() }
    }
}

/// A few page faults belong to every trial; one in so many messages is seen in a p99.
const MESSAGES_PER_FAULT_MIN: u64 = 100;

/// The doubt that page faults raise, if there were enough of them.
fn page_faults(subject: &str, faults: u64, messages: u64) -> Option<Cause> {
    let is_many = faults.saturating_mul(MESSAGES_PER_FAULT_MIN) > messages;
    is_many.then(|| Cause::PageFaults { subject: subject.to_owned(), count: faults })
}

/// Events during a trial that may have changed it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbances {
    /// Times that a thread changed its processor.
    pub migrations: u64,
    /// Page faults of the threads.
    pub faults: u64,
    /// Times that a CPU quota ran out.
    pub throttled: u64,
    /// Wake-ups that were lost, and made up for by the clock.
    pub rescued: u64,
    /// CPU time that a hypervisor took from this machine, milliseconds.
    pub steal_ms: u64,
}

impl Disturbances {
    /// The doubts that they raise about a trial of so many messages.
    pub fn causes(self, subject: &str, messages: u64) -> Vec<Cause> {
        let Self { migrations, faults, throttled, rescued, steal_ms } = self;
        let named = || subject.to_owned();
        let migrated = Cause::Migrated { subject: named(), times: migrations };
        let throttles = Cause::Throttled { subject: named(), times: throttled };
        let all = [
            (migrations > 0).then_some(migrated),
            page_faults(subject, faults, messages),
            (throttled > 0).then_some(throttles),
            (rescued > 0).then(|| Cause::Rescued { subject: named(), count: rescued }),
            (steal_ms > 0).then(|| Cause::Steal { subject: named(), ms: steal_ms }),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Doubts of one kind that are shown; the summary holds all.
pub const ALIKE_MAX: usize = 5;

/// Doubts that ask for the same, together, in the order of their first.
pub fn by_advice(doubts: &[Doubt]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for doubt in doubts {
        match groups.iter_mut().find(|(advice, _)| *advice == doubt.do_) {
            Some((_, seen)) => seen.push(&doubt.what),
            None => groups.push((&doubt.do_, vec![&doubt.what])),
        }
    }
    groups
}
