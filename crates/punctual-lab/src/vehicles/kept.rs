//! Evidence that a run keeps for explanations: the threads of receivers and senders around late values, the owner of each stage, and
//! the kernel's trace.

use std::collections::HashSet;

use punctual::{Clock, Ticks, Wake};

use super::figures::MadeRun;
use super::protocol::{ComponentWindows, Part, WorkloadResult};
use super::value::Record;
use crate::endpoint::Medium;
use crate::explain::evidence::{EvidenceThread, TrialEvidence};
use crate::explain::kept::{ClockPair, Kept, joined, with_idle};
use crate::explain::stage::{Side, StageOwner};
use crate::sample::Samples;

const ROLES: [&str; 2] = ["sender", "receiver"];

/// A thread of a run, of which a trial keeps what was around its late values.
#[derive(Debug)]
pub(super) struct RunThread {
    part: Part,
    sends: bool,
    receives: bool,
    /// With all its windows, of which it was told when it had nothing to do. It has no role yet.
    whole: EvidenceThread,
}

impl MadeRun<'_> {
    /// The watched threads of all processes. They are made once for all trials of the run: to find out when a thread had nothing to do
    /// takes a look at every value of every receiver.
    pub(super) fn threads(&self) -> Vec<RunThread> {
        let sleeps = [Wake::EventFd, Wake::Futex, Wake::Epoll, Wake::Signal].contains(&self.settings.wake);
        let mut threads = Vec::new();
        for (part, brought) in self.brought.iter().filter(|(_, brought)| !brought.windows.is_empty()) {
            let busy = sleeps.then(|| joined(self.spans(*part, brought)));
            for watched in &brought.windows {
                let mut whole = watched.of.evidence("", None);
                if let Some(busy) = &busy {
                    // In the rest of the time no value was due that it had not sent or received.
                    whole.windows = with_idle(&whole.windows, busy.clone());
                }
                (whole.owner, whole.urgency) = (Some(part.name()), self.settings.asked.sched);
                let ComponentWindows { sends, receives, .. } = *watched;
                threads.push(RunThread { part: *part, sends, receives, whole });
            }
        }
        threads
    }

    /// The evidence of what a receiver got in the run of this number, whose threads are these.
    pub(super) fn evidence(
        &self,
        number: u32,
        receiver: Part,
        samples: &Samples,
        threads: &[RunThread],
    ) -> TrialEvidence {
        let senders: HashSet<u64> = samples.sender.iter().copied().collect();
        let mut own: Vec<EvidenceThread> = Vec::new();
        for thread in threads {
            let sender = thread.part.vehicle().map(u64::from).filter(|number| senders.contains(number));
            let of = |role: usize, sender| EvidenceThread {
                role: ROLES[role].to_owned(),
                sender,
                ..thread.whole.clone()
            };
            own.extend((thread.sends && sender.is_some()).then(|| of(0, sender)));
            own.extend((thread.receives && thread.part == receiver).then(|| of(1, None)));
        }
        let now = ClockPair::now();
        let kept = Kept { threads: own, recorder: None, clocks: [now, now] };
        let stages = owners(self.settings.asked.engine, samples);
        let around = (self.settings.period_ns(), TRACED_MAX);
        let place = Some(format!("{} in run {}", receiver.name(), number));
        TrialEvidence { place, ..self.trace.evidence(kept, (samples, stages), self.began, around) }
    }

    /// When values were due at or from a process and had not been taken or sent, by this process's clock.
    fn spans(&self, part: Part, brought: &WorkloadResult) -> Vec<(u64, u64)> {
        let clock = Clock::get();
        let span = |record: &Record, end: Ticks| (clock.nanos(record.value.due), clock.nanos(end));
        let received = brought.records.iter().map(|record| span(record, record.received));
        let own = |record: &&Record| Part::Vehicle(record.value.origin.vehicle) == part;
        let all = self.brought.iter().flat_map(|(_, brought)| &brought.records);
        received.chain(all.filter(own).map(|record| span(record, record.value.sent))).collect()
    }
}

/// Owner of each stage. On sockets the sender's own call of the kernel is the medium's time, unless no kernel says when it came.
fn owners(engine: Medium, samples: &Samples) -> Vec<StageOwner> {
    let owner = |stage: &str| match stage {
        "sent" | "sealed" | "posted" => StageOwner::of(stage, Side::Sender, ROLES[0]),
        "medium" if engine != Medium::Shared => StageOwner::between(stage, ROLES),
        _ => StageOwner::of(stage, Side::Receiver, ROLES[1]),
    };
    samples.stages.iter().map(|stage| owner(&stage.name)).collect()
}

/// Late spans of one trial that keep the kernel's trace around them, the longest.
const TRACED_MAX: usize = 12;
