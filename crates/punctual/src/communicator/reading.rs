//! Messages that are read where they lie, by who takes many of them and keeps none.

use punctual_proto::Address;

use super::{Communicator, End};
use crate::node::receiving::Reader;

impl Communicator {
    /// Shows source and payload of messages that are here, at most so many, where they lie if they can be read there; never waits.
    /// None of them is recorded, or watched for being late.
    pub(crate) fn read(&mut self, limit: usize, show: &mut dyn FnMut(Address, &[u8])) {
        let mut reader = Reader { show, left: limit };
        while reader.left > 0 {
            let takes_detour = self.takes_detour();
            let has_landed = match &mut self.end {
                _ if takes_detour => self.try_land_watched(),
                End::Wire(end) => end.try_read(&mut reader),
                End::Memory(end) => end.try_receive(),
            };
            if !has_landed {
                return;
            }
            let message = self.message();
            (reader.show)(message.source, message.payload);
            reader.left = reader.left.saturating_sub(1);
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
