//! The processes of one run and what joins them: a bridge with a veth pair per process, each in a network namespace of
//! its own; or shared memory; or the loopback interface.
//!
//! The bridge and its ports are in a namespace that only this experiment's thread and processes hold: whichever way they
//! end, nothing is left behind.

use std::mem::take;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use punctual_machine::namespace::{bring_up, create_veth, join_bridge, reflect, thread_id};
use punctual_machine::process::random;
use serde::Serialize;

use super::option::{Interfaces, VehiclesSettings};
use super::protocol::{Account, Assignment, Brought, Opening, Part, VehicleRequest, WorkloadResult};
use crate::endpoint::{BusPlan, KeyLine, Medium, loopback};
use crate::run::network::address_of;
use crate::run::rows::rows_of;
use crate::run::{Crew, CrewBridge, Worker, leave_with_bridge};

/// The bridge of a testbed of our own, and the interface that each process has.
const BRIDGE: &str = "road";
const INTERFACE: &str = "car";
/// The other end of the one interface that all share: the bridge's port, which sends everything back.
const REFLECTOR: &str = "back";
/// Bits of an address that all processes of our testbed share.
const PREFIX: u8 = 16;
/// Multicast group of a UDP bus, of the block for local use (RFC 2365), and its port.
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 78, 5, 15)), 9_935);

/// Where values travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VehiclesPlace {
    /// A bridge in a namespace of ours.
    Bridge,
    /// One interface in a namespace of ours, which hears what it sends.
    Segment,
    /// A bridge of this host, to which ports are added for the time of the run.
    Lent(String),
    /// An interface of this host, by its address.
    Interface(Ipv4Addr),
    /// Memory of this host.
    Memory,
    /// The loopback interface, and why nothing better, in words.
    Loopback { reason: String },
}

impl VehiclesPlace {
    /// Where that is; the calling thread may leave for a network namespace of its own.
    pub(super) fn choose(settings: &VehiclesSettings) -> Result<Self, String> {
        match (settings.asked.engine, &settings.asked.interface) {
            (Medium::Shared, Some(name)) => {
                Err(format!("--interface {name}: shared memory has none; leave it out"))
            }
            (Medium::Shared, None) => Ok(Self::Memory),
            (Medium::Packet, Some(name)) => lent_bridge(name),
            (Medium::Datagram, Some(name)) => {
                address_of(name).map(Self::Interface).map_err(|error| format!("--interface {name}: {error}"))
            }
            (medium, None) => match leave_with_bridge(BRIDGE) {
                Ok(()) if medium == Medium::Packet && settings.asked.interfaces == Interfaces::One => {
                    make_segment()
                }
                Ok(()) => Ok(Self::Bridge),
                Err(reason) if settings.asked.engine == Medium::Datagram => Ok(Self::Loopback { reason }),
                Err(reason) => Err(format!(
                    "raw Ethernet needs a bridge in a network namespace: {reason}. Without root: --engine shared, --engine datagram"
                )),
            },
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Bridge => "a bridge and veth pairs, a network namespace per process".to_owned(),
            Self::Segment => {
                "one interface that all processes share, a veth pair to a bridge that sends back".to_owned()
            }
            Self::Lent(name) => format!("the bridge {name} of this host, a veth pair per process"),
            Self::Interface(address) => format!("the interface of this host with the address {address}"),
            Self::Memory => "shared memory of this host".to_owned(),
            Self::Loopback { .. } => "the loopback interface of this host".to_owned(),
        }
    }

    fn bridge(&self) -> Option<&str> {
        match self {
            Self::Bridge => Some(BRIDGE),
            Self::Lent(name) => Some(name),
            _ => None,
        }
    }
}

/// The one interface of all, up; the testbed is there.
fn make_segment() -> Result<VehiclesPlace, String> {
    let made = create_veth(INTERFACE, REFLECTOR, thread_id())
        .and_then(|()| join_bridge(REFLECTOR, BRIDGE))
        .and_then(|()| reflect(REFLECTOR))
        .and_then(|()| bring_up(REFLECTOR))
        .and_then(|()| bring_up(INTERFACE));
    made.map(|()| VehiclesPlace::Segment).map_err(|error| error.to_string())
}

fn lent_bridge(name: &str) -> Result<VehiclesPlace, String> {
    let path = format!("/sys/class/net/{name}");
    if !std::fs::exists(&path).unwrap_or(false) {
        return Err(format!("--interface {name}: no such interface; see `ip link`"));
    }
    if !std::fs::exists(format!("{path}/bridge")).unwrap_or(false) {
        return Err(format!(
            "--interface {name}: raw Ethernet needs an interface per process, so this must be a bridge, to which ports are \
             added for the run; leave it out, or take --engine datagram"
        ));
    }
    Ok(VehiclesPlace::Lent(name.to_owned()))
}

#[derive(Debug)]
pub(super) struct VehiclesTestbed {
    /// Parts that are played, and their players.
    parts: Vec<Part>,
    buses: Vec<BusPlan>,
    crew: Crew,
    /// Names of those that died.
    pub(super) died: Vec<String>,
}

impl VehiclesTestbed {
    /// Starts all processes and gives each its port.
    pub(super) fn start(settings: &VehiclesSettings, place: &VehiclesPlace) -> Result<Self, String> {
        let parts = parts(settings);
        // Makes names on this host unique.
        let tag = random() as u16;
        let buses = buses(settings, place, parts.len(), tag)?;
        let road = place.bridge().map(|bridge| CrewBridge {
            bridge,
            port: format!("pc{tag:04x}"),
            interface: INTERFACE,
            address: (address, PREFIX),
        });
        let crew = Crew::start("vehicle", parts.len(), road.as_ref(), settings.asked.pin)?;
        Ok(Self { parts, buses, crew, died: Vec::new() })
    }

    /// Lets all open what they need, at once, and waits until all have: then they wait at the barrier, or travel already.
    pub(super) fn open(&mut self, settings: &VehiclesSettings) -> Result<Vec<(Part, Opening)>, String> {
        let keys = settings.is_sealed().then(KeyLine::random);
        let (parts, buses) = (self.parts.clone(), take(&mut self.buses));
        self.tell(|number| {
            VehicleRequest::Open(Box::new(Assignment {
                part: parts[number],
                bus: buses[number].clone(),
                keys: keys.clone(),
                others: parts.len() - 1,
                settings: settings.clone(),
            }))
        });
        let opened = parts.iter().zip(self.crew.hear(parts.len(), Worker::recv));
        let named = |(&part, opening): (&Part, Result<Opening, String>)| match opening {
            Ok(opening) => Ok((part, opening)),
            Err(reason) if is_of_the_pipe(&reason) => Err(format!("{} died", part.name())),
            Err(reason) => Err(format!("{}: {reason}", part.name())),
        };
        opened.map(named).collect()
    }

    /// Opens the barrier, if there is one, and waits for all to come back; a process that died brings nothing. In the order of the
    /// parts.
    pub(super) fn travel(&mut self, barrier_ns: Option<u64>) -> Vec<Brought> {
        if let Some(at_ns) = barrier_ns {
            self.tell(|_| VehicleRequest::Go { at_ns });
        }
        self.hear_living(|worker| {
            let (result, size): (WorkloadResult, usize) = worker.recv()?;
            Ok(WorkloadResult { records: rows_of(&worker.recv_bytes(size)?), ..result })
        })
    }

    pub(super) fn account(&mut self) -> Vec<(Part, Account)> {
        self.tell(|_| VehicleRequest::Account);
        self.hear_living(Worker::recv)
    }

    fn tell<T: Serialize>(&mut self, what: impl Fn(usize) -> T) {
        // A process that no longer listens is noticed when it is asked.
        let _heard = self.crew.tell(self.parts.len(), what);
    }

    /// Answers of all processes that are alive; the others are noted, and no longer asked.
    fn hear_living<T>(&mut self, hear: impl Fn(&mut Worker) -> Result<T, String>) -> Vec<(Part, T)> {
        let heard = self.crew.hear(self.parts.len(), hear);
        let mut is_there = heard.iter().map(Result::is_ok);
        self.crew.workers.retain(|_| is_there.next() == Some(true));
        let mut all = Vec::new();
        for (part, said) in take(&mut self.parts).into_iter().zip(heard) {
            match said {
                Ok(said) => all.push((part, said)),
                Err(reason) if is_of_the_pipe(&reason) => self.died.push(part.name()),
                Err(reason) => self.died.push(format!("{}: {reason}", part.name())),
            }
        }
        self.parts = all.iter().map(|(part, _)| *part).collect();
        all
    }
}

/// Returns true if the reason says that the other process is gone; false if it is an answer of that process.
fn is_of_the_pipe(reason: &str) -> bool {
    reason.starts_with("the responder ")
}

fn parts(settings: &VehiclesSettings) -> Vec<Part> {
    // The listener is told to open first: it does not get messages that were sent before it was open.
    let listener = (!settings.asked.mode.is_mutual()).then_some(Part::Listener);
    let mut parts: Vec<Part> = listener.into_iter().collect();
    parts.extend((0..settings.asked.vehicles as u16).map(Part::Vehicle));
    parts.extend((0..settings.roadside as u16).map(Part::Roadside));
    parts
}

fn address(number: usize) -> Ipv4Addr {
    // No address ends in 0 or 255.
    Ipv4Addr::new(10, 78, (number / 200) as u8, (number % 200 + 1) as u8)
}

fn buses(
    settings: &VehiclesSettings,
    place: &VehiclesPlace,
    count: usize,
    tag: u16,
) -> Result<Vec<BusPlan>, String> {
    if let VehiclesPlace::Loopback { .. } = place {
        return loopback(count);
    }
    let plan = |number: usize| match (place, settings.asked.engine) {
        (VehiclesPlace::Memory, _) | (_, Medium::Shared) => {
            BusPlan::Shared(format!("vehicles-{tag:04x}-{}", std::process::id()))
        }
        (&VehiclesPlace::Interface(interface), _) => BusPlan::Multicast { group: GROUP, interface },
        (_, Medium::Packet) => {
            BusPlan::Ethernet { interface: INTERFACE.to_owned(), frames: Some(settings.ring_frames()) }
        }
        (_, Medium::Datagram) => BusPlan::Multicast { group: GROUP, interface: address(number) },
    };
    Ok((0..count).map(plan).collect())
}
