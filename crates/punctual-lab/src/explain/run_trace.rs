//! The kernel's trace of a run whose messages come all the while, in many processes: dumped once a second, and cut around late ones.

use punctual::Ticks;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::Flag;

use super::evidence::{EvidenceDump, Recording, TrialEvidence, most_of};
use super::kept::{ClockPair, Kept, joined, late_spans};
use super::quiet::QuietTime;
use super::recorder::LateRecorder;
use super::stage::StageOwner;
use crate::sample::{Load, Samples};
use crate::scheduling::Job;

/// The kernel's trace of a run.
#[derive(Debug, Default)]
pub struct RunTrace {
    recording: Recording,
    dumps: Vec<EvidenceDump>,
}

/// Between two dumps: the ring holds some seconds of twenty processes.
const DUMP_EVERY_NS: u64 = 1_000_000_000;

/// So much of the time before the dump before is in each, so that what lasts from one to the next is in one whole.
const OVERLAP_NS: u64 = 200_000_000;

/// Records the kernel while messages travel.
#[derive(Debug)]
pub struct RunRecorder {
    job: Job<LateRecorder>,
    began: ClockPair,
}

impl RunRecorder {
    /// Starts: it dumps once a second, three quarters of a period after messages were due, which they are from `start_ns` on.
    ///
    /// # Errors
    /// Says what is missing here, and what to do.
    pub fn start(start_ns: u64, period_ns: u64) -> Result<Self, String> {
        let recorder = LateRecorder::start()?;
        let began = ClockPair::now();
        let job = Job::start("recorder", move |over| dumping(recorder, (start_ns, period_ns), over))?;
        Ok(Self { job, began })
    }

    /// The trace, at instants of the run, which began then.
    pub fn end(recorder: Option<Result<Self, String>>, began: Ticks) -> RunTrace {
        let ended = recorder.map(|recorder| {
            let Self { job, began: first } = recorder?;
            Ok::<_, String>((job.stop()?, [first, ClockPair::now()]))
        });
        match ended {
            None => RunTrace::default(),
            Some(Err(reason)) => RunTrace { recording: Recording::Missing { reason }, dumps: Vec::new() },
            Some(Ok((recorder, clocks))) => {
                let (recording, dumps) = recorder.finish(clocks, began);
                RunTrace { recording, dumps }
            }
        }
    }
}

fn dumping(mut recorder: LateRecorder, (start_ns, period_ns): (u64, u64), over: &Flag) -> LateRecorder {
    let period_ns = period_ns.max(1);
    let offset_ns = period_ns / 4 * 3;
    let quiet = QuietTime { start_ns, period_ns, offset_ns, length_ns: period_ns - offset_ns };
    let mut dumped_ns = monotonic_ns();
    let mut next_ns = dumped_ns + DUMP_EVERY_NS;
    while !over.is_raised() {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let now_ns = monotonic_ns();
        // Where messages are due all the while there is no better time than another.
        let is_quiet = quiet.has(now_ns) || now_ns >= next_ns + DUMP_EVERY_NS / 2;
        if now_ns >= next_ns && is_quiet {
            recorder.note(dumped_ns.saturating_sub(OVERLAP_NS), now_ns);
            recorder.dump_within(None);
            (dumped_ns, next_ns) = (now_ns, now_ns + DUMP_EVERY_NS);
        }
    }
    recorder.note(dumped_ns.saturating_sub(OVERLAP_NS), monotonic_ns());
    recorder
}

/// Time behind each late message that is kept too. Before it a period more is kept: a thread stopped in its sleep was stopped before
/// the message was due.
const AROUND_NS: u64 = 20_000_000;

impl RunTrace {
    /// The evidence of a trial of such a run, whose messages are due at fixed instants, with what of the trace was around late ones:
    /// the longest of them, whose period is so long.
    pub fn evidence(
        &self,
        kept: Kept,
        (samples, stages): (&Samples, Vec<StageOwner>),
        start: Ticks,
        (period_ns, most): (u64, usize),
    ) -> TrialEvidence {
        let evidence = kept.evidence(samples, Load::Open, stages, start);
        let (recording, dumps) = self.around(&late_spans(samples, Load::Open, None), period_ns, most);
        TrialEvidence { recording, dumps, ..evidence }
    }

    /// Trace around the longest of the late messages that a dump covers, and the number of late ones that none does. The period is
    /// that of the messages.
    fn around(&self, late: &[(u64, u64)], period_ns: u64, most: usize) -> (Recording, Vec<EvidenceDump>) {
        if !matches!(self.recording, Recording::On { .. }) {
            return (self.recording.clone(), Vec::new());
        }
        // Those that overlap are one.
        let mut spans = joined(late.to_vec());
        spans.sort_by_key(|(from, to)| (std::cmp::Reverse(to - from), *from));
        let cut = |&(from, to): &(u64, u64)| {
            let around = (from.saturating_sub(AROUND_NS + period_ns), to + AROUND_NS);
            let dump = most_of(&self.dumps, |dump| &dump.trace, (from, to))?;
            Some(EvidenceDump { span: (from, to), trace: dump.trace.within(around) })
        };
        let mut dumps: Vec<EvidenceDump> = spans.iter().filter_map(cut).take(most).collect();
        dumps.sort_by_key(|dump| dump.span);
        let is_in =
            |span: &&(u64, u64)| dumps.iter().any(|dump| dump.span.0 <= span.0 && span.1 <= dump.span.1);
        let skipped = late.len() - late.iter().filter(is_in).count();
        (Recording::On { skipped: skipped as u64 }, dumps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::trace::{CpuEvents, Trace};

    /// Goal: late messages that no dump covers take no place of others, however long they are.
    #[test]
    fn messages_without_a_dump_take_no_place() {
        let cpu = CpuEvents { since_ns: 100, until_ns: 1_000, ..CpuEvents::default() };
        let trace = Trace { cpus: vec![cpu], ..Trace::default() };
        let dumps = vec![EvidenceDump { span: (100, 1_000), trace }];
        let run = RunTrace { recording: Recording::On { skipped: 0 }, dumps };
        let late = [(200, 210), (300, 330), (400, 420), (5_000, 9_000)];
        let (recording, dumps) = run.around(&late, 5, 2);
        assert_eq!(dumps.iter().map(|dump| dump.span).collect::<Vec<_>>(), [(300, 330), (400, 420)]);
        assert_eq!(recording, Recording::On { skipped: 2 });
    }
}
