//! Stalls of a log, each with the stage that held it and the causes that the receiver's windows show.

use punctual_machine::window::Window;

use super::{LateRecord, LateStageRecord, LateWindow, Log, LogHead};
use crate::explain::account::{Account, account};
use crate::explain::cause::Cause;
use crate::explain::clue::Excess;
use crate::explain::evidence::most_of;
use crate::explain::finding::{Explained, charge_backlog};
use crate::explain::seen::over;
use crate::explain::stage::Side;
use crate::explain::trace::Trace;
use crate::explain::trace_file::TraceFile;
use crate::scheduling::Urgency;
use crate::stall::Stall;
use crate::units::plural;

/// Messages delivered no further apart belong to one stall.
const GAP_NS: u64 = 1_000_000;

impl LateRecord {
    /// When it was under way, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn span(&self) -> (u64, u64) {
        let from = self.stages.first().map_or(0, |stage| stage.from_ns);
        (from, self.stages.last().map_or(from, |stage| stage.to_ns))
    }

    /// The stage that exceeds what is usual by most.
    pub(super) fn worst(&self) -> Option<&LateStageRecord> {
        self.stages.iter().max_by_key(|stage| stage.excess_ns())
    }

    /// The side of a stage, and true if the receiver's thread can tell of it. In memory no kernel holds a message: a receiver that
    /// listened and did not take it was kept from that.
    pub(super) fn owner(&self, stage: &str) -> (Side, bool) {
        match stage {
            "sent" | "sealed" | "posted" => (Side::Sender, false),
            "medium" => (Side::Medium, !self.kernel_stamp),
            _ => (Side::Receiver, true),
        }
    }
}

impl LateStageRecord {
    fn excess_ns(&self) -> u64 {
        (self.to_ns - self.from_ns).saturating_sub(self.usual_ns)
    }
}

/// The stalls of a log, in the order of time; of the messages of one the longest is explained, by the trace where one covers it.
pub fn explain(log: &Log, traces: &[TraceFile]) -> Vec<Explained> {
    let Log { head, records, .. } = log;
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&place| (&records[place].receiver, records[place].span().1));
    let is_one = |&one: &usize, &next: &usize| {
        let (one, next) = (&records[one], &records[next]);
        one.receiver == next.receiver && next.span().1 - one.span().1 <= GAP_NS
    };
    let mut found: Vec<Explained> = Vec::new();
    for together in order.chunk_by(is_one) {
        let longest = together.iter().copied().max_by_key(|&place| records[place].total_ns);
        let last = together.last().copied();
        let Some((longest, last)) = longest.zip(last) else { continue };
        let stall = Stall {
            release_ns: records[last].span().1,
            first_index: records[longest].number,
            messages: together.len() as u64,
            longest_ns: records[longest].total_ns,
        };
        found.push(one(head, &records[longest], stall, traces));
    }
    charge_backlog(&mut found);
    found.sort_by_key(|one| one.instant_ns);
    for one in &mut found {
        one.instant_ns = one.instant_ns.saturating_sub(head.monotonic_ns);
        one.stall.release_ns = one.stall.release_ns.saturating_sub(head.monotonic_ns);
    }
    found
}

fn one(head: &LogHead, record: &LateRecord, stall: Stall, traces: &[TraceFile]) -> Explained {
    let excess_ns = record.total_ns.saturating_sub(record.usual_ns);
    let mut explained = Explained::of_stall(stall, record.span().0, excess_ns);
    let Some(stage) = record.worst() else { return explained };
    let (side, has_thread) = record.owner(&stage.stage);
    explained.stage = Some(stage.stage.clone());
    explained.stage_excess_ns = stage.excess_ns();
    explained.side = Some(side);
    if !has_thread {
        explained.role = Some(record.source.clone());
        explained.would_help =
            Some("not certain: the log is of the receiver's thread: the sender's is not in it".to_owned());
        return explained;
    }
    let excess = Excess {
        message_ns: excess_ns,
        stage_ns: stage.excess_ns(),
        usual_ns: stage.usual_ns,
        stage: &stage.stage,
        side,
        urgency: record.urgency.parse().unwrap_or(Urgency::Other),
        runs_handlers: true,
        has_control: false,
        tracer: record.tracer.as_deref(),
    };
    let interval = (stage.from_ns, stage.to_ns);
    let seen = over(&record.windows(), interval, head.fault_ns);
    let traced = record.account(traces, stage);
    explained.charge(traced.as_ref().map(|(trace, account)| (*trace, account)), &excess, seen.as_ref());
    if !head.counts_continuations || !record.counts_continuations {
        // Nobody noticed whether it was stopped. That is unknown also of the time that a trace lost.
        explained.causes.retain(|cause| cause.name != Cause::named("handler_blocked"));
        explained.sum_up();
    }
    if let Some(seen) = seen.filter(|_| traced.is_none()) {
        for cause in &mut explained.causes {
            // Only who traced it is known besides.
            let who = std::mem::take(&mut cause.evidence);
            cause.evidence = if who.is_empty() { seen.to_string() } else { format!("{who}; {seen}") };
        }
    }
    let is_receivers = side == Side::Receiver || explained.cause() != Cause::UNEXPLAINED;
    if is_receivers {
        explained.side = Some(Side::Receiver);
    }
    explained.role = Some(record.receiver.clone()).filter(|_| is_receivers);
    explained.would_help = match traced {
        Some((trace, _)) if trace.lost() > 0 => {
            Some(format!("not certain: the recorder lost {}", plural(trace.lost(), "event")))
        }
        Some((trace, _)) => trace.begins_late(interval).map(|lack| format!("more certain with {lack}")),
        None if explained.cause() == Cause::UNEXPLAINED => Some(
            "more certain with the kernel's trace: punctual watch, as root, while the program runs"
                .to_owned(),
        ),
        None if explained.cause() == Cause::named("handler_blocked") && head.counts_frozen != Some(true) => {
            let frozen = "more certain with the kernel's trace: whether its control group was frozen is not counted here";
            Some(frozen.to_owned())
        }
        _ => None,
    };
    explained
}

impl LateRecord {
    fn windows(&self) -> Vec<Window> {
        let window = |one: &LateWindow| Window { evidence: one.evidence, span: (one.from_ns, one.to_ns) };
        self.windows.iter().map(window).collect()
    }

    /// Account of its thread in a stage, by the trace that covers most of that.
    pub(super) fn account<'a>(
        &self,
        traces: &'a [TraceFile],
        stage: &LateStageRecord,
    ) -> Option<(&'a Trace, Account)> {
        let interval = (stage.from_ns, stage.to_ns);
        let file = most_of(traces, |file| &file.trace, interval).filter(|_| self.thread > 0)?;
        Some((&file.trace, account(&file.trace, self.thread, interval)))
    }
}
