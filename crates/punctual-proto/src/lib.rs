//! Meaning of Punctual's messages: frames, addresses, streams, seals and their limits.
//!
//! The mistake this wall makes impossible: a protocol decision that depends on a real clock, a
//! thread or a socket. Time is an argument; bytes come in and go out as slices.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod address;
pub mod broadcast;
pub mod classes;
pub mod fragment;
pub mod frame;
pub mod interest;
pub mod keyed_group;
pub mod limits;
pub mod pcapng;
mod protocol;
pub mod recency;
pub mod seal;
pub mod sim;
pub mod stamps;
pub mod stream;
pub mod time;
pub mod time_sync;
pub mod unit;
pub mod user_interrupt;

pub use address::{Address, NodeId, Port, Target};
pub use frame::{Frame, FrameError, Header, Kind};
pub use protocol::{Protocol, Transmit};
pub use recency::{Moment, Recency};
pub use stamps::{Stamps, UniqueStamps};
pub use stream::{Accepted, Stream, Verdict};
pub use time::Nanos;
