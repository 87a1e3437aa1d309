//! The sending side: frames are written whole, header and payload, and go out in one call.
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use super::interface::Interface;
use super::{ETHERNET_HEADER_SIZE, listen};
use crate::socket::SendBatch;

/// The sending half of a packet socket: frames waiting to be sent, in order, in slots that are allocated once.
#[derive(Debug)]
pub struct PacketSender {
    fd: Arc<OwnedFd>,
    batch: SendBatch,
    interface: String,
    ethertype: u16,
    /// Source address and EtherType, the part of the Ethernet header that all frames share.
    header_rest: [u8; 8],
}

fn header_rest(interface: &Interface, ethertype: u16) -> [u8; 8] {
    let mut rest = [0; 8];
    rest[..6].copy_from_slice(&interface.mac);
    rest[6..].copy_from_slice(&ethertype.to_be_bytes());
    rest
}

impl PacketSender {
    pub(super) fn new(fd: Arc<OwnedFd>, frames: usize, interface: &Interface, ethertype: u16) -> Self {
        let batch = SendBatch::new(frames, ETHERNET_HEADER_SIZE + interface.mtu);
        let header_rest = header_rest(interface, ethertype);
        Self { fd, batch, interface: interface.name.clone(), ethertype, header_rest }
    }

    /// Room for the next frame's payload, to be written in place. `None` if the queue is full or `size` exceeds the MTU. The bytes hold
    /// the remains of an earlier frame. A claim that is not committed is forgotten by the next one, and by a flush.
    #[inline]
    pub fn claim(&mut self, size: usize) -> Option<&mut [u8]> {
        let frame = self.batch.claim(ETHERNET_HEADER_SIZE.checked_add(size)?)?;
        frame.get_mut(ETHERNET_HEADER_SIZE..)
    }

    /// The claimed frame's payload once more, whole.
    #[inline]
    pub fn claimed_mut(&mut self) -> Option<&mut [u8]> {
        self.batch.claimed_mut()?.get_mut(ETHERNET_HEADER_SIZE..)
    }

    /// Addresses the claimed frame to `to` and queues it for the next flush. Without a claim: a bug in the
    /// caller, and nothing happens.
    #[inline]
    pub fn commit(&mut self, to: [u8; 6]) {
        if let Some((header, _)) = self.batch.claimed_mut().and_then(<[u8]>::split_first_chunk_mut) {
            let header: &mut [u8; ETHERNET_HEADER_SIZE] = header;
            header[..6].copy_from_slice(&to);
            header[6..].copy_from_slice(&self.header_rest);
        }
        // The socket is bound to its interface, which stands in for a connected peer.
        self.batch.commit_connected();
    }

    /// Number of frames that wait for a flush.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Number of frames that the kernel refused for good. They are not sent.
    pub fn refused(&self) -> u64 {
        self.batch.refused()
    }

    /// Hands every committed frame to the device, oldest first. `Ok` without a call if there is none.
    ///
    /// Where there is no room (`WouldBlock`, ENOBUFS) the frames that were not sent stay committed, in order,
    /// and the next flush tries them again. A frame that the kernel refuses for good (ENETDOWN, or longer than
    /// an MTU that has shrunk since) is taken out and counted in [`Self::refused`]; those behind it go.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        self.batch.send_all(self.fd.as_raw_fd(), false)
    }

    /// True if a flush that ended with this error left frames for which there will be room soon. A device whose queue is full says
    /// ENOBUFS, and so does one without a link: nobody is to wait for that.
    #[cold]
    pub fn has_room_soon(&self, error: &io::Error) -> bool {
        let is_full = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM));
        error.kind() == io::ErrorKind::WouldBlock
            || is_full && Interface::is_running(self.fd.as_fd(), &self.interface)
    }

    /// After a flush that ended with this error: if the interface was removed, and another has its name by now, the socket sends and
    /// receives by that one. Frames have the size that fitted the interface before.
    #[cold]
    pub fn follow_name(&mut self, error: &io::Error) {
        if error.raw_os_error() == Some(libc::ENXIO)
            && let Ok(interface) = Interface::find(self.fd.as_fd(), &self.interface)
            && listen(self.fd.as_fd(), &interface, self.ethertype).is_ok()
        {
            self.header_rest = header_rest(&interface, self.ethertype);
        }
    }
}
