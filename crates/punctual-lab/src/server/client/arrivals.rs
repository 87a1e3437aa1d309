//! Instants at which a load asks.

use serde::{Deserialize, Serialize};

use crate::sample::Load;

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Each connection thinks so long between reply and request.
    Closed {
        /// So long.
        think_ns: u64,
    },
    /// The same as in the original's load: all begin at once, and a latency ends with the first bytes of the reply. Requests that are
    /// open when the time is over are waited for, and count.
    Original {
        /// So long.
        think_ns: u64,
    },
    /// One request each period, regardless of outstanding ones.
    Open {
        /// The period.
        period_ns: u64,
    },
    /// At random instants (Poisson), so far apart in the mean.
    Random {
        /// The mean.
        period_ns: u64,
    },
}

impl Arrivals {
    /// Kind of load: the instant from which a latency counts.
    pub(in crate::server) fn load(self) -> Load {
        if self.think_ns().is_some() { Load::Closed } else { Load::Open }
    }

    /// Between a reply and the next request of its connection, where that waits for it.
    pub(in crate::server) fn think_ns(self) -> Option<u64> {
        match self {
            Self::Closed { think_ns } | Self::Original { think_ns } => Some(think_ns),
            Self::Open { .. } | Self::Random { .. } => None,
        }
    }
}
