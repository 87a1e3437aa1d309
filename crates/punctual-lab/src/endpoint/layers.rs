//! The same ping at each layer: endpoints that stop short of what the layers above add.

use punctual::engine::{Engine, Event, Flow, Joined};
use punctual::{Communicator, NodeId, Publication, Subscription, Target, Ticks};
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::{Address, Header, Kind, Port};

use super::{Endpoint, Received, poll_until};

/// Events of one poll.
const BATCH: usize = 8;

/// An engine with nothing around it.
#[derive(Debug)]
pub struct EngineEndpoint {
    engine: Engine,
    joined: Joined,
    node: NodeId,
    peer: NodeId,
}

impl EngineEndpoint {
    /// This end, which speaks to the node `peer`.
    pub fn new((engine, joined): (Engine, Joined), node: NodeId, peer: NodeId) -> Self {
        Self { engine, joined, node, peer }
    }

    #[inline]
    fn poll(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let mut got = None;
        self.engine.receive.poll(BATCH, &mut |event| match event {
            Event::Frame(arrival) if arrival.header.kind == Kind::Data => {
                let size = arrival.payload.len().min(buffer.len());
                buffer[..size].copy_from_slice(&arrival.payload[..size]);
                got = Some(size);
                Flow::Stop
            }
            _ => Flow::Continue,
        });
        got
    }
}

impl Endpoint for EngineEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        let target = Target::port(self.peer, Port::from(1));
        send_frame(&mut self.engine, &self.joined, self.node, target, message)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let look = |end: &mut Self, now| {
            end.engine.receive.housekeep(now);
            end.engine.transmit.housekeep(now);
        };
        let size = poll_until(self, deadline, |end| end.poll(buffer), look)?;
        Some(Received { size, stages: None })
    }
}

/// Sends a message by an engine alone, from port 1 of a node, or says that there is no room.
#[inline]
pub fn send_frame(
    engine: &mut Engine,
    joined: &Joined,
    node: NodeId,
    target: Target,
    message: &[u8],
) -> bool {
    let transmit = &mut *engine.transmit;
    let Ok(sequence) = transmit.claim(target.node, HEADER_SIZE + message.len()) else { return false };
    let header = Header {
        kind: Kind::Data,
        incarnation: joined.incarnation,
        source: Address { node, port: Port::from(1) },
        target,
        sequence,
        payload_size: message.len() as u32,
        stamped: false,
        sealed: false,
    };
    let Some((head, rest)) = transmit.claimed().split_first_chunk_mut() else { return false };
    header.write(head);
    rest[..message.len()].copy_from_slice(message);
    transmit.commit();
    transmit.flush();
    true
}

/// A publication and a subscription: in memory nothing is below them.
#[derive(Debug)]
pub struct StreamEndpoint {
    publication: Publication,
    subscription: Subscription,
}

impl StreamEndpoint {
    /// One that sends by the one and receives by the other.
    pub fn new(publication: Publication, subscription: Subscription) -> Self {
        Self { publication, subscription }
    }
}

impl Endpoint for StreamEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        self.publication.offer(message).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let poll = |subscription: &mut Subscription| {
            let received = subscription.try_receive(buffer).ok()?;
            Some(Received { size: received.size, stages: None })
        };
        poll_until(&mut self.subscription, deadline, poll, |_, _| ())
    }
}

/// A node's own work, polled: no waiting, no stamps.
#[derive(Debug)]
pub struct NodeEndpoint {
    communicator: Communicator,
    peer: Target,
}

impl NodeEndpoint {
    /// This end, which speaks to `peer`.
    pub fn new(communicator: Communicator, peer: Target) -> Self {
        Self { communicator, peer }
    }
}

impl Endpoint for NodeEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        self.communicator.try_send(self.peer, message).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let poll = |communicator: &mut Communicator| {
            let message = communicator.try_receive().ok()?;
            let size = message.payload.len();
            buffer.get_mut(..size)?.copy_from_slice(message.payload);
            Some(Received { size, stages: None })
        };
        poll_until(&mut self.communicator, deadline, poll, |_, _| ())
    }
}
