//! Waiting for room by a communicator.

use std::time::Duration;

use super::{Communicator, End};
use crate::engine::SendError;
use crate::pause::{Pauses, TimeLimit};

impl Communicator {
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
    /// [`Self::send`] does so itself. After [`Self::try_send`] up to 32 frames may stay in the node while a socket's buffer is full.
    pub fn see_off(&mut self, timeout: Duration) -> bool {
        self.see_off_within(&mut TimeLimit::new(timeout))
    }

    /// As [`Self::see_off`].
    #[inline]
    pub(super) fn see_off_within(&self, limit: &mut TimeLimit) -> bool {
        match &self.end {
            End::Wire(end) => end.core().see_off(|| limit.end()),
            End::Memory(_) => true,
        }
    }
}
