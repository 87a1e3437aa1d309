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

/// Not a test of its own: what another process does.
#[test]
fn role() {
    if let Some((role, bus)) = common::own_role() {
        match role.strip_prefix("seen ") {
            Some(role) => seen::play(role, &bus),
            None => processes::play(&role, &bus),
        }
    }
}
