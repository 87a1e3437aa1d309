//! Plain sockets, one per flow: asleep in the call, in epoll, or never.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::SystemError;
use punctual_machine::epoll::EpollSet;
use punctual_machine::signal::interrupted;
use punctual_machine::socket::{Patience, UdpSocket, wait_readable};

use super::socket::{Instants, SocketState};
use super::{Arrival, Peer, Port, PortPlan, SLEEP_MAX, Stamps, Way, time_left};

/// How its thread waits.
#[derive(Debug)]
enum Wait {
    /// In the receiving call.
    Asleep,
    /// In ppoll, where there are several sockets, or an instant to wake for.
    Polled,
    /// In epoll_wait.
    Epoll(EpollSet),
    /// Never.
    Spin,
}

/// One end on plain sockets.
#[derive(Debug)]
pub struct UdpPort {
    sockets: Vec<UdpSocket>,
    state: SocketState,
    wait: Wait,
}

/// Packets that a preferred busy poll takes at once; the kernel's own default for NAPI is 64, for sockets 8.
const BUSY_POLL_BUDGET: u16 = 8;

impl UdpPort {
    /// Opens the sockets.
    ///
    /// # Errors
    /// An address that is taken or not of this host, or a privilege that is missing.
    pub fn open(plan: &PortPlan) -> Result<Self, SystemError> {
        let (wait, sockets) = (wait_of(plan)?, Self::sockets(plan)?);
        for socket in &sockets {
            match &wait {
                Wait::Epoll(set) => set.add(socket.as_fd())?,
                Wait::Asleep => sleep_in(socket, plan.sleep_max)?,
                Wait::Polled | Wait::Spin => {}
            }
        }
        Ok(Self { state: SocketState::new(plan, &sockets)?, sockets, wait })
    }

    /// The sockets of all flows, with every option that was asked for.
    pub(super) fn sockets(plan: &PortPlan) -> Result<Vec<UdpSocket>, SystemError> {
        (0..plan.flows).map(|flow| socket(plan, plan.local_of(flow))).collect()
    }

    /// What is there, without waiting.
    #[inline]
    fn take(&mut self, buffer: &mut [u8], instants: Instants, patience: Patience) -> Option<Arrival> {
        for (flow, socket) in self.sockets.iter().enumerate() {
            match socket.recv_single(buffer, patience) {
                Ok(single) => return Some(self.state.arrived(flow, socket, &single, instants)),
                // Nothing there, a signal, or news of an earlier datagram of ours: the next look decides.
                Err(error) => debug_assert_ne!(error.kind(), ErrorKind::InvalidInput),
            }
        }
        None
    }

    /// Waits once, for what is left of the time at most, and takes what is there.
    #[inline]
    fn wait_and_take(&mut self, buffer: &mut [u8], deadline: Ticks, listened: Ticks) -> Option<Arrival> {
        let spins = matches!(self.wait, Wait::Spin);
        let unknown = Instants { listened, ran: None, spins };
        let at = |ran| Instants { ran: Some(ran), ..unknown };
        match &self.wait {
            Wait::Spin => self.take(buffer, unknown, Patience::None),
            Wait::Asleep => self.take(buffer, unknown, Patience::Asleep),
            Wait::Polled => {
                let ready = wait_readable(&self.sockets, time_left(deadline).min(SLEEP_MAX));
                let woken = Clock::get().now();
                if ready { self.take(buffer, at(woken), Patience::None) } else { None }
            }
            Wait::Epoll(set) => {
                let ready = set.wait(Some(time_left(deadline).min(SLEEP_MAX))) > 0;
                let woken = Clock::get().now();
                if ready { self.take(buffer, at(woken), Patience::None) } else { None }
            }
        }
    }
}

fn socket(plan: &PortPlan, local: SocketAddr) -> Result<UdpSocket, SystemError> {
    let socket = UdpSocket::bind(local, &plan.udp_options())?;
    let set = |what, done: std::io::Result<()>| {
        done.map_err(|error| SystemError::new("set udp option", format!("{what} on {local}"), error))
    };
    if plan.stamps == Stamps::All {
        set("SO_TIMESTAMPING", socket.enable_transmit_timestamps())?;
    }
    if plan.dscp > 0 {
        set("IP_TOS", socket.set_code_point(local, plan.dscp))?;
    }
    if plan.priority > 0 {
        set("SO_PRIORITY", socket.set_priority(plan.priority))?;
    }
    if plan.way == Way::BusyPoll {
        set("SO_BUSY_POLL", socket.set_busy_poll(plan.busy_poll_us, true, BUSY_POLL_BUDGET))?;
    }
    if let Some(remote) = plan.remote {
        socket.connect(remote)?;
    }
    Ok(socket)
}

/// Has receives sleep in the call.
fn sleep_in(socket: &UdpSocket, sleep_max: Duration) -> Result<(), SystemError> {
    let set = socket.set_blocking(true).and_then(|()| socket.set_receive_timeout(Some(sleep_max)));
    set.map_err(|error| SystemError::new("set udp option", "SO_RCVTIMEO", error))
}

fn wait_of(plan: &PortPlan) -> Result<Wait, SystemError> {
    Ok(match plan.way {
        Way::Spin | Way::XdpTx => Wait::Spin,
        Way::Epoll => Wait::Epoll(EpollSet::new()?),
        _ if plan.flows > 1 || plan.wakes_for_time => Wait::Polled,
        _ => Wait::Asleep,
    })
}

impl Port for UdpPort {
    #[inline]
    fn send(&mut self, flow: usize, bytes: &[u8], target: &Peer, tag: u64) -> bool {
        let (socket, target) = (&self.sockets[flow], self.state.target(target));
        // A refusal (ICMP) of an earlier datagram is told here, and is not this one's.
        let sent = (0..2).any(|_| socket.send_single(bytes, target).is_ok());
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
            if let Some(arrival) = self.wait_and_take(buffer, deadline, listened) {
                return Some(arrival);
            }
            if clock.now() >= deadline || interrupted() {
                return None;
            }
            if !matches!(self.wait, Wait::Spin) {
                self.state.keep_stamps(&self.sockets);
            }
        }
    }

    fn transmitted(&mut self, visit: &mut dyn FnMut(u64, Ticks)) {
        self.state.visit(&self.sockets, visit);
    }

    fn local(&self) -> Peer {
        Peer { address: self.state.local, mac: [0; 6] }
    }

    fn dropped(&mut self) -> Option<u64> {
        self.state.dropped(&self.sockets)
    }

    fn incomplete(&mut self) -> Option<u64> {
        self.state.incomplete()
    }

    fn remark(&self) -> Option<String> {
        self.state.remark()
    }
}
