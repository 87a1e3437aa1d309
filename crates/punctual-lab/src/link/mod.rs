//! What a load runs over: a communicator, or a bare mechanism of the machine with nothing around it.

use punctual::{Stages, Ticks};

mod bare;
mod communicator;
mod key;
mod medium;

pub use bare::{PacketLink, SlotLink, UdpLink};
pub use communicator::CommunicatorLink;
pub use key::KeyLine;
pub use medium::{Medium, VALUE_SIZE};

/// A message that a link brought.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its size, bytes.
    pub size: usize,
    /// Where its time went, where it carried stamps.
    pub stages: Option<Stages>,
}

/// One end of a way between two parties.
pub trait Link {
    /// Sends, or says that there is no room. `due` is when the message should have left.
    fn send(&mut self, message: &[u8], due: Ticks) -> bool;

    /// Waits for the next message, in this link's way, until `deadline` at the most.
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received>;
}
