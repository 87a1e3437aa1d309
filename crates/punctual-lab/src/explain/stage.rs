//! Stages of late messages: the usual time, the worst stage, its owner, and its instants.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::{ABSENT_NS, Load, Outcome, Samples, WIRE, WIRE_AND_RESPONDER};
use crate::stall::StallRule;

/// Owner of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The measuring host.
    Client,
    /// Between the two kernels; on a veth that runs in the sender's own call.
    Wire,
    /// The measured host.
    Responder,
    /// No stamp tells the wire from the responder.
    WireOrResponder,
    /// The server, of `run server`.
    Server,
    /// The sender of the message, a program of its own.
    Sender,
    /// Between sender and receiver.
    Medium,
    /// The receiver of the message.
    Receiver,
    /// A thread that is looked at from outside, and that owns the time.
    Thread,
}

impl Side {
    /// Side of a role.
    pub fn of_role(role: &str) -> Option<Self> {
        [Self::Client, Self::Responder, Self::Sender, Self::Receiver]
            .into_iter()
            .find(|side| side.to_string() == role)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Wire => "wire",
            Self::Responder => "responder",
            Self::WireOrResponder => "wire or responder",
            Self::Server => "server",
            Self::Sender => "sender",
            Self::Medium => "medium",
            Self::Receiver => "receiver",
            Self::Thread => "thread",
        })
    }
}

/// Owner of the time of a stage, named by its experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageOwner {
    /// The stage.
    pub stage: String,
    /// Owner of the time.
    pub side: Side,
    /// The role of the thread whose time it is, if it is one's.
    pub role: Option<String>,
    /// The role of another whose time it may be, where no stamp tells: its own evidence does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub or_role: Option<String>,
}

impl StageOwner {
    /// A stage that is the time of the thread in this role.
    pub fn of(stage: &str, side: Side, role: &str) -> Self {
        Self { stage: stage.to_owned(), side, role: Some(role.to_owned()), or_role: None }
    }

    /// A stage between two threads: the one that its evidence names owns it, or nobody.
    pub fn between(stage: &str, [role, or_role]: [&str; 2]) -> Self {
        Self { or_role: Some(or_role.to_owned()), ..Self::of(stage, Side::Medium, role) }
    }
}

/// The usual time: a tenth of the trips is faster. Not the median, which may itself lie in a stall.
pub fn typical(ns: &[u64]) -> u64 {
    let mut known: Vec<u64> = ns.iter().copied().filter(|&ns| ns != ABSENT_NS).collect();
    if known.is_empty() {
        return 0;
    }
    let place = known.len() / 10;
    *known.select_nth_unstable(place).1
}

/// The usual time of trips that were answered, by a column of these samples. A refusal is fast, and a lost trip has only an age.
pub fn typical_answered(samples: &Samples, ns: &[u64]) -> u64 {
    let answered = samples.outcome.iter().zip(ns).filter(|(outcome, _)| **outcome == Outcome::Answered);
    typical(&answered.map(|(_, ns)| *ns).collect::<Vec<u64>>())
}

/// The rule for trips late enough to be explained: that of stalls, from the usual time.
pub fn rule_for(samples: &Samples) -> StallRule {
    StallRule::for_median(typical_answered(samples, &samples.total_ns))
}

/// The stage that exceeds what is usual by most. `None` for a trip without stamps, or one that did not come.
pub fn worst_stage(samples: &Samples, usual: &[u64], row: usize) -> Option<(usize, u64)> {
    // Of what was never sent it may be known how long its sender was not there to send it.
    if !matches!(samples.outcome[row], Outcome::Answered | Outcome::Unfinished) {
        return None;
    }
    let excess = |place: usize| match samples.stages[place].ns[row] {
        ABSENT_NS => None,
        ns => Some((place, ns.saturating_sub(usual[place]))),
    };
    let worst = (0..samples.stages.len()).filter_map(excess).max_by_key(|&(_, excess)| excess);
    let is_told = |excess: u64| {
        samples.outcome[row] == Outcome::Answered || excess.saturating_mul(2) >= samples.total_ns[row]
    };
    worst.filter(|&(_, excess)| is_told(excess))
}

/// Columns stand in the order of time but for the way there and back as one: that lies before the client's part of the reply.
fn lies_before(samples: &Samples, one: usize, other: usize) -> bool {
    let name = |place: usize| samples.stages[place].name.as_str();
    let is_both_ways = |place| [WIRE, WIRE_AND_RESPONDER].contains(&name(place));
    let is_behind = |place| ["reply.elsewhere", "reply.woken", "reply.read"].contains(&name(place));
    match (is_both_ways(one), is_both_ways(other)) {
        (true, false) => is_behind(other),
        (false, true) => !is_behind(one),
        _ => one < other,
    }
}

/// When a stage of a message began and ended, by the stages before it.
pub fn interval(samples: &Samples, row: usize, load: Load, place: usize) -> (u64, u64) {
    let ns = |place: usize| match samples.stages[place].ns[row] {
        ABSENT_NS => 0,
        ns => ns,
    };
    let before = (0..samples.stages.len()).filter(|&other| lies_before(samples, other, place));
    // A file from outside may say any number.
    let begin = before.map(ns).fold(samples.start_ns(row, load), u64::saturating_add);
    (begin, begin.saturating_add(ns(place)))
}
