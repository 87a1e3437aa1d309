//! Sockets, one per flow: asleep in the call, in epoll, in a ring of io_uring, or never.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_lab_machine::uring_socket::UringSockets;
use punctual_machine::SystemError;
use punctual_machine::epoll::EpollSet;
use punctual_machine::signal::interrupted;
use punctual_machine::socket::{Patience, UdpSocket, wait_readable};

use super::socket::{Instants, SocketState};
use super::{Arrival, Peer, Port, PortPlan, SLEEP_MAX, Stamps, Way};
use crate::endpoint::time_left;

/// Way in which its thread waits.
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

/// Party that sends and receives.
#[derive(Debug)]
enum Sockets {
    /// This thread, call by call.
    Called(Vec<UdpSocket>, Wait),
    /// The kernel: every receive waits in the ring, every send is an entry of it.
    InRing(Box<UringSockets>),
}

impl Sockets {
    fn all(&self) -> &[UdpSocket] {
        match self {
            Self::Called(sockets, _) => sockets,
            Self::InRing(ring) => ring.sockets(),
        }
    }
}

/// One end on sockets of the kernel.
#[derive(Debug)]
pub struct UdpPort {
    sockets: Sockets,
    state: SocketState,
}

/// Packets that a preferred busy poll takes at once; the kernel's own default for NAPI is 64, for sockets 8.
const BUSY_POLL_BUDGET: u16 = 8;

impl UdpPort {
    /// Opens the sockets of all flows, with every option that was asked for.
    ///
    /// # Errors
    /// An address that is taken or not of this host, or a privilege that is missing; io_uring is switched off, or knows no NAPI.
    pub fn open(plan: &PortPlan) -> Result<Self, SystemError> {
        let sockets = (0..plan.flows).map(|flow| socket(plan, plan.local_of(flow)));
        let sockets: Vec<UdpSocket> = sockets.collect::<Result<_, _>>()?;
        let state = SocketState::new(plan, &sockets)?;
        if matches!(plan.way, Way::Uring | Way::UringNapi) {
            let napi = (plan.way == Way::UringNapi).then(|| Duration::from_micros(plan.busy_poll_us.into()));
            let ring = UringSockets::new(sockets, plan.size + 1, napi)?;
            return Ok(Self { sockets: Sockets::InRing(Box::new(ring)), state });
        }
        let wait = wait_of(plan)?;
        for socket in &sockets {
            match &wait {
                Wait::Epoll(set) => set.add(socket.as_fd())?,
                Wait::Asleep => sleep_in(socket, plan.sleep_max)?,
                Wait::Polled | Wait::Spin => {}
            }
        }
        Ok(Self { sockets: Sockets::Called(sockets, wait), state })
    }

    /// Waits once, for what is left of the time at most, and takes what is there.
    #[inline]
    fn wait_and_take(&mut self, buffer: &mut [u8], deadline: Ticks, listened: Ticks) -> Option<Arrival> {
        let Self { sockets, state } = self;
        let at = |ran, spins| Instants { listened, ran, spins };
        let time_left = || time_left(deadline).min(SLEEP_MAX);
        let (sockets, wait) = match sockets {
            Sockets::Called(sockets, wait) => (&*sockets, wait),
            Sockets::InRing(ring) => {
                // Else the kernel would spin.
                state.keep_stamps(ring.sockets());
                // A failed wait is a signal's, or a queue that overflowed: the flags and the next look decide.
                let (flow, single) = ring.receive(buffer, time_left()).ok()??;
                return Some(state.arrived(flow, &ring.sockets()[flow], &single, at(None, false)));
            }
        };
        let is_ready = match wait {
            Wait::Spin => return take(sockets, state, buffer, at(None, true), Patience::None),
            Wait::Asleep => return take(sockets, state, buffer, at(None, false), Patience::Asleep),
            Wait::Polled => wait_readable(sockets, time_left()),
            Wait::Epoll(set) => set.wait(Some(time_left())) > 0,
        };
        let woken = Clock::get().now();
        if is_ready { take(sockets, state, buffer, at(Some(woken), false), Patience::None) } else { None }
    }
}

/// Takes a packet that is there, without waiting.
#[inline]
fn take(
    sockets: &[UdpSocket],
    state: &mut SocketState,
    buffer: &mut [u8],
    instants: Instants,
    patience: Patience,
) -> Option<Arrival> {
    for (flow, socket) in sockets.iter().enumerate() {
        match socket.recv_single(buffer, patience) {
            Ok(single) => return Some(state.arrived(flow, socket, &single, instants)),
            // Nothing there, a signal, or news of an earlier datagram of ours: the next look decides.
            Err(error) => debug_assert_ne!(error.kind(), ErrorKind::InvalidInput),
        }
    }
    None
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
        socket.connect(remote.address)?;
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
        let target = self.state.target(target);
        let sent = match &mut self.sockets {
            // A refusal (ICMP) of an earlier datagram is told here, and is not this one's.
            Sockets::Called(sockets, _) => (0..2).any(|_| sockets[flow].send_single(bytes, target).is_ok()),
            Sockets::InRing(ring) => ring.send(flow, bytes, target),
        };
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
            if !matches!(self.sockets, Sockets::Called(_, Wait::Spin)) {
                self.state.keep_stamps(self.sockets.all());
            }
        }
    }

    fn transmitted(&mut self, visit: &mut dyn FnMut(u64, Ticks)) {
        self.state.visit(self.sockets.all(), visit);
    }

    fn local(&self) -> Peer {
        Peer { address: self.state.local, mac: [0; 6] }
    }

    fn dropped(&mut self) -> Option<u64> {
        self.state.dropped(self.sockets.all())
    }

    fn incomplete(&mut self) -> Option<u64> {
        self.state.incomplete()
    }

    fn remark(&self) -> Option<String> {
        self.state.remark()
    }
}
