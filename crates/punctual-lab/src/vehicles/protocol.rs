//! What the experiment and its processes tell each other, a JSON line at a time; nothing is said while values travel.

use punctual::Wake;
use serde::{Deserialize, Serialize};

use super::first::{Beginning, Look};
use super::option::Mode;
use super::quiet::ComponentWindows;
use super::value::Record;
use crate::endpoint::{BusPlan, KeyLine};
use crate::run::by_name;
use crate::scheduling::Urgency;

/// The part a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Publishes and subscribes; its number.
    Vehicle(u16),
    /// Stands by the road: listens, and says once a second that it is there; its number.
    Roadside(u16),
    /// Receives what all vehicles send, and sends nothing.
    Listener,
}

impl Part {
    /// The name of its node.
    pub fn name(self) -> String {
        match self {
            Self::Vehicle(number) => format!("vehicle-{number}"),
            Self::Roadside(number) => format!("roadside-{number}"),
            Self::Listener => "listener".to_owned(),
        }
    }
}

/// One run, as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Its part.
    pub part: Part,
    /// Where the probe stands.
    pub mode: Mode,
    /// What carries the messages.
    pub bus: BusPlan,
    /// What to seal with.
    pub keys: Option<KeyLine>,
    /// How to wait.
    #[serde(with = "by_name")]
    pub wake: Wake,
    /// How urgent its threads are.
    pub urgency: Urgency,
    /// Size of each inbox, bytes.
    pub inbox_size: usize,
    /// Nodes on the bus besides its own.
    pub others: usize,
    /// Vehicles.
    pub vehicles: usize,
    /// Components of each.
    pub components: usize,
    /// Between two messages of a component.
    pub period_ns: u64,
    /// Messages of each component.
    pub count: usize,
    /// How far a vehicle's first message is behind that of the one before it.
    pub phase_ns: u64,
    /// Whether to wait until it is told to go, or to begin when it is open.
    pub barrier: bool,
}

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line above a variant says what its fields hold")]
pub enum VehicleRequest {
    /// To open everything and to say so when it is ready; without a barrier, to travel at once.
    Open(Box<Assignment>),
    /// The barrier opens at this instant of `CLOCK_MONOTONIC`.
    Go { at_ns: u64 },
    /// To say what became of every message until now.
    Account,
}

/// When opening began; when there were the bus, communicators and their threads, all others.
pub(super) type Opening = [Look; 4];

/// What a process went through while values travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Values that its components published, each.
    pub sent: u64,
    /// Messages for which there was no room.
    pub refused: u64,
    /// Messages that were no value, or not as they were sent.
    pub mismatched: u64,
    /// Messages of the roadside.
    pub beacons: u64,
    /// Time its threads waited for a processor, nanoseconds.
    pub queued_ns: u64,
    /// Processor time of the process, nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory at the barrier and at the end, KiB.
    pub resident_kib: [u64; 2],
    /// Signals that told of frames, where signals do.
    pub signals: u64,
    /// Times that a signal continued the process: it had been stopped.
    #[serde(default)]
    pub continued: u64,
    /// Times that its CPU quota ran out.
    #[serde(default)]
    pub throttled: u64,
    /// Page faults.
    #[serde(default)]
    pub faults: u64,
    /// Other nodes of which it did not know yet when the barrier's opening was announced.
    #[serde(default)]
    pub unheard: u64,
}

/// Values that a component never sent: it slept through their instants, and a later one superseded them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which component of the vehicle.
    pub component: u16,
    /// The first of them.
    pub first: u32,
    /// How many, one after the other.
    pub count: u32,
}

/// A node's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Frames it sent to everybody.
    pub broadcast: u64,
    /// Frames it sent to one other node.
    pub unicast: u64,
    /// Every counter by its name.
    pub counters: Vec<(String, u64)>,
    /// Frames of others that arrived, each once.
    pub arrived: u64,
    /// Frames of others that have not: lost, or not yet known to be.
    pub lost: u64,
}

impl Account {
    /// A counter.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.iter().find(|(found, _)| found == name).map_or(0, |&(_, count)| count)
    }
}

/// What a process brings back when it has sent what it was to send, and received or given up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// What it went through.
    pub facts: Facts,
    /// What it received. Bytes that follow the line: there may be millions.
    #[serde(skip)]
    pub records: Vec<Record>,
    /// Values that it never sent.
    pub skipped: Vec<Skipped>,
    /// How its receiving threads began.
    pub beginnings: Vec<Beginning>,
    /// What its threads went through.
    pub windows: Vec<ComponentWindows>,
}
