//! A bus, as a process is told of it, and as it is written on the command line.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use punctual::Bus;
use punctual::engine::datagram::DatagramOptions;
use punctual::engine::packet::PacketBusOptions;
use serde::{Deserialize, Serialize};

use crate::run::free_addresses;

/// The bus that carries the messages of several processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BusPlan {
    /// UDP among processes that share a multicast group.
    Multicast {
        /// The group and its port.
        group: SocketAddr,
        /// Address of the interface to use.
        interface: Ipv4Addr,
    },
    /// UDP among processes that know each other.
    Peers {
        /// Own address.
        local: SocketAddr,
        /// The others'.
        peers: Vec<SocketAddr>,
    },
    /// Raw Ethernet.
    Ethernet {
        /// The interface.
        interface: String,
        /// Room for so many frames, not the usual number.
        frames: Option<usize>,
    },
    /// Shared memory of this name.
    Shared(String),
}

impl BusPlan {
    /// The bus itself.
    pub fn bus(&self) -> Bus {
        match self {
            Self::Multicast { group, interface } => Bus::multicast(*group, *interface),
            Self::Peers { local, peers } => Bus::peers(*local, peers),
            Self::Ethernet { interface, frames } => {
                let options = PacketBusOptions::new(interface);
                Bus::Packet(PacketBusOptions { frames: frames.unwrap_or(options.frames), ..options })
            }
            Self::Shared(name) => Bus::shared(name),
        }
    }

    /// With the kernel's stamps: the stages then tell the sender's call of the kernel from the receiver's wake-up.
    pub fn stamped_bus(&self) -> Bus {
        match self.bus() {
            Bus::Datagram(options) => Bus::Datagram(DatagramOptions { timestamps: true, ..options }),
            other => other,
        }
    }

    /// The medium's name in results.
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Multicast { .. } => "multicast",
            Self::Peers { .. } => "udp",
            Self::Ethernet { .. } => "ethernet",
            Self::Shared(_) => "shared",
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
            Self::Ethernet { interface, .. } => write!(f, "ethernet:{interface}"),
            Self::Shared(name) => write!(f, "shared:{name}"),
        }
    }
}

impl FromStr for BusPlan {
    type Err = String;

    /// Of a bus between hosts.
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
            "ethernet" if !rest.is_empty() => Ok(Self::Ethernet { interface: rest.to_owned(), frames: None }),
            _ => Err(wrong()),
        }
    }
}

/// Any bus that another process can be on: those between hosts, and `shared:NAME`.
///
/// # Errors
/// The text is none.
pub fn any_bus(text: &str) -> Result<BusPlan, String> {
    match text.split_once(':') {
        Some(("shared", name)) if !name.is_empty() => Ok(BusPlan::Shared(name.to_owned())),
        Some(("loopback", _)) => {
            Err("a loopback bus is inside of its process: see NodeOptions::capture".to_owned())
        }
        _ => text.parse().map_err(|wrong| format!("shared:NAME, {wrong}")),
    }
}

/// So many ends of a bus over loopback, on ports that are free now.
pub fn loopback(count: usize) -> Result<Vec<BusPlan>, String> {
    let free = free_addresses(count)?;
    let others = |local| free.iter().copied().filter(|&peer| peer != local).collect();
    Ok(free.iter().map(|&local| BusPlan::Peers { local, peers: others(local) }).collect())
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
        for text in ["shared:car", "ethernet:eth0"] {
            assert_eq!(any_bus(text).map(|plan| plan.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["shared:", "shared", "loopback:x"] {
            assert!(any_bus(wrong).is_err(), "{wrong}");
        }
    }
}
