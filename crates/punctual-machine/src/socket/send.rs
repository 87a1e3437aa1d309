//! The sending batch: claimed and written in place, handed to the kernel in one call.
mod call;

pub use call::is_passing;

use std::{mem, ptr};

pub(super) use call::settled;

use super::DATAGRAM_SIZE_MAX;
use super::address::RawAddress;
use super::control::{SEGMENT_CONTROL_SIZE, segment_control};

/// The most datagrams the kernel cuts out of one send (64 in older kernels, 128 in newer).
pub const RUN_LEN_MAX: usize = 64;

/// Datagrams waiting to be sent, in order, in slots that are allocated once.
///
/// Datagrams that the kernel does not take stay, in order, for the next
/// [`UdpSocket::send_batch`](crate::socket::UdpSocket::send_batch); new datagrams queue behind them while there is room.
#[derive(Debug)]
pub struct SendBatch {
    /// `capacity` slots of `size_max` bytes.
    bytes: Box<[u8]>,
    slots: Box<[Slot]>,
    /// Written anew before every call: between calls their pointers mean nothing.
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    /// One control message per header: the size at which a merged run is cut.
    control: Box<[[u8; SEGMENT_CONTROL_SIZE]]>,
    /// The peer that the socket is connected to, for datagrams that are refused because for an instant it is not.
    peer: RawAddress,
    /// The target whose datagrams are counted as the kernel takes them.
    counted: Option<Counted>,
    /// Cleared when the kernel refuses to cut a run that it takes uncut.
    can_merge: bool,
    size_max: usize,
    /// The slot of the oldest datagram.
    first: usize,
    len: usize,
    /// The claimed slot, which is the one behind the newest datagram.
    claimed: Option<Claimed>,
    refused: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    size: usize,
    target: RawAddress,
}

/// Datagrams that the kernel has taken for one target.
#[derive(Debug, Clone, Copy)]
struct Counted {
    to: RawAddress,
    /// A run that the kernel is to cut counts as one.
    runs_as_one: bool,
    count: u64,
}

/// A slot that is being written.
#[derive(Debug, Clone, Copy)]
struct Claimed {
    slot: usize,
    size: usize,
}

// SAFETY: the pointers in `headers` and `vectors` are written from the batch's own boxes before each system call, and never read after
// it. So moving the batch to another thread moves nothing they rely on.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Room for `capacity` datagrams of up to `size_max` bytes each; nothing is allocated later.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(capacity: usize, size_max: usize) -> Self {
        assert!(capacity > 0, "a batch has room for at least one datagram");
        // SAFETY: mmsghdr is integers and raw pointers, for which all zero is a valid value.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            bytes: vec![0; capacity * size_max].into_boxed_slice(),
            slots: vec![Slot { size: 0, target: RawAddress::NONE }; capacity].into_boxed_slice(),
            headers: vec![header; capacity].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; capacity].into_boxed_slice(),
            control: vec![[0; SEGMENT_CONTROL_SIZE]; capacity].into_boxed_slice(),
            peer: RawAddress::NONE,
            counted: None,
            can_merge: true,
            size_max,
            first: 0,
            len: 0,
            claimed: None,
            refused: 0,
        }
    }

    /// For a socket that is connected to `peer`, if to any, and now and then for an instant is not ([`UdpSocket::nudge`](crate::socket::UdpSocket::nudge)).
    #[must_use]
    pub fn to_peer(self, peer: Option<RawAddress>) -> Self {
        Self { peer: peer.unwrap_or(RawAddress::NONE), ..self }
    }

    /// Counts what the kernel takes for `to`. A run that it is to cut counts as one where it comes to a socket that has it as one
    /// ([`UdpOptions::merged`](super::UdpOptions::merged)); it is cut before any other socket filters or drops of it.
    #[must_use]
    pub fn counting(self, to: Option<RawAddress>, runs_as_one: bool) -> Self {
        Self { counted: to.map(|to| Counted { to, runs_as_one, count: 0 }), ..self }
    }

    /// The count so far ([`Self::counting`]).
    pub fn counted(&self) -> u64 {
        self.counted.map_or(0, |counted| counted.count)
    }

    /// Room for the next datagram, to be written in place. `None` if the batch is full or `size` exceeds [`size_max`](Self::size_max).
    /// The bytes hold the remains of an earlier datagram. A claim that is not committed is forgotten by the next one.
    #[inline]
    pub fn claim(&mut self, size: usize) -> Option<&mut [u8]> {
        if self.is_full() || size > self.size_max {
            return None;
        }
        self.claimed = Some(Claimed { slot: self.slot(self.len), size });
        self.claimed_mut()
    }

    /// Queues the claimed datagram for `to`. Without a claim: a bug in the caller, and nothing happens.
    #[inline]
    pub fn commit(&mut self, to: impl Into<RawAddress>) {
        self.commit_raw(to.into());
    }

    /// Queues the claimed datagram for the peer the socket is connected to. Without a claim: a bug in the caller, and nothing happens.
    #[inline]
    pub fn commit_connected(&mut self) {
        self.commit_raw(RawAddress::NONE);
    }

    /// Queues the newest datagram once more, for another target. Without one, or without room: a bug in the caller, and nothing happens.
    pub fn repeat(&mut self, to: impl Into<RawAddress>) {
        debug_assert!(!self.is_empty() && !self.is_full(), "repeat without a datagram or without room");
        let Some(newest) = self.len.checked_sub(1) else { return };
        let from = self.slot(newest);
        let Slot { size, .. } = self.slots[from];
        if self.claim(size).is_some() {
            let to_slot = self.slot(self.len);
            self.bytes
                .copy_within(from * self.size_max..from * self.size_max + size, to_slot * self.size_max);
            self.commit(to);
        }
    }

    #[inline]
    fn commit_raw(&mut self, target: RawAddress) {
        debug_assert!(self.claimed.is_some(), "commit without a claim");
        if let Some(Claimed { slot, size }) = self.claimed.take() {
            self.slots[slot] = Slot { size, target };
            self.len += 1;
        }
    }

    /// The claimed datagram once more, whole.
    #[inline]
    pub fn claimed_mut(&mut self) -> Option<&mut [u8]> {
        let Claimed { slot, size } = self.claimed?;
        let start = slot * self.size_max;
        self.bytes.get_mut(start..start + size)
    }

    /// Number of datagrams that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if there is no room for another.
    pub fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    /// Number of datagrams that fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The largest datagram that can be claimed.
    pub fn size_max(&self) -> usize {
        self.size_max
    }

    /// Number of datagrams that the kernel refused for good since `new`. They are not sent.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if runs are merged on a socket with `UdpOptions::segmentation`: until the kernel refuses to cut one (a path without
    /// checksum offload, or with an MTU below the datagrams).
    pub fn is_merging(&self) -> bool {
        self.can_merge
    }

    /// The slot of the datagram `distance` behind the oldest.
    #[inline]
    fn slot(&self, distance: usize) -> usize {
        let slot = self.first + distance;
        if slot >= self.slots.len() { slot - self.slots.len() } else { slot }
    }

    #[inline]
    fn drop_oldest(&mut self, count: usize) {
        debug_assert!(count <= self.len);
        // A batch that went out whole starts at slot 0 again: the warm slots are used first.
        self.first = if count == self.len { 0 } else { self.slot(count) };
        self.len -= count;
        // The claimed slot may have been re-based; a claim does not survive a send.
        self.claimed = None;
    }

    /// Points the headers at everything that waits and returns how many there are: one per datagram, or
    /// with `merge` one per run that the kernel can cut.
    fn write_headers(&mut self, merge: bool) -> usize {
        let bytes = self.bytes.as_mut_ptr();
        let (mut count, mut distance) = (0, 0);
        while distance < self.len {
            let run = if merge { self.run_len(distance) } else { 1 };
            for behind in distance..distance + run {
                let slot = self.slot(behind);
                self.vectors[behind] = libc::iovec {
                    iov_base: bytes.wrapping_add(slot * self.size_max).cast(),
                    iov_len: self.slots[slot].size,
                };
            }
            self.write_header(count, distance, run);
            distance += run;
            count += 1;
        }
        count
    }

    fn write_header(&mut self, index: usize, distance: usize, run: usize) {
        let slot = self.slot(distance);
        let Slot { size, target } = self.slots[slot];
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = self.vectors.as_mut_ptr().wrapping_add(distance);
        header.msg_iovlen = run;
        header.msg_namelen = target.size;
        header.msg_name = match target.size {
            0 => ptr::null_mut(),
            _ => self.slots.as_mut_ptr().wrapping_add(slot).cast::<u8>().wrapping_add(NAME_OFFSET).cast(),
        };
        (header.msg_control, header.msg_controllen) = (ptr::null_mut(), 0);
        if run > 1 {
            self.control[index] = segment_control(size);
            header.msg_control = self.control.as_mut_ptr().wrapping_add(index).cast();
            header.msg_controllen = SEGMENT_CONTROL_SIZE;
        }
    }

    /// Number of datagrams from `distance` on that go to one target in equal sizes (the last may be shorter) and fit in one send.
    fn run_len(&self, distance: usize) -> usize {
        let Slot { size, target } = self.slots[self.slot(distance)];
        let (mut run, mut total) = (1, size);
        while distance + run < self.len && run < RUN_LEN_MAX && size > 0 {
            let next = &self.slots[self.slot(distance + run)];
            total += next.size;
            if next.size == 0 || next.size > size || total > DATAGRAM_SIZE_MAX || next.target != target {
                break;
            }
            run += 1;
            if next.size < size {
                break;
            }
        }
        run
    }
}

/// Where the kernel's address lies in a slot.
const NAME_OFFSET: usize = mem::offset_of!(Slot, target) + mem::offset_of!(RawAddress, bytes);
