//! What a run keeps to be explained: the threads of receivers and senders around late values, whose each stage is, and the kernel's
//! trace.

use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::Flag;
use punctual_machine::window::Window;

use super::option::VehiclesSettings;
use super::protocol::Part;
use super::testbed::WorkloadResult;
use super::value::Record;
use crate::endpoint::Medium;
use crate::explain::evidence::{EvidenceDump, EvidenceThread, Recording, TrialEvidence, most_of};
use crate::explain::kept::{ClockPair, Kept, joined, late_spans, run_ns, with_idle};
use crate::explain::recorder::LateRecorder;
use crate::explain::stage::{Side, StageOwner};
use crate::sample::{Load, Samples};
use crate::scheduling::Job;
use punctual::Wake;

const ROLES: [&str; 2] = ["sender", "receiver"];

/// The kernel's trace of a run.
#[derive(Debug, Default)]
pub(super) struct RunTrace {
    recording: Recording,
    dumps: Vec<EvidenceDump>,
}

/// Between two dumps: the ring holds some seconds of twenty processes.
const DUMP_EVERY_NS: u64 = 1_000_000_000;

/// So much of the time before the dump before is in each, so that what lasts from one to the next is in one whole.
const OVERLAP_NS: u64 = 200_000_000;

/// Records the kernel while values travel.
#[derive(Debug)]
pub(super) struct RunRecorder {
    job: Job<LateRecorder>,
    began: ClockPair,
}

impl RunRecorder {
    /// Starts, if that is asked for: it dumps once a second, three quarters of a period after values were due.
    ///
    /// # Errors
    /// Says what is missing here, and what to do.
    pub(super) fn start(settings: &VehiclesSettings, start_ns: Option<u64>) -> Option<Result<Self, String>> {
        settings.asked.trace.then(|| {
            let recorder = LateRecorder::start()?;
            let (start_ns, period_ns) = (start_ns.unwrap_or_else(monotonic_ns), settings.period_ns());
            let began = ClockPair::now();
            let job = Job::start("recorder", move |over| dumping(recorder, (start_ns, period_ns), over))?;
            Ok(Self { job, began })
        })
    }

    /// The trace, at instants of the run, which began then.
    pub(super) fn end(recorder: Option<Result<Self, String>>, began: Ticks) -> RunTrace {
        let ended = recorder.map(|recorder| {
            let Self { job, began: first } = recorder?;
            Ok::<_, String>((job.stop()?, [first, ClockPair::now()]))
        });
        match ended {
            None => RunTrace::default(),
            Some(Err(reason)) => RunTrace { recording: Recording::Missing { reason }, dumps: Vec::new() },
            Some(Ok((recorder, clocks))) => {
                let (recording, dumps) = recorder.finish(|ns| run_ns(clocks, began, ns));
                RunTrace { recording, dumps }
            }
        }
    }
}

fn dumping(mut recorder: LateRecorder, (start_ns, period_ns): (u64, u64), over: &Flag) -> LateRecorder {
    let mut dumped_ns = monotonic_ns();
    let mut next_ns = dumped_ns + DUMP_EVERY_NS;
    while !over.is_raised() {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let now_ns = monotonic_ns();
        let since_due = now_ns.saturating_sub(start_ns) % period_ns.max(1);
        // Where values are due all the while there is no better time than another.
        let is_quiet = since_due >= period_ns / 4 * 3 || now_ns >= next_ns + DUMP_EVERY_NS / 2;
        if now_ns >= next_ns && is_quiet {
            recorder.note(dumped_ns.saturating_sub(OVERLAP_NS), now_ns);
            recorder.dump_within(None);
            (dumped_ns, next_ns) = (now_ns, now_ns + DUMP_EVERY_NS);
        }
    }
    recorder.note(dumped_ns.saturating_sub(OVERLAP_NS), monotonic_ns());
    recorder
}

/// A run, and what its processes brought.
#[derive(Debug)]
pub(super) struct RunKept<'a> {
    pub(super) settings: &'a VehiclesSettings,
    pub(super) brought: &'a [(Part, WorkloadResult)],
    pub(super) number: u32,
    pub(super) began: Ticks,
    pub(super) trace: RunTrace,
}

impl RunKept<'_> {
    /// The parts that receive, in the order of the trials.
    pub(super) fn receivers(&self) -> Vec<Part> {
        let mutual = self.settings.asked.mode.is_mutual();
        let parts = self.brought.iter().map(|(part, _)| *part);
        parts
            .filter(|part| match part {
                Part::Vehicle(_) => mutual,
                Part::Listener => true,
                Part::Roadside(_) => false,
            })
            .collect()
    }

    /// The evidence of what one of them received.
    pub(super) fn evidence(&self, receiver: Part, samples: &Samples) -> TrialEvidence {
        let mut threads: Vec<EvidenceThread> = Vec::new();
        // Of several components the samples do not say whose a value is.
        for (part, brought) in self.brought.iter().filter(|_| self.settings.asked.components == 1) {
            let is_late = |number: u16| samples.sender.contains(&u64::from(number));
            for watched in &brought.windows {
                let windows = self.windows(*part, brought, &watched.of.nanos());
                let thread = |role: usize, sender| EvidenceThread {
                    role: ROLES[role].to_owned(),
                    owner: Some(part.name()),
                    sender,
                    thread: Some(watched.of.thread),
                    cpu: None,
                    urgency: self.settings.asked.sched,
                    has_control: false,
                    dropped: None,
                    windows: windows.clone(),
                    attached: watched.of.attached_nanos(),
                };
                match *part {
                    Part::Vehicle(number) if watched.sends && is_late(number) => {
                        threads.push(thread(0, Some(number.into())));
                    }
                    _ => {}
                }
                if *part == receiver && watched.receives {
                    threads.push(thread(1, None));
                }
            }
        }
        let now = ClockPair::now();
        let kept = Kept { threads, recorder: None, clocks: [now, now] };
        let stages = owners(self.settings.asked.engine, samples);
        let evidence = kept.evidence(samples, Load::Open, stages, self.began);
        let late = late_spans(samples, Load::Open, None);
        let (recording, dumps) = self.trace.around(&late, AROUND_NS + self.settings.period_ns());
        let place = Some(format!("{} in run {}", receiver.name(), self.number));
        TrialEvidence { recording, dumps, place, ..evidence }
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

/// Whose each stage is. On sockets the sender's own call of the kernel is the medium's time, unless no kernel says when it came.
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

/// Time behind each that is kept too; before it a period more: who was stopped while it slept was so before the value was due.
const AROUND_NS: u64 = 20_000_000;

impl RunTrace {
    /// What of it was around late values, and how many late values no dump covers.
    fn around(&self, late: &[(u64, u64)], before_ns: u64) -> (Recording, Vec<EvidenceDump>) {
        if !matches!(self.recording, Recording::On { .. }) {
            return (self.recording.clone(), Vec::new());
        }
        // Those that overlap are one.
        let mut spans = joined(late.to_vec());
        spans.sort_by_key(|(from, to)| (std::cmp::Reverse(to - from), *from));
        let cut = |&(from, to): &(u64, u64)| {
            let around = (from.saturating_sub(before_ns), to + AROUND_NS);
            let most = most_of(&self.dumps, |dump| &dump.trace, (from, to))?;
            Some(EvidenceDump { span: (from, to), trace: most.trace.within(around) })
        };
        let mut dumps: Vec<EvidenceDump> = spans.iter().take(TRACED_MAX).filter_map(cut).collect();
        dumps.sort_by_key(|dump| dump.span);
        let is_in =
            |span: &&(u64, u64)| dumps.iter().any(|dump| dump.span.0 <= span.0 && span.1 <= dump.span.1);
        let skipped = late.len() - late.iter().filter(is_in).count();
        (Recording::On { skipped: skipped as u64 }, dumps)
    }
}
