//! The nodes that are told of what a node begins and ends.

use std::sync::Arc;

use punctual_machine::doorbell::sender_fence;

use super::super::roster::Peer;
use super::super::segment::{READERS_BELL, RINGS_BELL};
use super::Streams;

impl Streams {
    /// All nodes that send, read or watch, our own included. A node that is still idle, by its memory, looks at all tables after it has
    /// passed a fence. It then sees what was stored there before the fence here.
    fn attentive(&self) -> impl Iterator<Item = Arc<Peer>> {
        sender_fence();
        self.members().into_iter().filter(|member| !member.segment.is_idle())
    }

    /// Makes every subscription on the bus look at the tables of rings again.
    pub(super) fn tell_of_rings(&self) {
        for member in self.attentive() {
            punctual_machine::label!("stream.tell");
            let Some(bells) = member.segment.bells() else { continue };
            bells[RINGS_BELL].announce_visit(true);
            for bell in member.segment.bells_used() {
                self.roster.ring(&member.segment, bell);
            }
        }
    }

    /// Makes every publication on the bus look for its readers again.
    pub(super) fn tell_of_readers(&self) {
        for member in self.attentive() {
            punctual_machine::label!("subscription.tell");
            let Some(bells) = member.segment.bells() else { continue };
            bells[READERS_BELL].announce_visit(true);
        }
    }
}
