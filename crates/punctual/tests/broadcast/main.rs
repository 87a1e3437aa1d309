//! Groups over nodes: members of one process on every medium, and real processes that are killed and stopped.

#[path = "../common/mod.rs"]
mod common;
mod members;
mod processes;

/// Not a test of its own: what another process does.
#[test]
fn role() {
    if let (Ok(role), Ok(bus)) = (std::env::var("PUNCTUAL_TEST_ROLE"), std::env::var("PUNCTUAL_TEST_BUS")) {
        processes::play(&role, &bus);
    }
}
