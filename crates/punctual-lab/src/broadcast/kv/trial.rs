//! Makes one trial: raises the clients until the group does no more for more of them, or kills members under load.

use std::time::Duration;

use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::history::{self, Asked, Checked, ProcessLog};
use super::log::Entry;
use super::member::CLIENTS;
use super::option::{KvPlan, KvSettings, Reads};
use crate::broadcast::director::{self, BEFORE_LOAD, Direction, Director, Lived};
use crate::broadcast::halt::Halt;
use crate::broadcast::lives::log::Entry as GroupEntry;
use crate::broadcast::member::SUSPECT_AFTER;
use crate::broadcast::option::{BroadcastEngine, BroadcastSettings, Disruption, Disruptions, FaultProfile};
use crate::broadcast::testbed::{BroadcastTestbed, TrialPlan};
use crate::sample::{Outcome, Samples};
use crate::units::OptionName;

/// After more clients were asked for, so long until they count.
const SETTLE: Duration = Duration::from_millis(100);
/// Growth that more clients must bring to be worth still more.
const GROWTH_MIN: f64 = 1.05;
/// So many doublings in a row that bring less end a trial: one may be unlucky.
const FLAT_MAX: usize = 2;
/// Clients of a group.
pub const CLIENTS_MAX: usize = 4_096;
/// Clients for each member while members are killed or stopped.
const CLIENTS_EACH: usize = 4;

/// So many clients for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvStep {
    /// Clients of the whole group.
    pub clients: usize,
    /// Operations that were answered.
    pub operations: u64,
    /// In this time.
    pub duration_ns: u64,
}

impl KvStep {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}

/// One trial with a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvTrial {
    /// The engine that carried frames.
    pub engine: BroadcastEngine,
    /// Members.
    pub members: usize,
    /// Faults at each receiver.
    pub faults: FaultProfile,
    /// By which it is repeated.
    pub seed: u64,
    /// Payload of a frame, bytes.
    pub frame: usize,
    /// Way in which gets were answered.
    pub reads: Reads,
    /// Disruption of members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    /// Number of disruptions.
    pub disruptions: u64,
    /// Of a hundred operations, so many were puts.
    pub puts_percent: u32,
    /// Keys.
    pub keys: u64,
    /// Bytes of a value.
    pub value: usize,
    /// With more and more clients; one step where members were killed or stopped.
    pub steps: Vec<KvStep>,
    /// Operations answered in each second, from the first on.
    pub seconds: Vec<u64>,
    /// Views that began after all members were in one.
    pub views: u64,
    /// Lives that the others went on without, and that found out.
    pub expelled: u64,
    /// Keys whose history was checked.
    pub checked_keys: u64,
    /// Operations of these histories.
    pub checked_operations: u64,
    /// Puts of which nobody was told whether they happened.
    pub maybe: u64,
    /// Keys whose history no search decided.
    pub undecided: u64,
    /// Local gets.
    pub local_gets: u64,
    /// Of those, gets that were stale for certain.
    pub stale: u64,
    /// Longest time for which the newer value of one of them had been known.
    pub stale_ns_max: u64,
    /// Operations and copies that fit no order.
    pub violation_count: u64,
    /// The first of them, in words.
    pub violations: Vec<String>,
}

impl KvTrial {
    /// As part of a cell's name.
    pub(in crate::broadcast) fn wake(&self) -> String {
        let (reads, faults) = (self.reads.name(), self.faults.in_names());
        let disruption = self.disruption.map_or_else(String::new, |of| format!("/{}", of.plural()));
        format!("kv/n{}/{faults}/{reads}{disruption}", self.members)
    }

    /// The name of the latencies of puts or gets in a step.
    pub(in crate::broadcast) fn wake_of(&self, step: &KvStep, op: &str) -> String {
        match self.disruption {
            Some(_) => format!("{}/{op}", self.wake()),
            None => format!("{}/c{}/{op}", self.wake(), step.clients),
        }
    }

    /// The step in which most was done.
    pub fn best(&self) -> Option<&KvStep> {
        self.steps.iter().max_by(|one, other| one.rate().total_cmp(&other.rate()))
    }
}

/// Parameters of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::broadcast) struct KvTurn {
    pub(in crate::broadcast) reads: Reads,
    pub(in crate::broadcast) disruptions: Option<Disruptions>,
}

/// A time in which the number of clients did not change.
#[derive(Clone, Copy, Debug)]
struct Window {
    clients: usize,
    from_ns: u64,
    to_ns: u64,
}

/// A trial's stored result; for each step and kind of operation its cell's name and a row per operation; and why it ended early, if it
/// did.
type Made = (KvTrial, Vec<(String, Samples)>, Option<String>);

/// Makes one trial. One that ended before anything was finished is none.
pub(in crate::broadcast) fn make(
    testbed: &mut BroadcastTestbed,
    settings: &BroadcastSettings,
    (trial, turn): (&TrialPlan, KvTurn),
    kv: &KvSettings,
) -> Result<Made, String> {
    let KvTurn { reads, disruptions } = turn;
    let usual = if disruptions.is_some() { CLIENTS_EACH * trial.members } else { 1 };
    let clients = kv.clients.unwrap_or(usual);
    let plan = KvPlan { reads, puts_percent: kv.puts_percent, keys: kv.keys, clients };
    let suspect_after = if disruptions.is_some() { settings.suspect_after } else { SUSPECT_AFTER };
    let what = Direction { kv: Some(plan), stream: reads as u64 + 16, suspect_after };
    let mut windows = Vec::new();
    let lived =
        director::make(
            testbed,
            settings,
            trial,
            what,
            |director: &mut Director<'_, Entry>| match disruptions {
                Some(disruptions) => {
                    let from_ns = monotonic_ns();
                    let disrupted = director.disrupt(disruptions);
                    windows.push(Window { clients, from_ns, to_ns: monotonic_ns() });
                    disrupted
                }
                None => raise(director, kv, &mut windows),
            },
        )?;
    let operations = history::operations(&logs(&lived));
    let checked = check(&lived, &operations);
    let cut_short = lived.cut_short.clone().filter(|_| checked.violation_count == 0);
    let has_finished = if disruptions.is_some() { !lived.events.is_empty() } else { !windows.is_empty() };
    if !has_finished && checked.violation_count == 0 {
        return Err(cut_short.unwrap_or_else(|| BEFORE_LOAD.to_owned()));
    }
    let (trial, cells) = summarise(settings, (trial, turn), kv, (&lived, &windows), (&operations, checked));
    Ok((trial, cells, cut_short))
}

fn logs(lived: &Lived<Entry>) -> Vec<ProcessLog<'_>> {
    let logs = lived.processes.iter().map(|process| ProcessLog {
        place: process.place,
        was_killed: process.was_killed,
        entries: &process.entries,
    });
    logs.collect()
}

/// Checks the history, also of a trial that was cut short: the answers until then hold all the same.
fn check(lived: &Lived<Entry>, operations: &[Asked]) -> Checked {
    let is_whole = lived.stuck.is_none() && lived.cut_short.is_none();
    let mut checked = history::check(&logs(lived), operations, lived.started_ns, is_whole);
    if let Some(sentence) = &lived.stuck {
        checked.violation_count += 1;
        checked.violations.push(sentence.clone());
    }
    checked
}

/// More and more clients, until two doublings bring nothing.
fn raise(director: &mut Director<'_, Entry>, kv: &KvSettings, windows: &mut Vec<Window>) -> Result<(), Halt> {
    let (mut clients, mut best, mut flat) = (kv.clients.unwrap_or(1), 0.0, 0);
    while flat < FLAT_MAX && clients <= CLIENTS_MAX && !interrupted() {
        director.order(CLIENTS, &clients.to_string())?;
        director.follow_for(SETTLE)?;
        if interrupted() {
            break;
        }
        let (from_ns, room_before) = (monotonic_ns(), director.room());
        director.follow_for(kv.step)?;
        let window = Window { clients, from_ns, to_ns: monotonic_ns() };
        windows.push(window);
        let room = director.room();
        let answered = director.entries().filter(|entry| is_answered_in(entry, &window)).count();
        let rate = answered as f64 / (window.to_ns - window.from_ns) as f64;
        flat = if rate < GROWTH_MIN * best { flat + 1 } else { 0 };
        best = rate.max(best);
        // Twice the clients may do twice as much; the last operations need room, too.
        if kv.clients.is_some() || room < 3 * (room_before - room) {
            break;
        }
        clients *= 2;
    }
    Ok(())
}

fn is_answered_in(entry: &Entry, window: &Window) -> bool {
    match entry {
        Entry::Answered { at_ns, .. } | Entry::Read { at_ns, .. } => {
            (window.from_ns..window.to_ns).contains(at_ns)
        }
        _ => false,
    }
}

fn summarise(
    settings: &BroadcastSettings,
    (trial, turn): (&TrialPlan, KvTurn),
    kv: &KvSettings,
    (lived, windows): (&Lived<Entry>, &[Window]),
    (operations, checked): (&[Asked], Checked),
) -> (KvTrial, Vec<(String, Samples)>) {
    let entries = || lived.processes.iter().flat_map(|process| &process.entries);
    let told = || {
        entries().filter_map(|entry| match entry {
            Entry::Group(told) => Some(&**told),
            _ => None,
        })
    };
    let last_view = told().filter_map(|told| match told {
        GroupEntry::View { number, .. } => Some(*number),
        _ => None,
    });
    let made = KvTrial {
        engine: trial.engine,
        members: trial.members,
        faults: trial.faults,
        seed: trial.seed,
        frame: lived.frame,
        reads: turn.reads,
        disruption: turn.disruptions.map(|disruptions| disruptions.of),
        disruptions: lived.events.len() as u64,
        puts_percent: kv.puts_percent,
        keys: kv.keys,
        value: settings.message,
        steps: windows.iter().map(|window| step(window, operations)).collect(),
        seconds: seconds(operations, lived),
        views: last_view.max().unwrap_or(0).saturating_sub(lived.first_view),
        expelled: told().filter(|told| matches!(told, GroupEntry::Expelled { .. })).count() as u64,
        checked_keys: checked.keys,
        checked_operations: checked.operations,
        maybe: checked.maybe,
        undecided: checked.undecided,
        local_gets: operations.iter().filter(|asked| asked.is_local).count() as u64,
        stale: checked.stale,
        stale_ns_max: checked.stale_ns_max,
        violation_count: checked.violation_count,
        violations: checked.violations,
    };
    let mut cells = Vec::new();
    for (window, step) in windows.iter().zip(&made.steps) {
        for (op, is_put) in [("put", true), ("get", false)] {
            let samples = samples(operations, window, is_put, lived.started_ns);
            if !samples.is_empty() {
                cells.push((made.wake_of(step, op), samples));
            }
        }
    }
    (made, cells)
}

fn step(window: &Window, operations: &[Asked]) -> KvStep {
    let is_in =
        |asked: &&Asked| asked.answered_ns.is_some_and(|ns| (window.from_ns..window.to_ns).contains(&ns));
    KvStep {
        clients: window.clients,
        operations: operations.iter().filter(is_in).count() as u64,
        duration_ns: window.to_ns - window.from_ns,
    }
}

/// Operations answered in each whole second of load.
fn seconds(operations: &[Asked], lived: &Lived<Entry>) -> Vec<u64> {
    let second = |ns: u64| (ns / 1_000_000_000) as usize;
    let mut seconds = vec![0; second(lived.stopped_ns.saturating_sub(lived.started_ns))];
    for ns in operations.iter().filter_map(|asked| asked.answered_ns?.checked_sub(lived.started_ns)) {
        if let Some(count) = seconds.get_mut(second(ns)) {
            *count += 1;
        }
    }
    seconds
}

/// A row for each operation that began in the window, from there to its answer. A client that gave up waited until then; a client that
/// was killed waits for nothing.
fn samples(operations: &[Asked], window: &Window, is_put: bool, started_ns: u64) -> Samples {
    let mut samples = Samples::default();
    let begun = operations
        .iter()
        .filter(|asked| asked.is_put == is_put && (window.from_ns..window.to_ns).contains(&asked.invoked_ns));
    for asked in begun {
        let (end_ns, outcome) = match (asked.answered_ns, asked.given_up_ns) {
            (Some(ns), _) => (ns, Outcome::Answered),
            (None, Some(ns)) => (ns, Outcome::Unfinished),
            (None, None) => continue,
        };
        let at_ns = asked.invoked_ns.saturating_sub(started_ns);
        let total_ns = end_ns.saturating_sub(asked.invoked_ns);
        samples.push(samples.len() as u64, at_ns, at_ns, total_ns, outcome);
        samples.sender.push(asked.place as u64);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::super::log::Invoked;
    use super::*;

    /// Goal: an answer that was wrong before a trial was cut short is found.
    #[test]
    fn a_trial_that_was_cut_short_is_checked() {
        let of = |answer: u64, values: [u64; 2]| {
            let invoked = Invoked { operation: 1, is_put: false, key: 5, value: 0, at_ns: 10 };
            let get = [Entry::Invoked(invoked), Entry::Answered { operation: 1, value: answer, at_ns: 20 }];
            let [state, other] = values.map(|value| Entry::State { at_ns: 30, values: vec![(5, value)] });
            let written = [get.into_iter().chain([state]).collect(), vec![other]];
            let lived = Lived { cut_short: Some("no memory".to_owned()), ..Lived::of(written) };
            check(&lived, &history::operations(&logs(&lived))).violation_count
        };
        assert_eq!(of(0, [1, 2]), 0, "a copy may be behind");
        assert_eq!(of(7, [1, 2]), 1, "nobody put it");
    }

    /// Goal: an operation counts where it was answered, its latency where it began, and a client that gave up waited until then.
    #[test]
    fn operations_count_in_their_window() {
        let put = Asked {
            place: 2,
            is_put: true,
            is_local: false,
            key: 1,
            value: 1,
            invoked_ns: 1_100,
            answered_ns: Some(1_150),
            given_up_ns: None,
        };
        let operations = [
            put,
            Asked { invoked_ns: 1_190, answered_ns: Some(1_250), ..put },
            Asked { answered_ns: None, given_up_ns: Some(1_900), ..put },
            Asked { answered_ns: None, ..put },
            Asked { is_put: false, invoked_ns: 1_000, answered_ns: Some(1_199), ..put },
        ];
        let window = Window { clients: 3, from_ns: 1_100, to_ns: 1_200 };
        assert_eq!(step(&window, &operations), KvStep { clients: 3, operations: 2, duration_ns: 100 });
        let samples = samples(&operations, &window, true, 1_000);
        assert_eq!(samples.total_ns, [50, 60, 800]);
        assert_eq!(samples.sent_ns, [100, 190, 100]);
        assert_eq!(samples.outcome[2], Outcome::Unfinished);
        assert_eq!(samples.sender, [2; 3]);
    }
}
