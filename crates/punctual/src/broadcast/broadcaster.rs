//! Broadcasting on other threads than the one that delivers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_proto::broadcast::Guarantee;

use super::shared::Shared;
use super::{BroadcastError, try_broadcast};
use crate::communicator::Sender;
use crate::pause::Pauses;

/// Broadcasts from a member of a group, on any thread, while the [`Group`](super::Group) delivers on another.
#[derive(Clone)]
pub struct Broadcaster {
    pub(super) shared: Arc<Shared>,
    pub(super) sender: Sender,
    pub(super) guarantee: Guarantee,
    pub(super) message_size_max: usize,
}

impl fmt::Debug for Broadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcaster").field("address", &self.sender.address()).finish_non_exhaustive()
    }
}

impl Broadcaster {
    /// As [`super::Group::try_broadcast`]. Where the group is dropped, [`BroadcastError::NoMember`] for ever.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn try_broadcast(&mut self, message: &[u8]) -> Result<(), BroadcastError> {
        self.try_broadcast_as(message, self.guarantee)
    }

    /// The same with another guarantee than the group's usual one.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn try_broadcast_as(&mut self, message: &[u8], guarantee: Guarantee) -> Result<(), BroadcastError> {
        self.offer(message, guarantee).0
    }

    /// Returns the result, and true if a member is there that may take it later.
    fn offer(&mut self, message: &[u8], guarantee: Guarantee) -> (Result<(), BroadcastError>, bool) {
        const ENDED: (Result<(), BroadcastError>, bool) = (Err(BroadcastError::NoMember), false);
        if self.shared.is_stopped() {
            return ENDED;
        }
        let Some(mut driver) = self.shared.visit_if_there(&mut self.sender) else { return ENDED };
        let result = try_broadcast(&mut driver, message, guarantee, self.message_size_max);
        let (is_armed, goes_on) = (driver.is_armed, !driver.member().has_left());
        drop(driver);
        if is_armed {
            // It rests if it found this thread driving.
            self.shared.call();
        }
        (result, goes_on)
    }

    /// The same, and waits for credit, a view or a majority for at most `timeout`; not where the member has left. Another thread
    /// must deliver meanwhile.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn broadcast(&mut self, message: &[u8], timeout: Duration) -> Result<(), BroadcastError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut pauses = Pauses::from(Duration::from_micros(10));
        loop {
            match self.offer(message, self.guarantee) {
                (Err(error), true) if error.may_pass() => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(error);
                    }
                }
                (result, _) => return result,
            }
            // A driver does not report what it hears: the only way left is to look again from time to time.
            pauses.sleep();
        }
    }
}
