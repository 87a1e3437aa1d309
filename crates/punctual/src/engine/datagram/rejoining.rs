//! A group's interface that was removed, and made again with its address: memberships and ways belong to the interface that is gone.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use punctual_machine::socket::{MulticastInterface, UdpSocket};

use super::Reach;

/// The membership of a node's sockets in a multicast group.
#[derive(Debug)]
pub(super) struct Membership {
    own: Arc<UdpSocket>,
    all: Arc<UdpSocket>,
    group: IpAddr,
    interface: Ipv4Addr,
}

impl Membership {
    pub(super) fn new(reach: &Reach, own: &Arc<UdpSocket>, all: &Arc<UdpSocket>) -> Option<Self> {
        let Reach::Multicast { group, interface } = reach else { return None };
        Some(Self { own: Arc::clone(own), all: Arc::clone(all), group: group.ip(), interface: *interface })
    }

    /// A send failed so. Where its interface is no more and another has the address, that one is used from now on.
    #[cold]
    pub(super) fn handle_error(&self, error: &io::Error) {
        let interface = MulticastInterface::Address(self.interface);
        if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
            && self.own.set_multicast_interface(interface).is_ok()
        {
            // The membership of before stays in the kernel's list. That has room for 20, unless the host is set up otherwise.
            let _it_was_a_member = self.all.join_multicast(self.group, interface);
        }
    }
}
