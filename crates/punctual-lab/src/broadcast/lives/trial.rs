//! Stored result of a trial in which members were killed or stopped.

use serde::{Deserialize, Serialize};

use crate::broadcast::option::{BroadcastEngine, BroadcastKind, Disruption, FaultProfile};
use crate::summary::Figures;
use crate::units::OptionName;

/// One member was away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DisruptionEvent {
    /// Its place in the roster.
    pub place: usize,
    /// It ordered the messages of its view.
    pub was_sequencer: bool,
    /// When it was killed or stopped, since all members were in one view.
    pub at_ns: u64,
    /// When another process was started in its place, or it was continued.
    pub returned_ns: u64,
    /// When all members delivered in one view again.
    pub recovered_ns: u64,
    /// Of each other member, the longest time without a delivery while it was away.
    pub gaps_ns: Vec<u64>,
    /// The same, from its return until all members delivered in one view.
    pub return_gaps_ns: Vec<u64>,
    /// From its return until its new life delivered; `None` if that never did.
    pub rejoin_ns: Option<u64>,
}

/// One trial with a group whose members were killed or stopped under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DisruptedTrial {
    /// The engine that carried frames.
    pub engine: BroadcastEngine,
    /// The guarantee.
    pub kind: BroadcastKind,
    /// Disruption of members.
    pub disruption: Disruption,
    /// Members.
    pub members: usize,
    /// Faults at each receiver.
    pub faults: FaultProfile,
    /// By which it is repeated.
    pub seed: u64,
    /// Payload of a frame, bytes.
    pub frame: usize,
    /// Silence after which a member is suspected.
    pub suspect_after_ns: u64,
    /// One after the other.
    pub events: Vec<DisruptionEvent>,
    /// Over all events and other members, [`DisruptionEvent::gaps_ns`].
    pub gaps: Figures,
    /// The same of [`DisruptionEvent::return_gaps_ns`].
    pub return_gaps: Figures,
    /// The same of [`DisruptionEvent::rejoin_ns`].
    pub rejoins: Figures,
    /// Views that began after all members were in one.
    pub views: u64,
    /// Lives that the others went on without, and that found out.
    pub expelled: u64,
    /// Lives that were in a view.
    pub lives: u64,
    /// Messages of the one sequence that were delivered under load.
    pub messages: u64,
    /// Their payload, bytes.
    pub bytes: u64,
    /// Duration of that load, with all members in one view at its begin.
    pub duration_ns: u64,
    /// Promises that did not hold.
    pub violation_count: u64,
    /// The first of them, in words.
    pub violations: Vec<String>,
}

impl DisruptedTrial {
    pub(in crate::broadcast) fn wake(&self) -> String {
        let (kind, disruption) = (self.kind.name(), self.disruption.plural());
        format!("{kind}/n{}/{}/{disruption}", self.members, self.faults.in_names())
    }

    /// Payload a second, of the one sequence.
    pub fn speed(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}
