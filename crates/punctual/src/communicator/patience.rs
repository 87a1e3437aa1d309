//! Waiting for room by a communicator.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

use super::{Communicator, End};
use crate::engine::SendError;
use crate::pause::Pauses;

impl Communicator {
    /// Tries until there is room and a target, for at most `timeout`.
    pub(super) fn persist(
        &mut self,
        timeout: Duration,
        mut attempt: impl FnMut(&mut Self) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let clock = Clock::get();
        let deadline = clock.now().plus(clock.ticks(timeout));
        let mut pauses = Pauses::from(Duration::from_micros(1));
        loop {
            match attempt(self) {
                Err(SendError::Full | SendError::Unreachable) if clock.now() < deadline => {}
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
        let clock = Clock::get();
        self.see_off_until(clock.now().plus(clock.ticks(timeout)))
    }

    /// As [`Self::see_off`].
    #[inline]
    pub(super) fn see_off_until(&self, deadline: Ticks) -> bool {
        match &self.end {
            End::Wire(end) => end.core().see_off(deadline),
            End::Memory(_) => true,
        }
    }
}
