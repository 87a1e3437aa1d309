//! A budget of the values that newcomers are sent at once: their interests come as often as their nodes like.

use alloc::collections::BTreeMap;

use super::publication::PublicationLimits;
use crate::address::NodeId;
use crate::time::Nanos;

/// The limits are rates of a second.
const SPAN: Nanos = Nanos::from_millis(1_000);

/// Values sent at once in the second that runs, in all and by node. A second begins with the first such value after the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct AtOnce {
    ends: Nanos,
    values: u64,
    of_nodes: BTreeMap<NodeId, u64>,
}

impl AtOnce {
    /// Takes one value for a node, if the limits leave one.
    pub(super) fn take(&mut self, node: NodeId, limits: &PublicationLimits, now: Nanos) -> bool {
        if now >= self.ends {
            *self = Self { ends: now.plus(SPAN), ..Self::default() };
        }
        // Nodes can be invented as fast as interests: their table has as many places as that of the interests.
        let has_place = self.of_nodes.len() < limits.interests_max || self.of_nodes.contains_key(&node);
        if self.values >= limits.rate_max || !has_place {
            return false;
        }
        let of_node = self.of_nodes.entry(node).or_default();
        if *of_node >= limits.rate_of_node_max {
            return false;
        }
        (self.values, *of_node) = (self.values + 1, *of_node + 1);
        true
    }
}
