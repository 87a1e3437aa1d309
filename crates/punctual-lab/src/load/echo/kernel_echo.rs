//! A responder without an application: an XDP program at the responder's interface turns each request round.
//!
//! The rest of a trip is the client, the wire and the entrance of the responder's kernel: no responder in user space can be faster
//! there. It answers with the bytes that came, so it carries no stamps and speaks plain echo only.

use std::sync::mpsc::Sender;
use std::time::Duration;

use punctual_lab_machine::xdp::{Mode, XdpEcho};
use punctual_machine::counter::Flag;
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::socket::{UdpOptions, UdpSocket};

use super::protocol::Protocol;
use super::responder::EchoFacts;
use crate::endpoint::port::{Peer, PortPlan};

/// Interval between checks whether the trial is over.
const LOOK: Duration = Duration::from_millis(5);

const REMARK: &str = "an XDP program of the responder's kernel answers (XDP_TX, generic hook): no application runs there, \
                      IPv4 without options only, and the way out passes no queue and no capture of that host";

/// Has the kernel answer until the trial is over; with what a user should know of it.
pub fn answer_in_kernel(
    protocol: Protocol,
    plan: &PortPlan,
    ready: &Sender<Result<Peer, String>>,
    is_over: &Flag,
) -> Result<(EchoFacts, String), String> {
    let before = ThreadUsage::now();
    let echo = KernelEcho::open(protocol, plan)?;
    let _waiting = ready.send(Ok(echo.peer));
    while !is_over.is_raised() {
        std::thread::sleep(LOOK);
    }
    let usage = ThreadUsage::now().since(before);
    let answered = echo.answered();
    let facts = EchoFacts { arrived: answered, answered, cpu_ns: usage.cpu_ns, ..EchoFacts::default() };
    Ok((facts, REMARK.to_owned()))
}

/// The program, and a socket that holds the port, so that nobody is told that it is closed.
#[derive(Debug)]
pub struct KernelEcho {
    program: XdpEcho,
    _guard: UdpSocket,
    /// Where it answers.
    pub peer: Peer,
}

impl KernelEcho {
    /// Puts the program at the plan's interface.
    pub fn open(protocol: Protocol, plan: &PortPlan) -> Result<Self, String> {
        if protocol != Protocol::Udp {
            return Err(
                "a program in the kernel answers with the bytes that came: add --protocol udp".to_owned()
            );
        }
        let interface = plan.interface.as_deref().filter(|name| *name != "lo");
        let interface = interface.ok_or("an XDP program needs a segment of two namespaces: run as root")?;
        if plan.local.is_ipv6() {
            return Err("the program answers IPv4 only: leave out --ipv6".to_owned());
        }
        let guard = UdpSocket::bind(plan.local, &UdpOptions::default()).map_err(|error| error.to_string())?;
        guard.discard_all().map_err(|error| format!("cannot silence the port's socket: {error}"))?;
        let address = guard.local_address().map_err(|error| error.to_string())?;
        let program = XdpEcho::open(interface, Mode::Generic, address.port());
        let program = program.map_err(|error| error.to_string())?;
        let peer = Peer { address, mac: program.mac() };
        Ok(Self { program, _guard: guard, peer })
    }

    /// Packets answered so far.
    pub fn answered(&self) -> u64 {
        self.program.answered().unwrap_or(0)
    }
}
