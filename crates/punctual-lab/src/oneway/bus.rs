//! A bus as it is written on the command line.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use punctual::Bus;

/// A bus between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusPlan {
    /// UDP among hosts that share a multicast group.
    Multicast {
        /// The group and its port.
        group: SocketAddr,
        /// Address of the interface to use.
        interface: Ipv4Addr,
    },
    /// UDP among hosts that know each other.
    Peers {
        /// Own address.
        local: SocketAddr,
        /// The others'.
        peers: Vec<SocketAddr>,
    },
    /// Raw Ethernet.
    Ethernet(String),
}

impl BusPlan {
    /// The bus itself.
    #[must_use]
    pub fn bus(&self) -> Bus {
        match self {
            Self::Multicast { group, interface } => Bus::multicast(*group, *interface),
            Self::Peers { local, peers } => Bus::peers(*local, peers),
            Self::Ethernet(interface) => Bus::ethernet(interface),
        }
    }

    /// The medium's name in results.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Multicast { .. } => "multicast",
            Self::Peers { .. } => "udp",
            Self::Ethernet(_) => "ethernet",
        }
    }
}

impl fmt::Display for BusPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Multicast { group, interface } => write!(f, "multicast:{group}@{interface}"),
            Self::Peers { local, peers } => {
                let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
                write!(f, "udp:{local},{}", peers.join(","))
            }
            Self::Ethernet(interface) => write!(f, "ethernet:{interface}"),
        }
    }
}

impl FromStr for BusPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "udp:OWN-ADDRESS:PORT,PEER:PORT, multicast:GROUP:PORT@INTERFACE-ADDRESS or ethernet:INTERFACE is needed"
                .to_owned()
        };
        let (medium, rest) = text.split_once(':').ok_or_else(wrong)?;
        match medium {
            "udp" => {
                let addresses: Result<Vec<SocketAddr>, _> = rest.split(',').map(str::parse).collect();
                let addresses = addresses.map_err(|_| wrong())?;
                let (&local, peers) =
                    addresses.split_first().filter(|(_, peers)| !peers.is_empty()).ok_or_else(wrong)?;
                Ok(Self::Peers { local, peers: peers.to_vec() })
            }
            "multicast" => {
                let (group, interface) = rest.split_once('@').ok_or_else(wrong)?;
                let (group, interface) = group.parse().ok().zip(interface.parse().ok()).ok_or_else(wrong)?;
                Ok(Self::Multicast { group, interface })
            }
            "ethernet" if !rest.is_empty() => Ok(Self::Ethernet(rest.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// Both ends of a bus over loopback, on ports that are free now.
///
/// # Errors
/// In words for people.
pub fn loopback() -> Result<[BusPlan; 2], String> {
    let free =
        || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| Ok((socket.local_addr()?, socket)));
    let failed =
        |error: std::io::Error| format!("cannot find a free port of the loopback interface: {error}");
    // Both are held until both are known.
    let ((here, _first), (there, _second)) = (free().map_err(failed)?, free().map_err(failed)?);
    Ok([(here, there), (there, here)].map(|(local, peer)| BusPlan::Peers { local, peers: vec![peer] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buses_read_back() {
        for text in ["udp:10.0.0.1:7400,10.0.0.2:7400", "multicast:239.1.2.3:7400@10.0.0.1", "ethernet:eth0"]
        {
            assert_eq!(text.parse::<BusPlan>().map(|plan| plan.to_string()), Ok(text.to_owned()));
        }
        for wrong in
            ["", "udp", "udp:10.0.0.1:7400", "udp:a,b", "multicast:239.1.2.3:7400", "ethernet:", "shared:x"]
        {
            assert!(wrong.parse::<BusPlan>().is_err(), "{wrong}");
        }
    }
}
