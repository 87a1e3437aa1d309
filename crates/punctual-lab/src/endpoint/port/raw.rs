//! Frames below the kernel's IP: a mapped packet ring or AF_XDP, polled; UDP and IP in user space.
//!
//! The kernel's own stack still owns the addresses: it answers for them on the segment. A plain UDP socket holds each flow's port, so
//! that nobody else takes it and nobody is told that it is closed. That socket hears nothing.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use punctual::{Clock, Ticks};
use punctual_lab_machine::xdp::{Mode, XdpSocket};
use punctual_machine::SystemError;
use punctual_machine::clock::wall_clock::WallClock;
use punctual_machine::packet::{PacketOptions, PacketSocket};
use punctual_machine::signal::interrupted;
use punctual_machine::socket::{UdpOptions, UdpSocket};

use super::{Arrival, Peer, Port, PortPlan, Stamps, Way, awake, frame, instant_of};

#[derive(Debug)]
enum Frames {
    Packet(PacketSocket),
    Xdp(XdpSocket),
}

/// Attempts to hold ports that lie one behind another, beginning anywhere.
const HOLDS: u32 = 100;

/// One end on frames.
#[derive(Debug)]
pub struct RawPort {
    frames: Frames,
    /// Hold the ports, and hear nothing.
    _guards: Vec<UdpSocket>,
    address: IpAddr,
    ports: Vec<u16>,
    ethertype: u16,
    dscp: u8,
    stamps: bool,
    wall: WallClock,
}

impl RawPort {
    /// Opens the frames of an interface, and holds the ports.
    ///
    /// # Errors
    /// In words for people: no interface, no privilege, an address that is taken.
    pub fn open(plan: &PortPlan) -> Result<Self, String> {
        let text = |error: SystemError| error.to_string();
        let interface =
            plan.interface.as_deref().ok_or("raw Ethernet needs to know its interface: --interface")?;
        if interface == "lo" {
            return Err(
                "raw Ethernet needs a segment, and loopback is none: run as root, or pass --to".to_owned()
            );
        }
        let (guards, address) = guards(plan).map_err(text)?;
        let ports: Vec<u16> =
            guards.iter().filter_map(|guard| guard.local_address().ok()).map(|a| a.port()).collect();
        let ethertype = frame::ethertype(address);
        let (Some(&first), Some(&last)) = (ports.iter().min(), ports.iter().max()) else {
            return Err("no port could be held".to_owned());
        };
        let xdp = |mode| XdpSocket::open(interface, mode, first..=last).map(Frames::Xdp).map_err(text);
        let frames = match plan.way {
            Way::XdpSkb => xdp(Mode::Generic)?,
            Way::XdpNative => xdp(Mode::Driver)?,
            _ => {
                let options = PacketOptions::default();
                Frames::Packet(PacketSocket::open(interface, ethertype, &options).map_err(text)?)
            }
        };
        let mtu = match &frames {
            Frames::Packet(socket) => socket.mtu(),
            Frames::Xdp(socket) => socket.mtu(),
        };
        let whole = frame::size_around(plan.size, address);
        if plan.remote.is_some() && whole > mtu {
            return Err(format!(
                "--size {}: {whole} bytes with their headers, where {interface} carries {mtu}",
                plan.size
            ));
        }
        Ok(Self {
            frames,
            _guards: guards,
            address,
            ports,
            ethertype,
            dscp: plan.dscp,
            stamps: plan.stamps != Stamps::Off,
            wall: WallClock::new(Clock::get()),
        })
    }

    /// Takes a frame that is for us, and passes over others; `None` if none is there.
    #[inline]
    fn take(&mut self, buffer: &mut [u8], listened: Ticks) -> Option<Arrival> {
        loop {
            let (bytes, mac, kernel_ns) = match &mut self.frames {
                Frames::Packet(socket) => {
                    socket.receiver.recv().map(|got| (got.bytes, got.source_mac, got.kernel_ns))?
                }
                Frames::Xdp(socket) => socket.recv().map(|got| (got.bytes, got.source_mac, None))?,
            };
            let ran = Clock::get().now();
            let taken = frame::take_apart(bytes).and_then(|parts| {
                let flow = self.ports.iter().position(|&port| port == parts.target.port())?;
                let payload = &bytes[parts.payload];
                let size = payload.len().min(buffer.len());
                buffer[..size].copy_from_slice(&payload[..size]);
                (parts.target.ip() == self.address).then_some((flow, size, parts.source))
            });
            match &mut self.frames {
                Frames::Packet(socket) => socket.receiver.release(),
                Frames::Xdp(socket) => socket.release(),
            }
            if let Some((flow, size, address)) = taken {
                let read = Clock::get().now();
                let kernel = instant_of(&mut self.wall, kernel_ns.filter(|_| self.stamps)).min(ran);
                let (peer, woken) = (Peer { address, mac }, awake(kernel, listened, ran, true));
                return Some(Arrival { size, flow, peer, kernel, listened, woken, read });
            }
        }
    }
}

/// Sockets that hold the ports of all flows, and the address that they are bound to.
fn guards(plan: &PortPlan) -> Result<(Vec<UdpSocket>, IpAddr), SystemError> {
    let mut held = hold(plan, plan.local.port());
    for _ in 1..HOLDS {
        match held {
            // The kernel chose the first one, and somebody has one of those behind it.
            Err(error) if error.kind() == ErrorKind::AddrInUse && plan.local.port() == 0 => {
                held = hold(plan, 0);
            }
            held => return held,
        }
    }
    held
}

/// Holds the ports from this one on, or from one that the kernel chooses. Nothing lies between them: all of that is redirected to us.
fn hold(plan: &PortPlan, mut port: u16) -> Result<(Vec<UdpSocket>, IpAddr), SystemError> {
    let mut guards: Vec<UdpSocket> = Vec::new();
    for _ in 0..plan.flows {
        let local = SocketAddr::new(plan.local.ip(), port);
        if port == 0 && !guards.is_empty() {
            return Err(SystemError::new("bind udp", local.to_string(), ErrorKind::AddrInUse));
        }
        let guard = UdpSocket::bind(local, &UdpOptions::default())?;
        // Behind the last one comes 0.
        port = guard.local_address()?.port().wrapping_add(1);
        guard
            .discard_all()
            .map_err(|error| SystemError::new("silence udp", plan.local.to_string(), error))?;
        if let Some(remote) = plan.remote {
            // Tells which address of this host the way there begins at.
            guard.connect(remote.address)?;
        }
        guards.push(guard);
    }
    let address = guards[0].local_address()?.ip();
    Ok((guards, address))
}

impl Port for RawPort {
    #[inline]
    fn send(&mut self, flow: usize, bytes: &[u8], target: &Peer, _tag: u64) -> bool {
        let source = SocketAddr::new(self.address, self.ports[flow]);
        let size = frame::size_around(bytes.len(), target.address.ip());
        let room = match &mut self.frames {
            Frames::Packet(socket) => socket.sender.claim(size),
            Frames::Xdp(socket) => socket.claim(size),
        };
        let written = room.and_then(|room| {
            frame::put_together(&mut room[..size], source, target.address, self.dscp, bytes)
        });
        if written.is_none() {
            return false;
        }
        match &mut self.frames {
            Frames::Packet(socket) => {
                socket.sender.commit(target.mac);
                // A frame for which the device has no room now goes with the next flush.
                let _now_or_later = socket.sender.flush();
                true
            }
            Frames::Xdp(socket) => socket.send(target.mac, self.ethertype).is_ok(),
        }
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Arrival> {
        let listened = Clock::get().now();
        loop {
            if let Some(arrival) = self.take(buffer, listened) {
                return Some(arrival);
            }
            std::hint::spin_loop();
            if Clock::get().now() >= deadline || interrupted() {
                return None;
            }
        }
    }

    fn transmitted(&mut self, _visit: &mut dyn FnMut(u64, Ticks)) {}

    fn dropped(&mut self) -> Option<u64> {
        match &mut self.frames {
            Frames::Packet(socket) => socket.drops().ok(),
            Frames::Xdp(_) => None,
        }
    }

    fn local(&self) -> Peer {
        let mac = match &self.frames {
            Frames::Packet(socket) => socket.mac(),
            Frames::Xdp(socket) => socket.mac(),
        };
        Peer { address: SocketAddr::new(self.address, self.ports[0]), mac }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: the ports of several flows lie one behind another, also where the kernel chooses them: all between is redirected.
    #[test]
    fn flows_have_ports_without_gaps() {
        let plan = PortPlan {
            way: Way::Packet,
            local: "127.0.0.1:0".parse().expect("an address"),
            remote: None,
            flows: 6,
            size: 100,
            stamps: Stamps::Off,
            interface: None,
            dscp: 0,
            priority: 0,
            busy_poll_us: 0,
            wakes_for_time: false,
            receive_buffer: 1 << 16,
            sleep_max: Duration::from_millis(1),
        };
        let (guards, _) = guards(&plan).expect("free ports");
        let ports: Vec<u16> =
            guards.iter().map(|guard| guard.local_address().expect("bound").port()).collect();
        assert!(ports.len() == 6 && ports.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ports:?}");
    }
}
