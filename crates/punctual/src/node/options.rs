//! The user's choice of bus, node and communicator. One `match` turns it into an engine.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_proto::NodeId;
use punctual_proto::limits::MESSAGE_SIZE_MAX;

use super::Node;
use crate::engine::adapter::{self, Adapter};
use crate::engine::datagram::{self, DatagramOptions, Reach};
use crate::engine::faulty::{self, Faults};
use crate::engine::packet::{self, PacketBusOptions};
use crate::engine::tap::{self, Capture};
use crate::engine::{Engine, Joined, check_name};
use crate::late::LateLog;
use crate::memory::stream::Layers;
use crate::memory::{self, Entered, SharedOptions, Sharing};
use crate::seal::{Keys, Seals};
use crate::wake::Wake;

pub use crate::engine::OpenError;

/// A medium that reaches everybody.
#[derive(Clone, Debug)]
pub enum Bus {
    /// Nodes inside this process. Slow readers hold writers back there, regardless of [`SharedOptions::when_full`].
    Loopback(SharedOptions),
    /// Processes of this host, over shared memory.
    Shared(SharedOptions),
    /// Hosts, over UDP.
    Datagram(DatagramOptions),
    /// Hosts on one Ethernet segment, over raw frames. Needs `CAP_NET_RAW`; one node per interface.
    Packet(PacketBusOptions),
    /// Nodes that somebody else's medium reaches.
    Adapted(Arc<dyn Adapter>),
    /// Any of them, with a seal on every frame.
    Sealed {
        /// The medium.
        bus: Box<Bus>,
        /// Keys whose holders may speak.
        keys: Keys,
        /// Name of the bus under the seal, if it is not the one that the medium tells.
        name: Option<String>,
    },
}

impl Bus {
    /// The in-process bus of that name.
    pub fn loopback(name: &str) -> Self {
        Self::Loopback(SharedOptions::new(name))
    }

    /// The bus of that name over shared memory.
    pub fn shared(name: &str) -> Self {
        Self::Shared(SharedOptions::new(name))
    }

    /// The same for all users in a group: a user that opens it must be in that group. For what members can do to each other, see
    /// `docs/shared-memory.md`, *Limits*.
    pub fn shared_with_group(name: &str, group: u32) -> Self {
        Self::Shared(SharedOptions { sharing: Sharing::Group(group), ..SharedOptions::new(name) })
    }

    /// UDP among hosts that share a multicast group; `interface` is the address of the interface to use.
    pub fn multicast(group: SocketAddr, interface: std::net::Ipv4Addr) -> Self {
        Self::Datagram(DatagramOptions::new(Reach::Multicast { group, interface }))
    }

    /// UDP among hosts that know each other's addresses. If the bus is sealed, all must list the same addresses, their own
    /// included, or give it a name ([`Self::sealed_as`]).
    pub fn peers(local: SocketAddr, peers: &[SocketAddr]) -> Self {
        Self::Datagram(DatagramOptions::new(Reach::Peers { local, peers: peers.to_vec() }))
    }

    /// Raw Ethernet on an interface.
    pub fn ethernet(interface: &str) -> Self {
        Self::Packet(PacketBusOptions::new(interface))
    }

    /// A medium that somebody else made, such as Zenoh's routers.
    pub fn adapted(adapter: impl Adapter) -> Self {
        Self::Adapted(Arc::new(adapter))
    }

    /// The same bus, on which only frames count that a holder of one of these keys has sealed. Every node of it must be
    /// opened so: others are refused, and counted.
    #[must_use]
    pub fn sealed(self, keys: &Keys) -> Self {
        Self::Sealed { bus: self.bare(), keys: keys.clone(), name: None }
    }

    /// The same for a bus that its hosts know by different addresses, or that shares what the medium tells with another:
    /// everybody on it gives it this name instead (letters, digits, `-` and `_`, at most 32).
    #[must_use]
    pub fn sealed_as(self, keys: &Keys, name: &str) -> Self {
        Self::Sealed { bus: self.bare(), keys: keys.clone(), name: Some(name.to_owned()) }
    }

    fn bare(self) -> Box<Self> {
        match self {
            Self::Sealed { bus, .. } => bus,
            bare => Box::new(bare),
        }
    }

    /// The seals that this bus needs, if any, and the medium itself.
    fn unseal(&self) -> Result<(&Self, Option<Seals>), OpenError> {
        let Self::Sealed { bus, keys, name } = self else { return Ok((self, None)) };
        let learns_from_frames = matches!(**bus, Self::Datagram(_) | Self::Packet(_) | Self::Adapted(_));
        let bound = bus.identity(name.as_deref())?;
        Ok((bus, Some(Seals::new(keys, &bound, learns_from_frames))))
    }

    /// Identity to which every seal of this bus is bound: the kind of medium, and the name that all nodes on it have for it alike. See
    /// `docs/sealing.md`, *What is bound*.
    fn identity(&self, name: Option<&str>) -> Result<String, OpenError> {
        let adapted;
        let (medium, own) = match self {
            Self::Loopback(options) => ("loopback", Some(options.name.clone())),
            Self::Shared(options) => ("shared", Some(options.folder_name())),
            Self::Datagram(options) => ("udp", options.reach.common_name()),
            Self::Packet(options) => ("ethernet", Some(format!("{:04x}", options.ethertype))),
            Self::Adapted(adapter) => {
                adapted = format!("adapted {}", adapter.kind());
                (&*adapted, Some(adapter.name().to_owned()))
            }
            Self::Sealed { bus, .. } => return bus.identity(name),
        };
        if let Some(name) = name {
            check_name("bus", name)?;
            return Ok(format!("{medium} named {name}"));
        }
        let own = own.ok_or_else(|| {
            OpenError::Invalid(format!(
                "{self}: others know this node by an address that it does not know, so they cannot tell alike which bus a \
                 seal is for: give the bus a name (Bus::sealed_as)"
            ))
        })?;
        Ok(format!("{medium} {own}"))
    }
}

impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(options) => write!(f, "loopback:{}", options.name),
            Self::Shared(options) => write!(f, "shared:{}", options.name),
            Self::Datagram(options) => write!(f, "udp:{}", options.reach),
            Self::Packet(options) => write!(f, "ethernet:{}", options.interface),
            Self::Adapted(adapter) => write!(f, "{}:{}", adapter.kind(), adapter.name()),
            Self::Sealed { bus, .. } => write!(f, "{bus}"),
        }
    }
}

/// A node to be opened.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub(super) name: String,
    pub(super) id: Option<NodeId>,
    pub(super) message_size_max: Option<usize>,
    faults: Option<Faults>,
    capture: Option<PathBuf>,
}

impl NodeOptions {
    /// A node of that name: letters, digits, `-` and `_`, at most 32. Its id follows from the name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), id: None, message_size_max: None, faults: None, capture: None }
    }

    /// Another id than the name's.
    #[must_use]
    pub fn id(mut self, id: NodeId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sends messages of up to so many bytes, 64 MiB at the most, and takes them from others. A message that is larger than a frame is
    /// cut into fragments, each a frame of its own. It is delivered whole, or counted as lost ([`crate::Ledger::large_lost`]). Those
    /// who are to hear such messages ask for it too; to others their fragments are refused, and counted.
    ///
    /// Messages in the making take memory for four of the largest at most, for all communicators of the node together. See
    /// `docs/large.md`.
    ///
    /// ```
    /// use punctual::{Bus, NodeOptions, Target};
    ///
    /// let bus = Bus::loopback("large");
    /// let [here, there] = ["here", "there"].map(|name| NodeOptions::new(name).message_size_max(64 << 20).open(&bus));
    /// let (mut sends, mut receives) = (here?.bind(1)?, there?.bind(7)?);
    /// let receiver = std::thread::spawn(move || receives.receive().map(|message| message.payload.len()));
    /// sends.send(Target::port("there", 7), &vec![1; 3_000_000])?;
    /// assert_eq!(receiver.join().unwrap(), Ok(3_000_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn message_size_max(mut self, size: usize) -> Self {
        self.message_size_max = Some(size);
        self
    }

    /// Loses, corrupts, doubles, moves and delays what arrives, on purpose.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Writes every frame that is sent or arrives into a file that Wireshark opens (pcapng), in place of what is there. Two nodes
    /// cannot write to one file; a child that was forked while it is open holds it. A disk that is full ends the capture, not the
    /// traffic, and nobody is told. A limit of file sizes (`ulimit -f`) or a pipe that is closed ends the process, unless it ignores
    /// `SIGXFSZ` and `SIGPIPE`.
    #[must_use]
    pub fn capture(mut self, path: impl Into<PathBuf>) -> Self {
        self.capture = Some(path.into());
        self
    }

    /// Joins the bus.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open(&self, bus: &Bus) -> Result<Node, OpenError> {
        Node::assemble(bus, self)
    }

    /// The engine of a kernel's medium alone, with the layers asked for, and no node around it. The caller writes headers, sorts frames
    /// to ports and counts. It joins the bus as a node of this name and id would. For measuring what a node adds: seals are among that,
    /// and a sealed bus hears nothing of what is sent so.
    ///
    /// # Errors
    /// As [`Node::open`]; and that memory has none, where a publication and a subscription are all that there is.
    pub fn open_engine(&self, bus: &Bus) -> Result<(Engine, Joined), OpenError> {
        let id = self.id.unwrap_or_else(|| NodeId::named(&self.name));
        match open_medium(bus, self, id)?.0 {
            Opened::Engine(engine, joined) => Ok((engine, joined)),
            Opened::Memory(..) => {
                let text =
                    format!("{bus} has no engine: a publication and a subscription are all that there is");
                Err(OpenError::Invalid(text))
            }
        }
    }
}

/// A medium that is open.
#[derive(Debug)]
pub(super) enum Opened {
    /// A kernel's, with its layers around it.
    Engine(Engine, Joined),
    /// Memory, and the layers that are to be.
    Memory(Box<Entered>, Layers),
}

/// The medium of a bus, with the layers that were asked for.
pub(super) fn open_medium(
    bus: &Bus,
    options: &NodeOptions,
    node: NodeId,
) -> Result<(Opened, Option<Seals>), OpenError> {
    check_name("node", &options.name)?;
    if let Some(size) = options.message_size_max.filter(|&size| size > MESSAGE_SIZE_MAX) {
        return Err(OpenError::Invalid(format!(
            "messages of {size} bytes: they have at most {MESSAGE_SIZE_MAX}"
        )));
    }
    let name = &options.name;
    let (bus, seals) = bus.unseal()?;
    let opened = match bus {
        Bus::Loopback(bus) => {
            Opened::Memory(Box::new(memory::open_in_process(bus, node, name)?), options.layers()?)
        }
        Bus::Shared(bus) => Opened::Memory(Box::new(memory::open(bus, node, name)?), options.layers()?),
        Bus::Datagram(bus) => options.wrapped(datagram::open(bus, node, seals.as_ref())?)?,
        Bus::Packet(bus) => options.wrapped(packet::open(bus, node, seals.as_ref())?)?,
        Bus::Adapted(bus) => options.wrapped(adapter::open(&**bus, node, seals.as_ref())?)?,
        Bus::Sealed { .. } => unreachable!("a sealed bus has a medium inside"),
    };
    Ok((opened, seals))
}

impl NodeOptions {
    fn layers(&self) -> Result<Layers, OpenError> {
        let capture = self.capture.as_deref().map(Capture::create).transpose()?;
        Ok(Layers { capture, faults: self.faults })
    }

    fn wrapped(&self, (mut engine, joined): (Engine, Joined)) -> Result<Opened, OpenError> {
        if let Some(path) = &self.capture {
            engine = tap::wrap(engine, path)?;
        }
        if let Some(faults) = &self.faults {
            engine = faulty::wrap(engine, faults);
        }
        Ok(Opened::Engine(engine, joined))
    }
}

/// A communicator to be bound.
#[derive(Clone, Debug, Default)]
pub struct CommunicatorOptions {
    /// Its way of waiting.
    pub wake: Wake,
    /// True if its messages carry stamps, so that their receivers know where their time went.
    pub stamps: bool,
    /// Messages whose stages are kept for [`crate::Communicator::recorded`].
    pub recorded: usize,
    /// Where messages that it receives late are written, with what its thread went through. Their senders stamp them.
    pub late: Option<LateLog>,
    /// On all media but memory, size of its inbox, bytes, a power of two. By default it has room for four of the largest frames, and at
    /// least 128 KiB. A message and some 150 bytes of facts about it fit into a quarter of it. A larger one is dropped and counted. A
    /// sender of the same node is told [`crate::SendError::TooLong`].
    pub inbox_size: Option<usize>,
}

impl CommunicatorOptions {
    /// A communicator that waits this way.
    pub fn waiting(wake: Wake) -> Self {
        Self { wake, ..Self::default() }
    }

    /// With stamps in every message it sends.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        self.stamps = true;
        self
    }

    /// Keeping the stages of this many received messages.
    #[must_use]
    pub fn recording(mut self, messages: usize) -> Self {
        self.recorded = messages;
        self
    }

    /// Writing there what it receives late, if its senders stamp it ([`Self::stamped`]). Of other hosts that is known only where the
    /// kernel stamps too: over Ethernet, and over UDP with [`DatagramOptions::timestamps`].
    #[must_use]
    pub fn noting_late(mut self, log: &LateLog) -> Self {
        self.late = Some(log.clone());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the data to which a seal is bound is the same on every host of a bus. It differs from bus to bus and from medium to
    /// medium.
    #[test]
    fn all_hosts_of_a_bus_bind_the_same_and_other_buses_something_else() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (a, b, c) = (at("10.0.0.1:7"), at("10.0.0.2:7"), at("[fe80::1]:7"));
        let bound = |bus: Bus| bus.identity(None).unwrap();
        let peers = bound(Bus::peers(a, &[b, c]));
        assert_eq!(peers, "udp peers 10.0.0.1:7 10.0.0.2:7 [fe80::1]:7");
        for alike in [Bus::peers(a, &[c, b, b]), Bus::peers(b, &[a, c, b]), Bus::peers(c, &[b, a])] {
            assert_eq!(bound(alike), peers);
        }
        let group = |text: &str, interface: [u8; 4]| bound(Bus::multicast(at(text), interface.into()));
        assert_eq!(group("239.1.1.1:7", [10, 0, 0, 1]), group("239.1.1.1:7", [10, 0, 0, 2]));
        assert_eq!(bound(Bus::ethernet("eth0")), bound(Bus::ethernet("enp3s0")));
        let other_type = PacketBusOptions { ethertype: 0x88B6, ..PacketBusOptions::new("eth0") };
        let buses = [
            peers,
            bound(Bus::peers(a, &[b])),
            group("239.1.1.1:7", [10, 0, 0, 1]),
            group("239.1.1.1:8", [10, 0, 0, 1]),
            bound(Bus::ethernet("eth0")),
            bound(Bus::Packet(other_type)),
            bound(Bus::shared("car")),
            bound(Bus::shared("cart")),
            bound(Bus::shared_with_group("car", 0)),
            bound(Bus::loopback("car")),
            Bus::peers(a, &[b]).identity(Some("car")).unwrap(),
            Bus::ethernet("eth0").identity(Some("car")).unwrap(),
            Bus::shared("car").identity(Some("car")).unwrap(),
        ];
        let different: std::collections::BTreeSet<&String> = buses.iter().collect();
        assert_eq!(different.len(), buses.len(), "{buses:?}");
    }
}
