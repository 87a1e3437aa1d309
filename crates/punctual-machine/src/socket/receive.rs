//! The receiving batch: filled by one call, read by reference.
use std::{io, mem, ptr};

use super::UdpSocket;
use super::address::RawAddress;
use super::control::{CONTROL_SIZE, ControlMessages, software_stamp};
use super::send::settled;
use super::single::Patience;
use crate::calls;

/// A received datagram, by reference into its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The payload, or as much of it as fits in `size_max`.
    pub bytes: &'a [u8],
    /// The sender.
    pub source: &'a RawAddress,
    /// True if the payload was longer than `size_max`: the rest is lost.
    pub truncated: bool,
    /// When the kernel saw it, in ns of CLOCK_REALTIME. `None` without `UdpOptions::timestamps`, and for
    /// the first datagrams of a machine with it.
    pub kernel_receive_ns: Option<u64>,
}

/// Slots for received datagrams, allocated once.
#[derive(Debug)]
pub struct RecvBatch {
    /// `capacity` slots of `size_max` bytes.
    bytes: Box<[u8]>,
    /// `capacity` slots of `CONTROL_SIZE` bytes.
    control: Box<[u8]>,
    sources: Box<[RawAddress]>,
    /// The socket is connected to the one source there is, which stands in every place of `sources`.
    has_peer: bool,
    /// Written anew before every call: between calls their pointers mean nothing, their counts do.
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    size_max: usize,
    len: usize,
    /// The last receive brought fewer datagrams than it asked for.
    ended_early: bool,
    /// Calls for one datagram that are to come before one for many, and how many came the last time.
    singles_left: u32,
    singles: u32,
}

// SAFETY: the pointers in `headers` and `vectors` are written from the batch's own boxes before each system call, and never followed
// after it. So moving the batch to another thread moves nothing they rely on.
unsafe impl Send for RecvBatch {}

impl RecvBatch {
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
            control: vec![0; capacity * CONTROL_SIZE].into_boxed_slice(),
            sources: vec![RawAddress::NONE; capacity].into_boxed_slice(),
            has_peer: false,
            headers: vec![header; capacity].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; capacity].into_boxed_slice(),
            size_max,
            len: 0,
            ended_early: false,
            singles_left: SINGLES_MIN,
            singles: SINGLES_MIN,
        }
    }

    /// For a socket that is connected to `peer`, if to any: then the kernel is not asked who sent a datagram, which costs 40 to
    /// 90 ns.
    #[must_use]
    pub fn from_peer(mut self, peer: Option<RawAddress>) -> Self {
        if let Some(peer) = peer {
            self.sources.fill(peer);
        }
        Self { has_peer: peer.is_some(), ..self }
    }

    /// From now on the kernel is asked again: the socket may hear others.
    pub fn ask_sources(&mut self) {
        self.has_peer = false;
    }

    /// Returns true if the kernel is asked for sources.
    #[inline]
    pub fn asks_sources(&self) -> bool {
        !self.has_peer
    }

    /// Number of datagrams that the last receive brought.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the last receive brought none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the last receive brought fewer datagrams than it asked for: nothing more was there, or an error of a connected
    /// socket stands behind them.
    #[inline]
    pub fn ended_early(&self) -> bool {
        self.ended_early
    }

    /// Number of datagrams that fit.
    pub fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// The datagram at `index` of the last receive, oldest first; `None` past the last. The address and
    /// the control messages are read here, not before: call it once per datagram.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Datagram<'_>> {
        if index >= self.len {
            return None;
        }
        let header = &self.headers[index];
        let start = index * self.size_max;
        let size = (header.msg_len as usize).min(self.size_max);
        let mut datagram = Datagram {
            bytes: &self.bytes[start..start + size],
            source: &self.sources[index],
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            kernel_receive_ns: None,
        };
        let control_size = header.msg_hdr.msg_controllen;
        if control_size > 0 {
            self.read_control(index, control_size, &mut datagram);
        }
        Some(datagram)
    }

    /// The datagrams of the last receive, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        (0..self.len).filter_map(|index| self.get(index))
    }

    /// Learns from a call how many datagrams wait together.
    #[inline]
    fn note_company(&mut self, one: bool, count: usize) {
        match (one, count) {
            (_, 0) => self.singles_left = self.singles,
            (true, _) => self.singles_left = self.singles_left.saturating_sub(1),
            (false, 1) => {
                self.singles = (self.singles * 2).min(SINGLES_MAX);
                self.singles_left = self.singles;
            }
            (false, _) => self.singles = SINGLES_MIN,
        }
    }

    /// The kernel wrote the source of each; the length that counts stands elsewhere.
    fn note_sources(&mut self) {
        for (source, header) in self.sources.iter_mut().zip(&self.headers).take(self.len) {
            source.size = header.msg_hdr.msg_namelen;
        }
    }

    fn read_control(&self, index: usize, size: usize, datagram: &mut Datagram<'_>) {
        let start = index * CONTROL_SIZE;
        for (level, kind, data) in ControlMessages::new(&self.control[start..start + size.min(CONTROL_SIZE)])
        {
            if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
                datagram.kernel_receive_ns = software_stamp(data);
            }
        }
    }

    /// Points the first `count` headers at their slots. The kernel overwrites the lengths in every call.
    #[inline]
    fn write_headers(&mut self, count: usize, with_control: bool) {
        let bytes = self.bytes.as_mut_ptr();
        let control = self.control.as_mut_ptr();
        let sources = self.sources.as_mut_ptr();
        let vectors = self.vectors.as_mut_ptr();
        for index in 0..count {
            self.vectors[index] = libc::iovec {
                iov_base: bytes.wrapping_add(index * self.size_max).cast(),
                iov_len: self.size_max,
            };
            let header = &mut self.headers[index].msg_hdr;
            if !self.has_peer {
                header.msg_name = sources.wrapping_add(index).cast::<u8>().wrapping_add(NAME_OFFSET).cast();
                header.msg_namelen = RawAddress::SIZE_MAX;
            }
            header.msg_iov = vectors.wrapping_add(index);
            header.msg_iovlen = 1;
            if with_control {
                header.msg_control = control.wrapping_add(index * CONTROL_SIZE).cast();
                header.msg_controllen = CONTROL_SIZE;
            } else {
                header.msg_control = ptr::null_mut();
                header.msg_controllen = 0;
            }
        }
    }
}

/// Calls in a row that bring one datagram, after which the next asks for many: at first, and where those for many bring one too.
/// One that is answered before the next one comes has nothing behind it.
const SINGLES_MIN: u32 = 2;
const SINGLES_MAX: u32 = 64;

/// Result of a call; `None` if a signal interrupted it and nobody waits for its end, so that it is made again.
fn ended(answer: isize, patience: Patience) -> Option<io::Result<usize>> {
    let interrupted = || (patience == Patience::Asleep).then(|| Err(io::ErrorKind::Interrupted.into()));
    settled(answer).or_else(interrupted)
}

/// Where the kernel's address lies in a `RawAddress`.
const NAME_OFFSET: usize = mem::offset_of!(RawAddress, bytes);

impl UdpSocket {
    /// Fills the batch with up to `limit` datagrams that are already there and returns how many. Never waits. Earlier contents of the
    /// batch are gone. Of a connected socket only `Ok(0)` says that nothing more was there; of others [`RecvBatch::ended_early`] does, too.
    ///
    /// A call asks for one datagram alone until several in a row have brought one. That is the faster call for a socket that idles or answers one at a time. It takes 0.9 µs against 1.2, and 0.4
    /// against 0.6 to find nothing. From then on a call asks for many, which is faster from the second datagram on.
    ///
    /// An error brought no datagram and cost none: it is an ICMP answer to something sent earlier
    /// (`ConnectionRefused`) or a fault of the socket. One that arrives behind datagrams comes back from
    /// the next call.
    pub fn recv_batch(&self, batch: &mut RecvBatch, limit: usize) -> io::Result<usize> {
        self.receive_into(batch, limit, Patience::None)
    }

    /// As [`recv_batch`](Self::recv_batch), but where nothing is there the thread sleeps in the call, for as long as
    /// `set_receive_timeout` says. Needs `set_blocking(true)`. `Ok(0)` after that time; a signal is an error of kind `Interrupted`.
    pub fn recv_batch_asleep(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.receive_into(batch, usize::MAX, Patience::Asleep)
    }

    fn receive_into(&self, batch: &mut RecvBatch, limit: usize, patience: Patience) -> io::Result<usize> {
        let limit = limit.min(batch.capacity());
        (batch.len, batch.ended_early) = (0, false);
        if limit == 0 {
            return Ok(0);
        }
        let one = limit == 1 || batch.singles_left > 0;
        let received = match (one, self.timestamps) {
            (true, false) => self.recv_one(batch, patience),
            (true, true) => self.recv_one_with_control(batch, patience),
            (false, _) => self.recv_many(batch, limit, patience),
        };
        let count = match received {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e),
        };
        batch.len = count;
        batch.ended_early = count < if one { 1 } else { limit };
        if !batch.has_peer {
            batch.note_sources();
        }
        batch.note_company(one, count);
        Ok(count)
    }

    fn recv_many(&self, batch: &mut RecvBatch, limit: usize, patience: Patience) -> io::Result<usize> {
        let flags = match patience {
            Patience::None => libc::MSG_DONTWAIT,
            Patience::Asleep => libc::MSG_WAITFORONE,
        };
        batch.write_headers(limit, self.timestamps);
        let count = libc::c_uint::try_from(limit).unwrap_or(libc::c_uint::MAX);
        loop {
            calls::note();
            // SAFETY: `write_headers` has just pointed the first `limit` headers at live slots of this
            // batch, with their true sizes; the batch is borrowed mutably for the whole call.
            let answer = unsafe {
                libc::recvmmsg(self.raw(), batch.headers.as_mut_ptr(), count, flags, ptr::null_mut())
            };
            if let Some(result) = ended(answer as isize, patience) {
                return result;
            }
        }
    }

    fn recv_one_with_control(&self, batch: &mut RecvBatch, patience: Patience) -> io::Result<usize> {
        batch.write_headers(1, true);
        let header = &mut batch.headers[0];
        loop {
            calls::note();
            // SAFETY: as in `recv_many`, for the one header.
            let answer = unsafe { libc::recvmsg(self.raw(), &raw mut header.msg_hdr, patience.flags()) };
            if let Some(result) = ended(answer, patience) {
                // A datagram is at most 64 KiB long, so the cast keeps its size.
                header.msg_len = result? as libc::c_uint;
                return Ok(1);
            }
        }
    }

    /// `recvfrom` spares the kernel the copy of the header, there and back.
    fn recv_one(&self, batch: &mut RecvBatch, patience: Patience) -> io::Result<usize> {
        let bytes = &mut batch.bytes[..batch.size_max];
        let source = &mut batch.sources[0].bytes;
        loop {
            calls::note();
            let mut source_size = RawAddress::SIZE_MAX;
            let (source, size_of_source) = if batch.has_peer {
                (ptr::null_mut(), ptr::null_mut())
            } else {
                (source.as_mut_ptr().cast(), &raw mut source_size)
            };
            // SAFETY: the pointers and sizes describe `bytes`, `source` and `source_size`, which are
            // borrowed mutably for the whole call, or are null, which asks for no source.
            let answer = unsafe {
                libc::recvfrom(
                    self.raw(),
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    // TRUNC: answer with the datagram's whole size.
                    patience.flags() | libc::MSG_TRUNC,
                    source,
                    size_of_source,
                )
            };
            if let Some(result) = ended(answer, patience) {
                let size = result?;
                let header = &mut batch.headers[0];
                header.msg_len = size as libc::c_uint;
                header.msg_hdr.msg_flags = if size > batch.size_max { libc::MSG_TRUNC } else { 0 };
                header.msg_hdr.msg_controllen = 0;
                header.msg_hdr.msg_namelen = source_size;
                return Ok(1);
            }
        }
    }
}
