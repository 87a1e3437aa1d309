//! The verdict on each injection, by each tier: the stall that it overlaps most, as the run's own evidence explains it.

use super::plan::Row;
use super::scene::{MadeInjection, Played};
use crate::explain::cause::Cause;
use crate::explain::evidence::{Recording, TrialEvidence};
use crate::explain::finding::Explained;
use crate::explain::of_run::{TrialExplained, explain_run, explain_trials};
use crate::run::RunError;
use crate::sample::{ABSENT_NS, Load, Samples};

/// Basis of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Observations of user space.
    Windows,
    /// The kernel's trace too.
    Trace,
}

/// One injection, and what each tier called it.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) row: Row,
    /// By tier; `None` where nothing was late.
    pub(super) called: Option<[Called; 2]>,
}

/// Two injections at once, and what the kernel's trace called them.
#[derive(Clone, Debug)]
pub(super) struct JudgedPair {
    /// The longer, and the shorter.
    pub(super) rows: [Row; 2],
    /// Nothing if nothing was late.
    pub(super) called: Option<PairCalled>,
}

/// The verdict on two injections at once.
#[derive(Clone, Debug)]
pub(super) struct PairCalled {
    /// Both are named, at their side.
    pub(super) both: bool,
    /// The longer is named before the shorter.
    pub(super) is_longer_first: bool,
    /// The causes that were named in fact.
    pub(super) names: Vec<&'static str>,
}

/// The verdict on a stall.
#[derive(Clone, Debug)]
pub(super) struct Called {
    pub(super) cause: Cause,
    pub(super) is_right: bool,
    pub(super) excess_ns: u64,
    pub(super) named_ns: u64,
}

/// A stall in which nothing was injected.
#[derive(Clone, Debug)]
pub(super) struct Clean {
    /// By tier.
    pub(super) causes: [Cause; 2],
    /// The cause named by user space took no tenth of it by the trace, where there is one.
    pub(super) is_refuted: bool,
}

/// A run, judged.
#[derive(Debug, Default)]
pub(super) struct JudgedRun {
    pub(super) injections: Vec<Judged>,
    pub(super) pairs: Vec<JudgedPair>,
    pub(super) clean: Vec<Clean>,
    /// Why there is no trace.
    pub(super) without_trace: Option<String>,
}

/// A stall belongs to what has half of its excess.
const OVERLAP_MIN: f64 = 0.5;

/// Time behind an injection in which what is late may be its doing: a backlog, a cache that is cold, a scheduler that makes up.
const AFTER_NS: u64 = 30_000_000;

pub(super) fn judge(played: &Played) -> Result<JudgedRun, RunError> {
    let mut judged = JudgedRun::default();
    let mut measured: Vec<(u64, u64)> = Vec::new();
    let mut began_ns = None;
    for trial in &played.run.trials {
        let Some(evidence) = trial.evidence::<TrialEvidence>()? else { continue };
        began_ns = Some(evidence.began_ns);
        judged.without_trace = judged.without_trace.or(match evidence.recording {
            Recording::On { .. } => None,
            Recording::Missing { reason } => Some(reason),
            Recording::Off if evidence.is_part => None,
            Recording::Off => Some("it was not asked for".to_owned()),
        });
        measured.extend(under_way(&trial.load()?, trial.cell.load));
    }
    let Some(began_ns) = began_ns else {
        return Err(RunError::Machine("a run was cut short".to_owned()));
    };
    let seen = explain_trials(&played.run, 0, &mut Vec::new())?;
    let traced = explain_run(&played.run, 1, &mut Vec::new())?;
    let stalls = stalls_of(&seen, &traced, began_ns);
    // Injections made between two trials, or behind the last, made nothing late.
    let is_measured = |made: &&MadeInjection| {
        let of = |(from, to): &(u64, u64)| began_ns + from <= made.span.0 && made.span.1 <= began_ns + to;
        measured.iter().any(of)
    };
    for made in played.made.iter().filter(is_measured) {
        match made.with {
            // User space alone names one cause of a stall.
            Some(_) if judged.without_trace.is_some() => {}
            Some(with) => judged.pairs.push(call_pair(made, with, &stalls)),
            None => judged.injections.push(call(made, &stalls)),
        }
    }
    let is_clean = |stalled: &&Stalled<'_>| {
        let near = |made: &MadeInjection| overlap((made.span.0, made.span.1 + AFTER_NS), stalled.span) > 0;
        !played.made.iter().any(near) && stalled.tiers[1].behind.is_none()
    };
    let warm_ns = played.made.first().map_or(u64::MAX, |made| made.span.0);
    judged.clean = stalls
        .iter()
        .filter(is_clean)
        .filter(|stalled| stalled.span.0 > warm_ns)
        .map(Stalled::clean)
        .collect();
    Ok(judged)
}

/// The stalls that the trace tells of, each with what user space says of the same. There every stall stands by itself: the one that
/// tells most, and stands for several, may be another one by each tier.
fn stalls_of<'a>(
    seen: &'a [TrialExplained],
    traced: &'a [TrialExplained],
    began_ns: u64,
) -> Vec<Stalled<'a>> {
    let of_trial = |one: &'a TrialExplained| {
        let same = seen.iter().find(|other| other.cell == one.cell && other.trial == one.trial);
        let found = same.map_or(&[][..], |same| &same.told.found);
        one.told.found.iter().filter_map(move |traced| {
            let seen = found.iter().find(|other| other.stall == traced.stall)?;
            let end = began_ns + traced.stall.release_ns;
            Some(Stalled { span: (end - traced.stall.longest_ns.min(end), end), tiers: [seen, traced] })
        })
    };
    traced.iter().flat_map(of_trial).collect()
}

/// From when to when messages of a trial were under way.
fn under_way(samples: &Samples, load: Load) -> Option<(u64, u64)> {
    let arrived = (0..samples.len()).filter(|&row| samples.total_ns[row] != ABSENT_NS);
    let spans = arrived.map(|row| {
        let begin = samples.start_ns(row, load);
        (begin, begin.saturating_add(samples.total_ns[row]))
    });
    spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// A stall at instants of `CLOCK_MONOTONIC`, explained by each tier.
struct Stalled<'a> {
    span: (u64, u64),
    tiers: [&'a Explained; 2],
}

impl Stalled<'_> {
    fn clean(&self) -> Clean {
        let causes = self.tiers.map(Explained::cause);
        let of_trace = |cause: Cause| self.tiers[1].causes.iter().find(|named| named.name == cause);
        let is_small = of_trace(causes[0]).is_none_or(|named| named.share < 0.1);
        let has_trace = !self.tiers[1].parts.is_empty();
        Clean { causes, is_refuted: causes[0] != Cause::UNEXPLAINED && has_trace && is_small }
    }
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

/// The stall that an injection made: of those of which it has half, the one that it overlaps most.
fn stall_of<'a, 'b>(made: &MadeInjection, stalls: &'b [Stalled<'a>]) -> Option<&'b Stalled<'a>> {
    let of = |stalled: &Stalled<'_>| {
        let ns = overlap(made.span, stalled.span);
        let excess_ns = stalled.tiers[1].excess_ns.max(1);
        (ns as f64 / excess_ns as f64 >= OVERLAP_MIN && stalled.tiers[1].behind.is_none()).then_some(ns)
    };
    let most = stalls.iter().filter_map(|stalled| Some((of(stalled)?, stalled))).max_by_key(|(ns, _)| *ns);
    most.map(|(_, stalled)| stalled)
}

/// A cause that took less is not called named.
const NAMED_MIN: f64 = 0.1;

fn call_pair(made: &MadeInjection, with: Row, stalls: &[Stalled<'_>]) -> JudgedPair {
    let called = stall_of(made, stalls).map(|stalled| {
        let explained = stalled.tiers[1];
        let is_side = made.row.side.is_some_and(|side| made.row.experiment.is_of(side, explained));
        let named = explained.causes.iter().filter(|named| named.share >= NAMED_MIN);
        let names: Vec<&'static str> = named.map(|named| named.name.name()).collect();
        let place = |row: &Row| names.iter().position(|&name| name == row.cause.name);
        let places = place(&made.row).zip(place(&with)).filter(|_| is_side);
        let is_longer_first = places.is_some_and(|(longer, shorter)| longer < shorter);
        PairCalled { both: places.is_some(), is_longer_first, names }
    });
    JudgedPair { rows: [made.row, with], called }
}

fn call(made: &MadeInjection, stalls: &[Stalled<'_>]) -> Judged {
    let called = stall_of(made, stalls).map(|stalled| {
        let one = |tier: usize| {
            let explained = stalled.tiers[tier];
            let cause = explained.cause();
            let expected = if tier == 0 { made.row.cause.without_trace } else { None };
            let is_named = cause.name() == expected.unwrap_or(made.row.cause.name);
            let is_side = made.row.side.is_none_or(|side| made.row.experiment.is_of(side, explained));
            Called {
                cause,
                is_right: is_named && is_side,
                excess_ns: explained.excess_ns,
                named_ns: explained.causes.iter().map(|cause| cause.ns).sum(),
            }
        };
        [one(0), one(1)]
    });
    Judged { row: made.row, called }
}

#[cfg(test)]
mod tests;
