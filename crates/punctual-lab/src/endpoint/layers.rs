//! The same ping at each layer: endpoints that stop short of what the layers above add.

use punctual::engine::{Engine, Event, Flow, Joined};
use punctual::publication::OfferError;
use punctual::{Bus, Communicator, Node, NodeId, NodeOptions, Publication, PublicationOptions};
use punctual::{Subscription, SubscriptionOptions, Target, Ticks, Wake};
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::{Address, Header, Kind, Port};

use super::open::PORT;
use super::{Endpoint, EndpointCounts, Received, poll_until};

/// Events of one poll.
const BATCH: usize = 8;

/// An engine with nothing around it.
#[derive(Debug)]
pub struct EngineEndpoint {
    engine: Engine,
    joined: Joined,
    node: NodeId,
    target: Target,
    troubles: u64,
}

impl EngineEndpoint {
    /// The end of a node of that name, which speaks to `target`.
    ///
    /// # Errors
    /// In words for people: the machine has no such bus.
    pub fn open(bus: &Bus, name: &str, target: Target) -> Result<Self, String> {
        let opened = NodeOptions::new(name).open_engine(bus);
        let (engine, joined) = opened.map_err(|error| error.to_string())?;
        Ok(Self { engine, joined, node: NodeId::named(name), target, troubles: 0 })
    }

    #[inline]
    fn poll(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let (mut got, troubles) = (None, &mut self.troubles);
        self.engine.receive.poll(BATCH, &mut |event| match event {
            Event::Frame(arrival) if arrival.header.kind == Kind::Data => {
                let size = arrival.payload.len().min(buffer.len());
                buffer[..size].copy_from_slice(&arrival.payload[..size]);
                got = Some(size);
                Flow::Stop
            }
            event => {
                *troubles += u64::from(matches!(event, Event::Trouble(_)));
                Flow::Continue
            }
        });
        got
    }

    /// Sends from port 1, or says that there is no room.
    #[inline]
    fn send_frame(&mut self, message: &[u8]) -> bool {
        let transmit = &mut *self.engine.transmit;
        let size = HEADER_SIZE + message.len();
        let Ok(sequence) = transmit.claim(self.target.node, size) else { return false };
        let header = Header {
            kind: Kind::Data,
            incarnation: self.joined.incarnation,
            source: Address { node: self.node, port: Port::from(PORT) },
            target: self.target,
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
}

impl Endpoint for EngineEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        self.send_frame(message)
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

    fn counts(&mut self) -> EndpointCounts {
        EndpointCounts {
            broadcast: Some(self.engine.transmit.sent_to(None)),
            lost: ("overruns", self.troubles),
        }
    }
}

/// A publication and a subscription: in memory nothing is below them.
#[derive(Debug)]
pub struct StreamEndpoint {
    node: Node,
    target: Target,
    publication: Publication,
    subscription: Subscription,
}

impl StreamEndpoint {
    /// The end of a node of that name, which speaks to `target`: its publication finds its readers when they are there.
    ///
    /// # Errors
    /// In words for people: the machine has no such bus.
    pub fn open(bus: &Bus, name: &str, target: Target) -> Result<Self, String> {
        let node = Node::open(bus, name).map_err(|error| error.to_string())?;
        let subscription = node.subscription(PORT, &SubscriptionOptions { wake: Wake::Spin });
        let options = PublicationOptions { source: PORT, ..PublicationOptions::default() };
        let both =
            subscription.and_then(|subscription| Ok((node.publication(target, &options)?, subscription)));
        let (publication, subscription) = both.map_err(|error| error.to_string())?;
        Ok(Self { node, target, publication, subscription })
    }
}

impl Endpoint for StreamEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        match self.publication.offer(message) {
            Ok(()) => true,
            // Of everybody, nobody misses it.
            Err(OfferError::NotConnected) => self.target.node.is_none(),
            Err(_) => false,
        }
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let poll = |subscription: &mut Subscription| {
            let received = subscription.try_receive(buffer).ok()?;
            Some(Received { size: received.size, stages: None })
        };
        poll_until(&mut self.subscription, deadline, poll, |_, _| ())
    }

    fn counts(&mut self) -> EndpointCounts {
        let lost = self.subscription.accounts().map(|account| account.lost).sum();
        EndpointCounts { broadcast: Some(self.node.sent_to(None)), lost: ("lost_overrun", lost) }
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
