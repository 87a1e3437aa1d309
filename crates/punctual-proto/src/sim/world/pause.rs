//! Pauses of nodes: events for a paused node wait, and keep their order.

use alloc::vec::Vec;

use super::{NodeFault, Participant, Scheduled, World};
use crate::time::Nanos;

impl<P: Participant> World<P> {
    /// Pauses a node until then at least. Events that wait for its end wait on, ahead of those that come meanwhile.
    pub(super) fn prolong_pause(&mut self, node: u16, until: Nanos) {
        let Some(held) = self.nodes.get_mut(usize::from(node)) else { return };
        let before = held.paused_until;
        held.paused_until = before.max(until);
        if before <= self.now || before >= until {
            return;
        }
        let waits = |next: &Scheduled| match next {
            Scheduled::Arrival { target, .. } => *target == node,
            Scheduled::Node(paused, NodeFault::Act(_)) => *paused == node,
            _ => false,
        };
        let waiting = self.schedule.range((before, 0)..=(before, u64::MAX)).filter(|(_, next)| waits(next));
        for key in waiting.map(|(&key, _)| key).collect::<Vec<_>>() {
            if let Some(next) = self.schedule.remove(&key) {
                self.schedule(until, next);
            }
        }
    }
}
