//! UDP in IP as bytes after an Ethernet header, for ways that pass by the kernel's own stack, and for the forwarder.
//!
//! Headers are taken apart and put together by the crate etherparse. Pure: bytes in, bytes out; malformed input from outside is
//! refused. Of a fragment only where its part of the datagram lies is understood. Other extension headers of IPv6 are not: a measuring
//! packet has none.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use etherparse::{
    Ipv4Header, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6Header, Ipv6HeaderSlice, UdpHeader,
    UdpHeaderSlice, ip_number,
};

/// IPv4 after Ethernet.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6 after Ethernet.
pub const ETHERTYPE_IPV6: u16 = 0x86DD;

const UDP_SIZE: usize = 8;
/// Where the checksum lies in a UDP header.
const CHECKSUM_AT: usize = 6;
/// Hops that a packet of ours may take.
const HOPS: u8 = 64;

/// A UDP packet, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Its sender.
    pub source: SocketAddr,
    /// For whom it is.
    pub target: SocketAddr,
    /// Where its payload lies.
    pub payload: Range<usize>,
}

enum Network<'a> {
    V4(Ipv4HeaderSlice<'a>),
    V6(Ipv6HeaderSlice<'a>),
}

/// Takes an IP packet apart that holds a whole UDP datagram; `None` for anything else. The checksum is not looked at: on a veth it is
/// often not there yet, and the caller compares the payload whole.
pub fn take_apart(packet: &[u8]) -> Option<Parts> {
    let (network, start, end) = network(packet)?;
    let datagram = packet.get(start..end)?;
    let udp = UdpHeaderSlice::from_slice(datagram).ok()?;
    let size = usize::from(udp.length());
    if size < UDP_SIZE || size > datagram.len() {
        return None;
    }
    let (source, target): (IpAddr, IpAddr) = match network {
        Network::V4(header) => (header.source_addr().into(), header.destination_addr().into()),
        Network::V6(header) => (header.source_addr().into(), header.destination_addr().into()),
    };
    Some(Parts {
        source: SocketAddr::new(source, udp.source_port()),
        target: SocketAddr::new(target, udp.destination_port()),
        payload: start + UDP_SIZE..start + size,
    })
}

/// The IP header of a packet with a UDP datagram, and where that begins and ends.
fn network(packet: &[u8]) -> Option<(Network<'_>, usize, usize)> {
    match packet.first()? >> 4 {
        4 => {
            let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
            let whole = header.protocol() == ip_number::UDP && !header.is_fragmenting_payload();
            let (start, end) = (header.slice().len(), usize::from(header.total_len()));
            (whole && start <= end && end <= packet.len()).then_some((Network::V4(header), start, end))
        }
        6 => {
            let header = Ipv6HeaderSlice::from_slice(packet).ok()?;
            let start = header.slice().len();
            let end = start + usize::from(header.payload_length());
            (header.next_header() == ip_number::UDP && end <= packet.len()).then_some((
                Network::V6(header),
                start,
                end,
            ))
        }
        _ => None,
    }
}

/// Makes the checksum of a UDP packet right; returns where its payload lies. `None`, and nothing done, for anything else.
pub fn finish_checksum(packet: &mut [u8]) -> Option<Range<usize>> {
    let payload = take_apart(packet)?.payload;
    let udp_start = payload.start - UDP_SIZE;
    let checksum = {
        let (network, ..) = network(packet)?;
        let udp = UdpHeaderSlice::from_slice(&packet[udp_start..]).ok()?.to_header();
        match network {
            Network::V4(header) => udp.calc_checksum_ipv4(&header.to_header(), &packet[payload.clone()]),
            Network::V6(header) => udp.calc_checksum_ipv6(&header.to_header(), &packet[payload.clone()]),
        }
        .ok()?
    };
    packet[udp_start + CHECKSUM_AT..udp_start + UDP_SIZE].copy_from_slice(&checksum.to_be_bytes());
    Some(payload)
}

/// Where its part of the datagram lies in a fragment of a UDP packet; `None` for anything else.
pub fn fragment_part(packet: &[u8]) -> Option<Range<usize>> {
    let (start, end) = match packet.first()? >> 4 {
        4 => {
            let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
            let is_part = header.protocol() == ip_number::UDP && header.is_fragmenting_payload();
            is_part.then_some((header.slice().len(), usize::from(header.total_len())))?
        }
        6 => {
            let header = Ipv6HeaderSlice::from_slice(packet).ok()?;
            let start = header.slice().len();
            let end = start + usize::from(header.payload_length());
            let is_fragment = header.next_header() == ip_number::IPV6_FRAGMENTATION_HEADER;
            let next =
                is_fragment.then(|| Ipv6FragmentHeaderSlice::from_slice(packet.get(start..end)?).ok())??;
            let is_part = next.next_header() == ip_number::UDP && next.is_fragmenting_payload();
            is_part.then_some((start + next.slice().len(), end))?
        }
        _ => return None,
    };
    (start <= end && end <= packet.len()).then_some(start..end)
}

/// The size of an IP packet around a payload.
pub fn size_around(payload: usize, target: IpAddr) -> usize {
    let network = if target.is_ipv4() { Ipv4Header::MIN_LEN } else { Ipv6Header::LEN };
    network + UDP_SIZE + payload
}

/// The EtherType of packets to this address.
pub fn ethertype(target: IpAddr) -> u16 {
    if target.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 }
}

/// Puts a packet together in `packet`, which is [`size_around`] the payload: headers, payload, checksums. `None` where
/// the addresses are of two versions, or the size is another.
pub fn put_together(
    packet: &mut [u8],
    source: SocketAddr,
    target: SocketAddr,
    dscp: u8,
    payload: &[u8],
) -> Option<()> {
    let length = u16::try_from(UDP_SIZE + payload.len()).ok()?;
    let mut udp =
        UdpHeader { source_port: source.port(), destination_port: target.port(), length, checksum: 0 };
    if packet.len() != size_around(payload.len(), target.ip()) {
        return None;
    }
    let head = match (source.ip(), target.ip()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let mut header =
                Ipv4Header::new(length, HOPS, ip_number::UDP, source.octets(), target.octets()).ok()?;
            header.dscp = dscp.try_into().ok()?;
            header.header_checksum = header.calc_header_checksum();
            udp.checksum = udp.calc_checksum_ipv4(&header, payload).ok()?;
            let bytes = header.to_bytes();
            packet[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let header = Ipv6Header {
                traffic_class: dscp << 2,
                flow_label: 0_u32.try_into().ok()?,
                payload_length: length,
                next_header: ip_number::UDP,
                hop_limit: HOPS,
                source: source.octets(),
                destination: target.octets(),
            };
            udp.checksum = udp.calc_checksum_ipv6(&header, payload).ok()?;
            let bytes = header.to_bytes();
            packet[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }
        _ => return None,
    };
    packet[head..head + UDP_SIZE].copy_from_slice(&udp.to_bytes());
    packet[head + UDP_SIZE..].copy_from_slice(payload);
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(v6: bool) -> (SocketAddr, SocketAddr) {
        let texts = if v6 { ["[fd00::1]:9930", "[fd00::2]:77"] } else { ["10.1.2.3:9930", "10.1.2.4:77"] };
        let [source, target] = texts.map(|text| text.parse().expect("an address"));
        (source, target)
    }

    proptest! {
        #[test]
        fn a_packet_reads_back(payload in proptest::collection::vec(any::<u8>(), 0..700), v6: bool, dscp in 0..64_u8) {
            let (source, target) = addresses(v6);
            let mut packet = vec![0; size_around(payload.len(), target.ip())];
            put_together(&mut packet, source, target, dscp, &payload).expect("one version");
            let parts = take_apart(&packet).expect("our own");
            prop_assert_eq!((parts.source, parts.target), (source, target));
            prop_assert_eq!(&packet[parts.payload], &payload[..]);
            let mut again = packet.clone();
            finish_checksum(&mut again).expect("our own");
            prop_assert_eq!(again, packet);
        }

        #[test]
        fn any_bytes_are_harmless(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some(parts) = take_apart(&bytes) {
                prop_assert!(parts.payload.end <= bytes.len());
            }
            finish_checksum(&mut bytes);
            if let Some(part) = fragment_part(&bytes) {
                prop_assert!(part.start <= part.end && part.end <= bytes.len());
            }
        }

        #[test]
        fn a_changed_header_is_harmless(at in 0..48_usize, value: u8, v6: bool) {
            let (source, target) = addresses(v6);
            let mut packet = vec![0; size_around(20, target.ip())];
            put_together(&mut packet, source, target, 0, &[7; 20]).expect("one version");
            packet[at] = value;
            if let Some(parts) = take_apart(&packet) {
                prop_assert!(parts.payload.end <= packet.len());
            }
        }
    }

    /// Goal: a fragment is no whole packet, and a whole packet no fragment; the middle of a datagram is found behind its headers.
    #[test]
    fn a_part_of_a_datagram_is_found() {
        let (source, target) = addresses(false);
        let mut packet = vec![0; size_around(24, target.ip())];
        put_together(&mut packet, source, target, 0, &[7; 24]).expect("one version");
        assert_eq!(fragment_part(&packet), None);
        // More fragments follow, and this is not the first.
        packet[6..8].copy_from_slice(&0x2001_u16.to_be_bytes());
        assert_eq!((take_apart(&packet), fragment_part(&packet)), (None, Some(20..52)));
        let (source, target) = addresses(true);
        let mut whole = vec![0; size_around(24, target.ip())];
        put_together(&mut whole, source, target, 0, &[7; 24]).expect("one version");
        assert_eq!(fragment_part(&whole), None);
        whole.splice(40..40, [ip_number::UDP.0, 0, 0, 9, 0, 0, 0, 1]);
        whole[6] = ip_number::IPV6_FRAGMENTATION_HEADER.0;
        whole[4..6].copy_from_slice(&40_u16.to_be_bytes());
        assert_eq!((take_apart(&whole), fragment_part(&whole)), (None, Some(48..80)));
        whole.truncate(60);
        assert_eq!(fragment_part(&whole), None, "half a packet");
    }

    #[test]
    fn two_versions_do_not_mix() {
        let ((v4, _), (v6, _)) = (addresses(false), addresses(true));
        let mut packet = vec![0; size_around(4, v6.ip())];
        assert_eq!(put_together(&mut packet, v4, v6, 0, &[0; 4]), None);
        assert_eq!(take_apart(&[]), None);
    }
}
