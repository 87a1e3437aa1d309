//! Where the two processes of one round find each other.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use crate::Outcome;

/// A name that nobody else uses, two free UDP ports, and which end this process has.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub(crate) name: String,
    ports: [u16; 2],
    /// True if this is the end that is opened first, and that counts.
    pub(crate) here: bool,
}

impl Meeting {
    pub(crate) fn new() -> Outcome<Self> {
        // Both at once, so that they differ; free again when this returns.
        let sockets = [bind()?, bind()?];
        let [one, two] = &sockets;
        let ports = [one.local_addr()?.port(), two.local_addr()?.port()];
        let name = format!("peers-{:08x}", punctual_machine::process::random() as u32);
        Ok(Self { name, ports, here: true })
    }

    /// This end's UDP address, and the other's.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        let [one, two] = self.ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        if self.here { [one, two] } else { [two, one] }
    }
}

fn bind() -> Outcome<UdpSocket> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?)
}

/// As the other process is told.
impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two] = self.ports;
        write!(f, "{},{one},{two}", self.name)
    }
}

/// The other end's.
impl FromStr for Meeting {
    type Err = Box<dyn std::error::Error>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split(',').collect::<Vec<_>>()[..] {
            [name, one, two] => {
                Ok(Self { name: name.to_owned(), ports: [one.parse()?, two.parse()?], here: false })
            }
            _ => Err(format!("{text:?} is no meeting").into()),
        }
    }
}
