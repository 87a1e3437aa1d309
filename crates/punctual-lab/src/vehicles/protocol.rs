//! Messages between the experiment and its processes, one JSON line each; nothing is said while values travel.

use serde::{Deserialize, Serialize};

use super::first::{Beginning, Look};
use super::option::VehiclesSettings;
use super::value::Record;
use crate::endpoint::{BusPlan, KeyLine};
use crate::explain::kept::ThreadWindows;

/// The part a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// Publishes and subscribes; its number.
    Vehicle(u16),
    /// Stands by the road: listens, and says once a second that it is there; its number.
    Roadside(u16),
    /// Receives what all vehicles send, and sends nothing.
    Listener,
}

impl Part {
    pub(super) fn vehicle(self) -> Option<u16> {
        if let Self::Vehicle(number) = self { Some(number) } else { None }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Vehicle(number) => format!("vehicle-{number}"),
            Self::Roadside(number) => format!("roadside-{number}"),
            Self::Listener => "listener".to_owned(),
        }
    }
}

/// One run, as one process sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub(super) part: Part,
    pub(super) bus: BusPlan,
    pub(super) keys: Option<KeyLine>,
    /// Nodes on the bus besides its own.
    pub(super) others: usize,
    pub(super) settings: VehiclesSettings,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum VehicleRequest {
    /// To open everything and to say so when it is ready; without a barrier, to travel at once.
    Open(Box<Assignment>),
    /// The barrier opens at this instant of `CLOCK_MONOTONIC`.
    Go { at_ns: u64 },
    /// To say what became of every message until now.
    Account,
}

/// When opening began; when there were the bus, communicators and their threads, all others.
pub(super) type Opening = [Look; 4];

/// Facts about a process while values travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    /// Values that its components published, each.
    pub(super) sent: u64,
    pub(super) refused: u64,
    /// Messages that were no value, or not as they were sent.
    pub(super) mismatched: u64,
    pub(super) beacons: u64,
    /// Time its threads waited for a processor, nanoseconds.
    pub(super) queued_ns: u64,
    pub(super) cpu_ns: u64,
    /// Resident memory at the barrier and at the end, KiB.
    pub(super) resident_kib: [u64; 2],
    /// Signals that told of frames, where signals do.
    pub(super) signals: u64,
    /// Times that a signal continued the process: it had been stopped.
    pub(super) continued: u64,
    /// Times that its CPU quota ran out.
    pub(super) throttled: u64,
    pub(super) faults: u64,
    /// Other nodes of which it did not know yet when the barrier's opening was announced.
    pub(super) unheard: u64,
}

/// Values that a component never sent: it slept through their instants, and a later one superseded them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Skipped {
    pub(super) component: u16,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// A node's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Account {
    /// Frames for everybody.
    pub(super) broadcast: u64,
    /// Frames for one other node.
    pub(super) unicast: u64,
    pub(super) counters: Vec<(String, u64)>,
    /// Frames of others that arrived, each once.
    pub(super) arrived: u64,
    /// Frames of others that have not: lost, or not yet known to be.
    pub(super) lost: u64,
}

impl Account {
    pub(super) fn count(&self, name: &str) -> u64 {
        self.counters.iter().find(|(found, _)| found == name).map_or(0, |&(_, count)| count)
    }
}

/// The windows of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ComponentWindows {
    pub(super) sends: bool,
    pub(super) receives: bool,
    pub(super) of: ThreadWindows,
}

/// Result of a process that has sent all that it was to send, and has received or given up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct WorkloadResult {
    pub(super) facts: Facts,
    /// The values that it received. Bytes that follow the line: there may be millions.
    #[serde(skip)]
    pub(super) records: Vec<Record>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) beginnings: Vec<Beginning>,
    pub(super) windows: Vec<ComponentWindows>,
}

/// A process, and what it brought.
pub(super) type Brought = (Part, WorkloadResult);
