//! The cells that are measured.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Both ends of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There and back, on one clock. Never halved silently.
    RoundTrip,
    /// From the sender's clock to the receiver's, which are one clock.
    OneWay,
    /// No interval: bytes a second at the slowest receiver. Such a row stands in the summary, and has no samples.
    Throughput,
}

impl Kind {
    /// As in the summary and in file names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundTrip => "round_trip",
            Self::OneWay => "one_way",
            Self::Throughput => "throughput",
        }
    }
}

/// When the next message leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// After the reply to the one before, and the idle gap.
    Closed,
    /// When it is due, regardless of outstanding messages; latency counts from the due time.
    Open,
}

impl Load {
    /// As in the summary and in file names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
        }
    }
}

/// One thing that is measured. Equal ids are the same cell, in another trial or another run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellId {
    /// `<engine>/<wake>`.
    pub name: String,
    /// Engine that carries the message.
    pub engine: String,
    /// Way in which the waiter learns of it.
    pub wake: String,
    /// Both ends of the interval.
    pub kind: Kind,
    /// When the next message leaves.
    pub load: Load,
    /// Idle time before each message: between the due times under open load. Values that a run finds out for itself are no part of it:
    /// runs of the same plan have the same cells.
    pub gap_us: u64,
    /// Nanoseconds of it beyond its whole microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gap_rest_ns: u64,
    /// Payload bytes.
    pub size: usize,
    /// Somebody else computes on each processor of the measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub neighbour: bool,
}

impl CellId {
    /// True for a bare mechanism of the system, to which the library is compared.
    pub fn is_floor(&self) -> bool {
        self.engine == "floor"
    }

    /// True for any mechanism of the system, by whichever way of it a thread waits. Its losses are no broken promise.
    pub fn promises_nothing(&self) -> bool {
        self.is_floor() || self.engine.starts_with("floor-")
    }

    /// True if this is a way of that round trip: a message that is lost on the one is lost on the other, and lost once.
    pub fn is_way_of(&self, whole: &Self) -> bool {
        let Self { name, wake, .. } = self.clone();
        whole.kind == Kind::RoundTrip && *self == Self { name, wake, kind: Kind::OneWay, ..whole.clone() }
    }

    /// With this gap, none of it lost.
    pub fn with_gap(self, gap: Duration) -> Self {
        let gap_us = u64::try_from(gap.as_micros()).unwrap_or(u64::MAX);
        Self { gap_us, gap_rest_ns: u64::from(gap.subsec_nanos() % 1_000), ..self }
    }

    /// A closed-loop round trip without gap of 64 bytes; change what differs.
    pub fn new(engine: &str, wake: &str) -> Self {
        Self {
            name: format!("{engine}/{wake}"),
            engine: engine.to_owned(),
            wake: wake.to_owned(),
            kind: Kind::RoundTrip,
            load: Load::Closed,
            gap_us: 0,
            gap_rest_ns: 0,
            size: 64,
            neighbour: false,
        }
    }
}

impl CellId {
    /// "round trip · closed load · 64 B".
    pub fn conditions(&self) -> String {
        let kind = match self.kind {
            Kind::RoundTrip => "round trip",
            Kind::OneWay => "one way",
            Kind::Throughput => "throughput",
        };
        let neighbour = if self.neighbour { " · busy neighbours" } else { "" };
        format!("{kind} · {} load · {} B{neighbour}", self.load.as_str(), self.size)
    }

    /// "0", "1.666 µs", "100 µs", "1 ms"; a dash under open load whose period is no part of the plan.
    pub fn gap(&self) -> String {
        if self.gap_rest_ns > 0 {
            return format!("{}.{:03} µs", self.gap_us, self.gap_rest_ns);
        }
        match self.gap_us {
            0 if self.load == Load::Open => "–".to_owned(),
            0 => "0".to_owned(),
            us if us % 1_000_000 == 0 => format!("{} s", us / 1_000_000),
            us if us % 1000 == 0 => format!("{} ms", us / 1000),
            us => format!("{us} µs"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// All of it, as a person reads it.
impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {} · gap {}", self.name, self.conditions(), self.gap())
    }
}
