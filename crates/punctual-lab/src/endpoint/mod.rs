//! Endpoints of a load: a communicator, a part of what is below it, or a bare mechanism of the machine with nothing around it.

use std::time::Duration;

use punctual::{Clock, Stages, Ticks};

mod bare;
mod bus;
mod communicator;
mod key;
mod layers;
mod medium;
mod open;
pub mod port;

pub use bare::{PacketEndpoint, SlotEndpoint, UdpEndpoint};
pub use bus::{BusPlan, any_bus, loopback};
pub use communicator::CommunicatorEndpoint;
pub use key::KeyLine;
pub use layers::{EngineEndpoint, NodeEndpoint, StreamEndpoint};
pub use medium::{Medium, VALUE_SIZE};
pub use open::{Addresses, EndpointPlan, Ends, PORT, Stack, open_alone};

/// A message that an endpoint brought.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its size, bytes.
    pub size: usize,
    /// Where its time went, where it carried stamps.
    pub stages: Option<Stages>,
}

/// An end's own counts, where nobody else counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointCounts {
    /// Frames that it sent to everybody, where it knows.
    pub broadcast: Option<u64>,
    /// Outcome of the others, by its name in a ledger, and their number.
    pub lost: (&'static str, u64),
}

/// One end of a way between two parties.
pub trait Endpoint {
    /// Sends, or says that there is no room. `due` is when the message should have left.
    fn send(&mut self, message: &[u8], due: Ticks) -> bool;

    /// Waits for the next message, in this endpoint's way, until `deadline` at the most.
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received>;

    /// Takes a message that is here already.
    fn try_receive(&mut self, buffer: &mut [u8]) -> Option<Received> {
        self.receive(buffer, Ticks(0))
    }

    /// Its counts until now.
    fn counts(&mut self) -> EndpointCounts {
        EndpointCounts::default()
    }
}

fn time_left(deadline: Ticks) -> Duration {
    let clock = Clock::get();
    clock.duration(deadline.since(clock.now()))
}

/// Polls between two looks at the clock: a look costs as much as a poll.
const POLLS_PER_LOOK: u32 = 32;

/// Polls until something is there or the deadline has passed. `look` is called with the clock's now and then.
#[inline]
pub fn poll_until<S, T>(
    state: &mut S,
    deadline: Ticks,
    mut poll: impl FnMut(&mut S) -> Option<T>,
    mut look: impl FnMut(&mut S, Ticks),
) -> Option<T> {
    let clock = Clock::get();
    loop {
        for _ in 0..POLLS_PER_LOOK {
            if let Some(found) = poll(state) {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        let now = clock.now();
        look(state, now);
        if now >= deadline {
            return None;
        }
    }
}
