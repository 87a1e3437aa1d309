//! Messages of the library without a group, in place of bare datagrams, and in datagrams as large as a group's: one process queues
//! them for all others, which receive them and nap. A group cannot be faster than this.

use punctual::{Bus, Communicator, Node, SendError, Target};
use punctual_machine::clock::monotonic_ns;
use punctual_proto::broadcast::DATA_PREFIX_SIZE;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::CHECK_SIZE;

use super::floor::{NAP, RUN, SILENCE};
use super::protocol::{FloorEnd, FloorPlan, check_interrupt};

/// Receivers listen at this port.
const PORT: u16 = 1;
/// The sender has another port: it would hear itself, as every node hears what goes to everybody at its port.
const SENDER_PORT: u16 = 2;

/// Bytes of the datagram in which a group's frame has so much payload: behind the node's head and the group's, before a check value.
pub(super) fn datagram_size(frame: usize) -> usize {
    HEADER_SIZE + DATA_PREFIX_SIZE + frame + CHECK_SIZE
}

/// Payload of a message that takes a datagram of so many bytes.
pub(super) fn payload_size(datagram: usize) -> usize {
    datagram.saturating_sub(HEADER_SIZE + CHECK_SIZE)
}

/// One end.
pub(super) struct Messages {
    communicator: Communicator,
    _node: Node,
}

impl Messages {
    pub(super) fn open(plan: &FloorPlan) -> Result<Self, String> {
        let bus = Bus::multicast(plan.group, plan.interface);
        let name = format!("messages-{}", plan.interface).replace('.', "-");
        let node = Node::open(&bus, &name).map_err(|error| error.to_string())?;
        let port = if plan.sends { SENDER_PORT } else { PORT };
        let communicator = node.bind(port).map_err(|error| error.to_string())?;
        Ok(Self { communicator, _node: node })
    }

    pub(super) fn send(&mut self, plan: &FloorPlan) -> Result<FloorEnd, String> {
        let mut message = vec![0; payload_size(plan.size)];
        let mut sent = 0_u64;
        let mut full_since = None;
        while sent < plan.count {
            check_interrupt(sent, plan.count)?;
            message[..8].copy_from_slice(&sent.to_le_bytes());
            match self.communicator.queue(Target::everyone_at(PORT), &message) {
                Ok(()) => {
                    (sent, full_since) = (sent + 1, None);
                    if sent.is_multiple_of(RUN as u64) {
                        self.communicator.flush();
                    }
                }
                // The kernel has no room now. The message was not taken, and is queued again.
                Err(SendError::Full) => {
                    let since = *full_since.get_or_insert_with(monotonic_ns);
                    if monotonic_ns() - since > SILENCE.as_nanos() as u64 {
                        return Err("messages by multicast: the kernel takes none".to_owned());
                    }
                    std::thread::yield_now();
                }
                Err(error) => return Err(format!("messages by multicast: {error}")),
            }
        }
        self.communicator.flush();
        Ok(FloorEnd { ended_ns: monotonic_ns(), count: sent, merged: false })
    }

    pub(super) fn receive(&mut self, plan: &FloorPlan) -> Result<FloorEnd, String> {
        let mut end = FloorEnd { ended_ns: monotonic_ns(), count: 0, merged: false };
        while end.count < plan.count {
            check_interrupt(end.count, plan.count)?;
            let before = end.count;
            end.count += self.communicator.poll(RUN, |_, _| {}) as u64;
            if end.count > before {
                end.ended_ns = monotonic_ns();
            } else if monotonic_ns() - end.ended_ns > SILENCE.as_nanos() as u64 {
                break;
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(end)
    }
}
