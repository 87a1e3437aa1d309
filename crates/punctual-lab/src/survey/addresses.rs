//! Where the two ends of every route meet: names, ports, paths, interfaces; and how each end opens its link.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use punctual::{Bus, CommunicatorOptions, Node, Target, Wake};
use serde::{Deserialize, Serialize};

use super::plan::{Manner, Place, Route, Way};
use crate::link::{CommunicatorLink, Link, PacketLink, SlotLink, UdpLink};

/// Interfaces of the veth pair, each in a namespace of its own.
pub(super) const INTERFACES: [&str; 2] = ["punctual0", "punctual1"];

/// EtherType of the bare packet floor: IEEE 802's second one for local experiments, so that it does not meet the bus's.
const FLOOR_ETHERTYPE: u16 = 0x88B6;

/// Port of both communicators.
const PORT: u16 = 1;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// The client's.
    Here,
    /// The responder's.
    There,
}

/// The addresses of one survey.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Addresses {
    /// Name of the shared-memory and the in-process bus.
    bus: String,
    /// UDP addresses of both ends, for nodes and for the floor.
    udp: [SocketAddr; 2],
    udp_floor: [SocketAddr; 2],
    /// File of the shared slots.
    slots: PathBuf,
}

impl Addresses {
    /// Names and ports that nobody else uses.
    pub(super) fn new() -> std::io::Result<Self> {
        // All four at once, so that they differ; free again when this returns.
        let sockets =
            (0..4).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
        let addresses = sockets.iter().map(UdpSocket::local_addr).collect::<Result<Vec<_>, _>>()?;
        let bus = format!("survey-{:08x}", punctual_machine::process::random() as u32);
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Ok(Self {
            slots: folder.join(format!("punctual-{bus}.slots")),
            bus,
            udp: [addresses[0], addresses[1]],
            udp_floor: [addresses[2], addresses[3]],
        })
    }

    fn bus(&self, route: Route, side: Side) -> Option<Bus> {
        let [here, there] = match side {
            Side::Here => [0, 1],
            Side::There => [1, 0],
        };
        match route {
            Route::Loopback(_) => Some(Bus::loopback(&self.bus)),
            Route::Shared(_) => Some(Bus::shared(&self.bus)),
            Route::Datagram(_) => Some(Bus::peers(self.udp[here], &[self.udp[there]])),
            Route::Packet(_) => Some(Bus::ethernet(INTERFACES[here])),
            _ => None,
        }
    }
}

/// One end's open nodes, kept over all trials but those that are compared with a floor: start-up is not the hot path.
#[derive(Debug)]
pub(super) struct Ends {
    addresses: Addresses,
    side: Side,
    nodes: HashMap<&'static str, Node>,
}

/// What a trial needs to know of its link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LinkPlan {
    /// The way.
    pub(super) route: Route,
    /// Payload, bytes.
    pub(super) size: usize,
    /// Whether messages are due at instants that the load chooses.
    pub(super) due_counts: bool,
    /// What is special about it.
    pub(super) manner: Manner,
}

impl Ends {
    /// This end of all routes.
    pub(super) fn new(addresses: Addresses, side: Side) -> Self {
        Self { addresses, side, nodes: HashMap::new() }
    }

    /// Opens this end of a route for one trial.
    ///
    /// # Errors
    /// In words for people: what is missing and what to do.
    pub(super) fn open(&mut self, plan: &LinkPlan) -> Result<Box<dyn Link>, String> {
        match plan.route {
            Route::Loopback(way) | Route::Shared(way) | Route::Datagram(way) | Route::Packet(way) => {
                self.open_communicator(plan, way)
            }
            _ => self.open_floor(plan).map_err(|error| error.to_string()),
        }
    }

    fn open_communicator(&mut self, plan: &LinkPlan, way: Way) -> Result<Box<dyn Link>, String> {
        let engine = plan.route.names().0;
        let is_plain = plan.manner == Manner::Plain;
        if is_plain {
            // New files and new pages, as the floor has in every trial.
            self.nodes.remove(engine);
        }
        if !self.nodes.contains_key(engine) {
            let bus = self.addresses.bus(plan.route, self.side).ok_or("no bus for this route")?;
            let name = if self.side == Side::Here { "here" } else { "there" };
            let node = Node::open(&bus, name).map_err(|error| error.to_string())?;
            self.nodes.insert(engine, node);
        }
        // Under open load the client polls, whatever is measured: its own sleep would make messages late.
        let wake = if plan.due_counts && self.side == Side::Here { Wake::Spin } else { way.wake() };
        let options = CommunicatorOptions::waiting(wake);
        let options = if is_plain { options } else { options.stamped().recording(1024) };
        let communicator = self.nodes[engine].bind_with(PORT, &options).map_err(|error| error.to_string())?;
        Ok(match self.side {
            Side::Here => {
                let target = Target { node: Some("there".into()), port: Some(communicator.address().port) };
                Box::new(CommunicatorLink::to(communicator, target, plan.due_counts))
            }
            Side::There => Box::new(CommunicatorLink::answering(communicator)),
        })
    }

    /// Wake-ups that this end's node on a route's bus lost, and the clock made up for, so far.
    pub(super) fn rescued(&self, route: Route) -> u64 {
        self.nodes.get(route.names().0).map_or(0, |node| node.ledger().missed_wakeups)
    }

    fn open_floor(&self, plan: &LinkPlan) -> Result<Box<dyn Link>, punctual_machine::SystemError> {
        let [here, there] = match self.side {
            Side::Here => [0, 1],
            Side::There => [1, 0],
        };
        let asleep = !plan.route.spins();
        Ok(match plan.route {
            Route::FloorUdpSpin | Route::FloorUdpBlock => Box::new(UdpLink::open(
                self.addresses.udp_floor[here],
                self.addresses.udp_floor[there],
                asleep,
            )?),
            Route::FloorPacketSpin => {
                Box::new(PacketLink::open(INTERFACES[here], FLOOR_ETHERTYPE, plan.size)?)
            }
            _ if self.side == Side::Here => {
                // The slots of the trial before, if it was cut short.
                let _not_there = std::fs::remove_file(&self.addresses.slots);
                Box::new(SlotLink::create(&self.addresses.slots, plan.size, asleep)?)
            }
            _ => Box::new(SlotLink::open(&self.addresses.slots, plan.size, asleep)?),
        })
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.side == Side::Here {
            let _never_made = std::fs::remove_file(&self.addresses.slots);
        }
    }
}

impl Place {
    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Process => "in one process",
            Self::Host => "between processes of this host",
            Self::Segment => "on an Ethernet segment",
        }
    }
}
