//! UDP sockets that move bounded batches and never allocate once open.
//!
//! A [`SendBatch`] is filled in place (`claim`, `commit`) and goes to the kernel in one call; a
//! [`RecvBatch`] is filled by one call and read by reference. Every call that may find nothing to do
//! returns at once: waiting belongs to the caller, which has [`AsFd`] for its epoll set. The `bare` calls
//! do the least a kernel socket can do; they are the floor against which the batches are measured.
pub mod address;
pub mod control;
mod multicast;
mod option;
mod receive;
mod send;
mod single;
mod stamp;
mod tuning;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

pub use multicast::MulticastInterface;
pub use option::set_option;
pub use receive::{Datagram, RecvBatch};
pub use send::{RUN_LEN_MAX, SendBatch, is_passing};
pub use single::{Patience, Single, wait_readable};
pub use tuning::DSCP_MAX;

use crate::SystemError;
use crate::filter::{self, Unwanted};

/// The largest payload a UDP datagram can carry over IPv4: 65,535 less the IP and UDP headers.
pub const DATAGRAM_SIZE_MAX: usize = 65_507;

/// A receive buffer for bursts, bytes: of datagrams of 1,000 it holds some 1,100 one by one, and 1,800 in runs (Linux 6.18).
pub const RECEIVE_BUFFER_SIZE: usize = 1 << 20;

/// Options of a socket besides an address. The default asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UdpOptions {
    /// Receive buffer in bytes. The kernel doubles it for its own overhead and caps it at
    /// `net.core.rmem_max` unless the process has CAP_NET_ADMIN: [`UdpSocket::receive_buffer`] tells.
    pub receive_buffer: Option<usize>,
    /// Send buffer in bytes, under the same rules (`net.core.wmem_max`, [`UdpSocket::send_buffer`]).
    pub send_buffer: Option<usize>,
    /// Have the kernel stamp every datagram as it arrives. A static key in the kernel flips late: the
    /// first datagrams after the first socket of a machine asks for stamps may lack theirs.
    pub timestamps: bool,
    /// Share the port with other sockets that also ask for it (multicast receivers need this).
    pub reuse_address: bool,
    /// Send a run of equal-sized datagrams to one target as one, which the kernel cuts (UDP_SEGMENT). Three
    /// times the throughput for a stream of 1,448 bytes over loopback; nothing for a single datagram. The
    /// first of a run waits until the last is copied, and a failure of the path below the socket may meet a
    /// whole run. Excludes transmit stamps, which would count runs.
    pub segmentation: bool,
    /// Have the kernel hand over a run of equal-sized datagrams of one source as one datagram (UDP_GRO), where it has the run as one. A
    /// sender of this host cut such a run, or an interface merged it. The places to cut it again must follow from its bytes. Datagrams
    /// of a run that the kernel drops count as one. A kernel that cannot hands over each by itself.
    pub merged: bool,
    /// Poll the device for so long in a receive that finds nothing. Needs CAP_NET_ADMIN.
    pub busy_poll_us: Option<u32>,
    /// Datagrams that the kernel drops before they take up room or wake anybody. It counts them among those for which there was
    /// no room ([`UdpSocket::dropped`]).
    pub unwanted: Option<Unwanted>,
}

/// A bound UDP socket. Non-blocking, unless [`set_blocking`](Self::set_blocking) says otherwise, and even
/// then the batches never wait.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    timestamps: bool,
    segmentation: bool,
}

impl UdpSocket {
    /// Opens a socket and binds it to `address`; port 0 lets the kernel choose.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> Result<Self, SystemError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
            .map_err(|e| SystemError::new("open udp socket for", address.to_string(), e))?;
        let UdpOptions { timestamps, segmentation, .. } = *options;
        let socket = Self { fd, timestamps, segmentation };
        socket
            .apply(options)
            .map_err(|(option, e)| SystemError::new("set udp option", format!("{option} on {address}"), e))?;
        rustix::net::bind(&socket.fd, &address)
            .map_err(|e| SystemError::new("bind udp", address.to_string(), e))?;
        Ok(socket)
    }

    /// Names the option that failed, because the kernel's answer alone does not.
    fn apply(&self, options: &UdpOptions) -> Result<(), (&'static str, io::Error)> {
        if options.reuse_address {
            sockopt::set_socket_reuseaddr(&self.fd, true).map_err(|e| ("SO_REUSEADDR", e.into()))?;
        }
        if let Some(size) = options.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&self.fd, size).map_err(|e| ("SO_RCVBUF", e.into()))?;
            // Beyond rmem_max only a privileged process gets what it asks for; others keep the cap.
            let _ = sockopt::set_socket_recv_buffer_size_force(&self.fd, size);
        }
        if let Some(size) = options.send_buffer {
            sockopt::set_socket_send_buffer_size(&self.fd, size).map_err(|e| ("SO_SNDBUF", e.into()))?;
            let _ = sockopt::set_socket_send_buffer_size_force(&self.fd, size);
        }
        if let Some(unwanted) = &options.unwanted {
            filter::attach_to_datagrams(self.as_fd(), unwanted).map_err(|e| ("SO_ATTACH_FILTER", e))?;
        }
        if options.timestamps {
            self.set_timestamping(stamp::RECEIVE).map_err(|e| ("SO_TIMESTAMPING", e))?;
        }
        if options.merged {
            // Since Linux 5.0; without it datagrams come one by one.
            let _unmerged = self.set_merged(true);
        }
        if let Some(us) = options.busy_poll_us {
            let us = libc::c_int::try_from(us).unwrap_or(libc::c_int::MAX);
            set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, &us)
                .map_err(|e| ("SO_BUSY_POLL", e))?;
        }
        Ok(())
    }

    /// The address the socket is bound to, with the port the kernel chose.
    pub fn local_address(&self) -> Result<SocketAddr, SystemError> {
        rustix::net::getsockname(&self.fd)
            .and_then(SocketAddr::try_from)
            .map_err(|e| SystemError::new("read local address of", "a udp socket", e))
    }

    /// Fixes the peer: only its datagrams arrive, `commit_connected` and `send_bare` reach it without a
    /// route look-up, and a refusal (ICMP) comes back as `ConnectionRefused`.
    pub fn connect(&self, address: SocketAddr) -> Result<(), SystemError> {
        rustix::net::connect(&self.fd, &address)
            .map_err(|e| SystemError::new("connect udp to", address.to_string(), e))
    }

    /// The receive buffer in force, in bytes, as the kernel counts it (twice what was asked for).
    pub fn receive_buffer(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.fd)?)
    }

    /// The send buffer in force, in bytes, as the kernel counts it (twice what was asked for).
    pub fn send_buffer(&self) -> io::Result<usize> {
        Ok(sockopt::socket_send_buffer_size(&self.fd)?)
    }

    /// Number of datagrams that the kernel had no room for, or filtered out, since the socket was opened; wraps. One call, so ask when
    /// something is missing.
    ///
    /// # Errors
    /// Where the kernel does not say (`SO_MEMINFO`, Linux 4.12; some sandboxes have none).
    pub fn dropped(&self) -> io::Result<u32> {
        option::memory_info(self.as_fd()).map(|info| info[option::MEMORY_DROPS])
    }

    /// Sets whether the kernel hands over runs as one from now on: [`UdpOptions::merged`].
    ///
    /// # Errors
    /// Where the kernel has no `UDP_GRO` (before Linux 5.0; some sandboxes have none).
    pub fn set_merged(&self, merged: bool) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &i32::from(merged))
    }

    /// Sets whether [`recv_bare_blocking`](Self::recv_bare_blocking) waits in the kernel. Batches are unaffected.
    pub fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.fd, !blocking)?)
    }

    /// Sets how long a blocking receive waits before it gives up with `WouldBlock`; `None` waits for ever.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, timeout)?)
    }

    /// The floor of a send: one system call on a connected socket. Returns at once.
    #[inline]
    pub fn send_bare(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.fd, bytes, SendFlags::DONTWAIT)?)
    }

    /// The floor of a polled receive: one system call, `WouldBlock` when nothing is there.
    #[inline]
    pub fn recv_bare(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let (size, _) = rustix::net::recv(&self.fd, bytes, RecvFlags::DONTWAIT)?;
        Ok(size)
    }

    /// The floor of a blocked receive: the thread sleeps inside the one system call. Waits only after
    /// [`set_blocking(true)`](Self::set_blocking).
    #[inline]
    pub fn recv_bare_blocking(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let (size, _) = rustix::net::recv(&self.fd, bytes, RecvFlags::empty())?;
        Ok(size)
    }

    /// Returns true if the kernel stamps every datagram as it arrives ([`UdpOptions::timestamps`]).
    pub fn is_stamping(&self) -> bool {
        self.timestamps
    }

    fn raw(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
