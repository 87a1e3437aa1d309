//! Where both ends of a trial stand: two network namespaces joined by a veth pair, addresses, folders.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use punctual_machine::namespace::{bring_up, create_bridge, create_veth, join_bridge, unshare_network};

/// Interfaces of the veth pair, each in a namespace of its own: the client's and the responder's.
pub const INTERFACES: [&str; 2] = ["punctual0", "punctual1"];

/// The calling thread leaves for a network namespace of its own.
pub fn leave() -> Result<(), String> {
    unshare_network().map_err(|error| error.to_string())
}

/// Joins this namespace with the responder's, which that thread holds. Nothing is left behind: a veth pair dies with its
/// namespaces.
pub fn join_by_veth(thread: u32) -> Result<(), String> {
    let joined = create_veth(INTERFACES[0], INTERFACES[1], thread).and_then(|()| bring_up(INTERFACES[0]));
    joined.map_err(|error| error.to_string())
}

/// A bridge in this namespace, up.
pub fn make_bridge(bridge: &str) -> Result<(), String> {
    create_bridge(bridge).and_then(|()| bring_up(bridge)).map_err(|error| error.to_string())
}

/// A new port of a bridge of this namespace, up; its other end is an interface of the namespace that this thread is in.
pub fn plug_in(bridge: &str, port: &str, interface: &str, thread: u32) -> Result<(), String> {
    let made = create_veth(port, interface, thread);
    made.and_then(|()| join_bridge(port, bridge))
        .and_then(|()| bring_up(port))
        .map_err(|error| error.to_string())
}

/// UDP addresses of the loopback interface that nobody uses.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, String> {
    // All at once, so that they differ; free again when this returns.
    let sockets: Result<Vec<_>, _> = (0..count).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let addresses = sockets.and_then(|sockets| sockets.iter().map(UdpSocket::local_addr).collect());
    addresses.map_err(|error: std::io::Error| format!("no free UDP port: {error}"))
}

/// A folder in memory, where there is one.
pub fn memory_folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}
