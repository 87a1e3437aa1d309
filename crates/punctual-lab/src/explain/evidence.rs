//! Stored evidence of a trial: its threads, the owner of each stage, and the observations around late messages.

use punctual_machine::fault_cost::FAULT_NS_MIN;
use punctual_machine::window::Window;
use serde::{Deserialize, Serialize};

use super::attached::Attached;
use super::stage::StageOwner;
use super::trace::{Trace, check_span};
use crate::scheduling::Urgency;
use crate::store::Recorded;

/// The evidence of one trial. All instants are those of its samples: nanoseconds since the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialEvidence {
    /// The threads that measured.
    pub threads: Vec<EvidenceThread>,
    /// The owner of each stage's time.
    pub stages: Vec<StageOwner>,
    /// State of the recording of the kernel's trace.
    pub recording: Recording,
    /// Around late messages, the latest of them first taken.
    pub dumps: Vec<EvidenceDump>,
    /// Time of a page fault on this host, nanoseconds.
    #[serde(default = "fault_ns_min")]
    pub fault_ns: u64,
    /// When the run began, nanoseconds of `CLOCK_MONOTONIC`: its instants count from there. 0 in evidence of before it was kept.
    #[serde(default)]
    pub began_ns: u64,
    /// Where it was measured, in words, where cell and trial do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Its messages are those of another trial, or a part of their way: their stalls are told there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
}

fn fault_ns_min() -> u64 {
    FAULT_NS_MIN
}

/// A thread of the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvidenceThread {
    /// Its role: `client`, `responder`, `sender`, `receiver`.
    pub role: String,
    /// Its owner, where several threads have that role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The sender whose messages it sends, as the samples number them; `None`: every message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<u64>,
    /// The kernel's number of it, where it is on this host.
    pub thread: Option<u32>,
    /// The CPU that it is bound to.
    pub cpu: Option<usize>,
    /// Its urgency.
    pub urgency: Urgency,
    /// A thread beside it on its CPU said how late it was itself.
    #[serde(default = "yes")]
    pub has_control: bool,
    /// Messages for it that found no room where they are received, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Messages for it that arrived in part, because fragments were missing, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<u64>,
    /// Its observations of itself (tier 0), around late messages.
    pub windows: Vec<Window>,
    /// Windows for which there was no room any more.
    #[serde(default, skip_serializing_if = "crate::units::is_zero")]
    pub windows_left_out: u64,
    /// Its tracers, and when they traced it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attached>,
}

/// Evidence of before there was a choice.
fn yes() -> bool {
    true
}

/// State of the recording of the kernel's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recording {
    /// It was not asked for.
    #[default]
    Off,
    /// It was asked for and cannot be done here.
    Missing {
        /// Why, and what to do.
        reason: String,
    },
    /// It was.
    On {
        /// Late messages that were not dumped, for there were too many.
        skipped: u64,
    },
}

/// The kernel's trace around one late message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceDump {
    /// When the message began, and when it had arrived.
    pub span: (u64, u64),
    /// The kernel's trace from a little before until a little after.
    pub trace: Trace,
}

impl Recorded for TrialEvidence {
    fn check(&self) -> Result<(), &'static str> {
        self.dumps.iter().try_for_each(|dump| check_span(dump.span).and_then(|()| dump.trace.check()))
    }
}

impl TrialEvidence {
    /// The thread in this role, of a message from this sender.
    pub fn thread(&self, role: &str, sender: Option<u64>) -> Option<&EvidenceThread> {
        let is_it = |thread: &&EvidenceThread| {
            thread.role == role && (thread.sender.is_none() || thread.sender == sender)
        };
        self.threads.iter().find(is_it)
    }

    /// The owner of a stage's time.
    pub fn owner(&self, stage: &str) -> Option<&StageOwner> {
        self.stages.iter().find(|owner| owner.stage == stage)
    }

    /// The dump that covers most of an interval.
    pub fn dump_over(&self, interval: (u64, u64)) -> Option<&EvidenceDump> {
        most_of(&self.dumps, |dump| &dump.trace, interval)
    }
}

/// The element whose trace knows most of an interval. Among equals it is the element whose trace knows more of the time before:
/// a thread's last action tells what it did then.
pub fn most_of<T>(all: &[T], trace: impl Fn(&T) -> &Trace, (from, to): (u64, u64)) -> Option<&T> {
    let covered = |one: &&T| {
        let known = trace(one).known();
        let ns = |from: u64, to: u64| {
            known.iter().map(|&(begin, end)| end.min(to).saturating_sub(begin.max(from))).sum::<u64>()
        };
        (ns(from, to), ns(0, from))
    };
    let most = all.iter().max_by_key(covered)?;
    (covered(&most).0 > 0).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::trace::CpuEvents;

    /// Goal: of traces that know all of an interval the one that begins earliest is taken, wherever it stands: the earlier actions of a
    /// thread tell how it waits. One that knows less of it is not, and one that knows nothing never.
    #[test]
    fn the_trace_that_knows_most_is_taken() {
        let trace = |since_ns, until_ns| {
            let cpu = CpuEvents { since_ns, until_ns, ..CpuEvents::default() };
            Trace { cpus: vec![cpu], ..Trace::default() }
        };
        let place = |spans: &[(u64, u64)], interval| {
            let all: Vec<Trace> = spans.iter().map(|&(since, until)| trace(since, until)).collect();
            most_of(&all, |one| one, interval).map(|most| all.iter().position(|one| one == most))
        };
        assert_eq!(place(&[(10, 90), (40, 90), (49, 99)], (50, 60)), Some(Some(0)));
        assert_eq!(place(&[(49, 99), (40, 90), (10, 90)], (50, 60)), Some(Some(2)));
        assert_eq!(place(&[(10, 55), (50, 59), (90, 99)], (50, 60)), Some(Some(1)));
        assert_eq!(place(&[(10, 50), (60, 90)], (50, 60)), None);
    }
}
