//! Bare UDP over loopback and bare packet rings (TPACKET_V2) over a veth pair: the floors of those buses.

use punctual_machine::packet::{BROADCAST, PacketOptions, PacketSocket};
use punctual_machine::socket::{UdpOptions, UdpSocket};

use super::{Pair, is_whole};
use crate::Outcome;
use crate::meeting::Meeting;

/// The veth pair that every run makes in a namespace of its own: this end's interface, and the other's.
pub(crate) const INTERFACES: [&str; 2] = ["peers0", "peers1"];

/// IEEE 802's second EtherType for local experiments, so that it does not meet the bus's.
const ETHERTYPE: u16 = 0x88B6;

pub(super) struct Udp {
    socket: UdpSocket,
    blocking: bool,
}

impl Udp {
    pub(super) fn open(meeting: &Meeting, blocking: bool) -> Outcome<Self> {
        let [own, other] = meeting.addresses();
        let socket = UdpSocket::bind(own, &UdpOptions::default())?;
        socket.connect(other)?;
        socket.set_blocking(blocking)?;
        Ok(Self { socket, blocking })
    }
}

impl Pair for Udp {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.socket.send_bare(message)?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        if self.blocking {
            return is_whole(self.socket.recv_bare_blocking(message)?, message);
        }
        loop {
            if let Ok(size) = self.socket.recv_bare(message) {
                return is_whole(size, message);
            }
            std::hint::spin_loop();
        }
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        Ok(())
    }
}

pub(super) struct Packet {
    socket: PacketSocket,
    /// Everybody, until the other end was heard.
    peer: [u8; 6],
}

impl Packet {
    pub(super) fn open(meeting: &Meeting) -> Outcome<Self> {
        let interface = INTERFACES[usize::from(!meeting.here)];
        let socket = PacketSocket::open(interface, ETHERTYPE, &PacketOptions::default())?;
        Ok(Self { socket, peer: BROADCAST })
    }
}

impl Pair for Packet {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        let slot = self.socket.sender.claim(message.len()).ok_or("no room in the ring of what is sent")?;
        slot[..message.len()].copy_from_slice(message);
        self.socket.sender.commit(self.peer);
        self.socket.sender.flush()?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        loop {
            let Some(frame) = self.socket.receiver.recv() else {
                std::hint::spin_loop();
                continue;
            };
            // Real wires pad short frames; the size is agreed.
            let size = message.len();
            message.copy_from_slice(frame.bytes.get(..size).ok_or("a frame is too short")?);
            self.peer = frame.source_mac;
            self.socket.receiver.release();
            return Ok(());
        }
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        Ok(())
    }
}
