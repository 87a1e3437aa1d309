//! UDP between hosts: to everybody by multicast, or to each of a list of peers.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::process::random;
use punctual_machine::socket::{
    DATAGRAM_SIZE_MAX, MulticastInterface, RecvBatch, SendBatch, UdpOptions, UdpSocket,
};
use punctual_machine::wake::Slept;
use punctual_proto::NodeId;
use punctual_proto::limits::{CHECK_SIZE, DATAGRAM_PAYLOAD_SIZE_MAX, PREFIX_SIZE_MAX};

use super::shared::{Joined, OpenError};
use super::wire::{self, MediumReceive, MediumTransmit, Nudge, Own, RawFrame};
use crate::seal::Seals;

use super::{Descriptors, Drops, Engine, Flow, SLEEP_MAX};

/// Most datagrams of one call of the kernel.
const BATCH: usize = 32;

/// Polls of the socket that had something last between two looks at the other: a look at an empty socket is a system call (0.36
/// to 0.58 µs where it was measured).
const POLLS_PER_COLD_LOOK: u32 = 8;

/// How a node reaches everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By a multicast group. Several nodes of one host may share it.
    Multicast {
        /// The group's address and port.
        group: SocketAddr,
        /// The address of the interface to use.
        interface: Ipv4Addr,
    },
    /// By one datagram to each peer. With a single peer the socket is connected to it: the kernel then looks up no route for
    /// each datagram, and refuses what comes from anywhere else.
    Peers {
        /// Our own address and port.
        local: SocketAddr,
        /// Everybody else's.
        peers: Vec<SocketAddr>,
    },
}

impl Reach {
    /// What all nodes of the bus say of it alike, whichever host they are on; none if there is nothing of the kind.
    pub(crate) fn common_name(&self) -> Option<String> {
        match self {
            Self::Multicast { group, .. } => Some(format!("group {}", plain(group))),
            Self::Peers { local, .. } if local.ip().is_unspecified() || local.port() == 0 => None,
            Self::Peers { local, peers } => {
                let all: BTreeSet<String> = peers.iter().chain([local]).map(plain).collect();
                Some(all.iter().fold("peers".to_owned(), |text, address| text + " " + address))
            }
        }
    }
}

/// An address without what only this host calls it.
fn plain(address: &SocketAddr) -> String {
    SocketAddr::new(address.ip(), address.port()).to_string()
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Multicast { group, .. } => write!(f, "{group}"),
            Self::Peers { local, .. } => write!(f, "{local}"),
        }
    }
}

/// A bus over UDP.
#[derive(Clone, Debug)]
pub struct DatagramOptions {
    /// How a node reaches everybody.
    pub reach: Reach,
    /// Size of the kernel's receive buffer, bytes; the kernel caps it at `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// Largest payload, bytes. Above some 1,400 the network cuts datagrams, and the loss of one piece loses all.
    pub payload_size_max: usize,
    /// Ask the kernel when it received each datagram. Costs control data with each.
    pub timestamps: bool,
}

impl DatagramOptions {
    /// A bus with a receive buffer of 1 MiB and the largest payload that UDP carries.
    pub fn new(reach: Reach) -> Self {
        Self {
            reach,
            receive_buffer: 1 << 20,
            payload_size_max: DATAGRAM_PAYLOAD_SIZE_MAX,
            timestamps: false,
        }
    }
}

/// Opens a node on a bus over UDP.
pub(crate) fn open(
    options: &DatagramOptions,
    node: NodeId,
    seals: Option<&Seals>,
) -> Result<(Engine, Joined), OpenError> {
    check(options)?;
    let socket_options = UdpOptions {
        receive_buffer: Some(options.receive_buffer),
        timestamps: options.timestamps,
        // What is queued for one flush goes as few calls, and through the kernel as one: 2.5 to 3 times as fast.
        segmentation: true,
        ..UdpOptions::default()
    };
    let Sockets { own, group, everybody, connected } =
        sockets(&options.reach, &socket_options, node).map_err(system)?;
    let echoed = group.is_some().then(Arc::<Counter>::default);
    let own_socket = Arc::new(own);
    let frame_size_max = (options.payload_size_max + PREFIX_SIZE_MAX + CHECK_SIZE).min(DATAGRAM_SIZE_MAX);
    let transmit = DatagramTransmit {
        socket: Arc::clone(&own_socket),
        batch: SendBatch::new(BATCH.max(everybody.len()), frame_size_max).to_peer(connected),
        everybody,
        connected: connected.is_some(),
        target: None,
        echoed: echoed.clone(),
    };
    let nudge = if group.is_none() { OwnNudge::new(&own_socket, &options.reach, connected) } else { None };
    let own_address = nudge.as_ref().map(|nudge| nudge.own);
    let inlet = |socket, peer: Option<SocketAddr>| {
        let batch = RecvBatch::new(BATCH, frame_size_max).from_peer(peer);
        Inlet { socket, batch, next: 0, peer, own: own_address }
    };
    let own = inlet(own_socket, connected);
    let group = group.map(|socket| inlet(Arc::new(socket), None));
    let receive =
        DatagramReceive { inlets: [Some(own), group], hot: 0, polls: 0, everywhere: false, echoed, nudge };
    let incarnation = random() as u16;
    let engine = wire::open(Own { node, incarnation }, transmit, receive, seals).map_err(system)?;
    Ok((engine, Joined { incarnation }))
}

fn check(options: &DatagramOptions) -> Result<(), OpenError> {
    let invalid = |text: String| Err(OpenError::Invalid(text));
    match &options.reach {
        Reach::Multicast { group, .. } if !group.ip().is_multicast() || !group.is_ipv4() => {
            invalid(format!("{group}: an IPv4 multicast address (224.0.0.0 to 239.255.255.255) is needed"))
        }
        Reach::Multicast { group, .. } if group.port() == 0 => invalid(format!("{group}: a port is needed")),
        Reach::Peers { local, peers } if peers.iter().any(|peer| peer.is_ipv4() != local.is_ipv4()) => {
            invalid(format!("{local}: all peers must be of the same address family"))
        }
        _ if options.payload_size_max > DATAGRAM_PAYLOAD_SIZE_MAX => invalid(format!(
            "payload of {} bytes: a datagram carries at most {DATAGRAM_PAYLOAD_SIZE_MAX}",
            options.payload_size_max
        )),
        _ => Ok(()),
    }
}

struct Sockets {
    own: UdpSocket,
    group: Option<UdpSocket>,
    everybody: Vec<SocketAddr>,
    /// The one peer, to which the own socket is connected.
    connected: Option<SocketAddr>,
}

fn sockets(reach: &Reach, options: &UdpOptions, node: NodeId) -> Result<Sockets, SystemError> {
    match reach {
        Reach::Peers { local, peers } => {
            let socket = UdpSocket::bind(*local, options)?;
            let others: Vec<SocketAddr> = peers.iter().filter(|peer| *peer != local).copied().collect();
            let connected = if let [peer] = others[..] { Some(peer) } else { None };
            // An addressed datagram cost 0.44 µs more than a connected one, of 3.8 there and back on loopback.
            connected.map_or(Ok(()), |peer| socket.connect(peer))?;
            Ok(Sockets { own: socket, group: None, everybody: others, connected })
        }
        Reach::Multicast { group, interface } => {
            let own = UdpSocket::bind(SocketAddr::new(IpAddr::V4(*interface), 0), options)?;
            own.set_multicast_interface(MulticastInterface::Address(*interface))?;
            // Others on this host must hear us, so the kernel brings back what we send; the filter keeps it out of our buffer.
            let unwanted = Some(wire::unwanted(node));
            let shared = UdpOptions { reuse_address: true, unwanted, ..options.clone() };
            let all = UdpSocket::bind(*group, &shared)?;
            all.join_multicast(group.ip(), MulticastInterface::Address(*interface))?;
            Ok(Sockets { own, group: Some(all), everybody: vec![*group], connected: None })
        }
    }
}

fn system(error: SystemError) -> OpenError {
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program has the port: take another, or end it",
        std::io::ErrorKind::AddrNotAvailable => "no interface of this host has that address: see `ip addr`",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "see the text before",
    };
    OpenError::System { error, advice }
}

#[derive(Debug)]
struct DatagramTransmit {
    socket: Arc<UdpSocket>,
    batch: SendBatch,
    /// The group, or every peer.
    everybody: Vec<SocketAddr>,
    /// The socket is connected to the one peer.
    connected: bool,
    /// Whom the claimed frame is for, if not everybody.
    target: Option<SocketAddr>,
    /// Datagrams sent to a group, of which each comes back and is filtered out.
    echoed: Option<Arc<Counter>>,
}

impl MediumTransmit for DatagramTransmit {
    type Address = SocketAddr;

    fn frame_size_max(&self) -> usize {
        self.batch.size_max()
    }

    fn claim(&mut self, size: usize, to: Option<SocketAddr>) -> bool {
        self.target = to;
        let needed = if to.is_some() { 1 } else { self.everybody.len() };
        let has_room = |batch: &SendBatch| batch.len() + needed <= batch.capacity();
        if !has_room(&self.batch) {
            self.flush();
        }
        has_room(&self.batch) && self.batch.claim(size).is_some()
    }

    fn claimed(&mut self) -> &mut [u8] {
        self.batch.claimed_mut().unwrap_or_default()
    }

    fn commit(&mut self) {
        if self.connected {
            return self.batch.commit_connected();
        }
        if let Some(to) = self.target {
            return self.batch.commit(to);
        }
        if let Some(echoed) = &self.echoed {
            // Before it is sent: who reads that the kernel dropped it knows why.
            echoed.publish(echoed.get() + 1);
        }
        if let Some((first, others)) = self.everybody.split_first() {
            self.batch.commit(*first);
            others.iter().for_each(|other| self.batch.repeat(*other));
        }
    }

    fn flush(&mut self) {
        // What is refused for a while stays in the batch and goes with the next flush; what is refused for good the
        // batch counts. A refusal that belongs to an earlier datagram (its port was closed) must not hold up the rest.
        let mut tries = self.batch.len() + 1;
        while !self.batch.is_empty() && tries > 0 {
            match self.socket.send_batch(&mut self.batch) {
                Err(error) if is_no_room(&error) => break,
                _ => tries -= 1,
            }
        }
    }

    fn refused(&self) -> u64 {
        self.batch.refused()
    }
}

fn is_no_room(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock || matches!(error.raw_os_error(), Some(12 | 105))
}

/// One socket and what was taken from it.
#[derive(Debug)]
struct Inlet {
    socket: Arc<UdpSocket>,
    batch: RecvBatch,
    /// The first datagram of the batch that was not shown yet.
    next: usize,
    /// The only one to be heard, also while the socket is not connected to it.
    peer: Option<SocketAddr>,
    /// Where nudges come from.
    own: Option<SocketAddr>,
}

/// Whether two are one; the kernel adds what only this host calls it.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip() == other.ip()
}

impl Inlet {
    fn has_rest(&self) -> bool {
        self.next < self.batch.len()
    }

    fn poll(
        &mut self,
        limit: usize,
        visit: &mut impl FnMut(RawFrame<'_, SocketAddr>) -> Flow,
    ) -> (usize, Flow) {
        if !self.has_rest() {
            self.next = 0;
            // An error belongs to an earlier datagram of ours (its port was closed): there is nothing to show for it.
            if self.socket.recv_batch(&mut self.batch, limit).unwrap_or(0) == 0 {
                return (0, Flow::Continue);
            }
        }
        let (mut shown, mut flow) = (0, Flow::Continue);
        while shown < limit && flow == Flow::Continue {
            let Some(datagram) = self.batch.get(self.next) else { break };
            self.next += 1;
            shown += 1;
            let is_stranger = self.peer.is_some_and(|peer| !is_same(peer, datagram.source));
            let is_nudge =
                datagram.bytes.is_empty() && self.own.is_some_and(|own| is_same(own, datagram.source));
            if is_stranger || is_nudge {
                continue;
            }
            flow = visit(RawFrame {
                bytes: datagram.bytes,
                source: datagram.source,
                truncated: datagram.truncated,
                kernel_ns: datagram.kernel_receive_ns,
            });
        }
        (shown, flow)
    }

    /// Sleeps in the call that receives.
    fn sleep(&mut self) -> Slept {
        debug_assert!(!self.has_rest(), "it was asked before");
        self.next = 0;
        // Whoever wakes us lets others be heard for an instant.
        self.batch.ask_sources();
        let received = self.socket.recv_batch_asleep(&mut self.batch);
        if matches!(received, Ok(0)) { Slept::ToTheLimit } else { Slept::Less }
    }
}

/// Wakes who sleeps in the receive of a node's own socket.
#[derive(Debug)]
struct OwnNudge {
    socket: Arc<UdpSocket>,
    own: SocketAddr,
    peer: Option<SocketAddr>,
    one_at_a_time: Mutex<()>,
}

impl OwnNudge {
    /// None if nobody may sleep there.
    fn new(socket: &Arc<UdpSocket>, reach: &Reach, peer: Option<SocketAddr>) -> Option<Self> {
        // A port that the kernel chose is lost with the connection.
        let keeps_port = matches!(reach, Reach::Peers { local, .. } if local.port() != 0);
        if peer.is_some() && !keeps_port {
            return None;
        }
        socket.set_receive_timeout(Some(SLEEP_MAX)).ok()?;
        socket.set_blocking(true).ok()?;
        let mut own = socket.local_address().ok()?;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        Some(Self { socket: Arc::clone(socket), own, peer, one_at_a_time: Mutex::default() })
    }
}

impl Nudge for OwnNudge {
    fn nudge(&self) {
        let _alone = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        // A buffer without room for it has something to wake for.
        let _sent = self.socket.nudge(self.own, self.peer);
    }
}

#[derive(Debug)]
struct DatagramReceive {
    /// The node's own, and the group's.
    inlets: [Option<Inlet>; 2],
    /// Which of them had something last.
    hot: usize,
    polls: u32,
    /// The next poll looks at both.
    everywhere: bool,
    echoed: Option<Arc<Counter>>,
    nudge: Option<OwnNudge>,
}

/// What the kernel dropped at a node's sockets.
#[derive(Debug)]
struct DatagramDrops {
    /// Each socket, and its count when it was last asked.
    sockets: Vec<(Arc<UdpSocket>, u32)>,
    /// Datagrams of our own that came back: the kernel filters them out, and counts them as dropped.
    echoed: Option<Arc<Counter>>,
    /// Of these, how many we have found among the dropped.
    echoes_seen: u64,
}

impl Drops for DatagramDrops {
    fn take(&mut self) -> u64 {
        let mut dropped = 0;
        for (socket, seen) in &mut self.sockets {
            let count = socket.dropped().unwrap_or(*seen);
            dropped += u64::from(count.wrapping_sub(std::mem::replace(seen, count)));
        }
        let echoed = self.echoed.as_ref().map_or(0, |echoed| echoed.get_published());
        let echoes = echoed.saturating_sub(self.echoes_seen).min(dropped);
        self.echoes_seen += echoes;
        dropped - echoes
    }
}

impl MediumReceive for DatagramReceive {
    type Address = SocketAddr;

    fn poll(&mut self, limit: usize, visit: &mut impl FnMut(RawFrame<'_, SocketAddr>) -> Flow) -> usize {
        self.polls = self.polls.wrapping_add(1);
        let hot = self.hot;
        let cold = self.inlets[1 - hot].as_ref();
        let both = std::mem::take(&mut self.everywhere) || cold.is_some_and(Inlet::has_rest);
        let turns = cold.is_some() && self.polls.is_multiple_of(POLLS_PER_COLD_LOOK);
        // A socket that always has something must not keep us from the other for good.
        let order = if turns { [1 - hot, hot] } else { [hot, 1 - hot] };
        let mut shown = 0;
        for index in order {
            let Some(inlet) = &mut self.inlets[index] else { break };
            let (more, flow) = inlet.poll(limit - shown, visit);
            shown += more;
            if more > 0 {
                self.hot = index;
            }
            if flow == Flow::Stop || shown == limit || !(both || turns) {
                break;
            }
        }
        shown
    }

    fn is_ready(&self) -> bool {
        self.inlets.iter().flatten().any(Inlet::has_rest)
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        let sockets = self.inlets.iter().flatten().map(|inlet| (Arc::clone(&inlet.socket), 0)).collect();
        Some(Box::new(DatagramDrops { sockets, echoed: self.echoed.clone(), echoes_seen: 0 }))
    }

    fn nudge(&mut self) -> Option<Box<dyn Nudge>> {
        Some(Box::new(self.nudge.take()?))
    }

    fn sleep(&mut self) -> Slept {
        self.inlets[0].as_mut().map_or(Slept::Less, Inlet::sleep)
    }

    fn look_everywhere(&mut self) {
        self.everywhere = true;
    }

    fn handle_woken(&mut self) {
        self.look_everywhere();
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.inlets.each_ref().map(|inlet| inlet.as_ref().map(|inlet| inlet.socket.as_fd()))
    }
}
