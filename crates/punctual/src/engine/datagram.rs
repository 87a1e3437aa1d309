//! UDP between hosts: to everybody by multicast, or to each of a list of peers.

mod cut;
mod drops;
mod gate;
mod inlet;
mod merging;
mod rejoining;
mod sockets;

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::slept::Slept;
use punctual_machine::socket::address::RawAddress;
use punctual_machine::socket::{
    DATAGRAM_SIZE_MAX, RECEIVE_BUFFER_SIZE, RecvBatch, SendBatch, UdpOptions, UdpSocket, is_passing,
};
use punctual_proto::NodeId;
use punctual_proto::limits::{CHECK_SIZE, DATAGRAM_PAYLOAD_SIZE_MAX, PREFIX_SIZE_MAX};

use super::wire::{self, MediumReceive, MediumTransmit, Nudge, Own, RawFrame};
use crate::seal::Seals;
use cut::Cut;
use drops::DatagramDrops;
use gate::Gate;
use inlet::{Inlet, Look, Shown};
use merging::Merging;
use rejoining::Rejoining;
use sockets::Sockets;

use super::{Descriptors, Drops, Engine, Flow, Joined, NO_ADVICE, OpenError, SLEEP_MAX};

/// Most datagrams of one call of the kernel.
const BATCH: usize = 32;

/// Polls of the socket that had something last between two looks at the other: a look at an empty socket is a system call (0.36
/// to 0.58 µs where it was measured).
const POLLS_PER_COLD_LOOK: u32 = 8;

/// Way in which a node reaches everybody.
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
    /// Name that all nodes of the bus, on any host, have for it alike; none if there is nothing of the kind.
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
    /// Way in which a node reaches everybody.
    pub reach: Reach,
    /// Size of the kernel's receive buffer, bytes. The kernel caps it at `net.core.rmem_max` for a process without CAP_NET_ADMIN. It
    /// counts its own overhead in, which is less for runs than for datagrams that come alone. `punctual host` says whether it gives
    /// what [`DatagramOptions::new`] asks for.
    pub receive_buffer: usize,
    /// Largest payload, bytes: that this node sends, and that it takes. A frame that is larger than one of these with stamps is refused, and
    /// counted as a bad frame; so all nodes of a bus need one limit. Above some 1,400 the network cuts datagrams, and the loss of one piece loses all.
    pub payload_size_max: usize,
    /// Ask the kernel when it received each datagram. Costs control data with each, and runs of datagrams come one by one.
    pub timestamps: bool,
}

impl DatagramOptions {
    /// A bus with a receive buffer of 1 MiB and the largest payload that UDP carries.
    pub fn new(reach: Reach) -> Self {
        Self {
            reach,
            receive_buffer: RECEIVE_BUFFER_SIZE,
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
        // Frames queued for one flush go in few calls, and through the kernel as one: 2.5 to 3 times as fast.
        segmentation: true,
        ..UdpOptions::default()
    };
    // Out of the kernel a run comes as one too: at the group's socket always, at the node's own one while runs come. A run has one
    // stamp, so sockets with stamps have none.
    let merges = !options.timestamps;
    let Sockets { own, group, everybody, connected } =
        Sockets::open(&options.reach, &socket_options, merges, node).map_err(system)?;
    let echoed = group.is_some().then(Arc::<Counter>::default);
    let own_socket = Arc::new(own);
    let group = group.map(Arc::new);
    let frame_size_max = (options.payload_size_max + PREFIX_SIZE_MAX + CHECK_SIZE).min(DATAGRAM_SIZE_MAX);
    let everybody: Vec<RawAddress> = everybody.into_iter().map(RawAddress::encode).collect();
    let peer = connected.map(RawAddress::encode);
    let transmit = DatagramTransmit {
        socket: Arc::clone(&own_socket),
        batch: SendBatch::new(BATCH.max(everybody.len()), frame_size_max)
            .to_peer(peer)
            .counting(group.as_ref().and_then(|_| everybody.first().copied()), merges),
        everybody,
        connected: connected.is_some(),
        target: None,
        echoed: echoed.clone(),
        rejoining: group.as_ref().and_then(|all| Rejoining::new(&options.reach, &own_socket, all)),
    };
    let nudge = if group.is_none() { OwnNudge::new(&own_socket, &options.reach, connected) } else { None };
    let own_address = nudge.as_ref().map(|nudge| nudge.own);
    let longest_run = Arc::<Counter>::default();
    let inlet = |socket, peer: Option<SocketAddr>| {
        let batch = RecvBatch::new(BATCH, DATAGRAM_SIZE_MAX).from_peer(peer.map(RawAddress::encode));
        let longest_run = Arc::clone(&longest_run);
        Inlet {
            socket,
            batch,
            next: 0,
            cut: Cut::default(),
            frame_size_max,
            peer,
            own: own_address,
            longest_run,
            merging: None,
            look: Look::Wanted,
            gate: None,
        }
    };
    let room = group.as_ref().map(|group| group.receive_buffer().unwrap_or(super::ROOM_UNKNOWN));
    // A kernel that has no runs hands over each datagram by itself.
    let merging = merges.then(|| Merging::of(&own_socket).ok()).flatten();
    let gate = room.map(Gate::new);
    let own = Inlet { merging, gate, ..inlet(own_socket, connected) };
    let group = group.map(|socket| inlet(socket, None));
    let receive = DatagramReceive { own, group, hot: Place::Own, polls: 0, echoed, nudge };
    let own = Own::new(node);
    let incarnation = own.incarnation;
    let engine = wire::open(own, transmit, receive, seals).map_err(system)?;
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

/// The operation that fails for a low port.
const BIND: &str = "bind udp";

fn system(error: SystemError) -> OpenError {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => "another program has the port: take another, or end it",
        ErrorKind::AddrNotAvailable => "no interface of this host has that address: see `ip addr`",
        ErrorKind::PermissionDenied if error.operation == BIND => {
            "ports below 1024 need CAP_NET_BIND_SERVICE"
        }
        _ => NO_ADVICE,
    };
    OpenError::System { error, advice }
}

#[derive(Debug)]
struct DatagramTransmit {
    socket: Arc<UdpSocket>,
    batch: SendBatch,
    /// The group, or every peer.
    everybody: Vec<RawAddress>,
    /// The socket is connected to the one peer.
    connected: bool,
    /// Target of the claimed frame, if it is not for everybody.
    target: Option<RawAddress>,
    /// Frames sent to a group, a run as one where its socket has it so: each comes back and is filtered out.
    echoed: Option<Arc<Counter>>,
    rejoining: Option<Rejoining>,
}

impl DatagramTransmit {
    #[inline]
    fn claim_slots(&mut self, needed: usize, size: usize) -> bool {
        let has_room = |batch: &SendBatch| batch.len() + needed <= batch.capacity();
        if !has_room(&self.batch) {
            self.flush();
        }
        has_room(&self.batch) && self.batch.claim(size).is_some()
    }
}

impl MediumTransmit for DatagramTransmit {
    type Address = RawAddress;

    fn frame_size_max(&self) -> usize {
        self.batch.size_max()
    }

    #[inline]
    fn claim(&mut self, size: usize, to: Option<RawAddress>) -> bool {
        if self.connected {
            // Nobody else is to be reached: it needs no address.
            return self.claim_slots(1, size);
        }
        self.target = to;
        let needed = if to.is_some() { 1 } else { self.everybody.len() };
        self.claim_slots(needed, size)
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
        if let Some((first, others)) = self.everybody.split_first() {
            self.batch.commit(*first);
            others.iter().for_each(|other| self.batch.repeat(*other));
        }
    }

    fn flush(&mut self) -> bool {
        if let Some(echoed) = &self.echoed {
            // Before it is sent: a thread that reads that the kernel dropped it knows why. Afterwards it shows how much of it went as
            // one.
            echoed.publish(self.batch.counted() + self.batch.len() as u64);
        }
        // Frames without room stay in the batch for the next flush. It counts those that are refused for good.
        let sent = self.socket.send_all(&mut self.batch);
        if let Some(echoed) = &self.echoed {
            echoed.publish(self.batch.counted());
        }
        let Err(error) = sent else { return false };
        if let Some(rejoining) = &mut self.rejoining {
            rejoining.handle_error(&error);
        }
        is_passing(&error)
    }

    fn refused(&self) -> u64 {
        self.batch.refused()
    }

    fn copies(&self) -> usize {
        self.everybody.len()
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

/// One of a node's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Own,
    Group,
}

#[derive(Debug)]
struct DatagramReceive {
    own: Inlet,
    group: Option<Inlet>,
    /// The socket that had something last.
    hot: Place,
    polls: u32,
    echoed: Option<Arc<Counter>>,
    nudge: Option<OwnNudge>,
}

impl DatagramReceive {
    fn inlets(&self) -> impl Iterator<Item = &Inlet> {
        [&self.own].into_iter().chain(&self.group)
    }

    /// The gate of the own socket, while somebody waits at it.
    #[inline]
    fn shut_gate(&mut self) -> Option<&mut Gate> {
        self.own.gate.as_mut().filter(|gate| gate.is_shut())
    }

    /// The sockets to read now, in order: first the one that had something last.
    #[inline]
    fn turns(&mut self) -> [Option<Place>; 2] {
        let Some(group) = &self.group else { return [Some(Place::Own), None] };
        let [own, group] = [(Place::Own, &self.own), (Place::Group, group)];
        let [(hot, hot_inlet), (cold, cold_inlet)] = match self.hot {
            Place::Own => [own, group],
            Place::Group => [group, own],
        };
        // A look that finds nothing is one at both.
        let both = cold_inlet.look != Look::Ended || cold_inlet.has_rest();
        // Datagrams taken from the kernel already need no call of it.
        let calls = !hot_inlet.has_rest();
        self.polls = self.polls.wrapping_add(u32::from(calls));
        // A socket that always has something must not keep us from the other for good.
        if calls && self.polls.is_multiple_of(POLLS_PER_COLD_LOOK) {
            [Some(cold), Some(hot)]
        } else {
            [Some(hot), both.then_some(cold)]
        }
    }

    /// Shows what some sockets have, one after the other. Theirs is the only call of [`Inlet::poll`]: with several the compiler makes
    /// functions of what is called for each frame.
    #[inline]
    fn poll_in_turn(
        &mut self,
        places: [Option<Place>; 2],
        limit: usize,
        visit: &mut impl FnMut(RawFrame<'_, RawAddress>) -> Flow,
    ) -> Shown {
        let mut all = Shown::default();
        for place in places.into_iter().flatten() {
            let inlet = match (place, &mut self.group) {
                (Place::Group, Some(group)) => group,
                _ => &mut self.own,
            };
            let (shown, flow) = inlet.poll(limit - all.frames, visit);
            if shown.frames > 0 {
                self.hot = place;
            }
            all.frames += shown.frames;
            all.bytes += shown.bytes;
            if flow != Flow::Continue || all.frames >= limit {
                break;
            }
        }
        all
    }
}

impl MediumReceive for DatagramReceive {
    type Address = RawAddress;

    #[inline]
    fn poll(&mut self, limit: usize, visit: &mut impl FnMut(RawFrame<'_, RawAddress>) -> Flow) -> usize {
        loop {
            // Frames of the group are shown first, for as long as somebody waits for that.
            let (waits, hot) = (self.shut_gate().is_some(), self.hot);
            let places = if waits { [Some(Place::Group), None] } else { self.turns() };
            let shown = self.poll_in_turn(places, limit, visit);
            if waits {
                // Behind that the newcomer is next, whose socket had something last.
                self.hot = hot;
            }
            if let Some(gate) = self.shut_gate().filter(|_| waits) {
                if shown.frames == 0 { gate.open() } else { gate.handle_read(shown.frames, shown.bytes) }
            }
            if shown.frames > 0 || !waits && self.shut_gate().is_none() {
                return shown.frames;
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.inlets().any(Inlet::has_rest)
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        let sockets = self.inlets().map(|inlet| Arc::clone(&inlet.socket));
        let longest_run = Arc::clone(&self.own.longest_run);
        Some(Box::new(DatagramDrops::new(sockets, self.echoed.clone(), longest_run)))
    }

    fn room(&self) -> usize {
        // The kernel counts twice what was asked for, and a frame with all that it takes.
        self.own.socket.receive_buffer().map_or(super::ROOM_UNKNOWN, |size| size / 2)
    }

    fn nudge(&mut self) -> Option<Box<dyn Nudge>> {
        Some(Box::new(self.nudge.take()?))
    }

    fn prepare_sleep(&mut self) {
        // A nudge comes by the same socket, and lets others be heard for an instant, also if the receiver does not sleep after all.
        self.own.batch.ask_sources();
    }

    fn sleep(&mut self) -> Slept {
        self.own.sleep()
    }

    fn look_everywhere(&mut self) {
        self.own.look = Look::Wanted;
        if let Some(group) = &mut self.group {
            group.look = Look::Wanted;
        }
    }

    fn has_seen_all(&self) -> bool {
        self.inlets().all(|inlet| inlet.look == Look::Ended && !inlet.has_rest())
    }

    fn handle_woken(&mut self) {
        self.look_everywhere();
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [Some(self.own.socket.as_fd()), self.group.as_ref().map(|group| group.socket.as_fd())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Event, ring};
    use punctual_machine::doorbell::Notification;

    /// A node with one peer, which is a bare socket that sends runs as one.
    fn with_peer(timestamps: bool) -> (Engine, UdpSocket) {
        let options = UdpOptions { segmentation: true, ..UdpOptions::default() };
        let peer = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let peers = vec![peer.local_address().unwrap()];
        // The kernel gives nobody a port below 32768 who asks for any.
        let try_open = |_| {
            let local = SocketAddr::from((
                [127, 0, 0, 1],
                (10_000 + punctual_machine::process::random() % 22_768) as u16,
            ));
            let reach = Reach::Peers { local, peers: peers.clone() };
            let options = DatagramOptions { timestamps, ..DatagramOptions::new(reach) };
            let (engine, _) = open(&options, NodeId::named("sleeper"), None).ok()?;
            Some((engine, local))
        };
        let (engine, local) = (0..100).find_map(try_open).unwrap();
        peer.connect(local).unwrap();
        (engine, peer)
    }

    /// The longest run that came as one, after so many more runs of so many frames each.
    fn longest_after(engine: &mut Engine, peer: &UdpSocket, asleep: bool, runs: usize, frames: usize) -> u64 {
        let frame = wire::tests::frame(&[7; 40]);
        let mut batch = SendBatch::new(BATCH, frame.len());
        let receive = &mut engine.receive;
        for _ in 0..runs {
            for _ in 0..frames {
                batch.claim(frame.len()).unwrap().copy_from_slice(&frame);
                batch.commit_connected();
            }
            peer.send_all(&mut batch).unwrap();
            let mut seen = 0;
            while seen < frames {
                if asleep && !receive.is_ready() && receive.prepare_sleep(true) {
                    receive.sleep();
                }
                seen += receive.poll(BATCH, &mut |event: Event<'_>| match event {
                    Event::Frame(arrival) if arrival.payload == [7; 40] => Flow::Continue,
                    other => panic!("{other:?}"),
                });
            }
            assert_eq!((seen, asleep || receive.poll(BATCH, &mut |_| Flow::Continue) == 0), (frames, true));
        }
        receive.drops().unwrap().frames_max()
    }

    /// Goal: runs come as one soon after they begin, to who spins and to who sleeps. They do no longer once datagrams come alone.
    #[test]
    fn runs_come_as_one_while_there_are_runs() {
        let (mut engine, peer) = with_peer(false);
        if let Err(error) = peer.set_merged(false) {
            return punctual_machine::skipped!("this kernel merges nothing (UDP_GRO): {error}");
        }
        let mut longest = |asleep, runs, frames| longest_after(&mut engine, &peer, asleep, runs, frames);
        assert_eq!(longest(false, 1, 3), 1);
        assert!((0..100).any(|_| longest(false, 1, 16) == 16));
        for frames in [20, 22] {
            longest(false, 200, 1);
            assert_eq!(longest(false, 1, frames), frames as u64, "not so many came alone");
        }
        longest(false, 300, 1);
        assert_eq!(longest(true, 1, 24), 22, "these came alone");
        assert!((0..100).any(|_| longest(true, 1, 28) == 28));
    }

    /// Goal: where datagrams have stamps, each has its own.
    #[test]
    fn datagrams_with_stamps_come_one_by_one() {
        let stamping = UdpOptions { timestamps: true, ..UdpOptions::default() };
        if let Err(error) = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &stamping) {
            return punctual_machine::skipped!("no stamps by the kernel here: {error}");
        }
        let (mut engine, peer) = with_peer(true);
        assert_eq!(longest_after(&mut engine, &peer, false, 20, 16), 1);
    }

    /// Goal: a nudge to a receiver that does not fall asleep after all is no bad frame, the first time either.
    #[test]
    fn a_nudge_before_the_first_sleep_is_no_bad_frame() {
        let (mut engine, _peer) = with_peer(false);
        let bell = engine.receive.bell();
        assert!(engine.receive.prepare_sleep(true));
        assert!(bell.doorbell().arm(Notification::Descriptor, || false));
        ring(&*bell);
        bell.doorbell().disarm();
        let seen = engine.receive.poll(BATCH, &mut |event: Event<'_>| panic!("{event:?}"));
        assert_eq!(seen, 1, "the nudge");
    }
}
