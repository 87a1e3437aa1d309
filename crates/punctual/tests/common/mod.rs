//! What the suites share: pairs of buses for every medium, and a watchdog.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use punctual::{Bus, Wake};

/// Ends the process if a test hangs: a lost wake-up must fail, not wait for CI's patience.
pub(crate) fn watchdog(seconds: u64) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel::<()>();
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{test}: nothing for {seconds} s: hangs");
            std::process::exit(101);
        }
    });
    alive
}

/// A bus name that no other test has.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:x}", punctual_machine::process::random() & 0xFFFF_FFFF)
}

/// Two ports of this host that are free.
pub(crate) fn free_ports() -> (SocketAddr, SocketAddr) {
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (a, b) = (bind(), bind());
    (a.local_addr().unwrap(), b.local_addr().unwrap())
}

/// One medium: how each of two nodes opens it.
pub(crate) struct Medium {
    pub(crate) name: &'static str,
    pub(crate) here: Bus,
    pub(crate) there: Bus,
    /// Whether senders ring the doorbell, so that futex and eventfd can wait.
    pub(crate) rings: bool,
}

/// Every medium that needs no privilege.
pub(crate) fn media() -> Vec<Medium> {
    let same = |name, bus: Bus, rings| Medium { name, here: bus.clone(), there: bus, rings };
    let (a, b) = free_ports();
    let group = SocketAddr::new([239, 255, 80, 85].into(), free_ports().0.port());
    vec![
        same("loopback", Bus::loopback(&unique("test")), true),
        same("shared", Bus::shared(&unique("test")), true),
        Medium { name: "udp", here: Bus::peers(a, &[b]), there: Bus::peers(b, &[a]), rings: false },
        same("multicast", Bus::multicast(group, [127, 0, 0, 1].into()), false),
    ]
}

/// The ways of waiting that a medium allows.
pub(crate) fn ways(rings: bool) -> impl Iterator<Item = Wake> {
    Wake::ALL.into_iter().filter(move |wake| wake.can_wait_for(rings))
}

/// Runs `work` with two ends of an Ethernet segment in namespaces of their own, or says loudly why not.
pub(crate) fn on_ethernet(work: impl FnOnce(&Medium) + Send) {
    use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};
    std::thread::scope(|scope| {
        let prepared = scope.spawn(move || {
            unshare_network()?;
            create_veth("pta", "ptb", thread_id())?;
            bring_up("pta")?;
            bring_up("ptb")?;
            work(&Medium {
                name: "ethernet",
                here: Bus::ethernet("pta"),
                there: Bus::ethernet("ptb"),
                rings: false,
            });
            Ok::<(), punctual_machine::SystemError>(())
        });
        match prepared.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("SKIPPED raw Ethernet: {error}"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
}
