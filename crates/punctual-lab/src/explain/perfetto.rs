//! Late messages as a drawing for Perfetto's viewer: the late spans, the states of the run's threads, and the occupants of each
//! processor.
//!
//! The format is that of Chrome's traces, which Perfetto reads: an object whose `traceEvents` are slices (`"ph":"X"`) with a
//! begin and a length in microseconds, and names of tracks (`"ph":"M"`)
//! ([specification](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)).

use std::ops::Range;

use serde_json::{Value, json};

use super::account::account;
use super::evidence::{EvidenceDump, TrialEvidence};
use super::finding::Explained;
use super::naming::{interruption, part_words};
use super::stage;
use super::timeline::{interruptions, occupants};
use super::trace::IDLE;
use crate::sample::{ABSENT_NS, Load, Samples};

/// One trial, and what was late in it.
#[derive(Clone, Debug)]
pub struct DrawnTrial {
    /// In words.
    pub name: String,
    /// Its messages.
    pub samples: Samples,
    /// When they were sent.
    pub load: Load,
    /// Evidence around late messages.
    pub evidence: Option<TrialEvidence>,
    /// The late ones.
    pub found: Vec<Explained>,
}

/// Time drawn before and after a late message. It shows the threads that ran when the message began, and the consequences.
const MARGIN_NS: u64 = 2_000_000;

/// All of it, one group of tracks for each kind and trial.
pub fn drawing(trials: &[DrawnTrial]) -> Value {
    let mut events = Vec::new();
    for (number, trial) in trials.iter().enumerate() {
        let mut group = Group::new(&mut events, 3 * number, &format!("{}: late messages", trial.name));
        late_messages(&mut group, trial);
        let Some(evidence) = &trial.evidence else { continue };
        let drawn = drawn(&evidence.dumps);
        let mut group = Group::new(&mut events, 3 * number + 1, &format!("{}: threads", trial.name));
        threads(&mut group, evidence, &drawn);
        let mut group = Group::new(&mut events, 3 * number + 2, &format!("{}: processors", trial.name));
        processors(&mut group, &drawn);
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

/// Tracks that belong together.
struct Group<'a> {
    events: &'a mut Vec<Value>,
    number: usize,
}

impl<'a> Group<'a> {
    fn new(events: &'a mut Vec<Value>, place: usize, name: &str) -> Self {
        // No process has the number 0.
        let number = place + 1;
        events.push(json!({ "ph": "M", "name": "process_name", "pid": number, "args": { "name": name } }));
        events
            .push(json!({ "ph": "M", "name": "process_sort_index", "pid": number, "args": { "sort_index": number } }));
        Self { events, number }
    }

    fn track(&mut self, track: usize, name: &str) {
        let name = json!({ "name": name });
        self.events.push(
            json!({ "ph": "M", "name": "thread_name", "pid": self.number, "tid": track, "args": name }),
        );
    }

    fn slice(&mut self, track: usize, span: Range<u64>, name: &str, more: &Value) {
        let us = |ns: u64| ns as f64 / 1000.0;
        self.events.push(json!({
            "ph": "X", "pid": self.number, "tid": track, "name": name,
            "ts": us(span.start), "dur": us(span.end.saturating_sub(span.start)), "args": more,
        }));
    }
}

/// Each stall by its longest message, with that one's stages below it.
fn late_messages(group: &mut Group<'_>, trial: &DrawnTrial) {
    let DrawnTrial { samples, load, found, .. } = trial;
    // Slices of one track nest: of messages that overlap each has a track of its own.
    let mut ends: Vec<u64> = Vec::new();
    let mut sorted: Vec<&Explained> = found.iter().collect();
    sorted.sort_by_key(|one| one.instant_ns);
    for one in sorted {
        let number = one.stall.first_index;
        let Some(row) = one.stall.row(samples) else { continue };
        let begin = samples.start_ns(row, *load);
        let track = 1 + ends.iter().position(|&end| end <= begin).unwrap_or(ends.len());
        if track > ends.len() {
            ends.push(0);
            group.track(track, "late messages");
        }
        let end = begin.saturating_add(samples.total_ns[row]);
        ends[track - 1] = end;
        let causes: Vec<String> = one
            .causes
            .iter()
            .map(|cause| format!("{:.0} % {}", 100.0 * cause.share, cause.name.name()))
            .collect();
        let more = json!({ "message": number, "causes": causes, "behind": one.behind });
        let name = format!("message {number}: {}", one.cause().name());
        group.slice(track, begin..end, &name, &more);
        let mut stages: Vec<(u64, u64, &str)> = (0..samples.stages.len())
            .filter(|&place| samples.stages[place].ns[row] != ABSENT_NS)
            .map(|place| {
                let (from, to) = stage::interval(samples, row, *load, place);
                (from, to, &*samples.stages[place].name)
            })
            .collect();
        // The way there and back stands behind the stages that it comes before.
        stages.sort_by_key(|&(from, ..)| from);
        for (from, to, name) in stages {
            group.slice(track, from..to, name, &json!({}));
        }
    }
}

/// A dump, and the time in which it is drawn.
type Drawn<'a> = (&'a EvidenceDump, (u64, u64));

/// Dumps overlap, as a message does that was late behind another: no time is drawn twice.
fn drawn(dumps: &[EvidenceDump]) -> Vec<Drawn<'_>> {
    let mut all: Vec<Drawn<'_>> = Vec::with_capacity(dumps.len());
    let mut sorted: Vec<&EvidenceDump> = dumps.iter().collect();
    sorted.sort_by_key(|dump| dump.span);
    for dump in sorted {
        let known_ns = dump.trace.known().last().map_or(dump.span.1, |known| known.1);
        let from = dump.span.0.saturating_sub(MARGIN_NS);
        let to = dump.span.1.saturating_add(MARGIN_NS).min(known_ns);
        let from = all.last().map_or(from, |(_, before)| from.max(before.1));
        if from < to {
            all.push((dump, (from, to)));
        }
    }
    all
}

fn threads(group: &mut Group<'_>, evidence: &TrialEvidence, drawn: &[Drawn<'_>]) {
    for (place, thread) in evidence.threads.iter().enumerate() {
        let Some(number) = thread.thread else { continue };
        group.track(place + 1, &format!("{} ({number})", thread.role));
        for &(dump, span) in drawn {
            for piece in account(&dump.trace, number, span).pieces {
                let words = part_words(piece.part, &dump.trace);
                group.slice(place + 1, piece.from_ns..piece.to_ns, &words, &json!({}));
            }
        }
    }
}

/// Occupants of each processor, with interrupts below. An idle one has no slice.
fn processors(group: &mut Group<'_>, drawn: &[Drawn<'_>]) {
    let mut cpus: Vec<u32> =
        drawn.iter().flat_map(|(dump, _)| dump.trace.cpus.iter().map(|one| one.cpu)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    for &number in &cpus {
        group.track(number as usize + 1, &format!("CPU {number}"));
    }
    for &(dump, (begin, end)) in drawn {
        let trace = &dump.trace;
        let inside =
            |from: u64, to: u64| (from.max(begin) < to.min(end)).then(|| from.max(begin)..to.min(end));
        for known in trace.known().into_iter().filter_map(|(from, to)| inside(from, to)) {
            let known = (known.start, known.end);
            for cpu in &trace.cpus {
                let track = cpu.cpu as usize + 1;
                for one in occupants(cpu, known) {
                    let thread = one.what.filter(|&thread| thread != IDLE);
                    if let Some((thread, span)) = thread.zip(inside(one.from_ns, one.to_ns)) {
                        group.slice(track, span, &trace.name(thread), &json!({}));
                    }
                }
                for one in interruptions(cpu, known) {
                    if let Some(span) = inside(one.from_ns, one.to_ns) {
                        group.slice(track, span, &interruption(one.what, trace), &json!({}));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
