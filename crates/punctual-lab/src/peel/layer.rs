//! The layers of the path, from the bare mechanism up, and the mistakes that can be switched on to see them found.

use clap::ValueEnum;
use punctual::Wake;
use serde::{Deserialize, Serialize};

use crate::endpoint::{EndpointPlan, Medium, Stack, VALUE_SIZE};
use crate::sample::CellId;
use crate::units::OptionName;

/// A layer, with everything below it; they stand here from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The bare mechanism: system calls on a socket, or a slot of shared memory; polled.
    Bare,
    /// The engine alone, polled: frames with a header, rings, check values.
    Engine,
    /// A node's ports, accounts and counters, polled by `try_receive`.
    Node,
    /// The same, each frame with a tag.
    Sealed,
    /// A communicator's waiting receive, with stamps, its waiter spinning.
    Communicator,
    /// The same, asleep until the medium wakes it.
    Asynchronous,
    /// The whole path once more, measured apart: the time that the layers must add up to.
    Whole,
}

impl Layer {
    /// Its addition, in words.
    pub fn adds(self, medium: Medium) -> &'static str {
        match (self, medium) {
            (Self::Bare, Medium::Shared) => "a slot of shared memory each way, polled",
            (Self::Bare, Medium::Packet) => "an AF_PACKET socket, its calls and its ring, polled",
            (Self::Bare, Medium::Datagram) => "a UDP socket and its calls, polled",
            (Self::Engine, _) => "the engine: header, rings or batches, check value",
            (Self::Node, _) => "the node: ports, streams, counters, locks",
            (Self::Sealed, _) => "the tag: made, checked, replays refused",
            (Self::Communicator, _) => "the communicator: a receive that waits, stamps",
            (Self::Asynchronous, _) => "asynchronous reception: asleep until woken",
            (Self::Whole, _) => "the whole path, measured apart",
        }
    }

    /// The endpoint that both ends open for a trial of this layer. Asynchronous reception sleeps by `wake`.
    pub fn endpoint(self, medium: Medium, wake: Wake) -> EndpointPlan {
        let (stack, wake) = match self {
            Self::Bare => (Stack::Bare, Wake::Spin),
            Self::Engine => (Stack::Engine, Wake::Spin),
            Self::Node | Self::Sealed => (Stack::Node, Wake::Spin),
            Self::Communicator => (Stack::Communicator, Wake::Spin),
            Self::Asynchronous | Self::Whole => (Stack::Communicator, wake),
        };
        EndpointPlan {
            stamped: stack == Stack::Communicator,
            sealed: self >= Self::Sealed,
            ..EndpointPlan::new(Some(medium), stack, wake, VALUE_SIZE)
        }
    }
}

/// A mistake of the original's first versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum InjectedFault {
    /// O_ASYNC from the start: each frame interrupts the process by SIGIO
    SigioAtStart,
    /// The node, with all its memory, is opened on the way of the first message
    PoolsInConstructor,
    /// Keys are read and made ready on the way of the first message
    ColdCrypto,
    /// Fourteen other processes start at the same time
    CrowdAtStart,
}

/// True for a cell of the bare mechanism, which promises nothing.
pub(super) fn is_floor(cell: &CellId) -> bool {
    cell.wake == Layer::Bare.name()
}

/// The cell of a layer; with a culprit, of the layer in which it should show.
pub fn cell(medium: Medium, layer: Layer, culprit: Option<InjectedFault>) -> CellId {
    let with = culprit.map_or(String::new(), |culprit| format!("+{}", culprit.name()));
    let wake = format!("{}{with}", layer.name());
    CellId { size: VALUE_SIZE, ..CellId::new(medium.name(), &wake) }
}
