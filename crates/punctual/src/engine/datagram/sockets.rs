//! The sockets of a node.

use std::net::{IpAddr, SocketAddr};

use punctual_machine::SystemError;
use punctual_machine::socket::{MulticastInterface, UdpOptions, UdpSocket};
use punctual_proto::NodeId;

use super::Reach;
use crate::engine::wire;

/// The sockets of a node, and whom it reaches by them.
pub(super) struct Sockets {
    pub(super) own: UdpSocket,
    pub(super) group: Option<UdpSocket>,
    /// The group, or every peer.
    pub(super) everybody: Vec<SocketAddr>,
    /// The one peer, to which the own socket is connected.
    pub(super) connected: Option<SocketAddr>,
}

impl Sockets {
    /// Opens them. A group's socket has runs of datagrams as one if `merges_group`.
    pub(super) fn open(
        reach: &Reach,
        options: &UdpOptions,
        merges_group: bool,
        node: NodeId,
    ) -> Result<Self, SystemError> {
        match reach {
            Reach::Peers { local, peers } => {
                let socket = UdpSocket::bind(*local, options)?;
                // Each once: a peer that is listed twice is one.
                let mut others: Vec<SocketAddr> = Vec::new();
                for &peer in peers.iter().filter(|peer| *peer != local) {
                    if !others.contains(&peer) {
                        others.push(peer);
                    }
                }
                let connected = if let [peer] = others[..] { Some(peer) } else { None };
                // An addressed datagram cost 0.44 µs more than a connected one, of 3.8 there and back on loopback.
                connected.map_or(Ok(()), |peer| socket.connect(peer))?;
                Ok(Self { own: socket, group: None, everybody: others, connected })
            }
            Reach::Multicast { group, interface } => {
                let own = UdpSocket::bind(SocketAddr::new(IpAddr::V4(*interface), 0), options)?;
                own.set_multicast_interface(MulticastInterface::Address(*interface))?;
                // Others on this host must hear us, so the kernel brings back what we send; the filter keeps it out of our buffer.
                let unwanted = Some(wire::unwanted(node));
                let shared =
                    UdpOptions { reuse_address: true, unwanted, merged: merges_group, ..options.clone() };
                let all = UdpSocket::bind(*group, &shared)?;
                all.join_multicast(group.ip(), MulticastInterface::Address(*interface))?;
                Ok(Self { own, group: Some(all), everybody: vec![*group], connected: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a peer that is listed twice is sent everything once, and is the one peer where there is no other.
    #[test]
    fn a_peer_that_is_listed_twice_is_one() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [b, c] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        for (peers, everybody, connected) in
            [(vec![b, b], vec![b], Some(b)), (vec![c, b, c, any, b], vec![c, b], None)]
        {
            let reach = Reach::Peers { local: any, peers };
            let opened = Sockets::open(&reach, &UdpOptions::default(), false, NodeId::named("here")).unwrap();
            assert_eq!((opened.everybody, opened.connected), (everybody, connected));
        }
    }
}
