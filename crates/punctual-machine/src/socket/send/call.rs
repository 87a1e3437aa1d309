//! The system calls that take a batch, and the party to blame when they do not.
use std::{io, ptr};

use super::SendBatch;
use crate::calls;
use crate::socket::UdpSocket;
use crate::socket::address::RawAddress;

impl UdpSocket {
    /// Hands the batch to the kernel; returns how many datagrams it took, oldest first. The others stay in
    /// the batch, in order. An empty batch is `Ok(0)`. A claim that was not committed is forgotten.
    ///
    /// An error means that this call sent nothing. No error ever costs more than the one datagram it
    /// belongs to:
    /// - `WouldBlock`, or an OS error ENOBUFS or ENOMEM: no room in the kernel. The batch is intact.
    /// - `ConnectionRefused`: the peer's host refused an *earlier* datagram (connected sockets only). The
    ///   batch is intact, and sending again is worth while if the peer may come up.
    /// - Any other error belongs to the oldest datagram (too long for the path, no route, not permitted):
    ///   it was tried twice, because another ICMP error may also report an earlier one, is then removed
    ///   and counted in [`SendBatch::refused`]. The rest is intact: call again.
    ///
    /// An error that meets a later datagram ends the call with the count before it, and comes back as the
    /// error of the next call.
    pub fn send_batch(&self, batch: &mut SendBatch) -> io::Result<usize> {
        batch.send(self.raw(), self.segmentation)
    }

    /// Hands all of the batch to the kernel, as far as it has room. No error keeps back what is behind the datagram that it belongs to;
    /// the first one is told of when the rest has gone.
    ///
    /// # Errors
    /// Those of [`Self::send_batch`]: after `WouldBlock`, ENOBUFS and ENOMEM what is left stays in the batch, in order.
    pub fn send_all(&self, batch: &mut SendBatch) -> io::Result<()> {
        batch.send_all(self.raw(), self.segmentation)
    }
}

impl SendBatch {
    /// [`UdpSocket::send_batch`], on any socket that keeps message boundaries.
    #[inline]
    pub(crate) fn send(&mut self, fd: libc::c_int, merge: bool) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        match self.send_some(fd, merge) {
            Ok(count) => {
                self.drop_oldest(count);
                Ok(count)
            }
            Err(e) => self.settle_error(fd, e),
        }
    }

    /// [`UdpSocket::send_all`], likewise.
    #[inline]
    pub(crate) fn send_all(&mut self, fd: libc::c_int, merge: bool) -> io::Result<()> {
        // Before each datagram an error may come that belongs to an earlier one: its port was closed.
        let mut tries = 2 * self.len + 1;
        let mut told = Ok(());
        while !self.is_empty() && tries > 0 {
            tries -= 1;
            match self.send(fd, merge) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => return Err(error),
                Err(error) => told = told.and(Err(error)),
            }
        }
        told
    }

    /// Decides whether the oldest datagram is to blame for `error`.
    #[cold]
    fn settle_error(&mut self, fd: libc::c_int, error: io::Error) -> io::Result<usize> {
        if is_passing(&error) || error.kind() == io::ErrorKind::ConnectionRefused {
            return Err(error);
        }
        match self.send_oldest(fd, &self.peer) {
            Ok(()) => {
                self.count(0, 1);
                self.drop_oldest(1);
                // The kernel takes it alone: it was the merging that it refused.
                self.can_merge &=
                    !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE));
                Ok(1)
            }
            Err(again) => {
                if !is_passing(&again) {
                    self.drop_oldest(1);
                    self.refused += 1;
                }
                Err(again)
            }
        }
    }

    fn send_some(&mut self, fd: libc::c_int, merge: bool) -> io::Result<usize> {
        if self.len == 1 {
            self.send_oldest(fd, &RawAddress::NONE)?;
            self.count(0, 1);
            return Ok(1);
        }
        let headers = self.write_headers(merge && self.can_merge);
        let count = libc::c_uint::try_from(headers).unwrap_or(libc::c_uint::MAX);
        loop {
            calls::note();
            // SAFETY: `write_headers` has just pointed the first `headers` headers at live slots, vectors, control messages and
            // addresses of this batch. The batch is borrowed mutably for the whole call.
            let answer = unsafe { libc::sendmmsg(fd, self.headers.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
            if let Some(result) = settled(answer as isize) {
                return result.map(|sent| self.taken(sent));
            }
        }
    }

    /// Number of datagrams in so many headers.
    fn taken(&mut self, headers: usize) -> usize {
        let mut datagrams = 0;
        for index in 0..headers {
            let run = self.headers[index].msg_hdr.msg_iovlen;
            self.count(datagrams, run);
            datagrams += run;
        }
        datagrams
    }

    /// The kernel took a datagram, or a run that begins with it.
    #[inline]
    fn count(&mut self, distance: usize, run: usize) {
        let target = self.slots[self.slot(distance)].target;
        if let Some(counted) = self.counted.as_mut().filter(|counted| counted.to == target) {
            counted.count += if counted.runs_as_one { 1 } else { run as u64 };
        }
    }

    /// One datagram alone: `sendto` spares the kernel the copy of the headers. To `peer`, if that is known, where the datagram has
    /// no address of its own.
    fn send_oldest(&self, fd: libc::c_int, peer: &RawAddress) -> io::Result<()> {
        let slot = &self.slots[self.first];
        let start = self.first * self.size_max;
        let bytes = &self.bytes[start..start + slot.size];
        let target = if slot.target.size > 0 { &slot.target } else { peer };
        let name = match target.size {
            0 => ptr::null(),
            _ => target.bytes.as_ptr().cast(),
        };
        loop {
            calls::note();
            // SAFETY: `bytes` and the address, of which `size` bytes were written, are borrowed from the
            // batch for the whole call; the kernel only reads them.
            let answer = unsafe {
                libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT, name, target.size)
            };
            if let Some(result) = settled(answer) {
                return result.map(|_| ());
            }
        }
    }
}

/// Returns true if the same call may succeed later without anything else changing: there was no room, or no memory.
pub fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

/// Result of a system call; `None` if a signal interrupted it and it must be made again.
pub(in crate::socket) fn settled(answer: isize) -> Option<io::Result<usize>> {
    if let Ok(count) = usize::try_from(answer) {
        return Some(Ok(count));
    }
    let error = io::Error::last_os_error();
    (error.kind() != io::ErrorKind::Interrupted).then_some(Err(error))
}
