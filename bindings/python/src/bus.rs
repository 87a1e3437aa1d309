//! Buses: the media, and the seals on them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use punctual::memory::WhenFull;
use punctual::{Bus as Medium, Keys};
use pyo3::prelude::*;

use crate::error::{Error, invalid};

/// A medium that reaches everybody.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Bus(pub(crate) Medium);

fn parsed<T: FromStr>(text: &str, what: &str, example: &str) -> PyResult<T> {
    text.parse().map_err(|_| invalid(format_args!("{what} {text:?}: such as {example} is needed")))
}

fn with_rings(mut bus: Medium, ring_size: Option<usize>, hold_back: bool) -> Medium {
    if let Medium::Loopback(options) | Medium::Shared(options) = &mut bus {
        options.ring_size = ring_size.unwrap_or(options.ring_size);
        options.when_full = if hold_back { WhenFull::HoldBack } else { WhenFull::Overrun };
    }
    bus
}

#[pymethods]
impl Bus {
    /// Nodes inside this process. Slow readers always hold writers back there, regardless of `hold_back`.
    #[staticmethod]
    #[pyo3(signature = (name, *, ring_size=None, hold_back=false))]
    fn loopback(name: &str, ring_size: Option<usize>, hold_back: bool) -> Self {
        Self(with_rings(Medium::loopback(name), ring_size, hold_back))
    }

    /// Processes of this host, over shared memory; of all users in a group, if one is named by its number.
    #[staticmethod]
    #[pyo3(signature = (name, *, group=None, ring_size=None, hold_back=false))]
    fn shared(name: &str, group: Option<u32>, ring_size: Option<usize>, hold_back: bool) -> Self {
        let bus = group.map_or_else(|| Medium::shared(name), |group| Medium::shared_with_group(name, group));
        Self(with_rings(bus, ring_size, hold_back))
    }

    /// UDP among hosts that share a multicast group; `interface` is the address of the one to use.
    #[staticmethod]
    fn multicast(group: &str, interface: &str) -> PyResult<Self> {
        let group: SocketAddr = parsed(group, "group", "239.1.1.1:7400")?;
        let interface: Ipv4Addr = parsed(interface, "interface", "192.168.1.5")?;
        Ok(Self(Medium::multicast(group, interface)))
    }

    /// UDP among hosts that know each other's addresses.
    #[staticmethod]
    fn peers(local: &str, peers: Vec<String>) -> PyResult<Self> {
        let local: SocketAddr = parsed(local, "local", "192.168.1.5:7400")?;
        let peers = peers.iter().map(|peer| parsed(peer, "peer", "192.168.1.6:7400"));
        Ok(Self(Medium::peers(local, &peers.collect::<PyResult<Vec<SocketAddr>>>()?)))
    }

    /// Raw Ethernet on an interface. Needs CAP_NET_RAW.
    #[staticmethod]
    fn ethernet(interface: &str) -> Self {
        Self(Medium::ethernet(interface))
    }

    /// The same bus, on which only frames count that a holder of one of the file's keys has sealed.
    #[pyo3(signature = (keys_file, *, name=None))]
    fn sealed(&self, keys_file: PathBuf, name: Option<&str>) -> PyResult<Self> {
        let keys = Keys::from_file(keys_file).map_err(|error| Error::new_err(error.to_string()))?;
        let bare = self.0.clone();
        Ok(Self(match name {
            Some(name) => bare.sealed_as(&keys, name),
            None => bare.sealed(&keys),
        }))
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Bus {}>", self.0)
    }
}
