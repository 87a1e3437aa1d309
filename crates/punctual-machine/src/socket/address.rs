//! Socket addresses in the kernel's layout, written and read as bytes.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for a `sockaddr_in6`, the larger of the two that a UDP socket meets.
const SIZE_MAX: usize = 28;
const SIZE_V4: u32 = 16;
const SIZE_V6: u32 = 28;
const FAMILY_V4: u16 = libc::AF_INET as u16;
const FAMILY_V6: u16 = libc::AF_INET6 as u16;

/// An address as the kernel reads and writes it, so that a batch translates nothing until asked.
///
/// `sockaddr_in`: family (native), port (big-endian), address. `sockaddr_in6`: family, port, flow
/// information, address, scope (native).
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Eq)]
pub struct RawAddress {
    /// As the kernel has it.
    pub bytes: [u8; SIZE_MAX],
    /// Number of the bytes that count; 0 is "the connected peer".
    pub size: u32,
}

impl PartialEq for RawAddress {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // By words: a loop over 28 bytes costs more than the rest of what a datagram's source is looked at for.
        let words = |address: &Self| {
            let (words, rest) = address.bytes.as_chunks::<8>();
            let word = |index: usize| u64::from_ne_bytes(words[index]);
            let last = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
            [word(0), word(1), word(2), u64::from(last) << 32 | u64::from(address.size)]
        };
        let [mine, theirs] = [words(self), words(other)];
        mine.iter().zip(theirs).fold(0, |differing, (mine, theirs)| differing | (mine ^ theirs)) == 0
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        Self::encode(address)
    }
}

impl RawAddress {
    /// The connected peer.
    pub const NONE: Self = Self { bytes: [0; SIZE_MAX], size: 0 };
    /// Room for either family, bytes.
    pub const SIZE_MAX: u32 = SIZE_MAX as u32;

    /// In the kernel's layout.
    pub fn encode(address: SocketAddr) -> Self {
        let mut raw = Self::NONE;
        raw.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                raw.size = SIZE_V4;
                raw.bytes[0..2].copy_from_slice(&FAMILY_V4.to_ne_bytes());
                raw.bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                raw.size = SIZE_V6;
                raw.bytes[0..2].copy_from_slice(&FAMILY_V6.to_ne_bytes());
                raw.bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                raw.bytes[8..24].copy_from_slice(&v6.ip().octets());
                raw.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        raw
    }

    /// As the rest of the program has it.
    pub fn socket_addr(&self) -> SocketAddr {
        Self::decode(&self.bytes)
    }

    /// The address of which the kernel wrote `size` bytes. A family that a UDP socket cannot meet reads as
    /// the unspecified address.
    pub fn decode(bytes: &[u8; SIZE_MAX]) -> SocketAddr {
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match u16::from_ne_bytes([bytes[0], bytes[1]]) {
            FAMILY_V4 => {
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                SocketAddr::V4(SocketAddrV4::new(ip, port))
            }
            FAMILY_V6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&bytes[8..24]);
                let flow = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope))
            }
            _ => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernel_layout() {
        let v6 = SocketAddrV6::new("fe80::1".parse().expect("valid"), 9930, 7, 3);
        for address in ["127.0.0.1:1".parse().expect("valid"), SocketAddr::V6(v6)] {
            assert_eq!(RawAddress::decode(&RawAddress::encode(address).bytes), address);
        }
    }

    #[test]
    fn an_unknown_family_reads_as_unspecified() {
        assert_eq!(RawAddress::decode(&[0xee; SIZE_MAX]), "0.0.0.0:0".parse().expect("valid"));
    }
}
