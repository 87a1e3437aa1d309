//! Raw Ethernet frames between hosts of one segment.
//!
//! The kernel does not show a frame to sockets of the interface that sent it: nodes of one host need an interface each.
//! Frames are padded to 60 bytes on real wires; the header says how long the payload is. AF_PACKET checks nothing: the
//! check value behind the frame is all that stands between a flipped bit and the application.

use std::os::fd::AsFd;

use punctual_machine::SystemError;
use punctual_machine::packet::{
    BROADCAST, ETHERTYPE_EXPERIMENTAL, PacketDrops, PacketOptions, PacketReceiver, PacketSender, PacketSocket,
};
use punctual_proto::NodeId;
use punctual_proto::limits::{CHECK_SIZE, PREFIX_SIZE_MAX};

use super::wire::{self, MediumReceive, MediumTransmit, Own, RawFrame};
use crate::seal::Seals;

use super::{Descriptors, Drops, Engine, Flow, Joined, NO_ADVICE, OpenError};

/// Smallest MTU that leaves room for a message, bytes: IPv4's minimum.
const MTU_MIN: usize = 68;
const _: () = assert!(MTU_MIN > PREFIX_SIZE_MAX + CHECK_SIZE);

/// A bus of raw Ethernet.
#[derive(Clone, Debug)]
pub struct PacketBusOptions {
    /// The interface.
    pub interface: String,
    /// The EtherType of the bus's frames. 0x88B5 is IEEE 802's for local experiments.
    pub ethertype: u16,
    /// Frames that the receiving ring holds until they are read; a power of two. With an MTU above 1,968 bytes as many as 128 MiB hold
    /// at most: 8,192 with one of 9,000.
    pub frames: usize,
}

impl PacketBusOptions {
    /// The bus on that interface with EtherType 0x88B5.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            ethertype: ETHERTYPE_EXPERIMENTAL,
            frames: PacketOptions::default().frames,
        }
    }
}

/// Opens a node on a bus of raw Ethernet.
pub(crate) fn open(
    options: &PacketBusOptions,
    node: NodeId,
    seals: Option<&Seals>,
) -> Result<(Engine, Joined), OpenError> {
    let socket = PacketSocket::open(
        &options.interface,
        options.ethertype,
        &PacketOptions { frames: options.frames, ..PacketOptions::default() },
    )
    .map_err(system)?;
    let frame_size_max = socket.mtu();
    if frame_size_max < MTU_MIN {
        let text = format!("interface {}: an MTU of at least {MTU_MIN} bytes is needed", options.interface);
        return Err(OpenError::Invalid(text));
    }
    let room = socket.room();
    let (sender, receiver, drops) = socket.split();
    let transmit = PacketTransmit { socket: sender, frame_size_max, target: BROADCAST };
    let receive = PacketReceive { socket: receiver, drops: Some(drops), room };
    let own = Own::new(node);
    let incarnation = own.incarnation;
    let engine = wire::open(own, transmit, receive, seals).map_err(system)?;
    Ok((engine, Joined { incarnation }))
}

fn system(error: SystemError) -> OpenError {
    // A missing privilege is in the error, with what to do.
    let advice =
        if error.is_no_device() { "see `ip link` for the interfaces of this host" } else { NO_ADVICE };
    OpenError::System { error, advice }
}

#[derive(Debug)]
struct PacketTransmit {
    socket: PacketSender,
    frame_size_max: usize,
    /// Target of the claimed frame.
    target: [u8; 6],
}

impl MediumTransmit for PacketTransmit {
    type Address = [u8; 6];

    fn frame_size_max(&self) -> usize {
        self.frame_size_max
    }

    fn claim(&mut self, size: usize, to: Option<[u8; 6]>) -> bool {
        self.target = to.unwrap_or(BROADCAST);
        if self.socket.claim(size).is_some() {
            return true;
        }
        self.flush();
        self.socket.claim(size).is_some()
    }

    fn claimed(&mut self) -> &mut [u8] {
        self.socket.claimed_mut().unwrap_or_default()
    }

    fn commit(&mut self) {
        self.socket.commit(self.target);
    }

    fn flush(&mut self) -> bool {
        // Frames without room stay queued for the next flush. The socket counts those that are refused for good.
        let Err(error) = self.socket.flush() else { return false };
        self.socket.follow_name(&error);
        self.socket.has_room_soon(&error)
    }

    fn refused(&self) -> u64 {
        self.socket.refused()
    }
}

#[derive(Debug)]
struct PacketReceive {
    socket: PacketReceiver,
    drops: Option<PacketDrops>,
    /// Bytes of frames that its ring holds.
    room: usize,
}

impl Drops for PacketDrops {
    fn take(&mut self) -> u64 {
        Self::take(self).unwrap_or(0)
    }
}

impl MediumReceive for PacketReceive {
    type Address = [u8; 6];

    fn poll(&mut self, limit: usize, visit: &mut impl FnMut(RawFrame<'_, [u8; 6]>) -> Flow) -> usize {
        let mut shown = 0;
        let mut flow = Flow::Continue;
        while shown < limit && flow == Flow::Continue {
            let Some(frame) = self.socket.recv() else { break };
            flow = visit(RawFrame {
                bytes: frame.bytes,
                source: &frame.source_mac,
                truncated: frame.truncated,
                kernel_ns: frame.kernel_ns,
            });
            self.socket.release();
            shown += 1;
        }
        shown
    }

    fn is_ready(&self) -> bool {
        self.socket.has_frame()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        Some(Box::new(self.drops.take()?))
    }

    fn room(&self) -> usize {
        self.room
    }

    fn looks_suffice(&self) -> bool {
        true
    }

    fn handle_woken(&mut self) {
        // Woken for nothing: the interface may have gone down, which the socket says to every sleeper until it is asked.
        if !self.socket.has_frame() {
            self.socket.forget_error();
        }
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [Some(self.socket.as_fd()), None]
    }
}
