//! The urgency that a datagram states to the network, and the kernel's way of looking for its answer.
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::{UdpSocket, set_option};

/// The largest differentiated-services code point (RFC 2474: six bits).
pub const DSCP_MAX: u8 = 63;

impl UdpSocket {
    /// Has every datagram carry this code point in its IP header; the family is that of `local`.
    pub fn set_code_point(&self, local: SocketAddr, dscp: u8) -> io::Result<()> {
        if dscp > DSCP_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The two bits below the code point are congestion's.
        let class = libc::c_int::from(dscp) << 2;
        let (level, name) = match local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        set_option(self.as_fd(), level, name, &class)
    }

    /// The priority of what is sent in this host's queues. A VLAN interface maps it to the three bits of the tag.
    /// Above 6 it needs CAP_NET_ADMIN.
    pub fn set_priority(&self, priority: u8) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &libc::c_int::from(priority))
    }

    /// Has a receive that finds nothing poll the device for `us` microseconds; `prefer` also keeps interrupts off
    /// while it does, and takes up to `budget` packets at once. Needs CAP_NET_ADMIN.
    pub fn set_busy_poll(&self, us: u32, prefer: bool, budget: u16) -> io::Result<()> {
        let us = libc::c_int::try_from(us).unwrap_or(libc::c_int::MAX);
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, &us)?;
        if prefer {
            set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1_i32)?;
            set_option(
                self.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_BUSY_POLL_BUDGET,
                &libc::c_int::from(budget),
            )?;
        }
        Ok(())
    }

    /// The NAPI context from which the last datagram came. `None`: its device has none, and there is nothing that a
    /// busy poll could poll (loopback, veth without GRO or XDP).
    pub fn incoming_napi(&self) -> Option<u32> {
        let mut id: libc::c_uint = 0;
        let mut size = size_of::<libc::c_uint>() as libc::socklen_t;
        // SAFETY: the pointers describe `id` and its true size, both borrowed for the whole call.
        let answer = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_INCOMING_NAPI_ID,
                (&raw mut id).cast(),
                &raw mut size,
            )
        };
        (answer == 0 && id != 0).then_some(id)
    }

    /// Has the kernel drop everything that arrives here, before it is queued. The socket keeps its port, so that nobody is told that it
    /// is closed while somebody else reads the frames below.
    pub fn discard_all(&self) -> io::Result<()> {
        let mut program =
            [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::UdpOptions;

    #[test]
    fn urgency_is_taken_in_both_families() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let local = at.parse().unwrap();
            let Ok(socket) = UdpSocket::bind(local, &UdpOptions::default()) else {
                crate::skipped!("no address {at} here");
                continue;
            };
            socket.set_code_point(local, 46).unwrap();
            socket.set_priority(5).unwrap();
            assert!(socket.set_code_point(local, 64).is_err());
            assert_eq!(socket.incoming_napi(), None);
        }
    }

    #[test]
    fn a_discarding_socket_hears_nothing() {
        let bind = || UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        let (here, there) = (bind(), bind());
        there.discard_all().unwrap();
        here.send_single(b"gone", Some(there.local_address().unwrap())).unwrap();
        assert!(there.recv_bare(&mut [0; 8]).is_err());
    }
}
