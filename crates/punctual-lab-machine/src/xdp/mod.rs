//! AF_XDP: frames of chosen UDP ports, taken from the interface before the kernel's own stack.
//!
//! A program at the interface (`program`) sends UDP for our ports to our socket and leaves everything else alone. A
//! received frame is read in memory that is shared with the kernel, so polling costs no system call; sending copies into
//! that memory and kicks the kernel once.
//!
//! # Rules of access
//! 1. A frame belongs to the kernel once it is put into the fill or the transmit ring. It stays the kernel's until it is taken from the
//!    receive or the completion ring; otherwise it is ours.
//! 2. Of each ring we are producer or consumer. The producer writes an entry, then its position with release ordering;
//!    the consumer reads that position with acquire ordering, then the entry, then stores its own with release ordering.
mod damage;
mod program;
mod rings;

use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

pub use damage::{Damage, DamagePlan, Damaged, Traffic};
use program::{Echo, Redirect};
use punctual_machine::SystemError;
use punctual_machine::packet::{ETHERNET_HEADER_SIZE, Interface};
use rings::{FRAME_SIZE, FRAMES, Kind, Memory, Ring};
use rustix::io::Errno;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the kernel's generic hook, after it has made a packet of its own: every interface can.
    Generic,
    /// In the driver, before that: drivers that can are few; veth is one.
    Driver,
}

/// A received frame, in shared memory until it is released.
#[derive(Clone, Copy, Debug)]
pub struct XdpFrame<'a> {
    /// The station that sent it.
    pub source_mac: [u8; 6],
    /// The bytes after the Ethernet header.
    pub bytes: &'a [u8],
}

/// Number of attempts to bind a queue that an earlier socket has not released yet, and the pause between them: the kernel takes
/// the old socket apart some time after it was closed.
const BINDS: u32 = 100;
const BIND_AGAIN: Duration = Duration::from_millis(10);

fn bind_when_free(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    for _ in 1..BINDS {
        match rings::bind(socket, interface, 0) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(BIND_AGAIN),
            done => return done,
        }
    }
    rings::bind(socket, interface, 0)
}

/// Packets come by any of an interface's queues, and this takes those of one.
fn check_queues(interface: &str) -> io::Result<()> {
    let entries = std::fs::read_dir(format!("/sys/class/net/{interface}/queues")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let count = names.filter(|name| name.starts_with("rx-")).count();
    if count <= 1 {
        return Ok(());
    }
    let text = format!("it has {count} receive queues: `ethtool -L {interface} combined 1`");
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// A socket that receives and sends whole frames, and the program that feeds it.
#[derive(Debug)]
pub struct XdpSocket {
    fill: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    transmit: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    /// The frame that is being read.
    current: Option<libc::xdp_desc>,
    /// Frames to send from.
    free: VecDeque<u64>,
    claimed: Option<(u64, usize)>,
    interface: Interface,
    // Fields drop in order: first nothing more comes, then the socket ends, then the memory goes.
    _program: Redirect,
    socket: OwnedFd,
    memory: Memory,
}

impl XdpSocket {
    /// Opens `interface` for UDP to `ports`. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and an interface with one
    /// receive queue.
    pub fn open(interface: &str, mode: Mode, ports: RangeInclusive<u16>) -> Result<Self, SystemError> {
        let named = |operation| named(operation, interface);
        let socket = rings::open().map_err(named("open AF_XDP socket for"))?;
        let found = find(interface)?;
        check_queues(interface).map_err(named("take the one queue of"))?;
        let index = found.index.cast_unsigned();
        let map = named("map AF_XDP rings of");
        let memory = Memory::register(socket.as_fd()).map_err(&map)?;
        let mut fill = Ring::map(socket.as_fd(), Kind::Fill).map_err(&map)?;
        let completion = Ring::map(socket.as_fd(), Kind::Completion).map_err(&map)?;
        let receive = Ring::map(socket.as_fd(), Kind::Receive).map_err(&map)?;
        let transmit = Ring::map(socket.as_fd(), Kind::Transmit).map_err(&map)?;
        let address = |frame: u32| u64::from(frame) * FRAME_SIZE as u64;
        for frame in 0..FRAMES {
            fill.put(address(frame));
        }
        bind_when_free(&socket, index).map_err(named("bind AF_XDP socket to"))?;
        let program = Redirect::attach(index, mode, *ports.start(), *ports.end())
            .map_err(named("put an XDP program at"))?;
        program.redirect(0, socket.as_raw_fd()).map_err(named("redirect packets of"))?;
        Ok(Self {
            fill,
            receive,
            transmit,
            completion,
            current: None,
            free: (FRAMES..2 * FRAMES).map(address).collect(),
            claimed: None,
            interface: found,
            _program: program,
            socket,
            memory,
        })
    }

    /// The interface's own address.
    pub fn mac(&self) -> [u8; 6] {
        self.interface.mac
    }

    /// The largest payload the interface carried when it was opened.
    pub fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// The oldest frame, if one is there: a memory read, no system call. The same frame comes again until it is
    /// released.
    #[inline]
    pub fn recv(&mut self) -> Option<XdpFrame<'_>> {
        if self.current.is_none() {
            self.current = self.receive.take();
        }
        let descriptor = self.current?;
        let frame = self.memory.bytes(descriptor.addr, descriptor.len as usize)?;
        let (_, rest) = frame.split_first_chunk::<6>()?;
        let (source_mac, _) = rest.split_first_chunk::<6>()?;
        Some(XdpFrame { source_mac: *source_mac, bytes: frame.get(ETHERNET_HEADER_SIZE..)? })
    }

    /// Hands the oldest frame back to the kernel. Without one, nothing happens.
    #[inline]
    pub fn release(&mut self) {
        if let Some(descriptor) = self.current.take() {
            // The kernel writes behind its headroom: it wants the frame by its start.
            let start = descriptor.addr - descriptor.addr % FRAME_SIZE as u64;
            let put = self.fill.put(start);
            debug_assert!(put, "the fill ring has room for every frame that was ever put into it");
        }
    }

    /// Room for the next frame's payload, to be written in place. `None` if every frame is on its way, or `size` exceeds the MTU. The
    /// bytes hold content that an earlier frame left.
    #[inline]
    pub fn claim(&mut self, size: usize) -> Option<&mut [u8]> {
        while let Some(address) = self.completion.take() {
            self.free.push_back(address);
        }
        let whole = size.checked_add(ETHERNET_HEADER_SIZE)?;
        if size > self.interface.mtu || whole > FRAME_SIZE {
            return None;
        }
        let address = match self.claimed {
            Some((address, _)) => address,
            None => self.free.pop_front()?,
        };
        self.claimed = Some((address, whole));
        self.memory.bytes_mut(address, whole)?.get_mut(ETHERNET_HEADER_SIZE..)
    }

    /// Addresses the claimed frame and hands it to the device, in one system call.
    ///
    /// A frame that the device has no room for now goes with the next call. An error is that the ring has none, or that the device is
    /// gone.
    #[inline]
    pub fn send(&mut self, to: [u8; 6], ethertype: u16) -> io::Result<()> {
        if let Some((address, size)) = self.claimed.take() {
            let from = self.interface.mac;
            if let Some(header) = self.memory.bytes_mut(address, ETHERNET_HEADER_SIZE) {
                header[..6].copy_from_slice(&to);
                header[6..12].copy_from_slice(&from);
                header[12..].copy_from_slice(&ethertype.to_be_bytes());
            }
            let descriptor = libc::xdp_desc { addr: address, len: size as u32, options: 0 };
            if !self.transmit.put(descriptor) {
                self.free.push_back(address);
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        match rustix::net::send(&self.socket, &[], rustix::net::SendFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::BUSY) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The error of an operation at `interface`, with the privilege that it needs if that is the cause.
fn named(operation: &'static str, interface: &str) -> impl Fn(io::Error) -> SystemError {
    move |error| {
        let error = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let text = "AF_XDP and XDP programs need CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: run as root (before Linux 5.11 with memory to lock: ulimit -l)";
                io::Error::new(io::ErrorKind::PermissionDenied, text)
            }
            _ => error,
        };
        SystemError::new(operation, interface, error)
    }
}

fn find(interface: &str) -> Result<Interface, SystemError> {
    let udp = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
        .map_err(|error| SystemError::new("open udp socket for", interface, error))?;
    Interface::find(udp.as_fd(), interface)
}

/// Answers UDP for one port where it arrives, without waking anybody (`XDP_TX`), until it is dropped: source and target
/// change places, and the packet goes out again with the payload as it was.
///
/// IPv4 without options and fragments only; everything else goes to the kernel as before. Packets from the echo pass no queue of
/// this host and are seen by no capture of it.
#[derive(Debug)]
pub struct XdpEcho {
    echo: Echo,
    interface: Interface,
}

impl XdpEcho {
    /// Puts the program at `interface`.
    ///
    /// # Errors
    /// Needs CAP_NET_ADMIN and CAP_BPF, and an interface that has no other XDP program.
    pub fn open(interface: &str, mode: Mode, port: u16) -> Result<Self, SystemError> {
        let found = find(interface)?;
        let echo = Echo::attach(found.index.cast_unsigned(), mode, port)
            .map_err(named("put an XDP program at", interface))?;
        Ok(Self { echo, interface: found })
    }

    /// Packets answered so far.
    ///
    /// # Errors
    /// The kernel does not give its counter.
    pub fn answered(&self) -> Result<u64, SystemError> {
        self.echo.answered().map_err(|error| SystemError::new("read", "the counter of an XDP program", error))
    }

    /// The interface's own address.
    pub fn mac(&self) -> [u8; 6] {
        self.interface.mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};

    /// Goal: a frame goes from one end of a veth pair to the other, in both modes, and what is for others does not.
    #[test]
    fn frames_cross_a_veth_pair() {
        for mode in [Mode::Generic, Mode::Driver] {
            let done = std::thread::spawn(move || cross(mode)).join().expect("the thread ends");
            if let Err(error) = done {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                punctual_machine::skipped!("{error}");
            }
        }
    }

    /// Goal: a datagram for the port comes back without anybody listening; one for another port does not.
    #[test]
    fn an_echo_answers_its_port_alone() {
        let done = std::thread::spawn(echo).join().expect("the thread ends");
        if let Err(error) = done {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            punctual_machine::skipped!("{error}");
        }
    }

    fn echo() -> Result<(), SystemError> {
        unshare_network()?;
        create_veth("xdp-here", "xdp-there", thread_id())?;
        bring_up("xdp-here")?;
        bring_up("xdp-there")?;
        let echo = XdpEcho::open("xdp-there", Mode::Generic, 700)?;
        let mut here = XdpSocket::open("xdp-here", Mode::Generic, 900..=900)?;
        for port in [699_u16, 700, 701] {
            let packet = here.claim(29).expect("room");
            packet.fill(0);
            (packet[0], packet[9]) = (0x45, libc::IPPROTO_UDP as u8);
            packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            packet[20..22].copy_from_slice(&900_u16.to_be_bytes());
            packet[22..24].copy_from_slice(&port.to_be_bytes());
            packet[28] = port as u8;
            here.send(echo.mac(), 0x0800).expect("sent");
        }
        let start = std::time::Instant::now();
        let got = loop {
            if let Some(frame) = here.recv() {
                break frame;
            }
            assert!(start.elapsed().as_secs() < 20, "no answer came");
        };
        assert_eq!((got.bytes[28], got.source_mac), (700_u16 as u8, echo.mac()));
        assert_eq!(got.bytes[12..20], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(
            (&got.bytes[20..22], &got.bytes[22..24]),
            (&700_u16.to_be_bytes()[..], &900_u16.to_be_bytes()[..])
        );
        here.release();
        assert!(here.recv().is_none());
        assert_eq!(echo.answered()?, 1);
        Ok(())
    }

    fn cross(mode: Mode) -> Result<(), SystemError> {
        unshare_network()?;
        create_veth("xdp-here", "xdp-there", thread_id())?;
        bring_up("xdp-here")?;
        bring_up("xdp-there")?;
        let mut here = XdpSocket::open("xdp-here", mode, 700..=701)?;
        let mut there = XdpSocket::open("xdp-there", mode, 700..=701)?;
        let target = there.mac();
        for (port, payload) in [(699_u16, 1_u8), (700, 2), (702, 3), (701, 4)] {
            let packet = here.claim(29).expect("room");
            packet.fill(0);
            packet[0] = 0x45;
            packet[9] = libc::IPPROTO_UDP as u8;
            packet[22..24].copy_from_slice(&port.to_be_bytes());
            packet[28] = payload;
            here.send(target, 0x0800).expect("sent");
        }
        for expected in [2, 4] {
            let start = std::time::Instant::now();
            let got = loop {
                if let Some(frame) = there.recv() {
                    break frame;
                }
                assert!(start.elapsed().as_secs() < 20, "frame {expected} did not come in {mode:?}");
            };
            assert_eq!((got.bytes[28], got.source_mac), (expected, here.mac()), "{mode:?}");
            there.release();
        }
        assert!(there.recv().is_none(), "{mode:?}");
        Ok(())
    }
}
