//! What a user chooses: the bus, the node, the communicator. One `match` turns it into an engine.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use punctual_proto::NodeId;

use super::Node;
use crate::engine::datagram::{self, DatagramOptions, Reach};
use crate::engine::faulty::{self, Faults};
use crate::engine::packet::{self, PacketBusOptions};
use crate::engine::shared::{self, Joined, SharedOptions, Sharing, check_name};
use crate::engine::{Engine, loopback, tap};
use crate::seal::{Keys, Seals};
use crate::wake::Wake;

pub use crate::engine::shared::OpenError;

/// A medium that reaches everybody.
#[derive(Clone, Debug)]
pub enum Bus {
    /// Nodes inside this process.
    Loopback(SharedOptions),
    /// Processes of this host, over shared memory.
    Shared(SharedOptions),
    /// Hosts, over UDP.
    Datagram(DatagramOptions),
    /// Hosts on one Ethernet segment, over raw frames. Needs `CAP_NET_RAW`; one node per interface.
    Packet(PacketBusOptions),
    /// Any of them, with a seal on every frame.
    Sealed {
        /// The medium.
        bus: Box<Bus>,
        /// Who may speak.
        keys: Keys,
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

    /// The same for all users in a group: whoever opens it must be in that group. What members can do to each other:
    /// `docs/shared-memory.md`, *Limits*.
    pub fn shared_with_group(name: &str, group: u32) -> Self {
        Self::Shared(SharedOptions { sharing: Sharing::Group(group), ..SharedOptions::new(name) })
    }

    /// UDP among hosts that share a multicast group; `interface` is the address of the interface to use.
    pub fn multicast(group: SocketAddr, interface: std::net::Ipv4Addr) -> Self {
        Self::Datagram(DatagramOptions::new(Reach::Multicast { group, interface }))
    }

    /// UDP among hosts that know each other's addresses.
    pub fn peers(local: SocketAddr, peers: &[SocketAddr]) -> Self {
        Self::Datagram(DatagramOptions::new(Reach::Peers { local, peers: peers.to_vec() }))
    }

    /// Raw Ethernet on an interface.
    pub fn ethernet(interface: &str) -> Self {
        Self::Packet(PacketBusOptions::new(interface))
    }

    /// The same bus, on which only frames count that a holder of one of these keys has sealed. Every node of it must be
    /// opened so: others are refused, and counted.
    #[must_use]
    pub fn sealed(self, keys: &Keys) -> Self {
        let bus = match self {
            Self::Sealed { bus, .. } => bus,
            bare => Box::new(bare),
        };
        Self::Sealed { bus, keys: keys.clone() }
    }

    /// What seals this bus needs, if any, and the medium itself.
    fn unseal(&self) -> (&Self, Option<Seals>) {
        let Self::Sealed { bus, keys } = self else { return (self, None) };
        let learns_from_frames = matches!(**bus, Self::Datagram(_) | Self::Packet(_));
        (bus, Some(Seals::new(keys, learns_from_frames)))
    }
}

impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(options) => write!(f, "loopback:{}", options.name),
            Self::Shared(options) => write!(f, "shared:{}", options.name),
            Self::Datagram(options) => write!(f, "udp:{}", options.reach),
            Self::Packet(options) => write!(f, "ethernet:{}", options.interface),
            Self::Sealed { bus, .. } => write!(f, "{bus}"),
        }
    }
}

/// A node to be opened.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub(super) name: String,
    pub(super) id: Option<NodeId>,
    faults: Option<Faults>,
    capture: Option<PathBuf>,
}

impl NodeOptions {
    /// A node of that name: letters, digits, `-` and `_`, at most 32. Its id follows from the name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), id: None, faults: None, capture: None }
    }

    /// Another id than the name's.
    #[must_use]
    pub fn id(mut self, id: NodeId) -> Self {
        self.id = Some(id);
        self
    }

    /// Loses, corrupts, doubles, moves and delays what arrives, on purpose.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Writes every frame that is sent or arrives into a file that Wireshark opens (pcapng).
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

    /// The engine alone, with the layers asked for, and no node around it: whoever drives it writes headers, sorts frames to
    /// ports and counts. It joins the bus as a node of this name and id would. For measuring what a node adds:
    /// seals are among that, and a sealed bus hears nothing of what is sent so.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_engine(&self, bus: &Bus) -> Result<(Engine, Joined), OpenError> {
        let id = self.id.unwrap_or_else(|| NodeId::named(&self.name));
        open_engine(bus, self, id).map(|(engine, joined, _)| (engine, joined))
    }
}

/// The engine of a bus, with the layers that were asked for.
pub(super) fn open_engine(
    bus: &Bus,
    options: &NodeOptions,
    node: NodeId,
) -> Result<(Engine, Joined, Option<Seals>), OpenError> {
    check_name("node", &options.name)?;
    let name = &options.name;
    let (bus, seals) = bus.unseal();
    let (mut engine, joined) = match bus {
        Bus::Loopback(bus) => loopback::open(bus, node, name),
        Bus::Shared(bus) => shared::open(bus, node, name),
        Bus::Datagram(bus) => datagram::open(bus, node, seals.as_ref()),
        Bus::Packet(bus) => packet::open(bus, node, seals.as_ref()),
        Bus::Sealed { .. } => unreachable!("a sealed bus has a medium inside"),
    }?;
    if let Some(path) = &options.capture {
        engine = tap::wrap(engine, path)?;
    }
    if let Some(faults) = &options.faults {
        engine = faulty::wrap(engine, faults);
    }
    Ok((engine, joined, seals))
}

/// A communicator to be bound.
#[derive(Clone, Debug, Default)]
pub struct CommunicatorOptions {
    /// How it waits.
    pub wake: Wake,
    /// Whether its messages carry stamps, so that their receivers know where their time went.
    pub stamps: bool,
    /// Messages whose stages are kept for [`crate::Communicator::recorded`].
    pub recorded: usize,
    /// Size of its inbox, bytes, a power of two; by default four of the largest messages.
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
}
