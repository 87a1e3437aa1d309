//! One time for nodes whose clocks differ: a simplified IEEE 1588, with a bound on its error that is stated and kept.
//!
//! As there, a master says what time it is (*sync*, *follow-up*) and answers when it was asked (*delay request*, *delay
//! response*). Unlike there, nothing is assumed about the way being as long there as back: an exchange gives an interval in
//! which the offset must lie, because no message arrives before it was sent. The middle is the estimate, and half the
//! interval, which is half the round trip, is its bound.
//!
//! Between exchanges the bound grows by the possible drift of clocks ([`ClockModel`]). The joint evidence of several exchanges about
//! the drift keeps that small ([`Track`]). The master is the candidate with the best priority, then the smallest node id, of those that
//! are heard; when it falls silent the next one is.
//!
//! Sans-IO: messages come in by `handle_*`, go out by `poll_*`, and time is an argument, a reading of the node's own clock.

mod estimate;
mod message;
mod synchroniser;

pub use estimate::{ClockModel, Estimate, Track};
pub use message::{STATUS_SIZE, Saying, StampClock, Status, TimeMessage, TimeMessageError, step_ns};
pub use synchroniser::{OneWay, PRIORITY_NEVER, Role, SyncCounts, SyncOptions, Synchroniser, Transmit};

#[cfg(test)]
mod tests;
