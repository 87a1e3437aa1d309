//! Waiting for room by a communicator.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};

use super::{Communicator, End};
use crate::engine::SendError;

impl Communicator {
    /// Tries until there is room and a target, for at most `timeout`.
    pub(super) fn persist(
        &mut self,
        timeout: Duration,
        mut attempt: impl FnMut(&mut Self) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let clock = Clock::get();
        let deadline = clock.now().plus(clock.ticks(timeout));
        let mut pause = Duration::from_micros(1);
        loop {
            match attempt(self) {
                Err(SendError::Full | SendError::Unreachable) if clock.now() < deadline => {}
                result => return result,
            }
            // The reader of a full ring has no way to ring for room; looking again from time to time is what is left.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
            match &mut self.end {
                End::Wire(end) => end.core().keep_house(),
                End::Memory(end) => end.keep_house(),
            }
        }
    }

    /// Waits until the medium has every frame that was sent, or for the deadline: then the rest goes later.
    #[inline]
    pub(super) fn see_off(&self, deadline: Ticks) {
        if let End::Wire(end) = &self.end {
            end.core().see_off(deadline);
        }
    }
}
