//! The same ping at each layer: links that stop short of what the layers above add.

use punctual::engine::shared::Joined;
use punctual::engine::{Engine, Event, Flow};
use punctual::{Clock, Communicator, NodeId, Target, Ticks};
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::{Address, Header, Kind, Port};

use crate::link::{Link, Received};

/// Polls between two looks at the clock: a look costs as much as a poll.
const POLLS_PER_LOOK: u32 = 32;
/// Events of one poll.
const BATCH: usize = 8;

/// An engine with nothing around it.
#[derive(Debug)]
pub(super) struct EngineLink {
    engine: Engine,
    joined: Joined,
    node: NodeId,
    peer: NodeId,
}

impl EngineLink {
    /// This end, which speaks to the node `peer`.
    pub(super) fn new((engine, joined): (Engine, Joined), node: NodeId, peer: NodeId) -> Self {
        Self { engine, joined, node, peer }
    }

    #[inline]
    fn poll(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let mut got = None;
        self.engine.receive.poll(BATCH, &mut |event| match event {
            Event::Frame(arrival) if arrival.header.kind == Kind::Data => {
                let size = arrival.payload.copy_to(buffer);
                got = arrival.payload.is_intact().then_some(size);
                Flow::Stop
            }
            _ => Flow::Continue,
        });
        got
    }
}

impl Link for EngineLink {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        let transmit = &mut *self.engine.transmit;
        let Ok(sequence) = transmit.claim(Some(self.peer), HEADER_SIZE + message.len()) else { return false };
        let header = Header {
            kind: Kind::Data,
            incarnation: self.joined.incarnation,
            source: Address { node: self.node, port: Port::from(1) },
            target: Target::port(self.peer, Port::from(1)),
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

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let clock = Clock::get();
        loop {
            for _ in 0..POLLS_PER_LOOK {
                if let Some(size) = self.poll(buffer) {
                    return Some(Received { size, stages: None });
                }
                std::hint::spin_loop();
            }
            let now = clock.now();
            self.engine.receive.housekeep(now);
            self.engine.transmit.housekeep(now);
            if now >= deadline {
                return None;
            }
        }
    }
}

/// A node's own work, polled: no waiting, no stamps.
#[derive(Debug)]
pub(super) struct NodeLink {
    communicator: Communicator,
    peer: Target,
}

impl NodeLink {
    /// This end, which speaks to `peer`.
    pub(super) fn new(communicator: Communicator, peer: Target) -> Self {
        Self { communicator, peer }
    }
}

impl Link for NodeLink {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        self.communicator.try_send(self.peer, message).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let clock = Clock::get();
        loop {
            for _ in 0..POLLS_PER_LOOK {
                if let Ok(message) = self.communicator.try_receive() {
                    let size = message.payload.len();
                    buffer.get_mut(..size)?.copy_from_slice(message.payload);
                    return Some(Received { size, stages: None });
                }
                std::hint::spin_loop();
            }
            if clock.now() >= deadline {
                return None;
            }
        }
    }
}
