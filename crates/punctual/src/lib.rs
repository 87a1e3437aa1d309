//! Messages between components, processes and hosts in microseconds, each late one explained.
//!
//! A [`Node`] is one process's presence on a [`Bus`]; a [`Communicator`] is an endpoint at a port of a node.
//! The same calls work inside a process, over shared memory, UDP and raw Ethernet:
//!
//! ```
//! use punctual::{Bus, Node, Target};
//!
//! let bus = Bus::loopback("example"); // or Bus::shared("example"), Bus::multicast(..), Bus::ethernet("eth0")
//! let ping = Node::open(&bus, "ping")?;
//! let pong = Node::open(&bus, "pong")?;
//! let mut here = ping.bind(1)?;
//! let mut there = pong.bind(7400)?;
//!
//! here.send(Target::port("pong", 7400), b"hello")?;
//! let message = there.receive()?;
//! assert_eq!(message.payload, b"hello");
//! assert_eq!(message.source, here.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `ARCHITECTURE.md` has the map; `docs/` the wire format and the layout of shared memory.
#![forbid(unsafe_code)]

mod adaptive_spin;
pub mod broadcast;
pub mod communicator;
pub mod engine;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod interest;
pub mod keyed_group;
mod large;
pub mod late;
pub mod ledger;
mod locks;
pub mod memory;
pub mod monitor;
pub mod node;
mod pages;
mod pause;
mod prometheus;
pub mod publication;
pub mod runtime;
pub mod seal;
pub mod time;
pub mod trace;
pub mod wake;

pub use communicator::{Claim, Communicator, Message, Observer, ReceiveError, Sender};
pub use engine::SendError;
pub use late::{LateAccount, LateLog};
pub use ledger::Ledger;
pub use monitor::{Monitor, Observed};
pub use node::{BindError, Bus, CommunicatorOptions, Node, NodeOptions, OpenError, PeerAccount};
pub use prometheus::prometheus;
pub use publication::{Publication, PublicationOptions, Subscription, SubscriptionOptions};
pub use punctual_machine::SystemError;
pub use punctual_machine::clock::{Clock, Ticks};
pub use punctual_proto::{Address, Nanos, NodeId, Port, Stamps, Target, unit};
pub use seal::{Keys, KeysError};
pub use trace::{Stage, Stages};
pub use wake::Wake;

/// Its examples run as tests.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/runtime.md")]
struct RuntimePage;

/// Its example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/broadcast.md")]
struct BroadcastPage;

/// Its example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/large.md")]
struct LargePage;

/// Its example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/interest.md")]
struct InterestPage;

/// Its example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/explain.md")]
struct ExplainPage;
