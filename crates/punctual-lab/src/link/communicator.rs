//! A communicator, as a user would hold it.

use punctual::{Communicator, Target, Ticks};

use super::{Link, Received};

/// A communicator that talks to one target, or answers who talked to it last.
#[derive(Debug)]
pub struct CommunicatorLink {
    communicator: Communicator,
    target: Option<Target>,
    /// Whether it answers who talked to it last.
    answers: bool,
    /// Whether messages are due at instants that the load chose.
    due_counts: bool,
}

impl CommunicatorLink {
    /// Talks to `target`; under open load stages count from the due instant.
    pub fn to(communicator: Communicator, target: Target, due_counts: bool) -> Self {
        Self { communicator, target: Some(target), answers: false, due_counts }
    }

    /// Answers who talked last.
    pub fn answering(communicator: Communicator) -> Self {
        Self { communicator, target: None, answers: true, due_counts: false }
    }
}

impl Link for CommunicatorLink {
    #[inline]
    fn send(&mut self, message: &[u8], due: Ticks) -> bool {
        let Some(target) = self.target else { return false };
        let due = self.due_counts.then_some(due);
        self.communicator.try_send_due(target, message, due).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let message = self.communicator.receive_until(Some(deadline)).ok()?;
        let size = message.payload.len();
        buffer.get_mut(..size)?.copy_from_slice(message.payload);
        let got = Received { size, stages: message.stages };
        if self.answers {
            self.target = Some(Target::from(message.source));
        }
        Some(got)
    }
}
