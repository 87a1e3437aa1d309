//! Raw Ethernet through an `AF_PACKET` socket: one EtherType on one interface.
//!
//! A received frame is read where the kernel wrote it, in a mapped ring: polling costs no system call. The ring is TPACKET_V2: V3 hands
//! frames over only when a block is retired, which takes a millisecond. Sending copies, with one system call per
//! [`PacketSender::flush`]. A mapped sending ring was measured and is slower, for one frame and for many. That is because the kernel
//! must copy its pages before a veth or a bridge may keep them.
//!
//! # Rules of access
//! 1. A frame of the ring belongs to the side that its status word names: `TP_STATUS_USER` is us, anything else the kernel.
//! 2. The status word is read with acquire ordering before anything else in the frame, and written with
//!    release ordering after the last read of it: taking a frame sees what the kernel wrote, and the kernel
//!    overwrites it only after we are done. Other words are plain, because of rule 1.
//! 3. The ring owns the mapping, so that it does not outlive it. It masks every position into the mapping, so that every pointer it
//!    forms lies inside.
mod interface;
mod mapping;
mod receive;
mod transmit;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use interface::Interface;
pub(crate) use interface::{bring_up, set_feature};
pub use receive::{PacketReceiver, RawFrame};
pub use transmit::PacketSender;

use crate::SystemError;
use crate::filter;
use crate::socket::set_option;
use mapping::Frames;

/// EtherType for local experiments (IEEE 802, "Local Experimental EtherType 1").
pub const ETHERTYPE_EXPERIMENTAL: u16 = 0x88B5;
/// Target, source and EtherType.
pub const ETHERNET_HEADER_SIZE: usize = 14;
/// A packet for everybody on the segment.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The smallest frame slot: a status block, an address and an Ethernet frame of the least MTU (68).
const FRAME_SIZE_MIN: usize = 256;
/// The largest: the loopback interface's 64 KiB MTU fits.
const FRAME_SIZE_MAX: usize = 128 * 1024;
/// The least where nobody chose: the usual MTU, 1,500, fits.
const FRAME_SIZE_USUAL: usize = 2_048;
/// More frames than this are memory wasted on a queue that is already much too late.
const FRAMES_MAX: usize = 1 << 16;
/// Memory of a ring whose frames have the size that the MTU asks for, bytes: as much as the most frames of the usual size take.
const RING_SIZE_MAX: usize = FRAMES_MAX * FRAME_SIZE_USUAL;
/// Size of a received frame's slot before its payload: header and address (52), the Ethernet header rounded up (16), all rounded up
/// again (`tpacket_rcv` in the kernel).
const SLOT_OVERHEAD: usize = 80;
const _: () = assert!(SLOT_OVERHEAD >= libc::TPACKET2_HDRLEN + ETHERNET_HEADER_SIZE);

/// Layout of a packet socket's queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketOptions {
    /// Frames in the receiving ring; a power of two, at most 65,536. Where the MTU chooses their size, as many of them as 128 MiB hold
    /// at most.
    pub frames: usize,
    /// Bytes per frame; a power of two that holds the interface's MTU and 80 bytes of the kernel's. The least one from 2,048 on, if it
    /// is not given.
    pub frame_size: Option<usize>,
    /// Frames that can be committed before a flush.
    pub send_frames: usize,
    /// Hand frames to the device without a queueing discipline: a little faster, and traffic shaping does
    /// not see them. A device that has no room then refuses at once instead of queueing.
    pub bypass_queue: bool,
}

impl Default for PacketOptions {
    /// 2,048 frames, which are four megabytes where the MTU is 1,500, and 200 ms at 10,000 frames a second. Committing 64 at a time,
    /// without a queue below.
    fn default() -> Self {
        Self { frames: 2_048, frame_size: None, send_frames: 64, bypass_queue: true }
    }
}

/// A receiving ring as it is laid out.
#[derive(Debug, Clone, Copy)]
struct Layout {
    frames: usize,
    frame_size: usize,
}

/// An open packet socket, its queues, and the interface it is bound to.
#[derive(Debug)]
pub struct PacketSocket {
    /// Its sending half.
    pub sender: PacketSender,
    /// Its receiving half.
    pub receiver: PacketReceiver,
    drops: PacketDrops,
    dropped: u64,
    interface: Interface,
}

/// Counts the frames for which the kernel had no slot.
#[derive(Debug)]
pub struct PacketDrops {
    fd: Arc<OwnedFd>,
}

impl PacketSocket {
    /// Opens `interface` for frames of `ethertype`, and for no others. Needs CAP_NET_RAW.
    ///
    /// Some frames are filtered out in the kernel: those for another station (a bridge floods them), this host's own, and those of
    /// interfaces upon this one (of a VLAN).
    pub fn open(interface: &str, ethertype: u16, options: &PacketOptions) -> Result<Self, SystemError> {
        let fd = open_raw().map_err(|e| missing_privilege(interface, e))?;
        let named = |operation| move |e: io::Error| SystemError::new(operation, interface, e);
        let interface = Interface::find(fd.as_fd(), interface)?;
        let layout = layout(options, interface.mtu)
            .map_err(|e| SystemError::new("lay out packet ring for", &interface.name, e))?;
        set_int(fd.as_fd(), libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)
            .map_err(named("ask for TPACKET_V2 on"))?;
        if options.bypass_queue {
            set_int(fd.as_fd(), libc::PACKET_QDISC_BYPASS, 1).map_err(named("bypass the queue of"))?;
        }
        let frames = Frames::map(fd.as_fd(), layout).map_err(named("map packet ring of"))?;
        // Last, so that nothing arrives before the ring is in place.
        listen(fd.as_fd(), &interface, ethertype)?;
        let fd = Arc::new(fd);
        let sender = PacketSender::new(Arc::clone(&fd), options.send_frames, &interface, ethertype);
        let drops = PacketDrops { fd: Arc::clone(&fd) };
        let receiver = PacketReceiver::new(fd, frames);
        Ok(Self { sender, receiver, drops, dropped: 0, interface })
    }

    /// The two halves and the counter of drops, each for a thread of its own: none waits for another.
    pub fn split(self) -> (PacketSender, PacketReceiver, PacketDrops) {
        (self.sender, self.receiver, self.drops)
    }

    /// The interface's own address when it was opened.
    pub fn mac(&self) -> [u8; 6] {
        self.interface.mac
    }

    /// The largest payload the interface carried when it was opened.
    pub fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// Bytes of payload that the receiving ring holds at most.
    pub fn room(&self) -> usize {
        self.receiver.frames() * self.interface.mtu
    }

    /// Number of frames for which the kernel had no slot since the socket was opened.
    ///
    /// # Errors
    /// See [`PacketDrops::take`].
    pub fn drops(&mut self) -> io::Result<u64> {
        self.dropped += self.drops.take()?;
        Ok(self.dropped)
    }
}

impl PacketDrops {
    /// Number of frames for which the kernel had no slot since this was last asked. A call of the kernel: ask when something is
    /// missing.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take(&self) -> io::Result<u64> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut size = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointers describe `stats` and its true size, both borrowed for the whole call.
        let answer = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut size,
            )
        };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stats.tp_drops.into())
    }
}

impl AsFd for PacketSocket {
    /// Readable while the newest frame that arrived is not released.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// A packet socket that hears nothing yet: its protocol comes with `bind`.
pub fn open_raw() -> io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    let family = rustix::net::AddressFamily::PACKET;
    Ok(rustix::net::socket_with(family, rustix::net::SocketType::RAW, flags, None)?)
}

fn missing_privilege(interface: &str, error: io::Error) -> SystemError {
    let error = match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "packet sockets need CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the binary",
        ),
        _ => error,
    };
    SystemError::new("open packet socket on", interface, error)
}

fn layout(options: &PacketOptions, mtu: usize) -> io::Result<Layout> {
    let bad = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    let PacketOptions { mut frames, .. } = *options;
    if !frames.is_power_of_two() || frames > FRAMES_MAX {
        return bad(format!("{frames} frames: pass a power of two up to {FRAMES_MAX}"));
    }
    let enough = (mtu + SLOT_OVERHEAD).next_power_of_two();
    let frame_size = options.frame_size.unwrap_or_else(|| {
        let frame_size = enough.max(FRAME_SIZE_USUAL);
        frames = frames.min(RING_SIZE_MAX / frame_size);
        frame_size
    });
    if !frame_size.is_power_of_two() || !(FRAME_SIZE_MIN..=FRAME_SIZE_MAX).contains(&frame_size) {
        return bad(format!(
            "frame size {frame_size}: pass a power of two from {FRAME_SIZE_MIN} to {FRAME_SIZE_MAX}"
        ));
    }
    if options.send_frames == 0 || options.send_frames > FRAMES_MAX {
        return bad(format!("{} frames to send: pass 1 to {FRAMES_MAX}", options.send_frames));
    }
    if frame_size < mtu + SLOT_OVERHEAD {
        return bad(format!(
            "frame size {frame_size} holds {} of the mtu's {mtu} bytes: pass {enough}",
            frame_size - SLOT_OVERHEAD
        ));
    }
    Ok(Layout { frames, frame_size })
}

fn set_int(fd: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_option(fd, libc::SOL_PACKET, name, &value)
}

/// From now on frames of that type come from this interface, and what is sent goes by it.
fn listen(fd: BorrowedFd<'_>, interface: &Interface, ethertype: u16) -> Result<(), SystemError> {
    let failed = |operation| move |e| SystemError::new(operation, &interface.name, e);
    // First, so that nothing arrives before the filter is in place.
    filter::attach_to_packets(fd, interface.heard_by()).map_err(failed("filter packets of"))?;
    bind(fd, interface.index, ethertype).map_err(failed("bind packet socket to"))
}

fn bind(fd: BorrowedFd<'_>, index: libc::c_int, ethertype: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer and the size describe `address`, borrowed for the whole call.
    let answer = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
