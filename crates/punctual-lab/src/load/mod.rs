//! Loads: senders, schedules and messages, and the outcome of each message.

pub mod client;
pub mod clocks;
pub mod echo;
pub mod forwarder;
pub mod neighbour;
pub mod pace;
pub mod ping;
pub mod race;
pub mod recording;
pub mod responder;
pub mod testbed;
pub mod wake;
pub mod watch;
