//! Messages that are read where they lie, by a caller that takes many of them and keeps none.

use punctual_proto::Address;

use super::{Communicator, End};
use crate::node::reader::Reader;

impl Communicator {
    /// Shows source and payload of at most `limit` messages that are here to `f`; never waits. Returns how many it showed.
    ///
    /// On the kernel's media `f` reads a message where the kernel put it, if all of this holds: the message came in one frame, for this
    /// communicator alone, while this thread drove the engine, and the node does not open seals itself. Any other message, and each in
    /// memory, is copied first. `f` is told no stages, and [`Self::recorded`] has no message that was read in place. If `f` panics, the
    /// message that it was shown is delivered, and none behind it.
    ///
    /// On the kernel's media the other communicators of the node wait for their messages while `f` runs. `f` may send; it must not
    /// wait for messages of this node, nor ask or change the node.
    ///
    /// # Panics
    /// If `f` does, or does what it must not.
    ///
    /// ```
    /// use punctual::{Bus, Node, Target};
    ///
    /// let bus = Bus::loopback("poll-example");
    /// let node = Node::open(&bus, "node")?;
    /// let (mut here, mut there) = (node.bind(1)?, node.bind(2)?);
    /// for number in 0..3_u8 {
    ///     there.send(Target::port("node", 1), &[number])?;
    /// }
    /// let mut sum = 0;
    /// let count = here.poll(64, |_source, payload| sum += payload[0]);
    /// assert_eq!((count, sum), (3, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&mut self, limit: usize, mut f: impl FnMut(Address, &[u8])) -> usize {
        let mut reader = Reader::new(&mut f, limit);
        while reader.wants_more() {
            let takes_detour = self.takes_detour();
            let has_landed = match &mut self.end {
                End::Wire(end) if !takes_detour => end.try_read(&mut reader),
                _ => self.try_land(),
            };
            if !has_landed {
                break;
            }
            let message = self.message();
            reader.show(message.source, message.payload);
        }
        limit - reader.finish()
    }

    /// It has another owner from now on: an empty message that was sent to end a wait of the previous owner is none of the new one's.
    /// Nobody sends more of it meanwhile.
    pub(crate) fn forget_nudges(&mut self) {
        match &mut self.end {
            End::Wire(end) => end.forget_nudges(),
            End::Memory(end) => end.forget_nudges(),
        }
    }

    /// From now on what it sends to everybody at its own port is not for itself. In memory an empty message is left of it.
    pub(crate) fn ignore_own(&mut self) {
        match &mut self.end {
            End::Wire(end) => end.reception.inbox.ignore_own(),
            End::Memory(end) => end.ignore_own(),
        }
    }
}
