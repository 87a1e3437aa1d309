//! Machine features for the laboratory, which no user of the library needs: facts about the host, AF_XDP, io_uring, user interrupts,
//! tracepoints, every way of sleeping that this kernel has, and troubles that are made on purpose.
//!
//! The mistake this wall makes impossible: unsafe code that only measuring needs in the library's own. The rules are those of
//! `punctual-machine`: everything offered here is safe to call, and what a caller must uphold is checked at run time.

pub mod affinity;
pub mod as_user;
mod bpf;
pub mod cold_pages;
pub mod crowded_pages;
mod file_pages;
pub mod host;
pub mod map_lock;
pub mod signal_storm;
pub mod softirq_load;
pub mod tap;
pub mod ticket_lock;
pub mod trace_point;
pub mod tracer;
pub mod uring_socket;
pub mod user_interrupt;
pub mod wake;
pub mod xdp;
