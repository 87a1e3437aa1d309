//! First messages: the part of their time that was the receiver's opening, step by step, and the part that was a wait for a processor.
//!
//! A receiver's thread looks at itself when it begins to listen, and once more after the first message of each sender. So every first
//! message lies in windows of known length. It is also known for how long the thread was ready and did not run in them. Of a window
//! that is a message's in part only, the wait is a bound.

use std::collections::BTreeMap;

use punctual::{Clock, Ticks};
use punctual_machine::scheduling::SchedStat;
use serde::{Deserialize, Serialize};

use super::protocol::{Brought, Opening, Part, WorkloadResult};
use super::value::Record;
use crate::stats::upper_median;

/// Steps of a receiver's opening, in order; then the thread started, then it listened.
pub(super) const STEPS: [&str; 5] = ["bus", "bind", "discovery", "start", "listening"];

/// First messages that are kept of a run, the slowest.
const KEPT_MAX: usize = 30;

/// An instant of a thread, and how long it had been ready without running until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) at: u64,
    /// Since the thread's start, nanoseconds.
    pub(super) queued_ns: u64,
}

impl Look {
    /// Of the thread that this is the account of.
    pub(super) fn now(schedstat: &SchedStat) -> Self {
        Self { at: Clock::get().now().0, queued_ns: schedstat.read().unwrap_or_default().queued_ns }
    }
}

/// Start of a receiving thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Beginning {
    pub(super) component: u16,
    /// True if it is a thread of its own, which waited for nothing before it was started.
    pub(super) is_own_thread: bool,
    /// When it began to listen; then after the first value of each sender.
    pub(super) looks: Vec<Look>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Share {
    /// One of [`STEPS`].
    pub(super) step: String,
    pub(super) ns: u64,
}

/// The first message that a receiver has of a sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FirstMessage {
    pub(super) receiver: String,
    pub(super) sender: u16,
    /// From sent to received, ns.
    pub(super) ns: u64,
    /// Steps of the receiver meanwhile; they sum to `ns`.
    pub(super) steps: Vec<Share>,
    /// For how long it was ready meanwhile and did not run, at least and at most, ns.
    pub(super) queued_ns: [u64; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Firsts {
    pub(super) count: usize,
    /// The mean of each step over all of them.
    pub(super) mean: Vec<Share>,
    pub(super) slowest: Vec<FirstMessage>,
}

/// Start-up of a run's processes, all at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RunStartUp {
    /// From the first process's start to the last one's *ready*, ms.
    pub(super) all_ready_ms: f64,
    /// Slowest joining of the bus: memory, sockets, ms.
    pub(super) node_ms_max: f64,
    /// Slowest binding of communicators, ms.
    pub(super) bind_ms_max: f64,
    /// Until the slowest had heard all others, ms.
    pub(super) joined_ms_max: f64,
    /// From the beginning of a receiver's opening until it had a value of every other: the slowest, ms.
    #[serde(default)]
    pub(super) all_heard_ms: f64,
    /// Latency of first messages: the median and the slowest, ns.
    pub(super) first_ns_median: Option<u64>,
    pub(super) first_ns_max: Option<u64>,
}

/// Activity of a thread from one instant to the next.
#[derive(Clone, Copy, Debug)]
struct Window {
    step: usize,
    from: u64,
    to: u64,
    queued_ns: u64,
}

/// The steps of a process, cut off when the thread began to listen; then, from look to look, the listening.
fn windows(opening: &Opening, beginning: &Beginning) -> Vec<Window> {
    let Some(listening) = beginning.looks.first() else { return Vec::new() };
    // A thread of its own counts its waits from its start on.
    let before_ns = if beginning.is_own_thread { opening[3].queued_ns } else { 0 };
    let opened = opening.map(|look| Look { at: look.at.min(listening.at), ..look });
    let listened = beginning.looks.iter();
    let listened = listened.map(|look| Look { queued_ns: look.queued_ns + before_ns, ..*look });
    let looks: Vec<Look> = opened.into_iter().chain(listened).collect();
    let window = |(place, two): (usize, &[Look])| Window {
        step: place.min(STEPS.len() - 1),
        from: two[0].at,
        to: two[1].at,
        queued_ns: two[1].queued_ns.saturating_sub(two[0].queued_ns),
    };
    looks.windows(2).enumerate().map(window).collect()
}

/// From one instant in ticks to another.
fn ns(from: u64, to: u64) -> u64 {
    Clock::get().nanos(Ticks(to.saturating_sub(from)))
}

fn shares(steps: [u64; STEPS.len()]) -> Vec<Share> {
    STEPS.into_iter().zip(steps).map(|(step, ns)| Share { step: step.to_owned(), ns }).collect()
}

fn first_message(part: Part, windows: &[Window], record: &Record) -> FirstMessage {
    let (sent, received) = (record.value.sent.0, record.received.0);
    let latency_ns = ns(sent, received);
    let mut steps = [0; STEPS.len()];
    let mut queued_ns = [0, 0];
    for window in windows {
        let inside = ns(window.from.max(sent), window.to.min(received));
        let lasted = ns(window.from, window.to);
        // A thread may be taken off its processor between the two readings of a look.
        let queued = window.queued_ns.min(lasted);
        steps[window.step] += inside;
        queued_ns[0] += queued.saturating_sub(lasted - inside.min(lasted));
        queued_ns[1] += queued.min(inside);
    }
    // Time that no window has, such as that of a thread that never said when it began.
    let known: u64 = steps[..STEPS.len() - 1].iter().sum();
    steps[STEPS.len() - 1] = latency_ns.saturating_sub(known);
    FirstMessage {
        receiver: part.name(),
        sender: record.value.origin.vehicle,
        ns: latency_ns,
        steps: shares(steps),
        queued_ns: queued_ns.map(|queued| queued.min(latency_ns)),
    }
}

/// The first record of each other sender at each component of a process.
fn firsts_of(part: Part, brought: &WorkloadResult) -> Vec<&Record> {
    let mut firsts: BTreeMap<(u16, u16), &Record> = BTreeMap::new();
    for record in brought.records.iter().filter(|r| part != Part::Vehicle(r.value.origin.vehicle)) {
        let first = firsts.entry((record.component, record.value.origin.vehicle)).or_insert(record);
        if record.received < first.received {
            *first = record;
        }
    }
    firsts.into_values().collect()
}

/// Milliseconds with two digits behind the point.
fn rounded_ms(ns: u64) -> f64 {
    (ns as f64 / 1e4).round() / 100.0
}

/// The first messages of a run and what its start-up came to, by what its processes said of their opening and brought.
pub(super) fn firsts(
    openings: &[(Part, Opening)],
    brought: &[Brought],
    ready_ms: f64,
) -> (Firsts, RunStartUp) {
    let (mut all, mut all_heard_ns) = (Vec::new(), 0);
    for (part, brought) in brought {
        let Some((_, opening)) = openings.iter().find(|(other, _)| other == part) else { continue };
        for record in firsts_of(*part, brought) {
            let beginning = brought.beginnings.iter().find(|b| b.component == record.component);
            let windows = beginning.map_or(Vec::new(), |beginning| windows(opening, beginning));
            all.push(first_message(*part, &windows, record));
            all_heard_ns = ns(opening[0].at, record.received.0).max(all_heard_ns);
        }
    }
    let mut latencies: Vec<u64> = all.iter().map(|first| first.ns).collect();
    let slowest_ms = |step: usize| {
        let of_each = openings.iter().map(|(_, looks)| ns(looks[step].at, looks[step + 1].at));
        rounded_ms(of_each.max().unwrap_or(0))
    };
    let startup = RunStartUp {
        all_ready_ms: ready_ms.round(),
        node_ms_max: slowest_ms(0),
        bind_ms_max: slowest_ms(1),
        joined_ms_max: slowest_ms(2),
        all_heard_ms: rounded_ms(all_heard_ns),
        first_ns_max: latencies.iter().max().copied(),
        first_ns_median: upper_median(&mut latencies),
    };
    let count = all.len();
    let mean_of =
        |step: usize| all.iter().map(|first| first.steps[step].ns).sum::<u64>() / count.max(1) as u64;
    let mean = shares(std::array::from_fn(mean_of));
    all.sort_by_key(|first| std::cmp::Reverse(first.ns));
    all.truncate(KEPT_MAX);
    (Firsts { count, mean, slowest: all }, startup)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::vehicles::value::{Origin, STAGES_KEPT, UNKNOWN, Value};

    fn at(us: u64) -> u64 {
        (1 << 40) + Clock::get().ticks(Duration::from_micros(us)).0
    }

    fn look(us: u64, queued_us: u64) -> Look {
        Look { at: at(us), queued_ns: queued_us * 1_000 }
    }

    fn record(vehicle: u16, sent_us: u64, received_us: u64) -> Record {
        let sent = Ticks(at(sent_us));
        let value = Value { origin: Origin { vehicle, component: 0, number: 3 }, due: sent, sent };
        Record { value, component: 0, received: Ticks(at(received_us)), stages: [UNKNOWN; STAGES_KEPT.len()] }
    }

    fn us(ns: u64) -> u64 {
        (ns + 500) / 1_000
    }

    /// Goal: a message that came while its receiver opened is explained by the steps that it waited through, each by what
    /// of it was the message's; waits that may lie beside the message are bounds.
    #[test]
    fn a_first_message_waits_through_the_steps_that_were_left() {
        // Bus 100 to 300, bind to 350, no discovery, thread to 400 (30 waiting), listening.
        let opening = [look(100, 0), look(300, 40), look(350, 40), look(350, 40)];
        let looks = vec![look(400, 70), look(460, 90)];
        let beginning = Beginning { looks, ..Beginning::default() };
        let records = vec![record(7, 250, 460), record(9, 450, 480), record(7, 500, 510), record(0, 1, 2)];
        let brought = WorkloadResult { records, beginnings: vec![beginning], ..WorkloadResult::default() };
        let part = Part::Vehicle(0);
        let (firsts, startup) = firsts(&[(part, opening)], &[(part, brought)], 1.0);
        assert_eq!(firsts.slowest.iter().map(|first| us(first.ns)).collect::<Vec<_>>(), [210, 30]);
        assert_eq!([startup.first_ns_median, startup.first_ns_max].map(|ns| ns.map(us)), [Some(210); 2]);
        assert_eq!([startup.node_ms_max, startup.bind_ms_max, startup.all_heard_ms], [0.2, 0.05, 0.38]);
        let first = &firsts.slowest[0];
        assert_eq!((first.sender, first.receiver.as_str()), (7, "vehicle-0"));
        let steps: Vec<u64> = first.steps.iter().map(|share| us(share.ns)).collect();
        assert_eq!(steps, [50, 50, 0, 50, 60]);
        // Of the bus's 40, none is certain; the 30 of the start and the 20 of listening are.
        assert_eq!(first.queued_ns.map(us), [50, 90]);
        assert_eq!(us(firsts.mean[4].ns), 45);
    }

    /// Goal: a thread that listens before its process is ready is not charged with the rest of the opening.
    #[test]
    fn a_listening_thread_waits_for_no_step() {
        let opening = [look(100, 0), look(200, 0), look(300, 0), look(900, 500)];
        let beginning = Beginning { component: 0, is_own_thread: true, looks: vec![look(250, 1)] };
        let records = vec![record(1, 240, 600)];
        let brought = WorkloadResult { records, beginnings: vec![beginning], ..WorkloadResult::default() };
        let (firsts, _) = firsts(&[(Part::Listener, opening)], &[(Part::Listener, brought)], 1.0);
        let steps: Vec<u64> = firsts.slowest[0].steps.iter().map(|share| us(share.ns)).collect();
        assert_eq!(steps, [0, 10, 0, 0, 350]);
    }
}
