//! One datagram at a time, into the caller's buffer, blocked in the call if the caller wants that.
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SendFlags;

use super::UdpSocket;
use super::address::RawAddress;
use super::control::{CONTROL_SIZE, ControlMessages, software_stamp};
use crate::event_fd::timespec;

/// Where a datagram that was received into a buffer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Single {
    /// Bytes of the buffer that hold it.
    pub size: usize,
    /// The sender.
    pub source: SocketAddr,
    /// True if it was longer than the buffer: the rest is lost.
    pub truncated: bool,
    /// When the kernel saw it, in ns of CLOCK_REALTIME; with `UdpOptions::timestamps` only.
    pub kernel_receive_ns: Option<u64>,
}

/// Behaviour of a receive when nothing is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// `WouldBlock`, at once.
    None,
    /// The thread sleeps in the call, for as long as `set_receive_timeout` says. Needs `set_blocking(true)`.
    Asleep,
}

impl Patience {
    pub(super) fn flags(self) -> libc::c_int {
        match self {
            Self::None => libc::MSG_DONTWAIT,
            Self::Asleep => 0,
        }
    }
}

/// A control buffer aligned as the kernel's headers are.
#[repr(C, align(8))]
struct Control([u8; CONTROL_SIZE]);

impl UdpSocket {
    /// Receives one datagram into `bytes` in one system call, with the kernel's stamp if the socket asked for stamps.
    ///
    /// `Interrupted` comes back as it is, so that a caller who sleeps can look at its flags.
    #[inline]
    pub fn recv_single(&self, bytes: &mut [u8], patience: Patience) -> io::Result<Single> {
        let flags = patience.flags();
        if self.timestamps { self.recv_stamped(bytes, flags) } else { self.recv_plain(bytes, flags) }
    }

    fn recv_plain(&self, bytes: &mut [u8], flags: libc::c_int) -> io::Result<Single> {
        let mut source = RawAddress::NONE;
        let mut source_size = RawAddress::SIZE_MAX;
        // SAFETY: the pointers and sizes describe `bytes`, `source` and `source_size`, which are borrowed mutably for
        // the whole call.
        let answer = unsafe {
            libc::recvfrom(
                self.raw(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                flags | libc::MSG_TRUNC,
                source.bytes.as_mut_ptr().cast(),
                &raw mut source_size,
            )
        };
        let whole = usize::try_from(answer).map_err(|_| io::Error::last_os_error())?;
        Ok(Single {
            size: whole.min(bytes.len()),
            source: RawAddress::decode(&source.bytes),
            truncated: whole > bytes.len(),
            kernel_receive_ns: None,
        })
    }

    fn recv_stamped(&self, bytes: &mut [u8], flags: libc::c_int) -> io::Result<Single> {
        let mut control = Control([0; CONTROL_SIZE]);
        let mut source = RawAddress::NONE;
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: a msghdr is integers and raw pointers, for which all zero is a valid value.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_name = source.bytes.as_mut_ptr().cast();
        header.msg_namelen = RawAddress::SIZE_MAX;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_SIZE;
        // SAFETY: the header's pointers and sizes describe `source`, `vector`, `bytes` and `control`, all of which are
        // borrowed mutably, or owned, for the whole call.
        let answer = unsafe { libc::recvmsg(self.raw(), &raw mut header, flags) };
        let size = usize::try_from(answer).map_err(|_| io::Error::last_os_error())?;
        let said = &control.0[..header.msg_controllen.min(CONTROL_SIZE)];
        let stamp = |(level, kind, data): (i32, i32, &[u8])| {
            (level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING).then(|| software_stamp(data))?
        };
        Ok(Single {
            size,
            source: RawAddress::decode(&source.bytes),
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            kernel_receive_ns: ControlMessages::new(said).find_map(stamp),
        })
    }

    /// Wakes who sleeps in a receive, by an empty datagram from this socket to itself, at `own`. A socket that is connected to `peer`
    /// hears nobody else and for that instant is not connected. Others may be heard, so a thread that reads afterwards must look at the
    /// source, and a send without an address is refused (EDESTADDRREQ). For one thread at a time.
    pub fn nudge(&self, own: SocketAddr, peer: Option<SocketAddr>) -> io::Result<()> {
        if peer.is_some() {
            rustix::net::connect_unspec(&self.fd)?;
        }
        let send = || rustix::net::sendto(&self.fd, &[], SendFlags::DONTWAIT, &own);
        // An answer to something sent earlier (ICMP) comes as an error of the first call.
        let sent = send().or_else(|_| send());
        if let Some(peer) = peer {
            rustix::net::connect(&self.fd, &peer)?;
        }
        sent?;
        Ok(())
    }

    /// Sends one datagram: to `target`, or to the connected peer. Returns at once.
    #[inline]
    pub fn send_single(&self, bytes: &[u8], target: Option<SocketAddr>) -> io::Result<usize> {
        Ok(match target {
            Some(target) => rustix::net::sendto(&self.fd, bytes, SendFlags::DONTWAIT, &target)?,
            None => rustix::net::send(&self.fd, bytes, SendFlags::DONTWAIT)?,
        })
    }
}

/// Waits until one of the sockets can be read; `false` when `timeout` passed or a signal came first.
pub fn wait_readable(sockets: &[UdpSocket], timeout: Duration) -> bool {
    let timeout = timespec(timeout);
    let is_ready = |watched: &mut [PollFd<'_>]| poll(watched, Some(&timeout)).is_ok_and(|ready| ready > 0);
    match sockets {
        [one] => is_ready(&mut [PollFd::new(&one.fd, PollFlags::IN)]),
        many => {
            let mut watched: Vec<PollFd<'_>> =
                many.iter().map(|socket| PollFd::new(&socket.fd, PollFlags::IN)).collect();
            is_ready(&mut watched)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{RecvBatch, SendBatch, UdpOptions};
    use std::time::Instant;

    fn pair(options: &UdpOptions, at: &str) -> Option<(UdpSocket, UdpSocket)> {
        let open = |options: &UdpOptions| UdpSocket::bind(at.parse().expect("an address"), options);
        let here = open(&UdpOptions::default()).ok()?;
        Some((here, open(options).expect("the other is open")))
    }

    /// A socket where one has just closed. A child that another test starts inherits that one, and keeps the port taken until it runs
    /// its own program.
    fn reopen(at: SocketAddr, options: &UdpOptions) -> UdpSocket {
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            match UdpSocket::bind(at, options) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                bound => return bound.unwrap(),
            }
        }
    }

    #[test]
    fn a_datagram_says_where_it_came_from() {
        for stamps in [false, true] {
            for at in ["127.0.0.1:0", "[::1]:0"] {
                let options = UdpOptions { timestamps: stamps, ..UdpOptions::default() };
                let Some((here, there)) = pair(&options, at) else {
                    crate::skipped!("no address {at} here");
                    continue;
                };
                let target = there.local_address().unwrap();
                there.set_blocking(true).unwrap();
                there.set_receive_timeout(Some(Duration::from_secs(10))).unwrap();
                here.send_single(b"hello", Some(target)).unwrap();
                assert!(wait_readable(std::slice::from_ref(&there), Duration::from_secs(10)));
                let mut buffer = [0; 4];
                let got = there.recv_single(&mut buffer, Patience::Asleep).unwrap();
                assert_eq!((got.size, &buffer, got.truncated), (4, b"hell", true));
                assert_eq!(got.source, here.local_address().unwrap());
                let none = there.recv_single(&mut buffer, Patience::None).unwrap_err();
                assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            }
        }
    }

    /// Goal: a thread that sleeps in a receive is woken from another thread, connected or not. Afterwards it hears and reaches its peer
    /// as before, and datagrams sent without an address meanwhile went there.
    #[test]
    fn a_nudge_ends_a_sleep_and_changes_nothing() {
        for connected in [false, true] {
            let options = UdpOptions::default();
            let (here, there) = pair(&options, "127.0.0.1:0").unwrap();
            let other = here.local_address().unwrap();
            // As a node does: a port that is asked for is kept.
            let own = there.local_address().unwrap();
            drop(there);
            let there = reopen(own, &options);
            let peer = connected.then_some(other);
            peer.map_or(Ok(()), |peer| there.connect(peer)).unwrap();
            there.set_blocking(true).unwrap();
            there.set_receive_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut batch = RecvBatch::new(2, 8).from_peer(peer.map(RawAddress::from));
            batch.ask_sources();
            std::thread::scope(|scope| {
                scope.spawn(|| there.nudge(own, peer).unwrap());
                assert_eq!(there.recv_batch_asleep(&mut batch).unwrap(), 1, "the time limit ended it");
                let nudge = batch.get(0).unwrap();
                assert_eq!((nudge.bytes, nudge.source.socket_addr()), (&[][..], own));
            });
            here.send_single(b"hello", Some(own)).unwrap();
            assert_eq!(there.recv_batch_asleep(&mut batch).unwrap(), 1);
            assert_eq!(batch.get(0).unwrap().bytes, b"hello");
            if connected {
                there.send_bare(b"back").unwrap();
                let stranger = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
                let _refused = stranger.send_single(b"strange", Some(own));
                assert_eq!(there.recv_batch(&mut batch, 2).unwrap(), 0);
            }
        }
    }

    #[test]
    fn a_message_that_a_nudge_refuses_is_sent_by_address() {
        let (here, there) = pair(&UdpOptions::default(), "127.0.0.1:0").unwrap();
        let mut batch = SendBatch::new(3, 8).to_peer(Some(there.local_address().unwrap().into()));
        for number in 0..3 {
            batch.claim(1).unwrap()[0] = number;
            batch.commit_connected();
        }
        while !batch.is_empty() {
            here.send_batch(&mut batch).unwrap();
        }
        assert_eq!(batch.refused(), 0);
        there.set_blocking(true).unwrap();
        there.set_receive_timeout(Some(Duration::from_secs(20))).unwrap();
        for number in 0..3 {
            let mut buffer = [9; 8];
            let got = there.recv_single(&mut buffer, Patience::Asleep).unwrap();
            assert_eq!(&buffer[..got.size], [number]);
        }
    }
}
