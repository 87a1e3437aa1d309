//! Response: how fast a host answers a UDP packet, where the time goes, and who was late.
//!
//! Data flows one way:
//!
//! ```text
//! site      two namespaces and a veth pair, or loopback, or a foreign host; the responder's process
//!   │         forward: faults on the way, by a seed
//! port      one mechanism of sending and waiting per file; says when kernel, thread and buffer had a packet
//!   │         frame: UDP and IP for ways that pass by the kernel's
//! client ⇄ responder     wire: our packets · protocol: ours, RFC 862, sockperf's
//!   │         evidence: what a thread went through, in windows · control: a thread that only looks how late it is
//! trips     every trip and every arrival in exactly one class; stages that add up to the total
//!   │
//! explain   each stall: side, stage, cause
//! account   sums per choice ─→ store, summary ─→ view
//! ```
//!
//! `experiment` takes the trials of all choices in turn; `sockperf` is a peer in the same turns, and its log is read here.

pub mod account;
pub mod client;
pub mod control;
pub mod evidence;
pub mod experiment;
pub mod explain;
pub mod forward;
pub mod frame;
pub mod neighbour;
pub mod option;
pub mod port;
pub mod protocol;
pub mod responder;
pub mod site;
pub mod sockperf;
pub mod trips;
pub mod view;
pub mod wire;
