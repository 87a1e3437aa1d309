//! The machine's own mechanisms, with nothing around them: what everything else is measured against.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::SystemError;
use punctual_machine::packet::{BROADCAST, PacketOptions, PacketSocket};
use punctual_machine::slot::SlotPair;
use punctual_machine::socket::{UdpOptions, UdpSocket};

use super::{Endpoint, Received, poll_until, time_left};

/// One shared slot each way.
#[derive(Debug)]
pub struct SlotEndpoint {
    pair: SlotPair,
    size: usize,
    asleep: bool,
}

impl SlotEndpoint {
    /// The end that makes the file. `asleep`: waits by a bare futex, else spins.
    pub fn create(path: &Path, size: usize, asleep: bool) -> Result<Self, SystemError> {
        Ok(Self { pair: SlotPair::create(path)?, size, asleep })
    }

    /// The other end.
    pub fn open(path: &Path, size: usize, asleep: bool) -> Result<Self, SystemError> {
        Ok(Self { pair: SlotPair::open(path)?, size, asleep })
    }
}

impl Endpoint for SlotEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        if self.asleep {
            self.pair.put_and_wake(message);
        } else {
            self.pair.put(message);
        }
        true
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let buffer = &mut buffer[..self.size];
        let got = if self.asleep {
            self.pair.get_asleep(buffer, time_left(deadline))
        } else {
            poll_until(&mut self.pair, deadline, |pair| pair.try_get(buffer).then_some(()), |_, _| ())
                .is_some()
        };
        got.then_some(Received { size: self.size, stages: None })
    }
}

/// A connected UDP socket and the bare calls.
#[derive(Debug)]
pub struct UdpEndpoint {
    socket: UdpSocket,
    blocking: bool,
}

impl UdpEndpoint {
    /// `blocking`: waits in the kernel, else polls.
    pub fn open(local: SocketAddr, remote: SocketAddr, blocking: bool) -> Result<Self, SystemError> {
        let socket = UdpSocket::bind(local, &UdpOptions::default())?;
        socket.connect(remote)?;
        let set = socket.set_blocking(blocking).and_then(|()| {
            // A watchdog, not a deadline: set once, so that no call more than needed is measured.
            socket.set_receive_timeout(blocking.then_some(Duration::from_millis(300)))
        });
        set.map_err(|error| SystemError::new("set up socket", local.to_string(), error))?;
        Ok(Self { socket, blocking })
    }
}

impl Endpoint for UdpEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        self.socket.send_bare(message).is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let Self { socket, blocking } = self;
        let size = if *blocking {
            loop {
                match socket.recv_bare_blocking(buffer) {
                    Ok(size) => break Some(size),
                    Err(_) if Clock::get().now() >= deadline => break None,
                    // A time-out before the deadline, a signal, or news of an earlier datagram of ours.
                    Err(error) => debug_assert_ne!(error.kind(), ErrorKind::InvalidInput),
                }
            }
        } else {
            poll_until(socket, deadline, |socket| socket.recv_bare(buffer).ok(), |_, _| ())
        };
        size.map(|size| Received { size, stages: None })
    }
}

/// A packet socket's rings, polled.
#[derive(Debug)]
pub struct PacketEndpoint {
    socket: PacketSocket,
    size: usize,
    /// Everybody, until the other end was heard.
    peer: [u8; 6],
}

impl PacketEndpoint {
    /// On an interface, with an EtherType of its own.
    pub fn open(interface: &str, ethertype: u16, size: usize) -> Result<Self, SystemError> {
        Ok(Self {
            socket: PacketSocket::open(interface, ethertype, &PacketOptions::default())?,
            size,
            peer: BROADCAST,
        })
    }
}

impl Endpoint for PacketEndpoint {
    #[inline]
    fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
        let Some(slot) = self.socket.claim(message.len()) else { return false };
        slot[..message.len()].copy_from_slice(message);
        self.socket.commit(self.peer);
        self.socket.flush().is_ok()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let Self { socket, size, peer } = self;
        let size = *size;
        let poll = |socket: &mut PacketSocket| {
            let frame = socket.recv()?;
            // Real wires pad short frames; the size is agreed.
            let bytes = frame.bytes.get(..size);
            *peer = frame.source_mac;
            let whole = bytes.is_some_and(|bytes| {
                buffer[..size].copy_from_slice(bytes);
                true
            });
            socket.release();
            whole.then_some(Received { size, stages: None })
        };
        poll_until(socket, deadline, poll, |_, _| ())
    }
}
