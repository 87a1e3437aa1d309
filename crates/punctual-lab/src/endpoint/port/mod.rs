//! Where packets go out and come in: one file per mechanism, one trait.
//!
//! A port serves one end of all flows of a trial. It waits in its own way. Of every packet it says when the kernel saw it, when its
//! thread ran, and when the bytes lay in the caller's buffer.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::SystemError;
use punctual_machine::clock::wall_clock::WallClock;
use punctual_machine::socket::UdpOptions;
use serde::{Deserialize, Serialize};

pub mod frame;
mod raw;
mod socket;
mod udp;
mod way;

pub use raw::RawPort;
pub use udp::UdpPort;
pub use way::Way;

/// The other end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its UDP address.
    pub address: SocketAddr,
    /// Its station on the segment; zeros where the kernel knows better.
    pub mac: [u8; 6],
}

/// A packet that arrived, in the caller's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its size, bytes.
    pub size: usize,
    /// By which flow.
    pub flow: usize,
    /// Its sender.
    pub peer: Peer,
    /// When the kernel saw it; 0 = not known.
    pub kernel: Ticks,
    /// When the receive began that found it.
    pub listened: Ticks,
    /// When the thread ran, if it slept for it; else when it could have had it.
    pub woken: Ticks,
    /// When the bytes were there.
    pub read: Ticks,
}

/// The kernel's stamps that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Stamps {
    /// None: round trips alone, and what user space sees
    Off,
    /// When the kernel received a packet
    Receive,
    /// And when it handed one to the device; two more system calls for each, outside of what is measured
    #[default]
    All,
}

/// Options with which every port is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortPlan {
    /// Way of waiting.
    pub way: Way,
    /// This end of the first flow; the others have the ports behind it.
    pub local: SocketAddr,
    /// The other end, where this end talks to one only.
    pub remote: Option<Peer>,
    /// Flows, each with a port of its own.
    pub flows: usize,
    /// Largest packet, bytes.
    pub size: usize,
    /// Stamps asked for.
    pub stamps: Stamps,
    /// Interface, for ways that address Ethernet themselves.
    pub interface: Option<String>,
    /// Differentiated-services code point.
    pub dscp: u8,
    /// Priority in this host's queues; VLAN interfaces map it to their tag.
    pub priority: u8,
    /// Time that the kernel polls the device, µs.
    pub busy_poll_us: u32,
    /// True if receives must end at instants that the load chooses.
    pub wakes_for_time: bool,
    /// Room for what nobody has read yet, bytes as the kernel charges them.
    pub receive_buffer: usize,
    /// Longest sleep in one receiving call, which knows no deadline: a lost answer costs this much at least.
    pub sleep_max: Duration,
}

impl PortPlan {
    /// Options of a plain socket.
    fn udp_options(&self) -> UdpOptions {
        UdpOptions {
            receive_buffer: Some(self.receive_buffer),
            timestamps: self.stamps != Stamps::Off,
            ..UdpOptions::default()
        }
    }

    fn local_of(&self, flow: usize) -> SocketAddr {
        let mut address = self.local;
        if address.port() != 0 {
            address.set_port(address.port().wrapping_add(flow as u16));
        }
        address
    }
}

/// Half of an open run may wait there while a responder stands still: sixteen thousand packets of the size that the kernel charges for
/// one of 512 bytes.
pub const RECEIVE_BUFFER_SIZE: usize = 16 << 20;

/// Most flows of a trial: each is a socket, and all are looked at in turn.
pub const FLOWS_MAX: usize = 64;

/// One end.
pub trait Port: fmt::Debug {
    /// Sends a packet of flow `flow`; `tag` names it in [`Port::transmitted`]. `false`: there is no room, or no way.
    fn send(&mut self, flow: usize, bytes: &[u8], target: &Peer, tag: u64) -> bool;

    /// Waits for the next packet until `deadline`. `None` when that has passed, or a signal came.
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Arrival>;

    /// Visits what the device has taken since the last look, as tag and instant. Never inside of what is measured.
    fn transmitted(&mut self, visit: &mut dyn FnMut(u64, Ticks));

    /// This end's address and station.
    fn local(&self) -> Peer;

    /// Packets for this end that found no room where they are received. `None` where nobody says.
    fn dropped(&mut self) -> Option<u64> {
        None
    }

    /// Datagrams for this host that arrived in part: fragments are missing. `None` where nobody says.
    fn incomplete(&mut self) -> Option<u64> {
        None
    }

    /// Remark for a user about this port now that packets have passed, such as a poll that polls nothing.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// With what to do, where an address is the cause.
fn advised(error: &SystemError) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => "; another program has the port: `ss -ulpn` says which",
        ErrorKind::AddrNotAvailable => "; no interface of this host has that address: see `ip addr`",
        ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE: take a higher one, or run as root"
        }
        ErrorKind::NetworkUnreachable => "; no interface that is up leads there: see `ip addr`, `ip route`",
        _ => "",
    };
    format!("{error}{advice}")
}

/// Opens a port.
pub fn open(plan: &PortPlan) -> Result<Box<dyn Port + Send>, String> {
    match plan.way {
        Way::Packet | Way::XdpSkb | Way::XdpNative => Ok(Box::new(RawPort::open(plan)?)),
        _ => Ok(Box::new(UdpPort::open(plan).map_err(|error| advised(&error))?)),
    }
}

/// A sleep ends after so long, so that a thread looks at its flags: a multiple of the coarse tick by which the kernel
/// counts a socket's timeout.
pub const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A socket's timeout of nothing means for ever.
pub const SLEEP_MIN: Duration = Duration::from_millis(1);

/// When a thread was awake for a packet. `ran` is the instant when it came back from a possible sleep. It slept only if the packet was
/// not there yet when it began to listen. A thread that `spins` never sleeps.
#[inline]
fn awake(kernel: Ticks, listened: Ticks, ran: Ticks, spins: bool) -> Ticks {
    let was_awake = kernel.0 != 0 && (spins || kernel <= listened);
    if was_awake { kernel.max(listened).min(ran) } else { ran }
}

/// A kernel's stamp as an instant of our clock; 0 if there is none, or if the wall clock was set since: then it says nothing.
#[inline]
fn instant_of(wall: &mut WallClock, kernel_ns: Option<u64>) -> Ticks {
    wall.instant(Clock::get(), kernel_ns.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use punctual_machine::clock::realtime_ns;

    use super::*;

    /// Goal: a stamp counts only while the wall clock is known to have gone on by itself, and never before that was looked at.
    #[test]
    fn a_stamp_of_an_unknown_clock_says_nothing() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut wall = WallClock::new(Clock::get());
        assert_eq!(instant_of(&mut wall, Some(realtime_ns() - SECOND_NS)), Ticks(0));
        assert_eq!(instant_of(&mut wall, Some(realtime_ns() + SECOND_NS)), Ticks(0));
        assert_eq!(instant_of(&mut wall, None), Ticks(0));
        let (before, stamp) = (Clock::get().now(), realtime_ns());
        let found = instant_of(&mut wall, Some(stamp));
        // Ticks of a duration are rounded.
        let before = Ticks(before.0 - Clock::get().ticks(Duration::from_micros(1)).0);
        assert!((before..=Clock::get().now()).contains(&found), "{found:?}, from {before:?} on");
    }

    /// Goal: a thread that was not asleep is not said to have been woken.
    #[test]
    fn only_who_slept_is_woken() {
        let at = Ticks;
        // It slept from 10 on, the packet came at 20, and it ran at 70.
        assert_eq!(awake(at(20), at(10), at(70), false), at(70));
        // It was elsewhere until 60, and found the packet there.
        assert_eq!(awake(at(20), at(60), at(70), false), at(60));
        // It polled all the while.
        assert_eq!(awake(at(20), at(10), at(70), true), at(20));
        assert_eq!(awake(at(90), at(10), at(70), true), at(70), "a stamp of the kernel's other clock");
        assert_eq!(awake(at(0), at(10), at(70), true), at(70), "not known");
    }
}
