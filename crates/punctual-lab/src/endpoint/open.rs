//! Where both ends of a way meet, and how each opens its endpoint: any medium, at any height.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use punctual::engine::packet::PacketBusOptions;
use punctual::{Bus, CommunicatorOptions, Keys, Node, Target, Wake};
use punctual_machine::SystemError;
use punctual_machine::async_io::interrupt_on_news;
use serde::{Deserialize, Serialize};

use super::{
    CommunicatorEndpoint, Endpoint, EngineEndpoint, KeyLine, Medium, NodeEndpoint, PacketEndpoint,
    SlotEndpoint, StreamEndpoint, UdpEndpoint,
};
use crate::run::{INTERFACES, by_name, free_addresses, memory_folder};

/// EtherType of bare packet sockets: IEEE 802's second one for local experiments, so that it does not meet the bus's.
const BARE_ETHERTYPE: u16 = 0x88B6;
/// Names of both ends' nodes: the client's and the responder's.
const NAMES: [&str; 2] = ["here", "there"];
/// Port of both communicators.
pub const PORT: u16 = 1;
/// Stages that a communicator records, where nodes stay open.
const RECORDED: usize = 1024;

/// The part of the library that is around the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stack {
    /// Nothing: the bare mechanism, polled or asleep in it.
    #[default]
    Bare,
    /// The engine alone, polled.
    Engine,
    /// A node, polled.
    Node,
    /// A communicator that waits.
    Communicator,
}

/// Plan of one trial, for both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointPlan {
    /// Medium of the messages; `None`: memory of one process.
    pub medium: Option<Medium>,
    /// The part of the library around it.
    pub stack: Stack,
    /// Way in which both ends wait; a bare mechanism spins or sleeps.
    #[serde(with = "by_name")]
    pub wake: Wake,
    /// Payload, bytes.
    pub size: usize,
    /// True if messages carry stamps.
    pub stamped: bool,
    /// True if they carry a tag.
    pub sealed: bool,
    /// True if messages are due at instants that the load chooses.
    pub due_counts: bool,
    /// True if nodes stay open from trial to trial: start-up is not the hot path.
    pub kept: bool,
    /// `O_ASYNC` on the medium's descriptors, from before the first message on.
    pub interrupted: bool,
    /// Requests of the warm-up, whose page faults are none of the trial's.
    #[serde(default)]
    pub warmup: u64,
    /// Windows that both ends keep of what their threads go through; 0: none.
    pub windows: usize,
    /// Number of the trial: names on a bus differ from one to the next, unless nodes are kept.
    pub number: u32,
}

impl EndpointPlan {
    /// Without stamps, tags and anything special.
    pub fn new(medium: Option<Medium>, stack: Stack, wake: Wake, size: usize) -> Self {
        Self { medium, stack, wake, size, ..Self::default() }
    }
}

/// Names and addresses of both ends, on every medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Addresses {
    /// Of buses in memory.
    name: String,
    /// Of nodes and of bare sockets.
    udp: [SocketAddr; 2],
    udp_bare: [SocketAddr; 2],
    /// File of the shared slots.
    slots: PathBuf,
    /// Keys for sealing.
    pub keys: KeyLine,
}

impl Addresses {
    /// Names and ports that nobody else uses.
    pub fn new(experiment: &str) -> Result<Self, String> {
        let udp = free_addresses(4)?;
        let name = format!("{experiment}-{:08x}", punctual_machine::process::random() as u32);
        Ok(Self {
            slots: memory_folder().join(format!("punctual-{name}.slots")),
            name,
            udp: [udp[0], udp[1]],
            udp_bare: [udp[2], udp[3]],
            keys: KeyLine::random(),
        })
    }

    /// The bus as one side sees it, without a seal.
    pub fn bus(&self, side: usize, plan: &EndpointPlan) -> Bus {
        let name = if plan.kept { self.name.clone() } else { format!("{}-{}", self.name, plan.number) };
        match plan.medium {
            None => Bus::loopback(&name),
            Some(Medium::Shared) => Bus::shared(&name),
            Some(Medium::Datagram) => Bus::peers(self.udp[side], &[self.udp[1 - side]]),
            Some(Medium::Packet) => Bus::Packet(PacketBusOptions::new(INTERFACES[side])),
        }
    }

    fn sealed_bus(&self, side: usize, plan: &EndpointPlan) -> Result<Bus, String> {
        let bus = self.bus(side, plan);
        if plan.sealed { self.keys.seal(bus) } else { Ok(bus) }
    }

    /// A communicator of a side that opens a node for itself, with keys that may come later.
    pub fn communicator(
        &self,
        side: usize,
        plan: &EndpointPlan,
        keys: &Keys,
    ) -> Result<CommunicatorEndpoint, String> {
        let node = open_node(&self.bus(side, plan).sealed(keys), side, plan)?;
        let (communicator, target) = bind(&node, side, plan)?;
        Ok(CommunicatorEndpoint::new(communicator, target, plan.due_counts))
    }
}

fn open_node(bus: &Bus, side: usize, plan: &EndpointPlan) -> Result<Node, String> {
    let node = Node::open(bus, NAMES[side]).map_err(|error| error.to_string())?;
    if plan.interrupted {
        interrupt_by(&node)?;
    }
    Ok(node)
}

fn bind(node: &Node, side: usize, plan: &EndpointPlan) -> Result<(punctual::Communicator, Target), String> {
    // Under open load the client polls in every measurement: its own sleep would make messages late.
    let wake = if plan.due_counts && side == 0 { Wake::Spin } else { plan.wake };
    let mut options = CommunicatorOptions::waiting(wake);
    if plan.stamped {
        options = options.stamped();
    }
    if plan.stamped && plan.kept {
        options = options.recording(RECORDED);
    }
    let communicator = node.bind_with(PORT, &options).map_err(|error| error.to_string())?;
    let port = communicator.address().port;
    Ok((communicator, Target::port(NAMES[1 - side], port)))
}

/// Opens the layer below a node, alone: an engine; in memory, which has none, a publication and a subscription.
///
/// # Errors
/// In words for people: the machine has no such bus.
pub fn open_alone(bus: &Bus, name: &str, target: Target) -> Result<Box<dyn Endpoint>, String> {
    Ok(match bus {
        Bus::Loopback(_) | Bus::Shared(_) => Box::new(StreamEndpoint::open(bus, name, target)?),
        _ => Box::new(EngineEndpoint::open(bus, name, target)?),
    })
}

/// One end of every way: 0 is the client's, 1 the responder's.
#[derive(Debug)]
pub struct Ends {
    /// Where both meet.
    pub addresses: Addresses,
    side: usize,
    nodes: HashMap<Option<Medium>, Node>,
}

impl Ends {
    /// This end of all ways.
    pub fn new(addresses: Addresses, side: usize) -> Self {
        Self { addresses, side, nodes: HashMap::new() }
    }

    /// Opens this end for one trial; the responder's first: it waits for nobody, and its client finds it.
    pub fn open(&mut self, plan: &EndpointPlan) -> Result<Box<dyn Endpoint>, String> {
        let side = self.side;
        match plan.stack {
            Stack::Bare => return self.open_bare(plan).map_err(|error| error.to_string()),
            Stack::Engine => {
                let bus = self.addresses.sealed_bus(side, plan)?;
                return open_alone(&bus, NAMES[side], Target::port(NAMES[1 - side], PORT));
            }
            Stack::Node | Stack::Communicator => {}
        }
        if !plan.kept {
            self.nodes.remove(&plan.medium);
        }
        if !self.nodes.contains_key(&plan.medium) {
            let node = open_node(&self.addresses.sealed_bus(side, plan)?, side, plan)?;
            self.nodes.insert(plan.medium, node);
        }
        let (communicator, target) = bind(&self.nodes[&plan.medium], side, plan)?;
        Ok(match plan.stack {
            Stack::Node => Box::new(NodeEndpoint::new(communicator, target)),
            _ => Box::new(CommunicatorEndpoint::new(communicator, target, plan.due_counts && side == 0)),
        })
    }

    /// Wake-ups that this end's node on a medium lost, and the clock made up for, so far.
    pub fn rescued(&self, plan: &EndpointPlan) -> u64 {
        self.nodes.get(&plan.medium).map_or(0, |node| node.ledger().missed_wakeups)
    }

    /// The trial is over: everything that is not kept is closed.
    pub fn close(&mut self, plan: &EndpointPlan) {
        // A stack without a node of ours closes none.
        if !plan.kept && matches!(plan.stack, Stack::Node | Stack::Communicator) {
            self.nodes.remove(&plan.medium);
        }
    }

    fn open_bare(&self, plan: &EndpointPlan) -> Result<Box<dyn Endpoint>, SystemError> {
        let (Addresses { udp_bare, slots, .. }, asleep) = (&self.addresses, plan.wake != Wake::Spin);
        let [here, there] = [self.side, 1 - self.side];
        Ok(match plan.medium {
            Some(Medium::Datagram) => Box::new(UdpEndpoint::open(udp_bare[here], udp_bare[there], asleep)?),
            Some(Medium::Packet) => {
                Box::new(PacketEndpoint::open(INTERFACES[here], BARE_ETHERTYPE, plan.size, Wake::Spin)?)
            }
            _ if here == 1 => {
                // The slots of the trial before, if it was cut short.
                let _not_there = std::fs::remove_file(slots);
                Box::new(SlotEndpoint::create(slots, plan.size, asleep)?)
            }
            _ => Box::new(SlotEndpoint::open(slots, plan.size, asleep)?),
        })
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Either end does: the other one may have been killed. Both are gone when the first of them drops this.
        let _never_made = std::fs::remove_file(&self.addresses.slots);
    }
}

/// Lets the medium's descriptors interrupt this process on all news.
///
/// # Errors
/// In words for people: the medium has none.
fn interrupt_by(node: &Node) -> Result<(), String> {
    let mut descriptors = node.medium_descriptors().peekable();
    if descriptors.peek().is_none() {
        return Err("shared memory has no descriptors that could raise SIGIO".to_owned());
    }
    descriptors.try_for_each(|descriptor| interrupt_on_news(descriptor).map_err(|error| error.to_string()))
}
