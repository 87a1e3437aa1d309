//! A group's interface that was removed, and made again with its address: memberships and ways belong to the interface that is gone.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use punctual_machine::socket::{MulticastInterface, UdpSocket};

use super::Reach;

/// Sockets of a node that comes back into its multicast group.
#[derive(Debug)]
pub(super) struct Rejoining {
    own: Arc<UdpSocket>,
    all: Arc<UdpSocket>,
    group: IpAddr,
    interface: MulticastInterface,
    /// Of the interface where the group was joined, if it is known.
    index: Option<u32>,
}

impl Rejoining {
    pub(super) fn new(reach: &Reach, own: &Arc<UdpSocket>, all: &Arc<UdpSocket>) -> Option<Self> {
        let Reach::Multicast { group, interface } = reach else { return None };
        let interface = MulticastInterface::Address(*interface);
        let (own, all) = (Arc::clone(own), Arc::clone(all));
        Some(Self { own, all, group: group.ip(), interface, index: interface.index() })
    }

    /// A send failed with this error. Where its interface is no more and another has the address, that one is used from now on.
    ///
    /// It is joined first: a node that sent by it and heard nothing of its group would not notice.
    #[cold]
    pub(super) fn handle_error(&mut self, error: &io::Error) {
        if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) && self.joins() {
            let _unless_it_is_gone_again = self.own.set_multicast_interface(self.interface);
        }
    }

    /// True if it is a member there now, also if it was before.
    fn joins(&mut self) -> bool {
        let index = self.interface.index();
        if let Some(before) = self.index.filter(|_| index.is_some() && index != self.index) {
            // The kernel has forgotten it, or has room for some more.
            let _left = self.all.leave_multicast(self.group, before);
            self.index = index;
        }
        match self.all.join_multicast(self.group, self.interface) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::AddrInUse,
        }
    }
}
