//! A communicator, as a user would hold it.

use punctual::{Communicator, Message, Target, Ticks};

use super::{Endpoint, Received};

/// A communicator that talks to one target.
#[derive(Debug)]
pub struct CommunicatorEndpoint {
    communicator: Communicator,
    target: Target,
    /// True if messages are due at instants that the load chose.
    due_counts: bool,
}

impl CommunicatorEndpoint {
    /// Talks to `target`; under open load stages count from the due instant.
    pub fn new(communicator: Communicator, target: Target, due_counts: bool) -> Self {
        Self { communicator, target, due_counts }
    }
}

impl Endpoint for CommunicatorEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], due: Ticks) -> bool {
        let due = self.due_counts.then_some(due);
        self.communicator.try_send_due(self.target, message, due).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        taken(&self.communicator.receive_until(Some(deadline)).ok()?, buffer)
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Option<Received> {
        taken(&self.communicator.try_receive().ok()?, buffer)
    }
}

#[inline]
fn taken(message: &Message<'_>, buffer: &mut [u8]) -> Option<Received> {
    let size = message.payload.len();
    buffer.get_mut(..size)?.copy_from_slice(message.payload);
    Some(Received { size, stages: message.stages.copied() })
}
