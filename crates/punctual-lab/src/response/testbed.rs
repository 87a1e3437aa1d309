//! Where client and responder stand: two network namespaces of this host joined by a veth pair, one host's loopback, or
//! a foreign host; and the responder's process, told what to do trial by trial.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::namespace::{add_address, add_neighbour, bring_up, create_veth, thread_id};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::delay::Delay;
use super::kernel_echo;
use super::option::Variant;
use super::protocol::Protocol;
use super::responder::{AnswerRules, EchoFacts, respond};
use crate::endpoint::port::{self, PortPlan};
use crate::explain::injection::{Mishap, Mishaps};
use crate::load::forwarder::{self, Counts, Faults, Forwarder};
use crate::run::{INTERFACES, Prepare, Requests, Worker, leave};
use crate::scheduling::Job;

/// The UDP port of the original.
pub const PORT: u16 = 9930;

/// Client's and responder's address on a segment of our own, with the length of the network's prefix.
const SEGMENT_V4: [&str; 2] = ["10.77.30.1/24", "10.77.30.2/24"];
const SEGMENT_V6: [&str; 2] = ["fd77:30::1/64", "fd77:30::2/64"];

/// Which IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Version 4.
    #[default]
    V4,
    /// Version 6.
    V6,
}

/// What the responder's process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EchoRequest {
    /// To give its interface its addresses.
    Settle,
    /// To take this station for that of an address.
    Neighbour(Neighbour),
    /// To answer.
    Answer(Box<Assignment>),
    /// To stop answering.
    Stop,
    /// To run another program, such as sockperf's server.
    Spawn {
        /// Its name.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// To end that program.
    EndProgram,
}

/// An address of the segment, and the station that stands for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Neighbour {
    /// The address.
    pub address: IpAddr,
    /// The station.
    pub mac: [u8; 6],
}

/// One trial, as the responder sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Its port.
    pub port: PortPlan,
    /// Way and urgency.
    pub choice: Variant,
    /// Where its thread runs.
    pub cpu: Option<usize>,
    /// Which packets.
    pub protocol: Protocol,
    /// Says that its clock is nobody else's.
    pub clock_apart: bool,
    /// Made on purpose.
    pub delay: Option<Delay>,
    /// The same, of single trips.
    pub mishaps: Vec<Mishap>,
    /// Locks its memory before it begins.
    pub lock_memory: bool,
}

/// It listens at this address and station.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct Ready {
    pub address: SocketAddr,
    pub mac: [u8; 6],
}

/// It stopped: what it went through, what a user should know of its port, and which thread it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct Done {
    pub facts: EchoFacts,
    pub remark: Option<String>,
    pub thread: Option<u32>,
}

/// The responder's process: does as it is told until its input ends.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(()) = requests.prepare() else { return Ok(()) };
    let mut answering: Option<Job<Done>> = None;
    let mut program: Option<Child> = None;
    while let Some(request) = requests.recv() {
        match request {
            EchoRequest::Settle => requests.answer(&settle(1).map_err(|error| error.to_string()))?,
            EchoRequest::Neighbour(Neighbour { address, mac }) => {
                let added = add_neighbour(INTERFACES[1], address, mac);
                requests.answer(&added.map_err(|error| error.to_string()))?;
            }
            EchoRequest::Answer(assignment) => {
                let started = start_answering(*assignment);
                requests.answer(&started.map(|(started, ready)| {
                    answering = Some(started);
                    ready
                }))?;
            }
            EchoRequest::Stop => {
                let nothing = || Err("the responder was not answering".to_owned());
                requests.answer(&answering.take().map_or_else(nothing, Job::stop))?;
            }
            EchoRequest::Spawn { program: name, arguments } => {
                requests.answer(&spawn(&name, &arguments).map(|child| program = Some(child)))?;
            }
            EchoRequest::EndProgram => {
                end_program(program.take());
                requests.answer(&Ok(()))?;
            }
        }
    }
    end_program(program);
    // An end of input in the middle of a trial is an end of the trial.
    drop(answering);
    Ok(())
}

/// Gives this side's interface its addresses.
fn settle(side: usize) -> Result<(), SystemError> {
    bring_up("lo")?;
    bring_up(INTERFACES[side])?;
    add_address(INTERFACES[side], SEGMENT_V4[side])?;
    // A host without IPv6 has IPv4 all the same; who asks for IPv6 is told when the address cannot be bound.
    let _v4_only = add_address(INTERFACES[side], SEGMENT_V6[side]);
    Ok(())
}

fn start_answering(assignment: Assignment) -> Result<(Job<Done>, Ready), String> {
    if assignment.lock_memory {
        punctual_machine::cpu::lock_memory().map_err(|error| error.to_string())?;
    }
    let (ready, readiness) = std::sync::mpsc::channel();
    let job = Job::start("responder", move |stop| {
        if assignment.choice.way.answers_in_kernel() {
            let (facts, remark) = kernel_echo::answer(&assignment, &ready, stop);
            return Done { facts, remark, thread: None };
        }
        // Made before this thread becomes urgent: a spinning real-time thread lets nobody start beside it.
        let control = assignment.choice.control(assignment.cpu);
        let opened = open_port(assignment.cpu, assignment.choice, &assignment.port);
        let mut port = match opened {
            Ok(port) => port,
            Err(text) => {
                let _waiting = ready.send(Err(text));
                return Done { facts: EchoFacts::default(), remark: None, thread: None };
            }
        };
        let _waiting = ready.send(Ok(port.local()));
        let manner = AnswerRules {
            protocol: assignment.protocol,
            clock_apart: assignment.clock_apart,
            ends_when_told: true,
            sleeps: !assignment.choice.way.spins(),
            delay: assignment.delay,
            keeps_windows: assignment.choice.keeps_windows(),
        };
        let size = assignment.port.size + 1;
        let mishaps = Mishaps::of(&assignment.mishaps, 1);
        let facts = respond(&mut *port, manner, mishaps, &control, size, &|| stop.is_raised());
        Done { facts, remark: port.remark(), thread: Some(thread_id()) }
    })?;
    let peer = readiness.recv().map_err(|_| "the responder's thread ended".to_owned())??;
    Ok((job, Ready { address: peer.address, mac: peer.mac }))
}

/// What the kernel is given to switch on what a port asked for, before its thread becomes urgent: time stamps begin by a work
/// queue of the kernel's, which a spinning real-time thread on its CPU keeps waiting for ever.
const SETTLING: Duration = Duration::from_millis(20);

/// Opens a port in the calling thread, which is bound to its CPU before and as urgent as chosen afterwards.
pub fn open_port(
    cpu: Option<usize>,
    choice: Variant,
    plan: &PortPlan,
) -> Result<Box<dyn port::Port + Send>, String> {
    if let Some(cpu) = cpu.filter(|_| choice.urgency.can_be_pinned()) {
        punctual_machine::cpu::pin_to(cpu).map_err(|error| error.to_string())?;
    }
    let port = port::open(plan)?;
    if choice.urgency.is_real_time() {
        std::thread::sleep(SETTLING);
    }
    choice.urgency.apply().map_err(|error| choice.urgency.advise(&error))?;
    Ok(port)
}

fn spawn(program: &str, arguments: &[String]) -> Result<Child, String> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {program}: {error}"))
}

fn end_program(program: Option<Child>) {
    if let Some(mut child) = program {
        let _ended = child.kill();
        let _reaped = child.wait();
    }
}

/// Where both ends are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketPath {
    /// Two namespaces of this host, joined by a veth pair.
    Segment,
    /// The loopback interface of this host, and why not a segment.
    Loopback {
        /// In words for people.
        reason: String,
    },
}

/// The responder of this run, and the way to it.
#[derive(Debug)]
pub struct ResponseTestbed {
    worker: Worker,
    /// Where it is.
    pub place: PacketPath,
    family: Family,
    /// What changes packets on the way, if anything does. Its interfaces go with it.
    forwarder: Option<Forwarder>,
}

impl ResponseTestbed {
    /// Starts the responder. Where namespaces may be made, the calling thread leaves for one of its own.
    pub fn start(family: Family, faults: Option<&Faults>) -> Result<Self, String> {
        match Self::start_segment(family, faults) {
            Ok(testbed) => Ok(testbed),
            Err(reason) if faults.is_some() => Err(format!("faults need two network namespaces: {reason}")),
            Err(reason) => Self::start_loopback(family, reason),
        }
    }

    fn start_segment(family: Family, faults: Option<&Faults>) -> Result<Self, String> {
        leave()?;
        let (mut testbed, thread) = Self::start_role(family, true, PacketPath::Segment)?;
        testbed.join(thread, faults)?;
        Ok(testbed)
    }

    /// In this thread's namespace, wherever that is by now.
    fn start_loopback(family: Family, reason: String) -> Result<Self, String> {
        // Up already, unless this thread has just left for an empty namespace; not ours to raise, then it is up.
        let _up = bring_up("lo");
        Self::start_role(family, false, PacketPath::Loopback { reason }).map(|(testbed, _)| testbed)
    }

    /// The testbed, and the thread that holds the responder's namespace.
    fn start_role(family: Family, segment: bool, place: PacketPath) -> Result<(Self, u32), String> {
        let mut worker = Worker::start("echo")?;
        let thread = worker.ask(&Prepare { apart: segment, cpu: None })?;
        Ok((Self { worker, place, family, forwarder: None }, thread))
    }

    fn join(&mut self, thread: u32, faults: Option<&Faults>) -> Result<(), String> {
        let text = |error: SystemError| error.to_string();
        let Some(faults) = faults else {
            create_veth(INTERFACES[0], INTERFACES[1], thread).map_err(text)?;
            settle(0).map_err(text)?;
            return self.tell(&EchoRequest::Settle);
        };
        let mut forwarder = Forwarder::start()?;
        create_veth(INTERFACES[0], forwarder::INTERFACES[0], forwarder.thread()).map_err(text)?;
        forwarder.join(INTERFACES[1], thread)?;
        settle(0).map_err(text)?;
        self.tell::<()>(&EchoRequest::Settle)?;
        // Both ends take the forwarder for the other: it turns no address resolution round.
        let [near, far] = forwarder.run(*faults)?;
        for (place, address) in [SEGMENT_V4, SEGMENT_V6].into_iter().enumerate() {
            let known = |side: usize, mac| Neighbour { address: without_prefix(address[side]), mac };
            let here = known(1, near);
            let done = add_neighbour(INTERFACES[0], here.address, here.mac).map_err(text);
            let done = done.and_then(|()| self.tell::<()>(&EchoRequest::Neighbour(known(0, far))));
            if place == 0 {
                done?;
            }
        }
        self.forwarder = Some(forwarder);
        Ok(())
    }

    /// Tells the responder something, and waits for what it says.
    pub fn tell<T: DeserializeOwned>(&mut self, request: &EchoRequest) -> Result<T, String> {
        self.worker.ask(request)
    }

    /// Addresses of client and responder, without a port.
    pub fn addresses(&self) -> [IpAddr; 2] {
        match (&self.place, self.family) {
            (PacketPath::Segment, Family::V4) => SEGMENT_V4.map(without_prefix),
            (PacketPath::Segment, Family::V6) => SEGMENT_V6.map(without_prefix),
            (PacketPath::Loopback { .. }, Family::V4) => [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST); 2],
            (PacketPath::Loopback { .. }, Family::V6) => [IpAddr::V6(std::net::Ipv6Addr::LOCALHOST); 2],
        }
    }

    /// The interface of one side: 0 the client's, 1 the responder's.
    pub fn interface(&self, side: usize) -> &'static str {
        match self.place {
            PacketPath::Segment => INTERFACES[side],
            PacketPath::Loopback { .. } => "lo",
        }
    }

    /// Nothing more passes: what was done to packets on the way.
    pub fn end_faults(&mut self) -> Option<Counts> {
        self.forwarder.take()?.end().ok()
    }
}

fn without_prefix(address: &str) -> IpAddr {
    let (address, _) = address.split_once('/').expect("our addresses have a prefix");
    address.parse().expect("our addresses are addresses")
}
