//! Where both ends of a trial stand: two network namespaces joined by a veth pair, addresses, folders.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use punctual_machine::namespace::{
    add_address, bring_up, create_bridge, create_veth, join_bridge, thread_id, unshare_network,
};
use punctual_machine::process::random;

use super::{ThreadOf, Worker};

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

/// The calling thread leaves for a network namespace of its own in which there is this bridge, up. The loopback interface is up first:
/// without a bridge it carries the messages.
pub fn leave_with_bridge(bridge: &str) -> Result<(), String> {
    leave()?;
    let made = bring_up("lo").and_then(|()| create_bridge(bridge)).and_then(|()| bring_up(bridge));
    made.map_err(|error| error.to_string())
}

/// A new port of a bridge of this namespace, up; its other end is an interface of the namespace that this thread is in.
fn plug_in(bridge: &str, port: &str, interface: &str, thread: u32) -> Result<(), String> {
    let made = create_veth(port, interface, thread);
    made.and_then(|()| join_bridge(port, bridge))
        .and_then(|()| bring_up(port))
        .map_err(|error| error.to_string())
}

/// A network namespace that a thread of this process holds: its interface and its addresses outlive the workers in it.
#[derive(Debug)]
pub struct HeldNamespace {
    id: u32,
    holder: ThreadOf<()>,
}

impl HeldNamespace {
    /// A new namespace. Its loopback interface is up.
    pub fn new() -> Result<Self, String> {
        let holder = ThreadOf::start("namespace", || {
            leave().and_then(|()| bring_up("lo").map_err(|error| error.to_string()))
        })?;
        Ok(Self { id: holder.run(|()| thread_id())?, holder })
    }

    /// A new namespace with one interface, which has this address and length of prefix. The interface's other end is a new port
    /// of a bridge of the calling thread's namespace.
    pub fn plugged(
        (bridge, port): (&str, &str),
        interface: &'static str,
        (address, prefix): (Ipv4Addr, u8),
    ) -> Result<Self, String> {
        let held = Self::new()?;
        plug_in(bridge, port, interface, held.id)?;
        let settle = move || {
            let address = format!("{address}/{prefix}");
            let settled = bring_up(interface).and_then(|()| add_address(interface, &address));
            settled.map_err(|error| error.to_string())
        };
        held.run(settle)??;
        Ok(held)
    }

    /// The thread that holds it: interfaces may be moved there.
    pub fn thread(&self) -> u32 {
        self.id
    }

    /// Does something in this namespace, and waits for what it brings. Threads that it starts stay here.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        self.holder.run(|()| work())
    }

    /// Starts this program as a worker in this namespace. Workers must end before it does: the kernel ends a worker with the thread
    /// that started it.
    pub fn start(&self, role: &'static str) -> Result<Worker, String> {
        self.run(move || Worker::start(role))?
    }
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

/// A folder of this user's alone; it goes with this value.
#[derive(Debug)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    /// A new one inside of another: [`memory_folder`] for what is read and written while something is measured, the folder for
    /// temporary files for what may become large.
    pub fn create(inside: &Path, experiment: &str) -> Result<Self, String> {
        let path = inside.join(format!("punctual-{experiment}-{:x}", random()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_enters_the_folder_and_it_goes() {
        let folder = OwnFolder::create(&std::env::temp_dir(), "test").expect("room");
        let mode = std::fs::metadata(folder.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may enter it");
        let path = folder.path().to_owned();
        std::fs::write(path.join("keys"), "1").expect("room");
        drop(folder);
        assert!(!path.exists());
    }
}
