//! Groups over nodes: members of one process on every medium, and real processes that are killed, stopped and looked at.

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "group-file")]
mod file;
mod kinds;
mod members;
mod processes;
mod replica;
mod seen;
mod soak;

use punctual::Node;

/// Nodes of these names on each medium that carries a group; on Ethernet, which has two ends, the first two of them.
fn on_every_medium(names: &[&str], trial: impl Fn(&[Node], &[&str]) + Send + Sync) {
    // With UDP each names the others' addresses: tests of that open their own.
    for medium in common::media().into_iter().filter(|medium| medium.name != "udp") {
        eprintln!("on {}", medium.name);
        let nodes: Vec<Node> = names.iter().map(|name| Node::open(&medium.here, name).unwrap()).collect();
        trial(&nodes, names);
    }
    common::on_ethernet(|medium| {
        eprintln!("on {}", medium.name);
        let open = |bus, name| Node::open(bus, name).unwrap();
        trial(&[open(&medium.here, names[0]), open(&medium.there, names[1])], &names[..2]);
    });
}

/// Not a test of its own: the work of another process.
#[test]
fn role() {
    if let Some((role, bus)) = common::own_role() {
        match role.split_once(' ') {
            None if role == "soak" => soak::play(&bus),
            Some(("seen", role)) => seen::play(role, &bus),
            _ => processes::play(&role, &bus),
        }
    }
}
