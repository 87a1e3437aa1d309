//! The processes of one run and what joins them: a bridge with a veth pair per process, each in a network namespace of
//! its own; or shared memory; or the loopback interface.
//!
//! The bridge and its ports are in a namespace that only this experiment's thread and processes hold: whichever way they
//! end, nothing is left behind.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use punctual_machine::namespace::{
    bring_up, create_bridge, create_veth, join_bridge, network_namespace_id, reflect, thread_id,
    unshare_network,
};

use super::first::Beginning;
use super::option::{Interfaces, Settings};
use super::protocol::{Account, Assignment, BusPlan, Facts, Opening, Part, Port, Request, Response, Skipped};
use super::value::Record;
use crate::link::KeyLine;
use crate::link::Medium;
use crate::worker::Worker;

/// The bridge of a testbed of our own, and the interface that each process has.
const BRIDGE: &str = "road";
const INTERFACE: &str = "car";
/// The other end of the one interface that all share: the bridge's port, which sends everything back.
const REFLECTOR: &str = "back";
/// Addresses on our testbed: the third number counts two hundred processes, the fourth the process.
const NETWORK: [u8; 2] = [10, 78];
const PER_NET: usize = 200;
/// Multicast group of a UDP bus, of the block for local use (RFC 2365), and its port.
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 78, 5, 15)), 9_935);

/// Where values travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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
    /// The loopback interface, and why nothing better.
    Loopback {
        /// In words for people.
        reason: String,
    },
}

impl Place {
    /// Where that is; the calling thread may leave for a network namespace of its own.
    ///
    /// # Errors
    /// In words for people: what is missing and what to do.
    pub fn choose(settings: &Settings) -> Result<Self, String> {
        match (settings.medium, &settings.interface) {
            (Medium::Shared, Some(name)) => {
                Err(format!("--interface {name}: shared memory has none; leave it out"))
            }
            (Medium::Shared, None) => Ok(Self::Memory),
            (Medium::Packet, Some(name)) => lent_bridge(name),
            (Medium::Datagram, Some(name)) => address_of(name).map(Self::Interface),
            (medium, None) => match make_road() {
                Ok(()) if medium == Medium::Packet && settings.interfaces == Interfaces::One => {
                    make_segment()
                }
                Ok(()) => Ok(Self::Bridge),
                Err(reason) if settings.medium == Medium::Datagram => Ok(Self::Loopback { reason }),
                Err(reason) => Err(format!(
                    "raw Ethernet needs a bridge in a network namespace: {reason}. Without root: --engine shared, --engine datagram"
                )),
            },
        }
    }

    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
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

fn make_road() -> Result<(), String> {
    // Asked once per thread: a second experiment in it finds its testbed there.
    let before = network_namespace_id().map_err(|error| error.to_string())?;
    unshare_network().map_err(|error| error.to_string())?;
    let after = network_namespace_id().map_err(|error| error.to_string())?;
    debug_assert_ne!(before, after, "this thread left");
    create_bridge(BRIDGE).and_then(|()| bring_up(BRIDGE)).map_err(|error| error.to_string())
}

/// The one interface of all, up; the testbed is there.
fn make_segment() -> Result<Place, String> {
    let made = create_veth(INTERFACE, REFLECTOR, thread_id())
        .and_then(|()| join_bridge(REFLECTOR, BRIDGE))
        .and_then(|()| reflect(REFLECTOR))
        .and_then(|()| bring_up(REFLECTOR))
        .and_then(|()| bring_up(INTERFACE));
    made.map(|()| Place::Segment).map_err(|error| error.to_string())
}

fn lent_bridge(name: &str) -> Result<Place, String> {
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
    Ok(Place::Lent(name.to_owned()))
}

/// The IPv4 address of an interface.
fn address_of(name: &str) -> Result<Ipv4Addr, String> {
    let asked = std::process::Command::new("ip").args(["-o", "-4", "address", "show", "dev", name]).output();
    let output = asked.map_err(|error| format!("ip: {error}: install iproute2"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let word = text.split_ascii_whitespace().skip_while(|&word| word != "inet").nth(1);
    let address = word.and_then(|word| word.split('/').next()).and_then(|word| word.parse().ok());
    address.ok_or_else(|| {
        format!("--interface {name}: no such interface with an IPv4 address; see `ip -4 address`")
    })
}

/// A process of the run.
#[derive(Debug)]
struct NodeProcess {
    part: Part,
    /// `None` once it died.
    worker: Option<Worker>,
}

/// What one process brought back.
#[derive(Clone, Debug, Default)]
pub struct WorkloadResult {
    /// What it went through.
    pub facts: Facts,
    /// What it received.
    pub records: Vec<Record>,
    /// What it never sent.
    pub skipped: Vec<Skipped>,
    /// How its receiving threads began.
    pub beginnings: Vec<Beginning>,
}

/// All processes of one run.
#[derive(Debug)]
pub struct Testbed {
    processes: Vec<NodeProcess>,
    /// Names of those that died.
    pub died: Vec<String>,
}

/// Words for a process that does not answer any more.
fn dead(part: Part) -> String {
    format!("{} died", part.name())
}

impl Testbed {
    /// Starts all processes and gives each its port. `tag` makes names on a bridge of this host unique.
    ///
    /// # Errors
    /// In words for people.
    pub fn start(settings: &Settings, place: &Place, tag: u16) -> Result<Self, String> {
        let mut testbed = Self { processes: Vec::new(), died: Vec::new() };
        for part in parts(settings) {
            let worker = Worker::start(&["vehicle"])?;
            testbed.processes.push(NodeProcess { part, worker: Some(worker) });
        }
        testbed.tell_all(&Request::Prepare { apart: place.bridge().is_some() });
        for (number, process) in testbed.processes.iter_mut().enumerate() {
            let Response::Started { thread } = process.ask()? else { return Err(dead(process.part)) };
            if let Some(bridge) = place.bridge() {
                let port = format!("pc{tag:04x}{number}");
                create_veth(&port, INTERFACE, thread)
                    .and_then(|()| join_bridge(&port, bridge))
                    .and_then(|()| bring_up(&port))
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(testbed)
    }

    /// Lets all open what they need, at once, and waits until all have: then they wait at the barrier, or travel already.
    ///
    /// # Errors
    /// In words for people.
    pub fn open(
        &mut self,
        settings: &Settings,
        place: &Place,
        tag: u16,
    ) -> Result<Vec<(Part, Opening)>, String> {
        let buses = buses(settings, place, self.processes.len(), tag)?;
        let others = self.processes.len() - 1;
        let keys = settings.seal.then(KeyLine::random);
        let cpus = punctual_machine::cpu::allowed();
        for (number, (process, (bus, port))) in self.processes.iter_mut().zip(buses).enumerate() {
            debug_assert!(number < usize::from(u16::MAX), "the number of processes is limited");
            let assignment = Assignment {
                part: process.part,
                mode: settings.mode,
                port,
                bus,
                keys: keys.clone(),
                wake: settings.wake.to_string(),
                cpu: settings.pin.then(|| cpus[number % cpus.len()]),
                urgency: settings.urgency,
                inbox_size: settings.inbox_size(),
                others,
                vehicles: settings.vehicles,
                components: settings.components,
                period_ns: settings.period.as_nanos() as u64,
                count: settings.count,
                phase_ns: settings.phase_ns(),
                barrier: settings.barrier,
            };
            process.send(&Request::Open(Box::new(assignment)))?;
        }
        self.processes
            .iter_mut()
            .map(|process| match process.ask()? {
                Response::Ready(opening) => Ok((process.part, opening)),
                other => Err(unexpected(process.part, &other, "ready")),
            })
            .collect()
    }

    /// Opens the barrier, if there is one, and waits for all to come back; who died brings nothing. In the order of the
    /// parts.
    ///
    /// # Errors
    /// In words for people: a process said that it cannot.
    pub fn travel(&mut self, barrier_ns: Option<u64>) -> Result<Vec<(Part, WorkloadResult)>, String> {
        if let Some(at_ns) = barrier_ns {
            self.tell_all(&Request::Go { at_ns });
        }
        let mut all = Vec::new();
        for process in &mut self.processes {
            match process.ask() {
                Ok(Response::Done { facts, skipped, beginnings, bytes }) => {
                    let records =
                        process.worker.as_mut().ok_or(String::new()).and_then(|r| r.recv_bytes(bytes));
                    match records {
                        Ok(bytes) => {
                            let records = Record::read_all(&bytes);
                            all.push((process.part, WorkloadResult { facts, records, skipped, beginnings }));
                        }
                        Err(reason) => self.died.push(process.reap(&reason)),
                    }
                }
                Ok(other) => return Err(unexpected(process.part, &other, "done")),
                Err(reason) => self.died.push(process.reap(&reason)),
            }
        }
        Ok(all)
    }

    /// What became of everything, by those that live.
    ///
    /// # Errors
    /// In words for people.
    pub fn account(&mut self) -> Result<Vec<(Part, Account)>, String> {
        self.tell_all(&Request::Account);
        let mut all = Vec::new();
        for process in self.processes.iter_mut().filter(|process| process.worker.is_some()) {
            match process.ask() {
                Ok(Response::Accounted(account)) => all.push((process.part, account)),
                Ok(other) => return Err(unexpected(process.part, &other, "accounted")),
                Err(reason) => self.died.push(process.reap(&reason)),
            }
        }
        Ok(all)
    }

    fn tell_all(&mut self, request: &Request) {
        for process in &mut self.processes {
            // Who does not listen any more is found when it is asked.
            let _heard = process.send(request);
        }
    }
}

fn unexpected(part: Part, response: &Response, wanted: &str) -> String {
    match response {
        Response::Failed(text) => format!("{}: {text}", part.name()),
        other => format!("{} said {other:?} where it was to be {wanted}", part.name()),
    }
}

impl NodeProcess {
    fn send(&mut self, request: &Request) -> Result<(), String> {
        self.worker.as_mut().ok_or_else(|| dead(self.part))?.send(request)
    }

    fn ask(&mut self) -> Result<Response, String> {
        let part = self.part;
        match self.worker.as_mut().ok_or_else(|| dead(part))?.recv() {
            Ok(Response::Failed(text)) => Err(format!("{}: {text}", part.name())),
            other => other,
        }
    }

    fn reap(&mut self, reason: &str) -> String {
        self.worker = None;
        if reason.starts_with("the ") { self.part.name() } else { reason.to_owned() }
    }
}

fn parts(settings: &Settings) -> Vec<Part> {
    // Who listens is told to open first: what is sent before it has is not for it.
    let listener = (!settings.mode.is_mutual()).then_some(Part::Listener);
    let mut parts: Vec<Part> = listener.into_iter().collect();
    parts.extend((0..settings.vehicles as u16).map(Part::Vehicle));
    parts.extend((0..settings.roadside as u16).map(Part::Roadside));
    parts
}

/// The bus of each process, and the port it was given.
fn buses(
    settings: &Settings,
    place: &Place,
    count: usize,
    tag: u16,
) -> Result<Vec<(BusPlan, Option<Port>)>, String> {
    let loopback = match place {
        Place::Loopback { .. } => free_addresses(count)?,
        _ => Vec::new(),
    };
    let plan = |number: usize| {
        let host =
            Ipv4Addr::new(NETWORK[0], NETWORK[1], (number / PER_NET) as u8, (number % PER_NET + 1) as u8);
        let port = Port { interface: INTERFACE.to_owned(), address: format!("{host}/16") };
        match (place, settings.medium) {
            (Place::Memory, _) | (_, Medium::Shared) => {
                (BusPlan::Shared { name: format!("vehicles-{tag:04x}-{}", std::process::id()) }, None)
            }
            (Place::Loopback { .. }, _) => {
                let local = loopback[number];
                (BusPlan::Peers { local, peers: loopback.clone() }, None)
            }
            (&Place::Interface(interface), _) => (BusPlan::Multicast { group: GROUP, interface }, None),
            (_, Medium::Packet) => (
                BusPlan::Packet { interface: INTERFACE.to_owned(), frames: settings.ring_frames() },
                (*place != Place::Segment).then_some(port),
            ),
            (_, Medium::Datagram) => (BusPlan::Multicast { group: GROUP, interface: host }, Some(port)),
        }
    };
    Ok((0..count).map(plan).collect())
}

/// UDP addresses of the loopback interface that nobody uses.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, String> {
    // All at once, so that they differ; free again when this returns.
    let sockets: Result<Vec<_>, _> = (0..count).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let addresses: Result<Vec<_>, _> =
        sockets.map_err(|error| error.to_string())?.iter().map(UdpSocket::local_addr).collect();
    addresses.map_err(|error| error.to_string())
}
