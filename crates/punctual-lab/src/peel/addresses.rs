//! Where the two ends meet: names, addresses, interfaces; and how each end opens its link.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use punctual::engine::packet::PacketBusOptions;
use punctual::{Bus, CommunicatorOptions, Keys, Node, NodeId, NodeOptions, Target, Wake};
use punctual_machine::news_signal::interrupt_on_news;
use serde::{Deserialize, Serialize};

use super::layer::Layer;
use super::links::{EngineLink, NodeLink};
use crate::link::KeyLine;
use crate::link::{CommunicatorLink, Link, PacketLink, SlotLink, UdpLink};
use crate::link::{Medium, VALUE_SIZE};

/// Interfaces of the veth pair, each in a namespace of its own.
pub(super) const INTERFACES: [&str; 2] = ["punctual0", "punctual1"];
/// EtherType of the bare sockets, IEEE 802's second one for local experiments: the bus has the first.
const BARE_ETHERTYPE: u16 = 0x88B6;
/// Both ends' names and ports.
const NAMES: [&str; 2] = ["here", "there"];
const PORT: u16 = 1;

/// What an end is told of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkPlan {
    pub(super) layer: Layer,
    /// `O_ASYNC` on the medium's descriptors, from before the first message on.
    pub(super) interrupted: bool,
    /// Which trial: names on a bus differ from one to the next.
    pub(super) number: u32,
}

/// Everything both ends know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Addresses {
    pub(super) medium: Medium,
    /// How the asynchronous layer sleeps.
    wake: String,
    name: String,
    udp: [SocketAddr; 2],
    udp_bare: [SocketAddr; 2],
    slots: PathBuf,
    /// What the sealed layers seal with.
    keys: KeyLine,
}

/// One end of it.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) addresses: Addresses,
    /// 0 is the client's, 1 the responder's.
    pub(super) side: usize,
}

impl Addresses {
    pub(super) fn new(medium: Medium, wake: Wake) -> std::io::Result<Self> {
        // All four at once, so that they differ; free again when this returns.
        let sockets =
            (0..4).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
        let addresses = sockets.iter().map(UdpSocket::local_addr).collect::<Result<Vec<_>, _>>()?;
        let name = format!("peel-{:08x}", punctual_machine::process::random() as u32);
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Ok(Self {
            medium,
            wake: wake.to_string(),
            udp: [addresses[0], addresses[1]],
            udp_bare: [addresses[2], addresses[3]],
            slots: folder.join(format!("punctual-{name}.slots")),
            name,
            keys: KeyLine::random(),
        })
    }

    /// The bus as this side sees it.
    pub(super) fn bus(&self, side: usize, plan: LinkPlan) -> Result<Bus, String> {
        let bus = self.bare_bus(side, plan.number);
        if plan.layer.is_sealed() { self.keys.seal(bus) } else { Ok(bus) }
    }

    /// The same with these keys, which may come later.
    pub(super) fn bus_with(&self, side: usize, plan: LinkPlan, keys: &Keys) -> Bus {
        self.bare_bus(side, plan.number).sealed(keys)
    }

    /// What the sealed layers seal with.
    pub(super) fn key(&self) -> &KeyLine {
        &self.keys
    }

    fn bare_bus(&self, side: usize, number: u32) -> Bus {
        match self.medium {
            Medium::Shared => Bus::shared(&format!("{}-{number}", self.name)),
            Medium::Datagram => Bus::peers(self.udp[side], &[self.udp[1 - side]]),
            Medium::Packet => Bus::Packet(PacketBusOptions::new(INTERFACES[side])),
        }
    }

    pub(super) fn wake(&self) -> Wake {
        self.wake.parse().unwrap_or(Wake::Epoll)
    }
}

impl End {
    /// Opens this end of a layer.
    ///
    /// # Errors
    /// In words for people.
    pub(super) fn open(&self, plan: LinkPlan) -> Result<Box<dyn Link>, String> {
        let (here, peer) = (NAMES[self.side], NodeId::named(NAMES[1 - self.side]));
        match plan.layer {
            Layer::Bare => self.open_bare().map_err(|error| error.to_string()),
            Layer::Engine => {
                let bus = self.addresses.bus(self.side, plan)?;
                let opened = NodeOptions::new(here).open_engine(&bus).map_err(|error| error.to_string())?;
                Ok(Box::new(EngineLink::new(opened, NodeId::named(here), peer)))
            }
            _ => self.open_node(plan, here, peer),
        }
    }

    fn open_node(&self, plan: LinkPlan, here: &str, peer: NodeId) -> Result<Box<dyn Link>, String> {
        let node = Node::open(&self.addresses.bus(self.side, plan)?, here).map_err(|e| e.to_string())?;
        if plan.interrupted {
            interrupt_by(&node)?;
        }
        let waiting = |wake| CommunicatorOptions::waiting(wake);
        let options = match plan.layer {
            Layer::Node | Layer::Sealed => waiting(Wake::Spin),
            Layer::Communicator => waiting(Wake::Spin).stamped(),
            _ => waiting(self.addresses.wake()).stamped(),
        };
        let communicator = node.bind_with(PORT, &options).map_err(|error| error.to_string())?;
        let port = communicator.address().port;
        let target = Target::port(peer, port);
        Ok(match plan.layer {
            Layer::Node | Layer::Sealed => Box::new(NodeLink::new(communicator, target)),
            _ => Box::new(CommunicatorLink::to(communicator, target, false)),
        })
    }

    fn open_bare(&self) -> Result<Box<dyn Link>, punctual_machine::SystemError> {
        let addresses = &self.addresses;
        Ok(match addresses.medium {
            Medium::Datagram => Box::new(UdpLink::open(
                addresses.udp_bare[self.side],
                addresses.udp_bare[1 - self.side],
                false,
            )?),
            Medium::Packet => Box::new(PacketLink::open(INTERFACES[self.side], BARE_ETHERTYPE, VALUE_SIZE)?),
            // The responder opens first, and waits for nobody.
            Medium::Shared if self.side == 1 => {
                let _none_there = std::fs::remove_file(&addresses.slots);
                Box::new(SlotLink::create(&addresses.slots, VALUE_SIZE, false)?)
            }
            Medium::Shared => Box::new(SlotLink::open(&addresses.slots, VALUE_SIZE, false)?),
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.side == 1 {
            let _never_made = std::fs::remove_file(&self.addresses.slots);
        }
    }
}

/// Lets the medium's descriptors interrupt this process on all news.
///
/// # Errors
/// In words for people: the medium has none.
pub(super) fn interrupt_by(node: &Node) -> Result<(), String> {
    let mut descriptors = node.medium_descriptors().peekable();
    if descriptors.peek().is_none() {
        return Err("shared memory has no descriptors that could raise SIGIO".to_owned());
    }
    descriptors.try_for_each(|descriptor| interrupt_on_news(descriptor).map_err(|error| error.to_string()))
}
