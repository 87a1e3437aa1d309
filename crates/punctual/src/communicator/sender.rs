//! A communicator's sending side, for other threads than the one that receives.

use std::fmt;
use std::sync::Arc;

use punctual_machine::biased::{BiasedGuard, Pass};
use punctual_machine::clock::Ticks;
use punctual_proto::{Address, Target};

use crate::engine::SendError;
use crate::node::Core;
use crate::node::inbox::Inbox;
use crate::node::sending::{Sending, Timing};

/// Sends from a communicator's address while the communicator itself waits, on any thread. Cheap to clone.
pub struct Sender {
    core: Arc<Core>,
    inbox: Arc<Inbox>,
    pass: Pass,
    stamps: bool,
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Self::new(&self.core, &self.inbox, self.stamps)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Sender {
    pub(super) fn new(core: &Arc<Core>, inbox: &Arc<Inbox>, stamps: bool) -> Self {
        Self { core: Arc::clone(core), inbox: Arc::clone(inbox), pass: Pass::new(), stamps }
    }

    /// The communicator's address.
    pub fn address(&self) -> Address {
        Address { node: self.core.node, port: self.inbox.port }
    }

    /// As [`super::Communicator::try_send`].
    ///
    /// # Errors
    /// See [`SendError`]; the message was then not sent.
    #[inline]
    pub fn try_send(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.try_send_due(target, payload, None)
    }

    /// As [`super::Communicator::try_send_due`].
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline]
    pub fn try_send_due(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<(), SendError> {
        let mut sending = self.queue(target, payload, due)?;
        sending.flush();
        Ok(())
    }

    #[inline]
    fn queue(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<BiasedGuard<'_, Sending>, SendError> {
        let timing = self.stamps.then(|| Timing { due, sent: self.core.clock.now() });
        let mut sending = self.core.sending(&mut self.pass);
        sending.take(&self.core, &self.inbox, target, payload, timing)?;
        Ok(sending)
    }

    /// Ends the communicator's wait, by an empty message to itself. It stays in memory of this process, and is not sealed even
    /// where messages of one node are: who has no key must hear that it is to stop. Who has no room for it is awake.
    pub(crate) fn nudge(&mut self) {
        let mut sending = self.core.sending(&mut self.pass);
        let _taken_or_awake = sending.nudge(&self.core, &self.inbox);
    }
}
