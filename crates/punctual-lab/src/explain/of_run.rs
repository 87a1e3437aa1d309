//! All of a run explained: trial by trial from its store, each stall once.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::cause::Cause;
use super::evidence::{Recording, TrialEvidence};
use super::finding::{Explained, explain};
use super::loss::Loss;
use super::stage::Side;
use super::text::PlaceExplained;
use crate::sample::{CellId, Kind, Samples};
use crate::stall::are_together;
use crate::store::{CellRead, Run, Store, StoreError, StoredTrial};
use crate::summary::Summary;

/// Name of a member of a group, before its place. Behind the cell of all members it is the cell of that one.
pub const MEMBER: &str = "member-";

/// A trial with its stalls.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialExplained {
    /// The measured cell.
    pub cell: CellId,
    /// Its number.
    pub trial: u32,
    /// The stalls, and where they were, in words.
    pub told: PlaceExplained,
    /// Losses, if there were any.
    pub lost: Option<Loss>,
    /// When the run began, nanoseconds of `CLOCK_MONOTONIC`, if that was stored.
    pub began_ns: Option<u64>,
}

/// The evidence of a trial, without the kernel's trace at tier 0. Damaged evidence is noted, and left out.
///
/// # Errors
/// It cannot be read.
pub fn evidence(
    trial: &StoredTrial,
    tier: u8,
    notes: &mut Vec<String>,
) -> Result<Option<TrialEvidence>, StoreError> {
    let evidence: Option<TrialEvidence> = match trial.evidence() {
        Ok(evidence) => evidence,
        Err(StoreError::Damaged { path, reason }) => {
            notes.push(format!("{}: {reason}", path.display()));
            None
        }
        Err(error) => return Err(error),
    };
    Ok(evidence.map(|evidence| at_tier(evidence, tier)))
}

fn at_tier(mut evidence: TrialEvidence, tier: u8) -> TrialEvidence {
    if tier == 0 {
        evidence.dumps.clear();
        if matches!(evidence.recording, Recording::On { .. }) {
            evidence.recording = Recording::Missing { reason: "--tier 0 was asked for".to_owned() };
        }
    }
    evidence
}

/// True if the messages of a trial are those of another, or a part of their way, and are told there. Where its evidence cannot be read,
/// the other trials of its cell tell. Otherwise the round trips of a one-way trial are stored beside it, or the members of a group tell
/// its messages one by one.
pub fn is_part(run: &Run, trial: &StoredTrial, evidence: Option<&TrialEvidence>) -> bool {
    if let Some(evidence) = evidence {
        return evidence.is_part;
    }
    let is_damaged = matches!(trial.evidence::<TrialEvidence>(), Err(StoreError::Damaged { .. }));
    let others = || run.trials_of(&trial.cell).filter(|other| other.path != trial.path);
    let known = || others().find_map(|other| other.evidence::<TrialEvidence>().ok().flatten());
    let whole = CellId { kind: Kind::RoundTrip, ..trial.cell.clone() };
    let has_whole = || run.trials_of(&whole).any(|other| other.trial == trial.trial);
    let is_beside_whole = || trial.cell.kind == Kind::OneWay && (has_whole() || has_members(run, trial));
    is_damaged && known().map_or_else(is_beside_whole, |other| other.is_part)
}

/// True if the messages of each member of a group in this trial are stored by themselves.
fn has_members(run: &Run, trial: &StoredTrial) -> bool {
    let members = format!("{}/{MEMBER}", trial.cell.wake);
    let is_of_member = |other: &StoredTrial| {
        let CellId { name, wake, .. } = other.cell.clone();
        wake.starts_with(&members) && other.cell == CellId { name, wake, ..trial.cell.clone() }
    };
    run.trials.iter().any(|other| other.trial == trial.trial && is_of_member(other))
}

/// Where a trial was, in words.
pub fn place(trial: &StoredTrial, evidence: Option<&TrialEvidence>) -> String {
    match evidence.and_then(|evidence| evidence.place.as_ref()) {
        Some(place) => format!("{}, {place}", trial.cell.name),
        None => format!("{} trial {}", trial.cell.name, trial.trial),
    }
}

/// Every stall of a run once. Evidence that cannot be read is noted.
///
/// # Errors
/// Its samples cannot be read.
pub fn explain_run(run: &Run, tier: u8, notes: &mut Vec<String>) -> Result<Vec<TrialExplained>, StoreError> {
    let mut trials = explain_trials(run, tier, notes)?;
    each_once(&mut trials);
    Ok(trials)
}

/// Every stall of every trial by itself, also where several are one. The tier decides which stalls are one.
///
/// # Errors
/// Its samples cannot be read.
pub fn explain_trials(
    run: &Run,
    tier: u8,
    notes: &mut Vec<String>,
) -> Result<Vec<TrialExplained>, StoreError> {
    let mut trials = Vec::new();
    for trial in &run.trials {
        trials.extend(explain_trial((run, trial), tier, notes, || trial.load().map(Cow::Owned))?);
    }
    Ok(trials)
}

/// `None` of one whose messages are told elsewhere; its samples are not needed then.
fn explain_trial<'a>(
    (run, trial): (&Run, &StoredTrial),
    tier: u8,
    notes: &mut Vec<String>,
    samples: impl FnOnce() -> Result<Cow<'a, Samples>, StoreError>,
) -> Result<Option<TrialExplained>, StoreError> {
    let evidence = evidence(trial, tier, notes)?;
    if is_part(run, trial, evidence.as_ref()) {
        return Ok(None);
    }
    let samples = samples()?;
    let found = explain(&samples, trial.cell.load, evidence.as_ref());
    let told = PlaceExplained { place: place(trial, evidence.as_ref()), found };
    let lost = Loss::of(&samples, evidence.as_ref());
    let began_ns = evidence.map(|evidence| evidence.began_ns).filter(|&ns| ns > 0);
    Ok(Some(TrialExplained { cell: trial.cell.clone(), trial: trial.trial, told, lost, began_ns }))
}

/// A thread that does not run delays messages of several places: those to it, and those that it should have sent. Of stalls of one
/// owner at one time the one stays that tells most, and the others are counted with it.
fn each_once(trials: &mut [TrialExplained]) {
    let mut all: Vec<&mut Explained> = trials.iter_mut().flat_map(|one| &mut one.told.found).collect();
    all.retain(|one| one.owner.is_some() && one.during.is_some());
    all.sort_by_key(|one| (one.owner.clone(), one.during));
    all.chunk_by_mut(|one, next| one.owner == next.owner).for_each(merge);
    for one in trials {
        one.told.found.retain(|found| !found.is_told_elsewhere);
    }
}

/// Counts stalls of one owner, in the order of time, with the one that tells most of those together with it. A stall that is together
/// with a counted one, but not with the one that stays, is another stall.
fn merge(of_owner: &mut [&mut Explained]) {
    let tells = |one: &Explained| {
        let is_own = one.side == Some(Side::Receiver);
        (one.cause() != Cause::UNEXPLAINED, one.behind.is_none(), is_own, one.stall.longest_ns)
    };
    let spans: Vec<(u64, u64)> = of_owner.iter().map(|one| one.during.unwrap_or_default()).collect();
    let longest_ns = spans.iter().map(|(from, to)| to.saturating_sub(*from)).max().unwrap_or(0);
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(tells(of_owner[place])));
    for most in order {
        if of_owner[most].is_told_elsewhere {
            continue;
        }
        let (from, to) = spans[most];
        let first = spans.partition_point(|span| span.0.saturating_add(longest_ns) < from);
        let last = spans.partition_point(|span| span.0 < to);
        for place in (first..last.max(first)).filter(|&place| place != most) {
            let other = &mut of_owner[place];
            if !other.is_told_elsewhere && are_together((from, to), spans[place]) {
                other.is_told_elsewhere = true;
                let messages = other.stall.messages + other.elsewhere;
                of_owner[most].elsewhere += messages;
            }
        }
    }
}

/// A finding with its cause, and where it was.
pub fn json_of(found: &Explained, place: &Value) -> Value {
    let mut value = json!(found);
    if let Some(object) = value.as_object_mut() {
        object.extend(place.as_object().cloned().unwrap_or_default());
        object.insert("cause".to_owned(), json!(found.cause()));
    }
    value
}

/// Findings of a result, in a summary.
const FINDINGS_MAX: usize = 50;

/// The summary of a store, whose results have the longest stalls of their cell, explained: to the letter what is said of the run later.
/// Returns all stalls, too. Each cell is shown to `each` while its samples are in memory.
///
/// # Errors
/// The store cannot be read.
pub fn explained_summary(
    store: &Store,
    mut each: impl FnMut(CellRead<'_>),
) -> Result<(Summary, Vec<TrialExplained>), StoreError> {
    let mut found: Vec<(usize, TrialExplained)> = Vec::new();
    let mut summary = store.summary_with(|read| {
        for (trial, samples) in read.trials.iter().zip(read.samples) {
            let samples = || Ok(Cow::Borrowed(samples));
            let explained = explain_trial((read.run, trial), 1, &mut Vec::new(), samples)?;
            let place = read.run.trials.iter().position(|one| one.path == trial.path).unwrap_or(usize::MAX);
            found.extend(explained.map(|explained| (place, explained)));
        }
        each(read);
        Ok(())
    })?;
    // They come cell by cell. Of stalls that are one, the order of measurement decides which stays.
    found.sort_by_key(|(place, _)| *place);
    let mut trials: Vec<TrialExplained> = found.into_iter().map(|(_, explained)| explained).collect();
    each_once(&mut trials);
    add_findings(&mut summary, &trials);
    Ok((summary, trials))
}

fn add_findings(summary: &mut Summary, trials: &[TrialExplained]) {
    for result in &mut summary.results {
        let of_cell = trials.iter().filter(|one| one.cell == result.cell);
        let mut found: Vec<(u32, &Explained)> =
            of_cell.flat_map(|one| one.told.found.iter().map(|found| (one.trial, found))).collect();
        found.sort_by_key(|(trial, found)| (std::cmp::Reverse(found.stall.longest_ns), *trial));
        found.truncate(FINDINGS_MAX);
        let findings: Vec<Value> =
            found.into_iter().map(|(trial, found)| json_of(found, &json!({ "trial": trial }))).collect();
        if !findings.is_empty() {
            result.more.insert("findings".to_owned(), json!(findings));
        }
    }
}

#[cfg(test)]
mod tests;
