//! Evidence that a run keeps for explanations: the threads of receivers and senders around late values, the owner of each stage, and
//! the kernel's trace.

use punctual::{Clock, Ticks};
use punctual_machine::window::Window;

use super::figures::MadeRun;
use super::protocol::{Part, WorkloadResult};
use super::value::Record;
use crate::endpoint::Medium;
use crate::explain::evidence::{EvidenceThread, TrialEvidence};
use crate::explain::kept::{ClockPair, Kept, with_idle};
use crate::explain::stage::{Side, StageOwner};
use crate::sample::Samples;
use punctual::Wake;

const ROLES: [&str; 2] = ["sender", "receiver"];

impl MadeRun<'_> {
    /// The evidence of what a receiver got in the run of this number.
    pub(super) fn evidence(&self, number: u32, receiver: Part, samples: &Samples) -> TrialEvidence {
        let mut threads: Vec<EvidenceThread> = Vec::new();
        for (part, brought) in &self.brought {
            let sender = part.vehicle().map(u64::from).filter(|number| samples.sender.contains(number));
            for watched in &brought.windows {
                let windows = self.windows(*part, brought, &watched.of.nanos());
                let thread = |role: usize, sender| EvidenceThread {
                    owner: Some(part.name()),
                    sender,
                    urgency: self.settings.asked.sched,
                    windows: windows.clone(),
                    ..watched.of.evidence(ROLES[role], None)
                };
                threads.extend((watched.sends && sender.is_some()).then(|| thread(0, sender)));
                threads.extend((watched.receives && *part == receiver).then(|| thread(1, None)));
            }
        }
        let now = ClockPair::now();
        let kept = Kept { threads, recorder: None, clocks: [now, now] };
        let stages = owners(self.settings.asked.engine, samples);
        let around = (self.settings.period_ns(), TRACED_MAX);
        let place = Some(format!("{} in run {}", receiver.name(), number));
        TrialEvidence { place, ..self.trace.evidence(kept, (samples, stages), self.began, around) }
    }

    /// With the time in which the thread had nothing to do: no value was due that it had not sent or received.
    fn windows(&self, part: Part, brought: &WorkloadResult, windows: &[Window]) -> Vec<Window> {
        let sleeps = [Wake::EventFd, Wake::Futex, Wake::Epoll, Wake::Signal].contains(&self.settings.wake);
        if !sleeps {
            return windows.to_vec();
        }
        with_idle(windows, self.spans(part, brought))
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
