//! Network namespaces: several hosts' worth of network inside one process, for tests and experiments.
//!
//! A namespace belongs to a thread and lives as long as a thread, a descriptor or a veth peer of its own
//! holds it: when its last thread ends, its interfaces go, and with one end of a veth pair the other. So
//! nothing here needs cleaning up, and nothing survives a crash.
use std::io;
use std::net::IpAddr;
use std::process::Command;

use crate::SystemError;

/// Moves the calling thread, and no other, into a new network namespace with nothing but a loopback
/// interface that is down. Needs CAP_SYS_ADMIN. Sockets that are already open stay where they were;
/// processes the thread starts from now on inherit the new namespace.
pub fn unshare_network() -> Result<(), SystemError> {
    // SAFETY: CLONE_NEWNET changes which network later calls of this thread see; no memory or descriptor
    // that safe code relies on changes.
    let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if answer == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let error = match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a new network namespace needs CAP_SYS_ADMIN: run as root",
        ),
        _ => error,
    };
    Err(SystemError::new("unshare", "the network namespace", error))
}

/// Sets an interface of the calling thread's namespace up. Needs CAP_NET_ADMIN.
pub fn bring_up(interface: &str) -> Result<(), SystemError> {
    crate::packet::bring_up(interface)
}

/// Work that an interface does for those who send by it, or says that it does: a veth pair passes on what is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums of what is sent. Without it the sender's kernel computes them, and the receiver's looks at them.
    Checksum,
    /// To cut runs into packets. Without it the sender's kernel does.
    Segmentation,
}

/// Switches something on or off that an interface of the calling thread's namespace does. Runs `ip` for segmentation; needs
/// CAP_NET_ADMIN.
pub fn set_offload(interface: &str, offload: Offload, on: bool) -> Result<(), SystemError> {
    /// Of `linux/ethtool.h`.
    const ETHTOOL_STXCSUM: u32 = 0x17;
    match offload {
        Offload::Checksum => crate::packet::set_feature(interface, ETHTOOL_STXCSUM, u32::from(on)),
        // The older switch for it is not consulted for runs of datagrams; the most packets that one may have always is.
        Offload::Segmentation => {
            run_ip(&["link", "set", interface, "gso_max_segs", if on { "65535" } else { "1" }])
        }
    }
}

/// Sets an interface of the calling thread's namespace down. Runs `ip`.
pub fn bring_down(interface: &str) -> Result<(), SystemError> {
    run_ip(&["link", "set", interface, "down"])
}

/// The calling thread's id: [`create_veth`] on another thread takes it as `peer`.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Creates a pair of virtual Ethernet interfaces: `name_here` in the calling thread's namespace,
/// `name_there` in that of the process or thread `peer`. Both are down and have no address. Runs `ip`
/// (iproute2); needs CAP_NET_ADMIN in both namespaces.
pub fn create_veth(name_here: &str, name_there: &str, peer: u32) -> Result<(), SystemError> {
    let peer = peer.to_string();
    run_ip(&["link", "add", name_here, "type", "veth", "peer", "name", name_there, "netns", &peer])
}

/// Removes an interface of the calling thread's namespace; of a veth pair both. Runs `ip`.
pub fn remove(interface: &str) -> Result<(), SystemError> {
    run_ip(&["link", "delete", interface])
}

/// Lets an interface of the calling thread's namespace keep so many frames that its device has not taken. Runs `ip`.
pub fn set_queue(interface: &str, frames: usize) -> Result<(), SystemError> {
    run_ip(&["link", "set", interface, "txqueuelen", &frames.to_string()])
}

/// Creates a bridge, which is down, in the calling thread's namespace. Runs `ip`.
pub fn create_bridge(name: &str) -> Result<(), SystemError> {
    run_ip(&["link", "add", name, "type", "bridge"])
}

/// Makes an interface a port of a bridge, both of the calling thread's namespace. Runs `ip`.
pub fn join_bridge(interface: &str, bridge: &str) -> Result<(), SystemError> {
    run_ip(&["link", "set", interface, "master", bridge])
}

/// Lets a bridge send frames that came in by one of its ports out by the same port too, which it otherwise never does. A host behind
/// that port hears itself. Runs `ip`.
pub fn reflect(port: &str) -> Result<(), SystemError> {
    run_ip(&["link", "set", port, "type", "bridge_slave", "hairpin", "on"])
}

/// Gives an interface of the calling thread's namespace an address, for example `10.77.0.1/24`. Runs `ip`.
/// IPv6 addresses are usable at once (no duplicate address detection).
pub fn add_address(interface: &str, address: &str) -> Result<(), SystemError> {
    let mut arguments = vec!["address", "add", address, "dev", interface];
    if address.contains(':') {
        arguments.push("nodad");
    }
    run_ip(&arguments)
}

/// Says for good which station has an address on the segment of an interface of the calling thread's namespace, so that
/// nobody asks. Runs `ip`.
pub fn add_neighbour(interface: &str, address: IpAddr, mac: [u8; 6]) -> Result<(), SystemError> {
    let station = mac.map(|byte| format!("{byte:02x}")).join(":");
    let address = address.to_string();
    run_ip(&["neighbour", "replace", &address, "lladdr", &station, "dev", interface, "nud", "permanent"])
}

/// Changes the largest payload an interface of the calling thread's namespace carries. Runs `ip`.
pub fn set_mtu(interface: &str, mtu: usize) -> Result<(), SystemError> {
    run_ip(&["link", "set", interface, "mtu", &mtu.to_string()])
}

/// A child process inherits the namespace of the thread that starts it, so `ip` acts where we are.
pub(crate) fn run_ip(arguments: &[&str]) -> Result<(), SystemError> {
    let command = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output().map_err(|e| {
        let text = match e.kind() {
            io::ErrorKind::NotFound => "ip was not found: install iproute2".to_owned(),
            _ => e.to_string(),
        };
        SystemError::new("run", command(), io::Error::new(e.kind(), text))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let error = if said.contains("Operation not permitted") {
        io::Error::new(io::ErrorKind::PermissionDenied, format!("{said}: run as root (CAP_NET_ADMIN)"))
    } else {
        io::Error::other(format!("{said} ({})", output.status))
    };
    Err(SystemError::new("run", command(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that is equal for two threads exactly if they share a network namespace.
    fn network_namespace_id() -> Result<u64, SystemError> {
        const PATH: &str = "/proc/thread-self/ns/net";
        let file = std::fs::metadata(PATH).map_err(|e| SystemError::new("read", PATH, e))?;
        Ok(std::os::linux::fs::MetadataExt::st_ino(&file))
    }

    #[test]
    fn a_thread_leaves_and_others_stay() {
        let here = network_namespace_id().expect("proc is mounted");
        let there = std::thread::spawn(|| {
            unshare_network()?;
            bring_up("lo")?;
            let error = bring_up("nowhere0").expect_err("no such interface");
            assert!(error.to_string().contains("nowhere0"), "{error}");
            network_namespace_id()
        });
        match there.join().expect("the thread ends") {
            Ok(there) => assert_ne!(here, there),
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{e}");
                crate::skipped!("the rest: {e}");
            }
        }
        assert_eq!(network_namespace_id().expect("proc is mounted"), here);
    }

    #[test]
    fn the_complaint_of_ip_is_passed_on() {
        let error = run_ip(&["link", "set", "nowhere0", "up"]).expect_err("no such interface");
        assert!(error.to_string().contains("nowhere0"), "{error}");
    }
}
