//! The receiving ring: the kernel fills frames, we read them in place and hand them back.
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::mapping::Frames;
use super::{ETHERNET_HEADER_SIZE, SLOT_OVERHEAD};

/// A received frame, read where the kernel put it. It lasts until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFrame<'a> {
    /// The station that sent it.
    pub source_mac: [u8; 6],
    /// The station, or group, that it is for.
    pub target_mac: [u8; 6],
    /// The bytes that follow the Ethernet header, with the padding of a frame shorter than the medium's minimum: the payload must say
    /// how long it is.
    pub bytes: &'a [u8],
    /// True if the frame was longer than its slot: the rest is lost.
    pub truncated: bool,
    /// When the kernel took it in, in ns of CLOCK_REALTIME.
    pub kernel_ns: Option<u64>,
}

/// The receiving half of a packet socket: the frames that arrived, oldest first.
#[derive(Debug)]
pub struct PacketReceiver {
    fd: Arc<OwnedFd>,
    frames: Frames,
    /// The oldest frame that is not released.
    head: usize,
}

impl PacketReceiver {
    pub(super) fn new(fd: Arc<OwnedFd>, frames: Frames) -> Self {
        debug_assert!(frames.size() > SLOT_OVERHEAD);
        Self { fd, frames, head: 0 }
    }

    /// Number of frames that fit.
    pub(super) fn frames(&self) -> usize {
        self.frames.count()
    }

    /// The oldest frame, if one is there: a memory read, no system call. The same frame comes again until
    /// it is released.
    #[inline]
    pub fn recv(&mut self) -> Option<RawFrame<'_>> {
        while self.is_ours() {
            if self.read().is_some() {
                return self.read();
            }
            // Not a whole Ethernet header: nothing the filter lets through on Ethernet.
            self.release();
        }
        None
    }

    /// Hands the oldest frame back to the kernel. Without one, nothing happens.
    #[inline]
    pub fn release(&mut self) {
        if self.is_ours() {
            self.frames.hand_over(self.head, libc::TP_STATUS_KERNEL);
            self.head = self.head.wrapping_add(1);
        }
    }

    /// Returns true if there is a frame: one load of memory that the kernel writes.
    #[inline]
    pub fn has_frame(&self) -> bool {
        self.is_ours()
    }

    /// Takes an error that the socket holds, such as that its interface went down. Until then it counts as readable.
    pub fn forget_error(&self) {
        let _what_it_was = rustix::net::sockopt::socket_error(&self.fd);
    }

    #[inline]
    fn is_ours(&self) -> bool {
        self.frames.status(self.head) & libc::TP_STATUS_USER != 0
    }

    /// The head frame, which is ours.
    #[inline]
    fn read(&self) -> Option<RawFrame<'_>> {
        let header = self.frames.header(self.head);
        let (start, size) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let frame = self.frames.bytes(self.head, start, size)?;
        let (target_mac, rest) = frame.split_first_chunk::<6>()?;
        let (source_mac, _) = rest.split_first_chunk::<6>()?;
        let ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        Some(RawFrame {
            source_mac: *source_mac,
            target_mac: *target_mac,
            bytes: frame.get(ETHERNET_HEADER_SIZE..)?,
            truncated: header.tp_len > header.tp_snaplen,
            kernel_ns: (ns != 0).then_some(ns),
        })
    }
}

impl AsFd for PacketReceiver {
    /// Readable while the newest frame that arrived is not released.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
