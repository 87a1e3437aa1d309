//! Where client and responder stand: two network namespaces of this host joined by a veth pair, one host's loopback, or
//! a foreign host; and the responder's process, told what to do trial by trial.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use punctual_machine::counter::Flag;
use punctual_machine::namespace::{add_address, add_neighbour, bring_up, create_veth, thread_id};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::option::Variant;
use crate::endpoint::port::{Peer, PortPlan};
use crate::explain::injection::{Mishap, Mishaps};
use crate::load::echo::{AnswerRules, EchoFacts, answer_in_kernel, open_port, respond};
use crate::load::forwarder::{Counts, Faults, Forwarder};
use crate::run::{INTERFACES, Prepare, Program, Requests, Worker, leave};
use crate::scheduling::Job;

/// The UDP port of the original.
pub const PORT: u16 = 9930;

/// Client's and responder's address on a segment of our own, with the length of the network's prefix.
const SEGMENT_V4: [&str; 2] = ["10.77.30.1/24", "10.77.30.2/24"];
const SEGMENT_V6: [&str; 2] = ["fd77:30::1/64", "fd77:30::2/64"];

/// Request to the responder's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EchoRequest {
    /// To give its interface its addresses.
    Settle,
    /// To take this station for that of an address.
    Neighbour(IpAddr, [u8; 6]),
    /// To answer: where it listens.
    Answer(Box<Assignment>),
    /// To stop answering.
    Stop,
    /// To run another program, such as sockperf's server: its name and its arguments.
    Spawn(Vec<String>),
    /// To end that program.
    EndProgram,
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
    /// Its rules for answers.
    pub rules: AnswerRules,
    /// Made on purpose.
    pub mishaps: Vec<Mishap>,
    /// Locks its memory before it begins.
    pub lock_memory: bool,
}

/// It stopped: its facts, a remark on its port for the user, and its thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct Done {
    pub facts: EchoFacts,
    pub remark: Option<String>,
    pub thread: Option<u32>,
}

/// The responder's process: does as it is told until its input ends, which in the middle of a trial is an end of the trial.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(()) = requests.prepare() else { return Ok(()) };
    let mut answering: Option<Job<Done>> = None;
    let mut program: Option<Program> = None;
    while let Some(request) = requests.recv() {
        match request {
            EchoRequest::Settle => requests.answer(&settle(1))?,
            EchoRequest::Neighbour(address, mac) => {
                let added = add_neighbour(INTERFACES[1], address, mac);
                requests.answer(&added.map_err(|error| error.to_string()))?;
            }
            EchoRequest::Answer(assignment) => {
                let started = start_answering(*assignment);
                requests.answer(&started.map(|(started, peer)| {
                    answering = Some(started);
                    peer
                }))?;
            }
            EchoRequest::Stop => {
                let nothing = || Err("the responder was not answering".to_owned());
                requests.answer(&answering.take().map_or_else(nothing, Job::stop))?;
            }
            EchoRequest::Spawn(words) => {
                requests.answer(&spawn(&words).map(|started| program = Some(started)))?;
            }
            EchoRequest::EndProgram => {
                drop(program.take());
                requests.answer(&Ok(()))?;
            }
        }
    }
    Ok(())
}

/// Gives this side's interface its addresses.
fn settle(side: usize) -> Result<(), String> {
    let up = bring_up("lo").and_then(|()| bring_up(INTERFACES[side]));
    let addressed = up.and_then(|()| add_address(INTERFACES[side], SEGMENT_V4[side]));
    // A host without IPv6 has IPv4 all the same; a user who asks for IPv6 is told when the address cannot be bound.
    let _v4_only = add_address(INTERFACES[side], SEGMENT_V6[side]);
    addressed.map_err(|error| error.to_string())
}

fn start_answering(assignment: Assignment) -> Result<(Job<Done>, Peer), String> {
    if assignment.lock_memory {
        punctual_machine::cpu::lock_memory().map_err(|error| error.to_string())?;
    }
    let (ready, readiness) = channel();
    let job = Job::start("responder", move |stop| {
        // A responder that could not open its port has said so.
        answer(&assignment, &ready, stop).map_err(|text| ready.send(Err(text))).unwrap_or_default()
    })?;
    let peer = readiness.recv().map_err(|_| "the responder's thread ended".to_owned())??;
    Ok((job, peer))
}

/// Answers until it is told to stop; says where it listens before.
fn answer(
    assignment: &Assignment,
    ready: &Sender<Result<Peer, String>>,
    is_over: &Flag,
) -> Result<Done, String> {
    let Assignment { port, choice, cpu, rules, mishaps, .. } = assignment;
    if choice.way.answers_in_kernel() {
        let (facts, remark) = answer_in_kernel(rules.protocol, port, ready, is_over)?;
        return Ok(Done { facts, remark: Some(remark), thread: None });
    }
    // Made before this thread becomes urgent: a spinning real-time thread lets nobody start beside it.
    let control = choice.control(*cpu);
    let mut opened = open_port(*cpu, choice.urgency, port)?;
    let _waiting = ready.send(Ok(opened.local()));
    let mishaps = Mishaps::of(mishaps, 1);
    let facts = respond(&mut *opened, *rules, mishaps, &control, port.size, &|| is_over.is_raised());
    Ok(Done { facts, remark: opened.remark(), thread: Some(thread_id()) })
}

fn spawn(words: &[String]) -> Result<Program, String> {
    let (program, arguments) = words.split_first().ok_or("no program is named")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(Program).map_err(|error| format!("cannot start {program}: {error}"))
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
    ipv6: bool,
    /// The forwarder that changes packets on the way, if there is one.
    forwarder: Option<Forwarder>,
}

impl ResponseTestbed {
    /// Starts the responder. Where namespaces may be made, the calling thread leaves for one of its own.
    pub fn start(ipv6: bool, faults: Option<Faults>) -> Result<Self, String> {
        match Self::start_segment(ipv6, faults) {
            Ok(testbed) => Ok(testbed),
            Err(reason) if faults.is_some() => Err(format!("faults need two network namespaces: {reason}")),
            Err(reason) => {
                // Up already, unless this thread has just left for an empty namespace; not ours to raise, then it is up.
                let _up = bring_up("lo");
                Self::start_role(ipv6, PacketPath::Loopback { reason }).map(|(testbed, _)| testbed)
            }
        }
    }

    fn start_segment(ipv6: bool, faults: Option<Faults>) -> Result<Self, String> {
        leave()?;
        let (mut testbed, thread) = Self::start_role(ipv6, PacketPath::Segment)?;
        testbed.join(thread, faults)?;
        Ok(testbed)
    }

    /// The testbed, and the thread that holds the responder's namespace.
    fn start_role(ipv6: bool, place: PacketPath) -> Result<(Self, u32), String> {
        let mut worker = Worker::start("echo")?;
        let thread = worker.ask(&Prepare { apart: place == PacketPath::Segment, cpu: None })?;
        Ok((Self { worker, place, ipv6, forwarder: None }, thread))
    }

    fn join(&mut self, thread: u32, faults: Option<Faults>) -> Result<(), String> {
        let Some(faults) = faults else {
            create_veth(INTERFACES[0], INTERFACES[1], thread).map_err(|error| error.to_string())?;
            settle(0)?;
            return self.tell(&EchoRequest::Settle);
        };
        let (forwarder, [near, far]) = Forwarder::between(INTERFACES[0], (INTERFACES[1], thread), faults)?;
        self.forwarder = Some(forwarder);
        settle(0)?;
        self.tell::<()>(&EchoRequest::Settle)?;
        // Both ends take the forwarder for the other: it turns no address resolution round.
        for segment in [SEGMENT_V4, SEGMENT_V6] {
            let [here, there] = segment.map(without_prefix);
            let done = add_neighbour(INTERFACES[0], there, near).map_err(|error| error.to_string());
            let done = done.and_then(|()| self.tell::<()>(&EchoRequest::Neighbour(here, far)));
            if segment == SEGMENT_V4 {
                done?;
            }
        }
        Ok(())
    }

    /// Tells the responder something, and waits for what it says.
    pub fn tell<T: DeserializeOwned>(&mut self, request: &EchoRequest) -> Result<T, String> {
        self.worker.ask(request)
    }

    /// Addresses of client and responder, without a port.
    pub fn addresses(&self) -> [IpAddr; 2] {
        match (&self.place, self.ipv6) {
            (PacketPath::Segment, false) => SEGMENT_V4.map(without_prefix),
            (PacketPath::Segment, true) => SEGMENT_V6.map(without_prefix),
            (PacketPath::Loopback { .. }, false) => [Ipv4Addr::LOCALHOST.into(); 2],
            (PacketPath::Loopback { .. }, true) => [Ipv6Addr::LOCALHOST.into(); 2],
        }
    }

    /// The interface of one side: 0 the client's, 1 the responder's.
    pub fn interface(&self, side: usize) -> &'static str {
        match self.place {
            PacketPath::Segment => INTERFACES[side],
            PacketPath::Loopback { .. } => "lo",
        }
    }

    /// Ends the passing of packets, and returns the counts of faults on the way.
    pub fn end_faults(&mut self) -> Option<Counts> {
        self.forwarder.take()?.end().ok()
    }
}

fn without_prefix(address: &str) -> IpAddr {
    let (address, _) = address.split_once('/').expect("our addresses have a prefix");
    address.parse().expect("our addresses are addresses")
}
