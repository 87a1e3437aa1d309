//! Waiting for room by a communicator.

use std::time::Duration;

use punctual_proto::Target;

use super::{Communicator, End};
use crate::engine::SendError;
use crate::pause::{Pauses, TimeLimit};

impl Communicator {
    /// Longest time that [`Self::send`] waits: longer than a program takes to start, or a reader to be scheduled.
    pub const SEND_TIMEOUT: Duration = Duration::from_secs(1);

    /// Sends. Waits for room, and for a target that is not there yet, for at most [`Self::SEND_TIMEOUT`]. Waits also while a socket's
    /// buffer is full, so that the message does not stay behind. Waits as long at each fragment of a cut message, for readers that
    /// would otherwise be written over. Over a kernel's medium, waits also until the one receiver has all or tells nothing new for so
    /// long. Lost fragments are sent again (`docs/large.md`).
    ///
    /// ```
    /// use punctual::{Bus, Node, SendError, Target};
    ///
    /// let mut here = Node::open(&Bus::loopback("nobody-there"), "ping").unwrap().bind(1).unwrap();
    /// assert_eq!(here.send(Target::port("pong", 7400), b"hello"), Err(SendError::Unreachable));
    /// ```
    ///
    /// # Errors
    /// See [`SendError`]; the message was then not sent. [`SendError::Full`] and [`SendError::Unreachable`] come when the time has
    /// passed, the others at once.
    pub fn send(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.send_timeout(target, payload, Self::SEND_TIMEOUT)
    }

    /// As [`Self::send`], for at most `timeout` from the first try on that found no room or target. [`Duration::MAX`] waits for as long
    /// as it takes.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_timeout(
        &mut self,
        target: Target,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        let mut limit = TimeLimit::new(timeout);
        if payload.len() > self.about().payload_size_max {
            limit.end();
            self.send_cut(target, payload, None, timeout)?;
        } else {
            self.persist(&mut limit, |own| own.try_send(target, payload))?;
        }
        self.see_off_within(&mut limit);
        Ok(())
    }

    /// Tries until there is room and a target, or the time is over.
    pub(super) fn persist(
        &mut self,
        limit: &mut TimeLimit,
        mut attempt: impl FnMut(&mut Self) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let mut pauses = Pauses::from(Duration::from_micros(1));
        loop {
            match attempt(self) {
                Err(SendError::Full | SendError::Unreachable) if !limit.is_over() => {}
                result => return result,
            }
            // The reader of a full ring has no way to ring for room; looking again from time to time is what is left.
            pauses.sleep();
            match &mut self.end {
                End::Wire(end) => end.core().keep_house(),
                End::Memory(end) => end.keep_house(),
            }
        }
    }

    /// Waits for at most `timeout` until the medium has every frame that this node has taken. [`Duration::MAX`] waits for as long as it
    /// takes. True if it has all; otherwise the rest goes later, while somebody sends or waits here. Returns at once when nothing is
    /// behind, as always in memory.
    ///
    /// [`Self::send`] does so itself. After [`Self::try_send`] frames may stay in the node while a socket's buffer is full: over UDP up to 32
    /// datagrams, or one for each peer if there are more; over Ethernet up to 64 frames.
    pub fn see_off(&mut self, timeout: Duration) -> bool {
        self.see_off_within(&mut TimeLimit::new(timeout))
    }

    /// As [`Self::see_off`].
    #[inline]
    pub(super) fn see_off_within(&self, limit: &mut TimeLimit) -> bool {
        match &self.end {
            End::Wire(end) => end.core().see_off(limit),
            End::Memory(_) => true,
        }
    }
}
