//! A group's interface that was removed, and made again with its address: memberships and ways belong to the interface that is gone.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use punctual_machine::socket::{MulticastInterface, UdpSocket};

use super::Reach;

/// Sockets of a node that comes back into its multicast group.
#[derive(Debug)]
pub(super) struct Rejoining {
    own: Arc<UdpSocket>,
    all: Arc<UdpSocket>,
    group: IpAddr,
    interface: Ipv4Addr,
}

impl Rejoining {
    pub(super) fn new(reach: &Reach, own: &Arc<UdpSocket>, all: &Arc<UdpSocket>) -> Option<Self> {
        let Reach::Multicast { group, interface } = reach else { return None };
        Some(Self { own: Arc::clone(own), all: Arc::clone(all), group: group.ip(), interface: *interface })
    }

    /// A send failed with this error. Where its interface is no more and another has the address, that one is used from now on.
    ///
    /// It is joined first: a node that sent by it and heard nothing of its group would not notice. The membership of before stays in the
    /// kernel's list, which has room for 20 unless the host is set up otherwise. Where it is full, sends go on to be refused.
    #[cold]
    pub(super) fn after(&self, error: &io::Error) {
        let interface = MulticastInterface::Address(self.interface);
        if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) && self.joins(interface) {
            let _unless_it_is_gone_again = self.own.set_multicast_interface(interface);
        }
    }

    /// True if it is a member there now, also if it was before.
    fn joins(&self, interface: MulticastInterface) -> bool {
        match self.all.join_multicast(self.group, interface) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::AddrInUse,
        }
    }
}
