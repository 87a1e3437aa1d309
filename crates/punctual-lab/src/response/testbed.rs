//! Where client and responder stand: two network namespaces of this host joined by a veth pair, one host's loopback, or
//! a foreign host; and the responder's process, told what to do trial by trial.

use std::io::{BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::counter::Flag;
use punctual_machine::namespace::{
    add_address, add_neighbour, bring_up, create_veth, thread_id, unshare_network,
};
use serde::{Deserialize, Serialize};

use super::delay::Delay;
use super::forward::{self, Counts, Faults, Forwarder};
use super::kernel_echo;
use super::option::Variant;
use super::port::{self, PortPlan};
use super::protocol::Protocol;
use super::responder::{Manner, ResponderFacts, respond};
use crate::scheduling::Control;
use crate::worker::{Worker, recv, send};

/// The interfaces of the veth pair: the client's and the responder's.
pub const INTERFACES: [&str; 2] = ["punctual0", "punctual1"];

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
pub enum Request {
    /// To leave for a network namespace of its own, or not.
    Prepare {
        /// A namespace of its own.
        segment: bool,
    },
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
}

/// What it says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Response {
    /// It runs, in its namespace, with this thread id.
    Started {
        /// Of the thread that interfaces may be moved to.
        thread: u32,
        /// Of the process.
        process: u32,
    },
    /// It has done as told.
    Settled,
    /// It listens at this address and station.
    Ready {
        /// UDP address.
        address: SocketAddr,
        /// Ethernet address.
        mac: [u8; 6],
    },
    /// It stopped.
    Done {
        /// What it went through.
        facts: ResponderFacts,
        /// What a user should know of its port.
        remark: Option<String>,
    },
    /// It cannot: in words for people.
    Failed(String),
}

/// One trial's answering thread.
struct Answering {
    stop: Arc<Flag>,
    thread: JoinHandle<(ResponderFacts, Option<String>)>,
}

/// The responder's process: does as it is told until its input ends.
///
/// # Errors
/// When nobody listens any more.
pub fn serve(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), String> {
    let mut answering: Option<Answering> = None;
    let mut program: Option<Child> = None;
    // Calibrated now: the first trial's first message must not wait for it.
    punctual::Clock::get();
    while let Ok(request) = recv::<Request>(input) {
        let response = match request {
            Request::Prepare { segment } => prepare(segment),
            Request::Settle => settle(1).map(|()| Response::Settled).map_err(|error| error.to_string()),
            Request::Neighbour(Neighbour { address, mac }) => {
                let added = add_neighbour(INTERFACES[1], address, mac);
                added.map(|()| Response::Settled).map_err(|error| error.to_string())
            }
            Request::Answer(assignment) => start_answering(*assignment).map(|(started, response)| {
                answering = Some(started);
                response
            }),
            Request::Stop => stop_answering(answering.take()),
            Request::Spawn { program: name, arguments } => spawn(&name, &arguments).map(|child| {
                program = Some(child);
                Response::Settled
            }),
            Request::EndProgram => {
                end_program(program.take());
                Ok(Response::Settled)
            }
        };
        send(output, &response.unwrap_or_else(Response::Failed)).map_err(|error| error.to_string())?;
    }
    end_program(program);
    // An end of input in the middle of a trial is an end of the trial.
    let _facts = answering.map(|running| stop_answering(Some(running)));
    Ok(())
}

fn prepare(segment: bool) -> Result<Response, String> {
    if segment {
        unshare_network().map_err(|error| error.to_string())?;
    }
    Ok(Response::Started { thread: thread_id(), process: std::process::id() })
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

fn start_answering(assignment: Assignment) -> Result<(Answering, Response), String> {
    let stop = Arc::new(Flag::default());
    let seen = Arc::clone(&stop);
    let (ready, readiness) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("responder".to_owned()).spawn(move || {
        if assignment.choice.way.answers_in_kernel() {
            return kernel_echo::answer(&assignment, &ready, &seen);
        }
        // Made before this thread becomes urgent: a spinning real-time thread lets nobody start beside it.
        let control = Control::start(assignment.cpu, assignment.choice.urgency);
        let opened = open_port(assignment.cpu, assignment.choice, &assignment.port);
        let mut port = match opened {
            Ok(port) => port,
            Err(text) => {
                let _waiting = ready.send(Err(text));
                return (ResponderFacts::default(), None);
            }
        };
        let _waiting = ready.send(Ok(port.local()));
        let manner = Manner {
            protocol: assignment.protocol,
            clock_apart: assignment.clock_apart,
            ends_when_told: true,
            sleeps: !assignment.choice.way.spins(),
            delay: assignment.delay,
        };
        let size = assignment.port.size + 1;
        let facts = respond(&mut *port, manner, &control, size, &|| seen.is_raised());
        (facts, port.remark())
    });
    let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    let peer = readiness.recv().map_err(|_| "the responder's thread ended".to_owned())??;
    Ok((Answering { stop, thread }, Response::Ready { address: peer.address, mac: peer.mac }))
}

/// What the kernel is given to switch on what a port asked for, before its thread becomes urgent: time stamps begin by a work
/// queue of the kernel's, which a spinning real-time thread on its CPU keeps waiting for ever.
const SETTLING: Duration = Duration::from_millis(20);

/// Opens a port in the calling thread, which is bound to its CPU before and as urgent as chosen afterwards.
///
/// # Errors
/// In words for people.
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

fn stop_answering(answering: Option<Answering>) -> Result<Response, String> {
    let Answering { stop, thread } = answering.ok_or("the responder was not answering")?;
    stop.raise();
    let (facts, remark) = thread.join().map_err(|_| "the responder's thread failed".to_owned())?;
    Ok(Response::Done { facts, remark })
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
pub enum Place {
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
pub struct Testbed {
    worker: Worker,
    /// Where it is.
    pub place: Place,
    /// Its process, for signals.
    pub process: u32,
    family: Family,
    /// What changes packets on the way, if anything does. Its interfaces go with it.
    forwarder: Option<Forwarder>,
}

impl Testbed {
    /// Starts the responder. Where namespaces may be made, the calling thread leaves for one of its own.
    ///
    /// # Errors
    /// In words for people.
    pub fn start(family: Family, faults: Option<&Faults>) -> Result<Self, String> {
        match Self::start_segment(family, faults) {
            Ok(testbed) => Ok(testbed),
            Err(reason) if faults.is_some() => Err(format!("faults need two network namespaces: {reason}")),
            Err(reason) => Self::start_loopback(family, reason),
        }
    }

    fn start_segment(family: Family, faults: Option<&Faults>) -> Result<Self, String> {
        unshare_network().map_err(|error| error.to_string())?;
        let (mut testbed, thread) = Self::start_role(family, true, Place::Segment)?;
        testbed.join(thread, faults)?;
        Ok(testbed)
    }

    /// In this thread's namespace, wherever that is by now.
    fn start_loopback(family: Family, reason: String) -> Result<Self, String> {
        // Up already, unless this thread has just left for an empty namespace; not ours to raise, then it is up.
        let _up = bring_up("lo");
        Self::start_role(family, false, Place::Loopback { reason }).map(|(testbed, _)| testbed)
    }

    /// The testbed, and the thread that holds the responder's namespace.
    fn start_role(family: Family, segment: bool, place: Place) -> Result<(Self, u32), String> {
        let mut worker = Worker::start(&["echo", "--attached"])?;
        worker.send(&Request::Prepare { segment })?;
        match worker.recv()? {
            Response::Started { thread, process } => {
                Ok((Self { worker, place, process, family, forwarder: None }, thread))
            }
            Response::Failed(text) => Err(text),
            other => Err(format!("the responder said {other:?} where its start was due")),
        }
    }

    fn join(&mut self, thread: u32, faults: Option<&Faults>) -> Result<(), String> {
        let text = |error: SystemError| error.to_string();
        let Some(faults) = faults else {
            create_veth(INTERFACES[0], INTERFACES[1], thread).map_err(text)?;
            settle(0).map_err(text)?;
            return self.tell(&Request::Settle).map(drop);
        };
        let mut forwarder = Forwarder::start(faults)?;
        create_veth(INTERFACES[0], forward::INTERFACES[0], forwarder.thread()).map_err(text)?;
        forwarder.join(INTERFACES[1], thread)?;
        settle(0).map_err(text)?;
        self.tell(&Request::Settle)?;
        // Both ends take the forwarder for the other: it turns no address resolution round.
        let [near, far] = forwarder.run()?;
        for (place, address) in [SEGMENT_V4, SEGMENT_V6].into_iter().enumerate() {
            let known = |side: usize, mac| Neighbour { address: without_prefix(address[side]), mac };
            let here = known(1, near);
            let done = add_neighbour(INTERFACES[0], here.address, here.mac).map_err(text);
            let done = done.and_then(|()| self.tell(&Request::Neighbour(known(0, far))).map(drop));
            if place == 0 {
                done?;
            }
        }
        self.forwarder = Some(forwarder);
        Ok(())
    }

    /// Tells the responder something, and waits for what it says.
    ///
    /// # Errors
    /// What it could not do, in words for people.
    pub fn tell(&mut self, request: &Request) -> Result<Response, String> {
        self.worker.send(request)?;
        match self.worker.recv()? {
            Response::Failed(text) => Err(text),
            response => Ok(response),
        }
    }

    /// Addresses of client and responder, without a port.
    #[must_use]
    pub fn addresses(&self) -> [IpAddr; 2] {
        match (&self.place, self.family) {
            (Place::Segment, Family::V4) => SEGMENT_V4.map(without_prefix),
            (Place::Segment, Family::V6) => SEGMENT_V6.map(without_prefix),
            (Place::Loopback { .. }, Family::V4) => [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST); 2],
            (Place::Loopback { .. }, Family::V6) => [IpAddr::V6(std::net::Ipv6Addr::LOCALHOST); 2],
        }
    }

    /// The interface of one side: 0 the client's, 1 the responder's.
    #[must_use]
    pub fn interface(&self, side: usize) -> &'static str {
        match self.place {
            Place::Segment => INTERFACES[side],
            Place::Loopback { .. } => "lo",
        }
    }

    /// What was done to packets on the way so far.
    #[must_use]
    pub fn faults(&self) -> Option<Counts> {
        self.forwarder.as_ref().map(Forwarder::counts)
    }
}

/// # Panics
/// Never: the addresses are those above.
fn without_prefix(address: &str) -> IpAddr {
    let (address, _) = address.split_once('/').expect("our addresses have a prefix");
    address.parse().expect("our addresses are addresses")
}
