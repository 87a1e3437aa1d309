//! The floor: one shared slot each way between two processes, and nothing else.
//!
//! A bound that no library can beat: a sequence word and the bytes. No header, no counters, no second message on its way. The
//! laboratory measures everything else against it.

#[cfg(not(loom))]
mod pair;
mod words;

#[cfg(not(loom))]
pub use pair::{SLOT_SIZE_MAX, SlotPair};
