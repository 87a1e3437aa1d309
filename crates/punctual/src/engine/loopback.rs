//! The bus inside one process: the shared-memory engine with the process's own memory, found by name.

use punctual_proto::NodeId;

use super::Engine;
use super::shared::{self, Joined, OpenError, SharedOptions};

/// Opens a node on the in-process bus of that name. Slow readers hold writers back: nothing is lost inside a process.
pub(crate) fn open(options: &SharedOptions, node: NodeId, name: &str) -> Result<(Engine, Joined), OpenError> {
    shared::open_in_process(options, node, name)
}
