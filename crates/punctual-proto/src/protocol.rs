//! Interface of every protocol of this crate, so that one carrier and one virtual world drive them all.

use crate::address::{Address, Target};
use crate::time::Nanos;

/// A message to be sent, whose bytes stand at the beginning of the buffer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// For whom.
    pub target: Target,
    /// Its size, bytes.
    pub size: usize,
}

/// A protocol that does no input or output of its own. Bytes come in and go out by slices, and time is an argument: a reading
/// of a clock that never goes back.
pub trait Protocol {
    /// Event for its user.
    type Event;

    /// Takes a message that came from `source`. It may be anything.
    fn handle_message(&mut self, source: Address, message: &[u8], now: Nanos);

    /// Time has passed.
    fn handle_timeout(&mut self, now: Nanos);

    /// Writes the next message that is to be sent into `buffer`, which has room for the largest.
    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit>;

    /// The next event for the user.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`Self::handle_timeout`] is to be called; [`Nanos::NEVER`] if only a message changes anything.
    fn poll_timeout(&self) -> Nanos;
}
