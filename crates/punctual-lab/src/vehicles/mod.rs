//! Vehicles: fifteen processes on one medium, each publishing a value to everybody, itself too.
//!
//! Data flows one way:
//!
//! ```text
//! testbed     a bridge in a namespace of ours, shared memory or loopback; a process per vehicle, told line by line (protocol)
//!   │
//! process     opens, waits at the barrier, travels: components over a node, or an engine alone
//!   │         value: what is published, what a receiver notes
//! experiment  run by run: start-up, barrier, values, account ─→ store
//!   │
//! figures     rows by the rule of the published tables and by ours; places in the wake-up order
//! ledger      every frame of every node
//!   │
//! overview    beside the published tables (tables) ─→ sections for terminal and page
//! ```

mod alone;
mod components;
mod drift;
mod experiment;
mod figures;
mod first;
mod idle_inhibitor;
mod kept;
mod ledger;
mod notes;
pub mod option;
pub mod overview;
pub mod process;
mod protocol;
mod publication;
mod stalls;
mod tables;
mod testbed;
mod value;
