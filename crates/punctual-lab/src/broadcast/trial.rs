//! Results of trials, as the summary has them.

use serde::{Deserialize, Serialize};

use super::halt::Halt;
use super::kv::trial::KvTrial;
use super::lives::DisruptedTrial;
use super::messages;
use super::option::{BroadcastEngine, BroadcastKind, Datagrams, FaultProfile, FrameSize, Senders};
use crate::run::RunError;
use crate::units::OptionName;

/// One trial with a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BroadcastTrial {
    /// The engine that carried frames.
    pub engine: BroadcastEngine,
    /// The guarantee.
    pub kind: BroadcastKind,
    /// Members.
    pub members: usize,
    /// Faults at each receiver.
    pub faults: FaultProfile,
    /// By which it is repeated.
    pub seed: u64,
    /// Payload of a frame, bytes.
    pub frame: usize,
    /// The frame size that was asked for.
    #[serde(default)]
    pub frame_asked: FrameSize,
    /// Messages that every member delivered.
    pub messages: u64,
    /// Payload that every member delivered, bytes.
    pub bytes: u64,
    /// From the first broadcast until the slowest member had everything.
    pub duration_ns: u64,
    /// Messages that some member did not deliver as they were sent.
    pub altered: u64,
    /// Places at which members differ: of the order, or of what each sender sent where that is all that is promised.
    pub misordered: u64,
    /// Bus messages that all members sent, of any kind.
    pub frames_sent: u64,
    /// Bus messages that arrived, at all members.
    pub frames_arrived: u64,
    /// Bus messages that were lost or altered before they arrived, at all members.
    pub frames_lost: u64,
    /// Frames that members got as repairs.
    pub repaired: u64,
    /// Times that members asked for what they lacked.
    pub questions: u64,
    /// Views that began meanwhile: members that were suspected.
    pub views: u64,
    /// CPU time of all members.
    pub cpu_ns: u64,
    /// Packets that came to all members, and of these those that a program in the kernel lost, and those that it altered.
    #[serde(default)]
    pub packets_damaged: [u64; 3],
}

/// One trial of multicast without a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloorTrial {
    /// Processes; the first one sends.
    pub members: usize,
    /// Payload of a datagram, bytes: as much as a group's frame has.
    pub size: usize,
    /// Bytes of a datagram: as many as a group's has. 0 in runs of before, in which it had `size`, heads and all.
    #[serde(default)]
    pub datagram: usize,
    /// Maker of the datagrams.
    #[serde(default)]
    pub datagrams: Datagrams,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that the slowest receiver got.
    pub received: u64,
    /// From the first one until its last one.
    pub duration_ns: u64,
    /// True if bare runs were sent as one, and true if they came as one.
    pub merged: [bool; 2],
}

/// Contents of the summary under `broadcast`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BroadcastOverall {
    /// Members that broadcast.
    pub senders: Senders,
    /// Size of a message, bytes.
    pub message: usize,
    /// Largest packet of the interfaces, bytes.
    pub mtu: usize,
    /// In the order in which they were made.
    pub trials: Vec<BroadcastTrial>,
    /// The same, of multicast without a group.
    pub floors: Vec<FloorTrial>,
    /// The same, of groups whose members were killed or stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disrupted: Vec<DisruptedTrial>,
    /// The same, of groups with a store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kv: Vec<KvTrial>,
    /// Promises that did not hold in trials that have no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
}

impl BroadcastOverall {
    /// A trial has no result. Other systems' failures break no promise of ours.
    pub(super) fn note_failure(&mut self, engine: BroadcastEngine, halt: Halt) -> RunError {
        if let Halt::Stuck(sentence) = &halt
            && !engine.is_other()
        {
            self.violations.push(sentence.clone());
        }
        RunError::Machine(halt.text())
    }
}

impl BroadcastTrial {
    pub(super) fn wake(&self) -> String {
        let (faults, frame) = (self.faults.in_names(), self.frame_asked.in_names());
        format!("{}/n{}/{faults}{frame}", self.kind.name(), self.members)
    }

    /// Payload a second at the slowest member.
    pub fn speed(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}

impl FloorTrial {
    /// Payload of a datagram that counts, bytes: of a bare one as much as of the library's and of a group's.
    pub(super) fn payload_size(&self) -> usize {
        match self.datagrams {
            Datagrams::Library if self.datagram == 0 => messages::payload_size(self.size),
            Datagrams::Bare | Datagrams::Library => self.size,
        }
    }

    /// Bytes of a datagram.
    pub(super) fn datagram_size(&self) -> usize {
        if self.datagram == 0 { self.size } else { self.datagram }
    }

    /// Payload a second at the slowest receiver: messages that it lost do not count.
    pub fn speed(&self) -> f64 {
        self.received as f64 * self.payload_size() as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}
