//! State of ports on plain sockets, however they wait: the other end, and packets that were sent and have no stamp of the device yet.

use std::collections::VecDeque;
use std::net::SocketAddr;

use punctual::{Clock, Ticks};
use punctual_lab_machine::host::{datagrams_incomplete, datagrams_without_room};
use punctual_machine::SystemError;
use punctual_machine::clock::wall_clock::WallClock;
use punctual_machine::socket::{Single, UdpSocket};

use super::{Arrival, Peer, PortPlan, Stamps, Way, awake, instant_of};

/// Facts about the time before a packet was read.
#[derive(Clone, Copy)]
pub(super) struct Instants {
    /// The receive began.
    pub(super) listened: Ticks,
    /// The thread came back from waiting, where that is apart from reading.
    pub(super) ran: Option<Ticks>,
    /// It never sleeps.
    pub(super) spins: bool,
}

/// State of a port on plain sockets.
#[derive(Debug)]
pub(super) struct SocketState {
    pub(super) local: SocketAddr,
    connected: bool,
    /// By socket; empty where nobody asks for stamps of the device.
    sent: Vec<Sent>,
    /// True if the kernel is to poll the device.
    polls: bool,
    polls_nothing: bool,
    /// Datagrams of the namespace that had found no room before.
    without_room: Option<u64>,
    /// And those of which fragments were missing.
    incomplete: Option<u64>,
    /// Tells when the kernel's stamps were made.
    wall: WallClock,
}

impl SocketState {
    /// Of sockets that were opened by this plan.
    pub(super) fn new(plan: &PortPlan, sockets: &[UdpSocket]) -> Result<Self, SystemError> {
        let reads_stamps = plan.stamps == Stamps::All;
        Ok(Self {
            local: sockets[0].local_address()?,
            connected: plan.remote.is_some(),
            sent: sockets.iter().filter(|_| reads_stamps).map(|_| Sent::new()).collect(),
            polls: matches!(plan.way, Way::BusyPoll | Way::UringNapi),
            polls_nothing: false,
            without_room: datagrams_without_room(),
            incomplete: datagrams_incomplete(),
            wall: WallClock::new(Clock::get()),
        })
    }

    /// The address that a send must name.
    #[inline]
    pub(super) fn target(&self, peer: &Peer) -> Option<SocketAddr> {
        (!self.connected).then_some(peer.address)
    }

    /// A packet of a flow was sent.
    #[inline]
    pub(super) fn note_sent(&mut self, flow: usize, tag: u64) {
        if let Some(sent) = self.sent.get_mut(flow) {
            sent.note(tag);
        }
    }

    /// A packet lies in the caller's buffer.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        flow: usize,
        socket: &UdpSocket,
        single: &Single,
        at: Instants,
    ) -> Arrival {
        let read = Clock::get().now();
        let kernel = instant_of(&mut self.wall, single.kernel_receive_ns);
        if self.polls && !self.polls_nothing {
            self.polls_nothing = socket.incoming_napi().is_none();
        }
        let woken = awake(kernel, at.listened, at.ran.unwrap_or(read), at.spins);
        let peer = Peer { address: single.source, mac: [0; 6] };
        Arrival { size: single.size, flow, peer, kernel, listened: at.listened, woken, read }
    }

    /// Visits the stamps of the device that are there, by tag.
    pub(super) fn visit(&mut self, sockets: &[UdpSocket], visit: &mut dyn FnMut(u64, Ticks)) {
        let Self { sent, wall, .. } = self;
        sent.iter_mut().zip(sockets).for_each(|(sent, socket)| sent.visit(socket, wall, visit));
    }

    /// Empties the sockets' queues: a stamp that is there would end every wait at once.
    pub(super) fn keep_stamps(&mut self, sockets: &[UdpSocket]) {
        let Self { sent, wall, .. } = self;
        sent.iter_mut().zip(sockets).for_each(|(sent, socket)| sent.keep(socket, wall));
    }

    /// Datagrams that arrived in part, of all in the namespace.
    pub(super) fn incomplete(&self) -> Option<u64> {
        Some(datagrams_incomplete()?.saturating_sub(self.incomplete?))
    }

    /// Datagrams that found no room. The sockets count others among them, such as those with a wrong checksum; the namespace counts
    /// those of other sockets.
    pub(super) fn dropped(&self, sockets: &[UdpSocket]) -> Option<u64> {
        let of_namespace = datagrams_without_room()?.saturating_sub(self.without_room?);
        let of_sockets =
            sockets.iter().map(|socket| socket.dropped().ok().map(u64::from)).sum::<Option<u64>>()?;
        Some(of_sockets.min(of_namespace))
    }

    /// Remark for a user.
    pub(super) fn remark(&self) -> Option<String> {
        self.polls_nothing.then(|| POLLS_NOTHING.to_owned())
    }
}

const POLLS_NOTHING: &str =
    "busy polling polled nothing: the device has no NAPI context (loopback, or veth without GRO)";

/// Sends of one socket that wait for their stamps. Beyond this, stamps are given up.
const UNSTAMPED_MAX: usize = 1024;

/// The sends of one socket, by the kernel's number and the caller's tag.
#[derive(Debug)]
struct Sent {
    count: u32,
    unstamped: VecDeque<(u32, u64)>,
    /// Stamps that were read to empty the queue, before anybody asked for them.
    early: Vec<(u64, Ticks)>,
}

impl Sent {
    fn new() -> Self {
        let (unstamped, early) = (VecDeque::with_capacity(UNSTAMPED_MAX), Vec::with_capacity(UNSTAMPED_MAX));
        Self { count: 0, unstamped, early }
    }

    /// The socket sent once more.
    #[inline]
    fn note(&mut self, tag: u64) {
        if self.unstamped.len() == UNSTAMPED_MAX {
            self.unstamped.pop_front();
        }
        self.unstamped.push_back((self.count, tag));
        self.count = self.count.wrapping_add(1);
    }

    /// Visits the stamps that are there, by tag.
    fn visit(&mut self, socket: &UdpSocket, wall: &mut WallClock, visit: &mut dyn FnMut(u64, Ticks)) {
        self.early.drain(..).for_each(|(tag, at)| visit(tag, at));
        if self.unstamped.is_empty() {
            return;
        }
        let unstamped = &mut self.unstamped;
        // An error of the queue costs stamps, not packets.
        let _stamps_lost = socket.read_transmit_timestamps(&mut |number, ns| {
            while let Some(&(oldest, tag)) = unstamped.front() {
                if number.wrapping_sub(oldest) > u32::MAX / 2 {
                    break;
                }
                unstamped.pop_front();
                if oldest == number {
                    visit(tag, instant_of(wall, Some(ns)));
                    break;
                }
            }
        });
    }

    /// Empties the socket's queue, for a stamp would wake a thread that waits on it; the stamps are kept.
    fn keep(&mut self, socket: &UdpSocket, wall: &mut WallClock) {
        if self.unstamped.is_empty() {
            return;
        }
        let mut early = std::mem::take(&mut self.early);
        self.visit(socket, wall, &mut |tag, at| {
            if early.len() < UNSTAMPED_MAX {
                early.push((tag, at));
            }
        });
        self.early = early;
    }
}
