//! What a run of vehicles is asked for: where the probe stands, what carries the messages, how many of everything.

use std::time::Duration;

use clap::ValueEnum;
use punctual::Wake;
use serde::{Deserialize, Serialize};

use crate::link::{Medium, VALUE_SIZE};
use crate::sample::{CellId, Kind, Load};
use crate::scheduling::Urgency;

/// Where the instant *received* is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A: the application thread's clock right after its blocking receive
    #[default]
    Application,
    /// B: entry of the subscriber's callback, in the sender's thread for its own messages
    Callback,
    /// C: engines alone, one receiver that polls
    Engine,
    /// D: one receiver that a signal, epoll or the doorbell tells of frames; over Ethernet by plain sockets
    Async,
}

impl Mode {
    /// As it is written in options and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Callback => "callback",
            Self::Engine => "engine",
            Self::Async => "async",
        }
    }

    /// Whether every vehicle receives, its own messages too; if not, one process receives from all.
    #[must_use]
    pub fn is_mutual(self) -> bool {
        matches!(self, Self::Application | Self::Callback)
    }
}

/// How many interfaces the vehicles of an Ethernet have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Interfaces {
    /// All processes on one interface of one host, as the original's; a bridge sends back what it sends
    #[default]
    One,
    /// Each process has an interface, in a network namespace of its own, as if it were a host
    Each,
}

/// The row of messages from other vehicles: the published tables know sockets only.
#[must_use]
pub fn row_of_others(medium: Medium) -> &'static str {
    match medium {
        Medium::Packet | Medium::Datagram => "socket",
        Medium::Shared => "shared",
    }
}

/// The row of a vehicle's own messages, which never leave its process.
pub const OWN_ROW: &str = "sharedmem";

/// A value in an inbox, with its header and stamps and what is known of it, bytes; rounded up.
const INBOX_MESSAGE_SIZE: usize = 256;

/// Everything that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the probe stands.
    pub mode: Mode,
    /// What carries the messages.
    pub medium: Medium,
    /// How a receiver waits.
    pub wake: Wake,
    /// Whether messages carry a tag.
    pub seal: bool,
    /// Processes that publish and subscribe.
    pub vehicles: usize,
    /// Processes beside the road.
    pub roadside: usize,
    /// Components of each vehicle.
    pub components: usize,
    /// Between two messages of a component.
    pub period: Duration,
    /// Messages of each component.
    pub count: usize,
    /// Fresh processes each time.
    pub runs: u32,
    /// Whether all wait for each other before the first publishes; if not, each begins when it is open.
    pub barrier: bool,
    /// Whether components publish one after the other over the period, or all at once as the barrier leaves them.
    pub spread: bool,
    /// How urgent the vehicles' threads are.
    pub urgency: Urgency,
    /// Whether each process stays on one processor, one after the other.
    pub pin: bool,
    /// How long before and after each instant all processors are kept awake.
    pub awake: Duration,
    /// How many interfaces there are, on an Ethernet of our own.
    pub interfaces: Interfaces,
    /// A bridge of this host, or an interface with an address.
    pub interface: Option<String>,
}

impl Settings {
    /// Messages of a run that one component of a vehicle is to receive from others.
    #[must_use]
    pub fn expected_from_others(&self) -> u64 {
        let senders = if self.mode.is_mutual() { self.vehicles - 1 } else { self.vehicles };
        senders as u64 * self.count as u64
    }

    /// Processes that receive.
    #[must_use]
    pub fn receivers(&self) -> usize {
        if self.mode.is_mutual() { self.vehicles } else { 1 }
    }

    /// How long messages are sent.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.period.saturating_mul(u32::try_from(self.count).unwrap_or(u32::MAX))
    }

    /// How far a vehicle's first message is behind that of the one before it, nanoseconds.
    #[must_use]
    pub fn phase_ns(&self) -> u64 {
        if self.spread { self.period.as_nanos() as u64 / self.vehicles as u64 } else { 0 }
    }

    /// Room for the frames of half a second, that long a vehicle may stand still and lose nothing, and for what all tell each
    /// other before the barrier opens: an interest and a first value of each for each. A power of two; not more than it
    /// takes, because a large ring is never in the cache when its next frame comes; at most 32 MiB of it.
    #[must_use]
    pub fn ring_frames(&self) -> usize {
        let frames = (self.vehicles * self.components) as f64 * 0.5 / self.period.as_secs_f64();
        let processes = self.vehicles + self.roadside;
        let before = 2 * processes * processes * self.components;
        (frames as usize).max(before).next_power_of_two().clamp(128, 16_384)
    }

    /// Room for a component's messages of half a second in its inbox, bytes.
    #[must_use]
    pub fn inbox_size(&self) -> usize {
        let messages = self.vehicles as f64 * 0.5 / self.period.as_secs_f64();
        (messages as usize * INBOX_MESSAGE_SIZE).next_power_of_two().clamp(1 << 14, 1 << 23)
    }

    /// The cell of one row.
    #[must_use]
    pub fn cell(&self, row: &str) -> CellId {
        CellId {
            kind: Kind::OneWay,
            load: Load::Open,
            gap_us: u64::try_from(self.period.as_micros()).unwrap_or(u64::MAX),
            size: VALUE_SIZE,
            ..CellId::new(row, self.mode.name())
        }
    }
}
