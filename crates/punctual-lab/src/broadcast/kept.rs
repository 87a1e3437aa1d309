//! Record of a trial whose messages are due at instants, kept to be explained: each member's deliveries, in stages, and the threads of
//! all members.

use std::collections::HashMap;

use punctual::{Clock, Ticks};

use super::judge::Delivered;
use super::option::Paced;
use super::protocol::{MemberEnd, Row};
use crate::explain::evidence::{EvidenceThread, TrialEvidence};
use crate::explain::kept::{ClockPair, Kept, run_ns, with_idle};
use crate::explain::of_run::MEMBER;
use crate::explain::run_trace::RunTrace;
use crate::explain::stage::{Side, StageOwner};
use crate::run::cpu_of;
use crate::sample::{Outcome, Samples, StageColumn};

/// The stages of a message to one member: until it was sent; until the first member delivered it; until this one did.
const STAGES: [&str; 3] = ["sent", "medium", "woken"];

/// Roles: the member that sends, the one that gives the order, the one that delivers.
const ROLES: [&str; 3] = ["sender", "sequencer", "receiver"];

/// Late spans of one trial that keep the kernel's trace around them, the longest.
const TRACED_MAX: usize = 24;

/// Name of a member.
fn name(place: usize) -> String {
    format!("{MEMBER}{place}")
}

/// Identity of a message: its sender, and its number there.
type MessageId = (u64, u64);

/// Instants of a message at a member, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
struct Instants {
    due: u64,
    sent: u64,
    /// The first member had it, and this one.
    first: u64,
    at: u64,
}

/// A trial that was made.
#[derive(Debug)]
pub(super) struct PacedTrial<'a> {
    pub(super) paced: Paced,
    /// Somebody gives messages an order.
    pub(super) is_ordered: bool,
    pub(super) senders: usize,
    pub(super) pins: bool,
    pub(super) started_ns: u64,
    pub(super) members: &'a [(MemberEnd, Delivered)],
    pub(super) trace: RunTrace,
    /// When the run began.
    pub(super) start: Ticks,
    /// Before the first message, and after the last.
    pub(super) clocks: [ClockPair; 2],
}

impl PacedTrial<'_> {
    /// When each message was due.
    fn due_ns(&self, sender: u64, number: u64) -> u64 {
        self.started_ns + self.paced.due_ns(number, sender, self.senders)
    }

    /// Lets latencies of messages count from when they were due, and instants from the start of the run: until now both count from
    /// what was sent, and from the start of the trial. Of one sender messages are delivered in their order.
    pub(super) fn count_from_due(&self, samples: &mut Samples) {
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        for row in 0..samples.len() {
            let sender = samples.sender[row];
            let number = numbers.entry(sender).or_default();
            let due_ns = self.due_ns(sender, *number);
            *number += 1;
            let sent_ns = (self.started_ns + samples.sent_ns[row]).max(due_ns);
            samples.total_ns[row] += sent_ns - due_ns;
            samples.due_ns[row] = run_ns(self.clocks, self.start, due_ns);
            samples.sent_ns[row] = run_ns(self.clocks, self.start, sent_ns);
        }
    }

    /// Of each member its name, what it delivered, and what explains the late ones.
    pub(super) fn keep(&self) -> Vec<(String, Samples, TrialEvidence)> {
        let first = self.first_deliveries();
        let of_members: Vec<Vec<(Row, Instants)>> = self
            .members
            .iter()
            .map(|(_, delivered)| {
                delivered.rows.iter().map(|row| (*row, self.instants(row, &first))).collect()
            })
            .collect();
        let threads: Vec<[Option<EvidenceThread>; 3]> =
            (0..self.members.len()).map(|place| self.threads_of(place, &of_members)).collect();
        let one = |place: usize| {
            let samples = self.samples(&of_members[place]);
            let evidence = self.evidence(place, &samples, &threads);
            (name(place), samples, evidence)
        };
        (0..self.members.len()).map(one).collect()
    }

    /// When the first member delivered each message.
    fn first_deliveries(&self) -> HashMap<MessageId, u64> {
        let mut first: HashMap<MessageId, u64> = HashMap::new();
        for row in self.members.iter().flat_map(|(_, delivered)| &delivered.rows) {
            let at_ns = first.entry((row.sender, row.number)).or_insert(row.at_ns);
            *at_ns = row.at_ns.min(*at_ns);
        }
        first
    }

    fn instants(&self, row: &Row, first: &HashMap<MessageId, u64>) -> Instants {
        let due = self.due_ns(row.sender, row.number);
        let first = first.get(&(row.sender, row.number)).map_or(row.at_ns, |&at_ns| at_ns.max(row.sent_ns));
        Instants { due, sent: row.sent_ns.max(due), first, at: row.at_ns.max(first) }
    }

    fn samples(&self, delivered: &[(Row, Instants)]) -> Samples {
        let since = |ns: u64| run_ns(self.clocks, self.start, ns);
        let mut samples = Samples::with_capacity(delivered.len());
        for (index, (row, instants)) in delivered.iter().enumerate() {
            let total_ns = instants.at.saturating_sub(instants.due);
            samples.push(
                index as u64,
                since(instants.due),
                since(instants.sent),
                total_ns,
                Outcome::Answered,
            );
            samples.sender.push(row.sender);
        }
        let column = |place: usize| {
            let ns = delivered.iter().map(|(_, instants)| {
                let [from, to] = instants.stage(place);
                to - from
            });
            StageColumn { name: STAGES[place].to_owned(), ns: ns.collect() }
        };
        samples.stages = (0..STAGES.len()).map(column).collect();
        samples
    }

    /// A member's thread in each of its roles. It sleeps unless it has something to do: to send what is due, to wait for what was sent.
    fn threads_of(&self, place: usize, of_members: &[Vec<(Row, Instants)>]) -> [Option<EvidenceThread>; 3] {
        let Some(watched) = &self.members[place].1.windows else { return [const { None }; 3] };
        let clock = Clock::get();
        let start_ns = clock.nanos(self.start);
        let span = |[from, to]: [u64; 2]| {
            let at = |ns: u64| start_ns + run_ns(self.clocks, self.start, ns);
            (at(from), at(to))
        };
        let own = of_members[place].iter().flat_map(|(row, instants)| {
            let sends = (row.sender == place as u64).then(|| span(instants.stage(0)));
            sends.into_iter().chain([span([instants.sent, instants.at])])
        });
        let windows = with_idle(&watched.nanos(), own.collect());
        let cpu = if self.pins { cpu_of(place) } else { None };
        let thread = |role: usize, sender: Option<u64>| EvidenceThread {
            owner: Some(name(place)),
            sender,
            windows: windows.clone(),
            ..watched.evidence(ROLES[role], cpu)
        };
        let sends = (place < self.senders).then(|| thread(0, Some(place as u64)));
        // The founder gives the order.
        [sends, (place == 0).then(|| thread(1, None)), Some(thread(2, None))]
    }

    fn evidence(
        &self,
        place: usize,
        samples: &Samples,
        threads: &[[Option<EvidenceThread>; 3]],
    ) -> TrialEvidence {
        let of_role = |role: usize| threads.iter().filter_map(move |of| of[role].clone());
        let own = threads[place][2].clone();
        let threads = of_role(0).chain(of_role(1)).chain(own).collect();
        let kept = Kept { threads, recorder: None, clocks: self.clocks };
        let stages = owners(self.is_ordered);
        self.trace.evidence(kept, (samples, stages), self.start, (self.paced.period_ns, TRACED_MAX))
    }
}

impl Instants {
    /// From when to when a stage lasted, by its place.
    fn stage(&self, place: usize) -> [u64; 2] {
        let first = self.first.max(self.sent);
        match place {
            0 => [self.due, self.sent],
            1 => [self.sent, first],
            _ => [first, self.at.max(first)],
        }
    }
}

/// Owner of each stage. The sender and the member that gives the order may be two; no stamp tells one from the other, nor from a
/// majority that is waited for. Without an order nobody gives one.
fn owners(is_ordered: bool) -> Vec<StageOwner> {
    let [sent, medium, woken] = STAGES;
    let [sender, sequencer, receiver] = ROLES;
    vec![
        StageOwner::of(sent, Side::Sender, sender),
        StageOwner::between(medium, [if is_ordered { sequencer } else { sender }, receiver]),
        StageOwner::of(woken, Side::Receiver, receiver),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::option::BroadcastKind;
    use crate::explain::kept::ThreadWindows;

    /// Goal: a message's way to each member sums to its latency. A late stage belongs to the member that held the message up: its
    /// sender, or a member that delivered it after another had.
    #[test]
    fn each_member_has_its_stages() {
        let started_ns = punctual_machine::clock::monotonic_ns();
        let clocks = [ClockPair::now(), ClockPair::now()];
        let paced = Paced { period_ns: 1_000_000, each: 3 };
        let row = |number: u64, late_ns: u64, at_ns: u64| {
            let due_ns = started_ns + number * paced.period_ns;
            Row { sender: 0, number, hash: 0, sent_ns: due_ns + late_ns, at_ns: due_ns + at_ns }
        };
        let of = |rows| Delivered { rows, hashes: vec![0; 3], windows: Some(ThreadWindows::default()) };
        let first = of(vec![row(0, 10, 30), row(1, 500_000, 500_020), row(2, 10, 40)]);
        let other = of(vec![row(0, 10, 50), row(1, 500_000, 500_030), row(2, 10, 700_040)]);
        let members = [(MemberEnd::default(), first), (MemberEnd::default(), other)];
        let trial = PacedTrial {
            paced,
            is_ordered: true,
            senders: 1,
            pins: false,
            started_ns,
            members: &members,
            trace: RunTrace::default(),
            start: Clock::get().now(),
            clocks,
        };
        let mut last = super::super::judge::judge(&members, BroadcastKind::Ab, started_ns).samples;
        trial.count_from_due(&mut last);
        assert_eq!(last.total_ns, [50, 500_030, 700_040], "at the last member, since it was due");
        let kept = trial.keep();
        assert_eq!(kept[1].1.due_ns, last.due_ns);
        let column = |member: usize, place: usize| kept[member].1.stages[place].ns.clone();
        assert_eq!(
            [0, 1, 2].map(|place| column(0, place)),
            [vec![10, 500_000, 10], vec![20, 20, 30], vec![0; 3]]
        );
        assert_eq!(
            [0, 1, 2].map(|place| column(1, place)),
            [vec![10, 500_000, 10], vec![20, 20, 30], vec![20, 10, 700_000]]
        );
        for (member, samples, evidence) in &kept {
            assert!((0..3).all(|row| samples.unexplained_ns(row) == Some(0)), "{member}: {samples:?}");
            let owner = |role, sender| evidence.thread(role, sender).and_then(|thread| thread.owner.clone());
            assert_eq!(owner("sender", Some(0)).as_deref(), Some("member-0"));
            assert_eq!(owner("receiver", Some(0)).as_ref(), Some(member));
        }
    }
}
