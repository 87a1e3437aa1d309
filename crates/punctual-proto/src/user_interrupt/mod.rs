//! User interrupts as Intel specifies them, as kernels used them, and what goes wrong between the two.
//!
//! [`hardware`] is the architecture (Intel SDM, vol. 3, ch. 7): descriptor, sender's table, notification, delivery. [`program`] are the
//! protocols on top of it, step by step; [`variant`] names them, with the gaps in each. [`world`] runs receiver, sender and
//! interrupts in every order. [`crate::sim::explore`] goes through all of them breadth-first, so that it finds the shortest way to a
//! lost wake-up. [`trace`] writes that down for people.
//!
//! Nothing here runs on hardware: it is the proof, for protocols that must not lose a wake-up, of where they lose one.

pub mod hardware;
mod kernel;
pub mod program;
pub mod trace;
pub mod variant;
pub mod world;

pub use variant::{Expected, Race, VARIANTS, Variant};
pub use world::{Actor, Ending, Step, World};

#[cfg(test)]
mod tests;
