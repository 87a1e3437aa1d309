//! One virtual world for every protocol: nodes with clocks of their own, a network, faults by plan, and time that costs none.
//!
//! A [`Model`] puts a protocol into a [`World`] and checks what it promises. A seed makes a [`Plan`] of faults, and with it one run,
//! always the same. [`check`] runs a seed; a failing plan is shrunk to the shortest one that still fails. For systems with few states,
//! [`explore`] goes through every order of events instead.
//!
//! Nothing here reads a clock: the world's time goes from event to event.

mod clock;
mod explore;
pub mod model;
mod network;
mod plan;
mod record;
mod rng;
pub mod server;
mod world;

pub use clock::{Clock, WANDER_EVERY};
pub use explore::{Counterexample, Exploration, ExploreError, System, explore};
pub use model::{Failure, MODELS, Model, Report, Violation, check, replay};
pub use network::Network;
pub use plan::{Fate, Fault, Link, NodeFault, Plan, PlanError, Weather};
pub use record::{LINES_MAX, Line, Record};
pub use rng::Rng;
pub use world::{Participant, Sent, World};

#[cfg(test)]
mod tests;
