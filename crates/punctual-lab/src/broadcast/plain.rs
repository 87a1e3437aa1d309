//! The library's messages in place of bare datagrams of the same size: a communicator queues them for everybody, others receive
//! them and nap. Neither a group nor an order: what the floor leaves for what a group adds.

use punctual::{Bus, Communicator, Node, SendError, Target};
use punctual_machine::clock::monotonic_ns;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::CHECK_SIZE;

use super::floor::{NAP, RUN, SILENCE};
use super::protocol::{FloorEnd, FloorPlan};

/// Where everybody listens.
const PORT: u16 = 1;

pub(super) struct Plain {
    communicator: Communicator,
    _node: Node,
}

/// Payload of a message that takes a datagram of so many bytes.
pub(super) fn payload_size(datagram: usize) -> usize {
    datagram.saturating_sub(HEADER_SIZE + CHECK_SIZE)
}

impl Plain {
    pub(super) fn open(plan: &FloorPlan) -> Result<Self, String> {
        let bus = Bus::multicast(plan.group, plan.interface);
        let name = format!("plain-{}", plan.interface).replace('.', "-");
        let node = Node::open(&bus, &name).map_err(|error| error.to_string())?;
        let communicator = node.bind(PORT).map_err(|error| error.to_string())?;
        Ok(Self { communicator, _node: node })
    }

    pub(super) fn send(&mut self, plan: &FloorPlan) -> Result<FloorEnd, String> {
        let mut message = vec![0; payload_size(plan.size)];
        let mut sent = 0;
        while sent < plan.count {
            message[..8].copy_from_slice(&sent.to_le_bytes());
            match self.communicator.queue(Target::everyone_at(PORT), &message) {
                Ok(()) => sent += 1,
                // The kernel has no room: nothing was taken.
                Err(SendError::Full) => std::thread::yield_now(),
                Err(error) => return Err(format!("messages by multicast: {error}")),
            }
            if sent.is_multiple_of(RUN as u64) {
                self.communicator.flush();
            }
        }
        self.communicator.flush();
        Ok(FloorEnd { ended_ns: monotonic_ns(), count: sent, merged: false })
    }

    pub(super) fn receive(&mut self, plan: &FloorPlan) -> FloorEnd {
        let mut end = FloorEnd { ended_ns: monotonic_ns(), count: 0, merged: false };
        while end.count < plan.count {
            let before = end.count;
            while end.count < plan.count && self.communicator.try_receive().is_ok() {
                end.count += 1;
            }
            if end.count > before {
                end.ended_ns = monotonic_ns();
            } else if monotonic_ns() - end.ended_ns > SILENCE.as_nanos() as u64 {
                break;
            } else {
                std::thread::sleep(NAP);
            }
        }
        end
    }
}
