//! Receiving into a buffer of the caller's: in memory a message is copied once, from the ring.

use std::time::Duration;

use punctual_machine::block;
use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::{Address, Target};

use super::{Communicator, End, Message};
use crate::publication::TakeError;
use crate::trace::Stages;

/// Description of a message that was copied into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sender.
    pub source: Address,
    /// The target: this port, all ports, everybody.
    pub target: Target,
    /// Its place in its stream, of which it has the lower 32 bits, as in [`Message`].
    pub sequence: u32,
    /// Messages of the same stream that were found lost by this one's arrival.
    pub lost_before: u64,
    /// From the instant at which it was due until it was delivered, if it carried stamps of this clock. At least so long where it was
    /// sent later than stamps can tell, 2³² ticks after it was due.
    pub latency: Option<Ticks>,
    /// When the kernel received it, `CLOCK_REALTIME` nanoseconds, where the medium says.
    pub kernel_ns: Option<u64>,
    /// On a sealed bus: the group whose key sealed it.
    pub sealed_in: Option<u32>,
    /// Its size, bytes.
    pub size: usize,
}

impl Delivery {
    pub(super) fn of(message: &Message<'_>) -> Self {
        Self {
            source: message.source,
            target: message.target,
            sequence: message.sequence,
            lost_before: message.lost_before,
            latency: message.stages.and_then(Stages::total_at_least),
            kernel_ns: message.kernel_ns,
            sealed_in: message.sealed_in,
            size: message.payload.len(),
        }
    }
}

impl Communicator {
    /// As [`Self::try_receive`], into the caller's buffer.
    ///
    /// ```
    /// use punctual::publication::TakeError;
    /// use punctual::{Bus, Node, Target};
    ///
    /// let node = Node::open(&Bus::loopback("delivery"), "here")?;
    /// let (mut sends, mut receives) = (node.bind(1)?, node.bind(2)?);
    /// sends.send(Target::port("here", 2), b"hello")?;
    /// let mut buffer = [0; 8];
    /// assert_eq!(receives.try_receive_into(&mut buffer[..4]), Err(TakeError::BufferTooSmall { size: 5 }));
    /// let delivery = receives.try_receive_into(&mut buffer)?;
    /// assert_eq!((&buffer[..delivery.size], delivery.source), (&b"hello"[..], sends.address()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TakeError::Empty`], or [`TakeError::BufferTooSmall`]: then the message is what is received next, unless in memory a writer
    /// that waits for nobody has written over it meanwhile, which is counted. The content of `buffer` is void then.
    #[inline]
    pub fn try_receive_into(&mut self, buffer: &mut [u8]) -> Result<Delivery, TakeError> {
        self.record_last();
        if let (false, End::Memory(end)) = (self.takes_detour(), &mut self.end) {
            end.try_take(buffer)?;
            return Ok(self.delivery());
        }
        let landed = self.try_land_watched();
        self.copy_landed(landed, buffer)
    }

    /// As [`Self::receive_until`], into the caller's buffer.
    ///
    /// # Errors
    /// As [`Self::try_receive_into`].
    #[inline]
    pub fn receive_into_until(
        &mut self,
        deadline: Option<Ticks>,
        buffer: &mut [u8],
    ) -> Result<Delivery, TakeError> {
        self.receive_into_by(|| deadline, buffer)
    }

    /// `deadline` is asked for where there may be a wait.
    #[inline(always)]
    fn receive_into_by(
        &mut self,
        deadline: impl FnOnce() -> Option<Ticks>,
        buffer: &mut [u8],
    ) -> Result<Delivery, TakeError> {
        self.record_last();
        if let (false, End::Memory(end)) = (self.takes_detour(), &mut self.end) {
            end.take_until(deadline, buffer)?;
            return Ok(self.delivery());
        }
        let landed = self.land_until_watched(deadline());
        self.copy_landed(landed, buffer)
    }

    /// As [`Self::receive_timeout`], into the caller's buffer.
    ///
    /// # Errors
    /// As [`Self::try_receive_into`].
    #[inline]
    pub fn receive_into_timeout(
        &mut self,
        timeout: Duration,
        buffer: &mut [u8],
    ) -> Result<Delivery, TakeError> {
        let clock = Clock::get();
        self.receive_into_by(|| Some(clock.now().plus(clock.ticks(timeout))), buffer)
    }

    /// Delivery of the message that was taken from memory into a buffer of the caller's.
    #[inline]
    fn delivery(&mut self) -> Delivery {
        let End::Memory(end) = &mut self.end else { unreachable!("it was taken from memory") };
        let (mut delivery, stages) = end.delivery();
        if let Some(stages) = stages {
            delivery.latency = stages.total_at_least();
            self.unrecorded = true;
        }
        delivery
    }

    /// Copies the message that landed in the communicator's own buffer, if one did.
    #[inline]
    fn copy_landed(&mut self, landed: bool, buffer: &mut [u8]) -> Result<Delivery, TakeError> {
        if !landed {
            return Err(TakeError::Empty);
        }
        let size = match &self.end {
            End::Wire(end) => end.landed_size(),
            End::Memory(end) => end.landed_size(),
        };
        let Some(target) = buffer.get_mut(..size) else {
            self.keep();
            return Err(TakeError::BufferTooSmall { size });
        };
        let message = self.message();
        block::copy(message.payload, target);
        Ok(Delivery::of(&message))
    }
}
