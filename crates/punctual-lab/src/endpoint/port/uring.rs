//! io_uring: every receive waits in the ring, every send is an entry of it.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_lab_machine::uring_socket::UringSockets;
use punctual_machine::SystemError;
use punctual_machine::signal::interrupted;

use super::socket::{Instants, SocketState};
use super::udp::UdpPort;
use super::{Arrival, Peer, Port, PortPlan, SLEEP_MAX, Way, time_left};

/// One end on a ring.
#[derive(Debug)]
pub struct UringPort {
    ring: UringSockets,
    state: SocketState,
}

impl UringPort {
    /// Opens sockets and ring.
    ///
    /// # Errors
    /// As of sockets; or io_uring is switched off, or knows no NAPI.
    pub fn open(plan: &PortPlan) -> Result<Self, SystemError> {
        let sockets = UdpPort::sockets(plan)?;
        let state = SocketState::new(plan, &sockets)?;
        let napi = (plan.way == Way::UringNapi).then(|| Duration::from_micros(plan.busy_poll_us.into()));
        Ok(Self { ring: UringSockets::new(sockets, plan.size + 1, napi)?, state })
    }
}

impl Port for UringPort {
    #[inline]
    fn send(&mut self, flow: usize, bytes: &[u8], target: &Peer, tag: u64) -> bool {
        let sent = self.ring.send(flow, bytes, self.state.target(target));
        if sent {
            self.state.note_sent(flow, tag);
        }
        sent
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Arrival> {
        let clock = Clock::get();
        let listened = clock.now();
        loop {
            // Else the kernel would spin.
            self.state.keep_stamps(self.ring.sockets());
            // A failed wait is a signal's, or a queue that overflowed: the flags and the next look decide.
            if let Ok(Some((flow, single))) = self.ring.receive(buffer, time_left(deadline).min(SLEEP_MAX)) {
                let at = Instants { listened, ran: None, spins: false };
                return Some(self.state.arrived(flow, &self.ring.sockets()[flow], &single, at));
            }
            if clock.now() >= deadline || interrupted() {
                return None;
            }
        }
    }

    fn transmitted(&mut self, visit: &mut dyn FnMut(u64, Ticks)) {
        self.state.visit(self.ring.sockets(), visit);
    }

    fn dropped(&mut self) -> Option<u64> {
        self.state.dropped(self.ring.sockets())
    }

    fn incomplete(&mut self) -> Option<u64> {
        self.state.incomplete()
    }

    fn local(&self) -> Peer {
        Peer { address: self.state.local, mac: [0; 6] }
    }

    fn remark(&self) -> Option<String> {
        self.state.remark()
    }
}
