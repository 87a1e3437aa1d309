//! io_uring: every receive waits in the ring, every send is an entry of it.

use std::net::SocketAddr;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::SystemError;
use punctual_machine::signal::interrupted;
use punctual_machine::socket::UringSockets;

use super::sent::Sent;
use super::udp::UdpPort;
use super::{Arrival, Peer, Port, PortPlan, SLEEP_MAX, Stamps, awake, instant_of, time_left};
use crate::response::option::Way;

/// One end on a ring.
#[derive(Debug)]
pub struct UringPort {
    ring: UringSockets,
    sent: Vec<Sent>,
    local: SocketAddr,
    connected: bool,
    reads_transmit_stamps: bool,
    napi: bool,
    polls_nothing: bool,
}

impl UringPort {
    /// Opens sockets and ring.
    ///
    /// # Errors
    /// As of sockets; or io_uring is switched off, or knows no NAPI.
    pub fn open(plan: &PortPlan) -> Result<Self, SystemError> {
        let sockets = UdpPort::sockets(plan)?;
        let local = sockets[0].local_address()?;
        let sent = sockets.iter().map(|_| Sent::new()).collect();
        let napi = (plan.way == Way::UringNapi).then(|| Duration::from_micros(plan.busy_poll_us.into()));
        Ok(Self {
            ring: UringSockets::new(sockets, plan.size + 1, napi)?,
            sent,
            local,
            connected: plan.remote.is_some(),
            reads_transmit_stamps: plan.stamps == Stamps::All,
            napi: napi.is_some(),
            polls_nothing: false,
        })
    }
}

impl Port for UringPort {
    #[inline]
    fn send(&mut self, flow: usize, bytes: &[u8], target: &Peer, tag: u64) -> bool {
        let target = (!self.connected).then_some(target.address);
        let sent = self.ring.send(flow, bytes, target);
        if sent && self.reads_transmit_stamps {
            self.sent[flow].note(tag);
        }
        sent
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Arrival> {
        let clock = Clock::get();
        let listened = clock.now();
        loop {
            if self.reads_transmit_stamps {
                // A stamp in the socket's queue is an event that ends every wait at once: the kernel would spin.
                self.sent.iter_mut().zip(self.ring.sockets()).for_each(|(sent, socket)| sent.keep(socket));
            }
            // A failed wait is a signal's, or a queue that overflowed: the flags and the next look decide.
            if let Ok(Some((flow, single))) = self.ring.receive(buffer, time_left(deadline).min(SLEEP_MAX)) {
                let read = clock.now();
                let kernel = instant_of(single.kernel_receive_ns);
                if self.napi && !self.polls_nothing {
                    self.polls_nothing = self.ring.sockets()[flow].incoming_napi().is_none();
                }
                let peer = Peer { address: single.source, mac: [0; 6] };
                let woken = awake(kernel, listened, read, false);
                return Some(Arrival { size: single.size, flow, peer, kernel, listened, woken, read });
            }
            if clock.now() >= deadline || interrupted() {
                return None;
            }
        }
    }

    fn transmitted(&mut self, visit: &mut dyn FnMut(u64, Ticks)) {
        if self.reads_transmit_stamps {
            self.sent
                .iter_mut()
                .zip(self.ring.sockets())
                .for_each(|(sent, socket)| sent.visit(socket, visit));
        }
    }

    fn local(&self) -> Peer {
        Peer { address: self.local, mac: [0; 6] }
    }

    fn remark(&self) -> Option<String> {
        self.polls_nothing.then(|| super::POLLS_NOTHING.to_owned())
    }
}
