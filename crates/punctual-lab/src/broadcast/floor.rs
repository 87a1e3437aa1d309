//! The floor: bare multicast, `sendmmsg` and `recvmmsg` with datagrams as large as a group's, merged runs both ways, receivers that
//! nap. Nothing is numbered, and nobody waits for anybody. A message that finds no room at its receiver is lost.
//! [`messages`](super::messages) sends the library's messages in place of them.

use std::net::SocketAddr;
use std::time::Duration;

use punctual_machine::clock::monotonic_ns;
use punctual_machine::socket::{
    MulticastInterface, RECEIVE_BUFFER_SIZE, RecvBatch, SendBatch, UdpOptions, UdpSocket,
};

use super::messages::Messages;
use super::option::Datagrams;
use super::protocol::{FloorEnd, FloorPlan, check_interrupt};

/// Datagrams of a run.
pub(super) const RUN: usize = 32;
/// Largest run that a receiver takes, bytes.
const RUN_SIZE_MAX: usize = 65_535;
/// Receivers nap so that there is company when they look.
pub(super) const NAP: Duration = Duration::from_micros(50);
/// Without anything for so long, what is missing is lost.
pub(super) const SILENCE: Duration = Duration::from_millis(200);

/// One process's end of multicast without a group.
pub(super) struct Floor {
    plan: FloorPlan,
    end: End,
}

enum End {
    Bare(Bare),
    Library(Box<Messages>),
}

impl Floor {
    pub(super) fn open(plan: FloorPlan) -> Result<Self, String> {
        let end = match plan.datagrams {
            Datagrams::Bare => End::Bare(Bare::open(&plan)?),
            Datagrams::Library => End::Library(Box::new(Messages::open(&plan)?)),
        };
        Ok(Self { plan, end })
    }

    pub(super) fn travel(&mut self, at_ns: u64) -> Result<FloorEnd, String> {
        if let Some(rest) = at_ns.checked_sub(monotonic_ns()) {
            std::thread::sleep(Duration::from_nanos(rest));
        }
        let Self { plan, end } = self;
        match end {
            End::Bare(end) if plan.sends => end.send(plan),
            End::Bare(end) => end.receive(plan),
            End::Library(end) if plan.sends => end.send(plan),
            End::Library(end) => end.receive(plan),
        }
    }
}

struct Bare {
    socket: UdpSocket,
}

impl Bare {
    fn open(plan: &FloorPlan) -> Result<Self, String> {
        let options = UdpOptions {
            receive_buffer: Some(RECEIVE_BUFFER_SIZE),
            segmentation: true,
            merged: true,
            reuse_address: true,
            ..UdpOptions::default()
        };
        let interface = MulticastInterface::Address(plan.interface);
        let local = if plan.sends { SocketAddr::new(plan.interface.into(), 0) } else { plan.group };
        let opened = UdpSocket::bind(local, &options).and_then(|socket| {
            if plan.sends {
                socket.set_multicast_interface(interface)?;
            } else {
                socket.join_multicast(plan.group.ip(), interface)?;
            }
            Ok(socket)
        });
        Ok(Self { socket: opened.map_err(|error| error.to_string())? })
    }

    fn send(&self, &FloorPlan { group, count, size, .. }: &FloorPlan) -> Result<FloorEnd, String> {
        let mut batch = SendBatch::new(RUN, size);
        let mut sent = 0;
        while sent < count {
            check_interrupt(sent, count)?;
            while sent + (batch.len() as u64) < count
                && let Some(bytes) = batch.claim(size)
            {
                bytes[..8].copy_from_slice(&sent.to_le_bytes());
                batch.commit(group);
            }
            match self.socket.send_batch(&mut batch) {
                Ok(taken) => sent += taken as u64,
                Err(error) => return Err(format!("bare multicast: {error}")),
            }
        }
        Ok(FloorEnd { ended_ns: monotonic_ns(), count: sent, merged: batch.is_merging() })
    }

    fn receive(&self, &FloorPlan { count, size, .. }: &FloorPlan) -> Result<FloorEnd, String> {
        let mut batch = RecvBatch::new(RUN, RUN_SIZE_MAX);
        let mut end = FloorEnd { ended_ns: monotonic_ns(), count: 0, merged: false };
        while end.count < count {
            check_interrupt(end.count, count)?;
            let taken = self.socket.recv_batch(&mut batch, RUN);
            if taken.map_err(|error| format!("bare multicast: {error}"))? > 0 {
                for datagram in batch.iter() {
                    end.count += (datagram.bytes.len() / size) as u64;
                    end.merged |= datagram.bytes.len() > size;
                }
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
