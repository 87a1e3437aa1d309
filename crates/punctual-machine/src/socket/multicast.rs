//! Multicast: the members of a group, and the interfaces through which they hear it.
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use rustix::net::{netdevice, sockopt};

use super::UdpSocket;
use super::option::set_option;
use crate::SystemError;

/// The interface on which a group is joined and through which it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MulticastInterface {
    /// The interface that has this IPv4 address. IPv4 groups only.
    Address(Ipv4Addr),
    /// The interface with this index; 0 lets the kernel choose by route.
    Index(u32),
}

impl MulticastInterface {
    /// The interface called `name`, looked up once.
    pub fn named(name: &str) -> Result<Self, SystemError> {
        let probe =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
                .map_err(|e| SystemError::new("open udp socket for", name, e))?;
        netdevice::name_to_index(&probe, name)
            .map(Self::Index)
            .map_err(|e| SystemError::new("find interface", name, e))
    }

    /// Index of the interface now. `None` if nobody has the address, or it cannot be looked up.
    pub fn index(self) -> Option<u32> {
        match self {
            Self::Index(index) => Some(index),
            Self::Address(address) => index_of(address),
        }
    }
}

/// Index of the interface that has an address, of any namespace's in which the calling thread is.
fn index_of(address: Ipv4Addr) -> Option<u32> {
    let mut list = core::ptr::null_mut();
    // SAFETY: `getifaddrs` stores the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } == -1 {
        return None;
    }
    let mut next: *const libc::ifaddrs = list;
    let mut found = None;
    // SAFETY: each element is live until the list is freed, and its `ifa_next` is the next one or null.
    while let Some(entry) = unsafe { next.as_ref() } {
        let theirs: *const libc::sockaddr = entry.ifa_addr;
        // SAFETY: an address is null or live, and one of this family is a `sockaddr_in`, which need not be aligned as one.
        let is_it = unsafe {
            !theirs.is_null()
                && i32::from((*theirs).sa_family) == libc::AF_INET
                && theirs.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr
                    == u32::from(address).to_be()
        };
        if is_it {
            // SAFETY: the name ends with a zero, and is live as its element is.
            found = Some(unsafe { libc::if_nametoindex(entry.ifa_name) }).filter(|&index| index != 0);
            break;
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list from above, of which nothing is used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

impl UdpSocket {
    /// Joins `group` on `interface`, sends to groups through it, and hears its own host's messages too.
    ///
    /// The socket must be bound to the group's port, on the wildcard address or on the group itself. Of IPv4 it
    /// hears nothing that other sockets of this host joined, not even the same group on another interface. The kernel tells IPv6 groups
    /// by their address alone.
    pub fn join_multicast(&self, group: IpAddr, interface: MulticastInterface) -> Result<(), SystemError> {
        let joined = match group {
            IpAddr::V4(group) => self.join_v4(group, interface),
            IpAddr::V6(group) => self.join_v6(group, interface),
        };
        joined.map_err(|e| SystemError::new("join multicast group", format!("{group} on {interface:?}"), e))
    }

    /// Leaves a group on the interface that had this index, also if that interface is gone. A socket keeps its membership there, and has
    /// room for few (`net.ipv4.igmp_max_memberships`, 20).
    pub fn leave_multicast(&self, group: IpAddr, index: u32) -> Result<(), SystemError> {
        let left = match group {
            IpAddr::V4(group) => {
                sockopt::set_ip_drop_membership_with_ifindex(&self.fd, &group, &Ipv4Addr::UNSPECIFIED, index)
            }
            IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(&self.fd, &group, index),
        };
        left.map_err(|e| {
            SystemError::new("leave multicast group", format!("{group} on interface {index}"), e)
        })
    }

    /// Sends to multicast groups by this interface, also to other sockets of this host.
    pub fn set_multicast_interface(&self, interface: MulticastInterface) -> Result<(), SystemError> {
        let none = Ipv4Addr::UNSPECIFIED;
        let set = match interface {
            MulticastInterface::Address(address) => sockopt::set_ip_multicast_if(&self.fd, &address),
            MulticastInterface::Index(index) => {
                sockopt::set_ip_multicast_if_with_ifindex(&self.fd, &none, &none, index)
            }
        };
        set.and_then(|()| sockopt::set_ip_multicast_loop(&self.fd, true))
            .map_err(|error| SystemError::new("send multicast by", format!("{interface:?}"), error))
    }

    fn join_v4(&self, group: Ipv4Addr, interface: MulticastInterface) -> io::Result<()> {
        let none = Ipv4Addr::UNSPECIFIED;
        // By default a socket is shown the traffic of every group that the host is a member of, on every interface (ip(7)).
        set_option(self.fd.as_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0_i32)?;
        // By address in the older form, which every kernel and emulator knows.
        match interface {
            MulticastInterface::Address(address) => {
                sockopt::set_ip_add_membership(&self.fd, &group, &address)?;
                sockopt::set_ip_multicast_if(&self.fd, &address)?;
            }
            MulticastInterface::Index(index) => {
                sockopt::set_ip_add_membership_with_ifindex(&self.fd, &group, &none, index)?;
                sockopt::set_ip_multicast_if_with_ifindex(&self.fd, &none, &none, index)?;
            }
        }
        Ok(sockopt::set_ip_multicast_loop(&self.fd, true)?)
    }

    fn join_v6(&self, group: Ipv6Addr, interface: MulticastInterface) -> io::Result<()> {
        let MulticastInterface::Index(index) = interface else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an ipv6 group needs an interface index, not an ipv4 address",
            ));
        };
        sockopt::set_ipv6_add_membership(&self.fd, &group, index)?;
        sockopt::set_ipv6_multicast_if(&self.fd, index)?;
        Ok(sockopt::set_ipv6_multicast_loop(&self.fd, true)?)
    }
}
