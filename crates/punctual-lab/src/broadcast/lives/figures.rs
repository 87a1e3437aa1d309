//! Figures of a trial: the times without a delivery, the time that a return took, and whether every promise held.

use super::history::{Broken, END, History, ProcessLog, check};
use super::log::{Delivered, Entry};
use super::trial::{DisruptedTrial, DisruptionEvent};
use crate::broadcast::director::{self, BEFORE_LOAD, Direction, Event, Lived, Process};
use crate::broadcast::option::{BroadcastSettings, Disruption, Disruptions};
use crate::broadcast::testbed::{BroadcastTestbed, TrialPlan};
use crate::sample::{Outcome, Phase, Samples};
use crate::stats::Distribution;
use crate::summary::Figures;

/// Makes one trial: its stored result, a row per message, and the reason if it ended early. One that ended before the first return is
/// none.
pub(in crate::broadcast) fn make(
    testbed: &mut BroadcastTestbed,
    settings: &BroadcastSettings,
    trial: &TrialPlan,
    disruptions: Disruptions,
) -> Result<(DisruptedTrial, Samples, Option<String>), String> {
    let (kv, suspect_after) = (None, settings.suspect_after);
    let what = Direction { kv, stream: disruptions.of as u64, suspect_after };
    let lived = director::make(testbed, settings, trial, what, |director| director.disrupt(disruptions))?;
    let logs: Vec<ProcessLog<'_>> = lived.processes.iter().map(as_log).collect();
    let mut history = check(&logs, trial.kind, lived.stuck.is_none() && lived.cut_short.is_none());
    if let Some(sentence) = &lived.stuck {
        history.add(Broken::Progress, sentence.clone());
    }
    let cut_short = lived.cut_short.clone().filter(|_| history.violation_count == 0);
    if lived.events.is_empty() && history.violation_count == 0 {
        return Err(cut_short.unwrap_or_else(|| BEFORE_LOAD.to_owned()));
    }
    let samples = samples(&history, lived.started_ns);
    Ok((summarise(settings, trial, disruptions.of, &lived, &history), samples, cut_short))
}

fn summarise(
    settings: &BroadcastSettings,
    trial: &TrialPlan,
    disruption: Disruption,
    lived: &Lived<Entry>,
    history: &History,
) -> DisruptedTrial {
    let events: Vec<DisruptionEvent> = lived.events.iter().map(|event| figures(lived, event)).collect();
    let of = |of: fn(&DisruptionEvent) -> Vec<u64>| figures_of(events.iter().flat_map(of));
    let load = lived.started_ns..=lived.stopped_ns;
    let messages = history.sequence.iter().filter(|(_, last_ns)| load.contains(last_ns)).count() as u64;
    let entries = || lived.processes.iter().flat_map(|process| &process.entries);
    let last_view = entries().filter_map(|entry| match entry {
        Entry::View { number, .. } => Some(*number),
        _ => None,
    });
    DisruptedTrial {
        engine: trial.engine,
        kind: trial.kind,
        disruption,
        members: trial.members,
        faults: trial.faults,
        seed: trial.seed,
        frame: lived.frame,
        suspect_after_ns: settings.suspect_after.as_nanos() as u64,
        gaps: of(|event| event.gaps_ns.clone()),
        return_gaps: of(|event| event.return_gaps_ns.clone()),
        rejoins: of(|event| event.rejoin_ns.into_iter().collect()),
        events,
        views: last_view.max().unwrap_or(0).saturating_sub(lived.first_view),
        expelled: entries().filter(|entry| matches!(entry, Entry::Expelled { .. })).count() as u64,
        lives: history.lives,
        messages,
        bytes: messages * settings.message as u64,
        duration_ns: lived.stopped_ns.saturating_sub(lived.started_ns),
        violation_count: history.violation_count,
        violations: history.violations.iter().map(|violation| violation.sentence.clone()).collect(),
    }
}

fn as_log(process: &Process<Entry>) -> ProcessLog<'_> {
    let Process { place, incarnation, was_killed, entries, .. } = process;
    ProcessLog { place: *place, incarnation: *incarnation, was_killed: *was_killed, entries }
}

/// Of what was measured.
fn figures_of(values: impl Iterator<Item = u64>) -> Figures {
    let mut samples = Samples::default();
    // Message 0 is never of the steady state.
    for (index, ns) in (1..).zip(values) {
        samples.push(index, 0, 0, ns, Outcome::Answered);
    }
    Figures::of(&Distribution::of(&[samples], Phase::Steady, 0))
}

fn figures(lived: &Lived<Entry>, event: &Event) -> DisruptionEvent {
    let of_others = |from: u64, to: u64| {
        let places = lived.processes.iter().filter(|process| process.incarnation == 0);
        let others = places.map(|process| process.place).filter(|&place| place != event.place);
        others.map(|place| longest_gap(&times(&lived.processes, place), from, to)).collect()
    };
    let since = |ns: u64| ns.saturating_sub(lived.started_ns);
    DisruptionEvent {
        place: event.place,
        was_sequencer: event.was_sequencer,
        at_ns: since(event.at_ns),
        returned_ns: since(event.returned_ns),
        recovered_ns: since(event.recovered_ns),
        gaps_ns: of_others(event.at_ns, event.returned_ns),
        return_gaps_ns: of_others(event.returned_ns, event.recovered_ns),
        rejoin_ns: rejoin(&lived.processes, event),
    }
}

/// When each message was delivered at a place, whichever process was there.
fn times(processes: &[Process<Entry>], place: usize) -> Vec<u64> {
    let entries = processes.iter().filter(|process| process.place == place).flat_map(|one| &one.entries);
    let times = entries.filter_map(|entry| match entry {
        Entry::Delivered(message) => Some(message.at_ns),
        _ => None,
    });
    times.collect()
}

/// The longest time between two deliveries that lies in this interval or reaches into it.
fn longest_gap(times: &[u64], from: u64, to: u64) -> u64 {
    let pairs = times.windows(2).filter(|pair| pair[1] > from && pair[0] < to);
    pairs.map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0)
}

/// From a member's return to the first delivery of the life that began then.
fn rejoin(processes: &[Process<Entry>], event: &Event) -> Option<u64> {
    let entries =
        processes.iter().filter(|process| process.place == event.place).flat_map(|one| &one.entries);
    let mut in_new_view = entries.skip_while(|entry| {
        let is_new = matches!(entry, Entry::View { at_ns, .. } if *at_ns >= event.returned_ns);
        !is_new
    });
    in_new_view.find_map(|entry| match entry {
        Entry::Delivered(message) => Some(message.at_ns - event.returned_ns),
        _ => None,
    })
}

/// A row per message of the load: from its broadcast to its delivery at the last life that went on from its view. Those that were
/// broadcast while the members met, or that say that no more come, are none of it.
fn samples(history: &History, started_ns: u64) -> Samples {
    let mut samples = Samples::with_capacity(history.sequence.len());
    let since = |ns: u64| ns.saturating_sub(started_ns);
    let is_of_load = |message: &Delivered| message.sent_ns >= started_ns && message.number & END == 0;
    let of_load = history.sequence.iter().filter(|(message, _)| is_of_load(message));
    for (index, (message, last_ns)) in (0..).zip(of_load) {
        let sent_ns = since(message.sent_ns);
        let total = last_ns.saturating_sub(message.sent_ns);
        samples.push(index, sent_ns, sent_ns, total, Outcome::Answered);
        samples.sender.push(message.sender as u64);
    }
    let count = |of: Broken| history.counts[of as usize];
    for (of, outcome) in [(Broken::Lost, Outcome::Lost), (Broken::Content, Outcome::Mismatched)] {
        for _ in 0..count(of) {
            samples.push(samples.len() as u64, 0, 0, 0, outcome);
            samples.sender.push(0);
        }
    }
    samples.facts.duplicated = count(Broken::Doubled);
    samples.facts.reordered = count(Broken::Order);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_reaches_into_the_interval() {
        let times = [0, 10, 50, 60, 90, 200];
        let gap = |from, to| longest_gap(&times, from, to);
        assert_eq!((gap(20, 55), gap(50, 55), gap(60, 61), gap(95, 96), gap(300, 400)), (40, 10, 30, 110, 0));
    }

    /// Goal: latencies are those of the load, not of the time in which members met, nor of the words that end it.
    #[test]
    fn rows_are_of_the_load() {
        let message = |number, sent_ns| Delivered {
            sender: 1,
            life: 2,
            view: 3,
            index: 4,
            number,
            hash: 5,
            is_uniform: true,
            sent_ns,
            at_ns: 2_000,
        };
        let sequence =
            vec![(message(0, 999), 2_000), (message(1, 1_000), 2_000), (message(2 | END, 1_500), 2_000)];
        let samples = samples(&History { sequence, ..History::default() }, 1_000);
        assert_eq!((samples.sent_ns, samples.total_ns), (vec![0], vec![1_000]));
    }

    #[test]
    fn a_small_sample_has_no_quantiles() {
        let figures = figures_of([3, 1, 2].into_iter());
        assert_eq!((figures.count, figures.min, figures.p50, figures.max), (3, Some(1), None, Some(3)));
        assert_eq!(figures_of(1..=40).p50, Some(20));
    }
}
