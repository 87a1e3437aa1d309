//! The rings of a bus that a subscription reads.

use punctual_proto::{NodeId, Port};

use super::ring_file::{RingIdentity, may_mean};

/// The rings that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Those that are for this port.
    Port(Port),
    /// All.
    Everything,
    /// None: the owner watches for nodes.
    Nothing,
}

impl Reads {
    /// The port, or the reserved one, for which no message is.
    pub(super) fn port(self) -> Port {
        match self {
            Self::Port(port) => port,
            Self::Everything | Self::Nothing => Port::from(u16::MAX),
        }
    }

    /// True if a ring with this word in the table may be meant. Its own page decides.
    pub(super) fn may_mean(self, word: u64, node: NodeId) -> bool {
        match self {
            Self::Port(port) => may_mean(word, node, port),
            Self::Everything => true,
            Self::Nothing => false,
        }
    }

    pub(super) fn includes(self, about: &RingIdentity, node: NodeId) -> bool {
        match self {
            Self::Port(port) => about.is_for(node, port),
            Self::Everything => true,
            Self::Nothing => false,
        }
    }

    /// True if a ring is read, given whether it is `sealed` and whether its reader `opens` seals.
    pub(super) fn takes(self, sealed: bool, opens: bool) -> bool {
        sealed == opens || sealed && self == Self::Everything
    }
}
