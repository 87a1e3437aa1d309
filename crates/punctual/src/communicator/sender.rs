//! A communicator's sending side, for other threads than the one that receives.

use std::fmt;
use std::sync::Arc;

use punctual_machine::clock::Ticks;
use punctual_proto::{Address, Target};

use super::large::{Fragment, put_fragment};
use super::outlet::Outlet;
use crate::engine::SendError;
use crate::ledger::Count;
use crate::node::inbox::Inbox;
use crate::node::sending::Timing;
use crate::node::{About, Core};
use crate::publication::Nudges;

/// Sends from a communicator's address while the communicator itself waits, on any thread. In memory each clone has publications
/// of its own: between what two of them send there is no order.
#[derive(Clone)]
pub struct Sender(End);

#[derive(Clone)]
enum End {
    Wire(WireSender),
    Memory(Box<MemorySender>),
}

/// On the kernel's media.
#[derive(Clone)]
pub(super) struct WireSender {
    core: Arc<Core>,
    inbox: Arc<Inbox>,
    stamps: bool,
}

/// In memory.
pub(super) struct MemorySender {
    pub(super) outlet: Outlet,
    pub(super) nudges: Nudges,
}

impl Clone for MemorySender {
    fn clone(&self) -> Self {
        Self { outlet: self.outlet.another(), nudges: self.nudges.clone() }
    }
}

impl WireSender {
    pub(super) fn new(core: &Arc<Core>, inbox: &Arc<Inbox>, stamps: bool) -> Self {
        Self { core: Arc::clone(core), inbox: Arc::clone(inbox), stamps }
    }

    #[inline]
    fn try_send(&mut self, target: Target, payload: &[u8], due: Option<Ticks>) -> Result<(), SendError> {
        let timing = self.stamps.then(|| Timing { due, sent: self.core.about.clock.now() });
        let mut sending = self.core.sending();
        sending.take(&self.core, &self.inbox, target, payload, timing)?;
        sending.flush();
        Ok(())
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Sender {
    /// As [`super::Communicator::is_of_this_process`].
    pub(crate) fn is_of_this_process(&self) -> bool {
        let about = match &self.0 {
            End::Wire(sender) => &sender.core.about,
            End::Memory(sender) => sender.outlet.about(),
        };
        about.maker.is_this_process()
    }

    pub(super) fn wire(sender: WireSender) -> Self {
        Self(End::Wire(sender))
    }

    pub(super) fn memory(sender: MemorySender) -> Self {
        Self(End::Memory(Box::new(sender)))
    }

    /// The communicator's address.
    pub fn address(&self) -> Address {
        match &self.0 {
            End::Wire(WireSender { core, inbox, .. }) => Address { node: core.about.node, port: inbox.port },
            End::Memory(sender) => sender.outlet.address(),
        }
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
        let sent = match &mut self.0 {
            End::Wire(sender) => sender.try_send(target, payload, due),
            End::Memory(sender) => sender.outlet.try_send(target, payload, due),
        };
        match sent {
            Err(SendError::TooLong { .. }) if payload.len() > self.about().payload_size_max => {
                self.send_cut(target, payload, due)
            }
            sent => sent,
        }
    }

    fn about(&self) -> &About {
        match &self.0 {
            End::Wire(sender) => &sender.core.about,
            End::Memory(sender) => sender.outlet.about(),
        }
    }

    /// Sends a message that is too large for a frame, if there is room for all of it.
    #[cold]
    fn send_cut(&mut self, target: Target, payload: &[u8], due: Option<Ticks>) -> Result<(), SendError> {
        let about = self.about();
        let heads = about.large.cut(payload.len(), about.payload_size_max)?;
        let timing = Timing { due, sent: about.sent_once(about.clock.now()) };
        let group = about.group(match &self.0 {
            End::Wire(sender) => sender.inbox.seals_in(),
            End::Memory(sender) => sender.outlet.seals_in().get(),
        });
        for head in heads {
            let bytes = &payload[head.range()];
            let fragment = Fragment { target, head: head.to_bytes(), bytes, timing, waits: false, group };
            match &mut self.0 {
                End::Wire(sender) => {
                    put_fragment(&sender.core, &sender.inbox, sender.stamps, &fragment)?;
                    sender.core.sending().flush();
                }
                End::Memory(sender) => sender.outlet.put_fragment(&fragment)?,
            }
            self.about().page.count(Count::LargeSent).add((head.at == 0).into());
        }
        Ok(())
    }

    /// Ends the communicator's wait, by an empty message to itself. It stays in memory of this process, and is not sealed even where
    /// messages of one node are: a communicator without a key must hear that it is to stop. A communicator that has no room for it is
    /// awake.
    pub(crate) fn nudge(&mut self) {
        match &self.0 {
            End::Wire(WireSender { core, inbox, .. }) => {
                let _taken_or_awake = core.sending().nudge(core, inbox);
            }
            End::Memory(sender) => sender.nudges.nudge(),
        }
    }
}
