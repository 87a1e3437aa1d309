//! `punctual echo`: the other end of a measurement, on this host or another.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use punctual_machine::signal::{catch_interrupts, count_continuations, interrupted};
use punctual_machine::socket::DATAGRAM_SIZE_MAX;

use super::print;
use crate::endpoint::port::{self, PortPlan, SLEEP_MAX, Stamps, Way};
use crate::error::Failure;
use crate::explain::injection::Mishaps;
use crate::load::echo::{AnswerRules, KernelEcho, Protocol, open_port, respond};
use crate::response::option::{Ends, Variant};
use crate::run::processor;
use crate::scheduling::Control;
use crate::scheduling::Urgency;
use crate::units::{OptionName, address, size_in};

/// Options of the responder.
#[derive(Debug, Args)]
pub struct EchoArguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9930", value_parser = address)]
    listen: SocketAddr,
    /// Protocol to understand
    #[arg(long, value_enum, default_value_t)]
    protocol: Protocol,
    /// Way of waiting and sending
    #[arg(long = "wake", alias = "option", value_enum, value_name = "WAY", default_value = "blocking")]
    way: Way,
    /// Urgency of its thread: other, nice:N, slice:US, fifo:N, rr:N, deadline:RUNTIME/PERIOD (µs)
    #[arg(long, value_name = "CLASS", default_value = "other", allow_hyphen_values = true)]
    sched: Urgency,
    /// Processor to run on
    #[arg(long, value_name = "N", value_parser = processor)]
    cpu: Option<usize>,
    /// Stamps of the kernel to take
    #[arg(long, value_enum, default_value_t)]
    stamps: Stamps,
    /// Interface, for packet and xdp
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Largest payload, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 9000, value_parser = size_in(1..=DATAGRAM_SIZE_MAX))]
    size: usize,
    /// Time that the kernel polls the device, µs
    #[arg(long, value_name = "US", default_value_t = 50)]
    busy_poll: u32,
}

/// Answers until Ctrl-C.
pub fn echo(arguments: &EchoArguments) -> Result<(), Failure> {
    catch_interrupts().and_then(|()| count_continuations())?;
    let needs_interface = arguments.way.is_raw() || arguments.way.answers_in_kernel();
    if needs_interface {
        let missing = match (arguments.interface.is_none(), arguments.listen.ip().is_unspecified()) {
            (true, true) => "--interface, and --listen with the address there",
            (true, false) => "--interface",
            (false, true) => "--listen with the address of the interface",
            (false, false) => "",
        };
        if !missing.is_empty() {
            return Err(Failure::Usage(format!("--wake {}: it needs {missing}", arguments.way)));
        }
    }
    if arguments.way.answers_in_kernel() {
        return echo_in_kernel(arguments);
    }
    let control = Control::start(arguments.cpu, arguments.sched);
    let choice = Variant { way: arguments.way, urgency: arguments.sched, ends: Ends::Both, recorded: None };
    let mut port = open_port(arguments.cpu, arguments.sched, &plan(arguments))?;
    let address = port.local().address;
    print(&format!("answering {} at {address}, {choice}; Ctrl-C ends it\n", arguments.protocol.name()))?;
    let rules = AnswerRules::of(arguments.protocol, arguments.way);
    let facts = respond(&mut *port, rules, Mishaps::default(), &control, arguments.size, &interrupted);
    let said = format!(
        "{} packets, {} answered, {} without wish for a reply, {} at an end, {} not understood, {} unsent; {:.3} s of CPU\n",
        facts.arrived,
        facts.answered,
        facts.silent,
        facts.ends,
        facts.refused,
        facts.unsent,
        facts.cpu_ns as f64 / 1e9
    );
    print(&(said + &port.remark().map_or(String::new(), |remark| remark + "\n")))
}

/// The program at the interface answers; this process only keeps it there.
fn echo_in_kernel(arguments: &EchoArguments) -> Result<(), Failure> {
    let echo = KernelEcho::open(arguments.protocol, &plan(arguments))?;
    print(&format!("the kernel answers udp at {}, {}; Ctrl-C ends it\n", echo.peer.address, arguments.way))?;
    while !interrupted() {
        std::thread::sleep(Duration::from_millis(20));
    }
    print(&format!("{} packets answered\n", echo.answered()))
}

fn plan(arguments: &EchoArguments) -> PortPlan {
    PortPlan {
        way: arguments.way,
        local: arguments.listen,
        remote: None,
        flows: 1,
        size: arguments.size,
        stamps: arguments.protocol.responder_stamps(arguments.stamps),
        interface: arguments.interface.clone(),
        dscp: 0,
        priority: 0,
        busy_poll_us: arguments.busy_poll,
        receive_buffer: port::RECEIVE_BUFFER_SIZE,
        wakes_for_time: false,
        sleep_max: SLEEP_MAX,
    }
}
