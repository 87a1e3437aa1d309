//! The sending ring: we write frames in place, the kernel sends them.
//!
//! ```text
//!             claim, commit (1)                 flush (2)
//!  AVAILABLE ------------------> SEND_REQUEST ------------> SENDING ---(device done)---> AVAILABLE
//!      ^                              |  ^                     |
//!      |                     rejected |  '----- no room -------'
//!      '---- remove_rejected (3) -- WRONG_FORMAT
//! ```
use super::ETHERNET_HEADER_SIZE;
use super::interface::Interface;
use super::mapping::Frames;

/// Where the kernel reads a frame to be sent: behind the header, rounded up, without the address.
const DATA_OFFSET: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();
const PAYLOAD_OFFSET: usize = DATA_OFFSET + ETHERNET_HEADER_SIZE;

const SEND_REQUEST: u32 = libc::TP_STATUS_SEND_REQUEST;
const WRONG_FORMAT: u32 = libc::TP_STATUS_WRONG_FORMAT;
const AVAILABLE: u32 = libc::TP_STATUS_AVAILABLE;
/// The bits that make a frame the kernel's, or a reject; stamps may be set beside them.
const BUSY: u32 = SEND_REQUEST | WRONG_FORMAT | libc::TP_STATUS_SENDING;

/// Frames to be sent, in order.
#[derive(Debug)]
pub struct TransmitRing {
    frames: Frames,
    /// Where the next frame goes.
    head: usize,
    /// The oldest frame that may still wait for a flush. `head - tail` never exceeds the ring.
    tail: usize,
    claimed: Option<usize>,
    /// Source address and EtherType, the part of the Ethernet header that never changes.
    header_rest: [u8; 8],
    payload_max: usize,
    rejected: u64,
}

impl TransmitRing {
    pub(super) fn new(frames: Frames, interface: &Interface, ethertype: u16) -> Self {
        let mut header_rest = [0; 8];
        header_rest[..6].copy_from_slice(&interface.mac);
        header_rest[6..].copy_from_slice(&ethertype.to_be_bytes());
        let payload_max = interface.mtu.min(frames.size() - PAYLOAD_OFFSET);
        Self { frames, head: 0, tail: 0, claimed: None, header_rest, payload_max, rejected: 0 }
    }

    /// Room for the next frame's payload, to be written in place. `None` if the ring is full or `size`
    /// exceeds the MTU. The bytes hold whatever an earlier frame left. A claim that is not committed is
    /// forgotten by the next one.
    #[inline]
    pub fn claim(&mut self, size: usize) -> Option<&mut [u8]> {
        self.claimed = None;
        if size > self.payload_max || self.frames.status(self.head) & BUSY != 0 {
            return None;
        }
        self.claimed = Some(size);
        self.frames.bytes_mut(self.head, PAYLOAD_OFFSET, size)
    }

    /// Addresses the claimed frame to `to` and queues it for the next flush. Without a claim: a bug in the
    /// caller, and nothing happens.
    #[inline]
    pub fn commit(&mut self, to: [u8; 6]) {
        debug_assert!(self.claimed.is_some(), "commit without a claim");
        let Some(size) = self.claimed.take() else { return };
        let Some(header) = self.frames.bytes_mut(self.head, DATA_OFFSET, ETHERNET_HEADER_SIZE) else {
            return;
        };
        header[..6].copy_from_slice(&to);
        header[6..].copy_from_slice(&self.header_rest);
        // `payload_max` is below the frame size, which fits in 32 bits.
        self.frames.set_length(self.head, (ETHERNET_HEADER_SIZE + size) as u32);
        self.frames.hand_over(self.head, SEND_REQUEST);
        self.head = self.head.wrapping_add(1);
    }

    /// How many frames the kernel rejected for good. They are not sent.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Whether a frame waits for a flush; skips those the kernel has taken.
    #[inline]
    pub(super) fn has_committed(&mut self) -> bool {
        while self.tail != self.head {
            if self.frames.status(self.tail) & (SEND_REQUEST | WRONG_FORMAT) != 0 {
                return true;
            }
            self.tail = self.tail.wrapping_add(1);
        }
        false
    }

    /// Takes a rejected frame out of the ring. The kernel waits at its slot, so that the frames behind it
    /// move up by one, last slot first to be free: rule 3 allows it between flushes.
    #[cold]
    pub(super) fn remove_rejected(&mut self) {
        if !self.has_committed() || self.frames.status(self.tail) & WRONG_FORMAT == 0 {
            return;
        }
        self.rejected += 1;
        let mut slot = self.tail;
        loop {
            let next = slot.wrapping_add(1);
            if next == self.head {
                break;
            }
            self.copy_frame(next, slot);
            slot = next;
        }
        self.frames.hand_over(slot, AVAILABLE);
        self.head = slot;
        // The claimed slot has moved; a claim does not survive a flush that fails.
        self.claimed = None;
    }

    fn copy_frame(&mut self, source: usize, target: usize) {
        let length = self.frames.header(source).tp_len;
        let size = length as usize;
        // Through a copy: two slices of one ring cannot be borrowed at once. Rejects are rare.
        let copy = self.frames.bytes(source, DATA_OFFSET, size).map(<[u8]>::to_vec);
        if let (Some(copy), Some(bytes)) = (copy, self.frames.bytes_mut(target, DATA_OFFSET, size)) {
            bytes.copy_from_slice(&copy);
        }
        self.frames.set_length(target, length);
        self.frames.hand_over(target, SEND_REQUEST);
    }
}
