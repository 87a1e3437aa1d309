//! Response: the latency of a host's answer to a UDP packet, its stages, and the late side.
//!
//! Data flows one way:
//!
//! ```text
//! testbed   two namespaces and a veth pair, or loopback, or a foreign host; the responder's process; faults by load/forwarder
//!   │
//! endpoint/port   one mechanism of sending and waiting per file; says when kernel, thread and buffer had a packet
//!   │
//! client ⇄ load/echo   the responder, and the packets: ours, RFC 862, sockperf's
//!   │
//! trips     what is noted of each trip; stages that add up to the total, and whose each is
//!   │
//! kept      evidence of both threads ─→ explain, of all experiments · shares: its findings in sums
//! totals    sums per choice ─→ store, summary ─→ overview   published: the article's figures beside ours
//! ```
//!
//! `experiment` takes the trials of all choices in turn; `sockperf` is a peer in the same turns.

pub mod client;
pub mod experiment;
mod kept;
pub mod option;
pub mod overview;
pub mod published;
mod recording_cost;
pub mod settings;
pub mod shares;
pub mod sockperf;
pub mod testbed;
pub mod totals;
pub mod trips;
