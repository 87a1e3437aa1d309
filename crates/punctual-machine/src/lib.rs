//! Services of the machine for Punctual.
//!
//! The mistake this wall makes impossible: unsafe code, an atomic or a system call anywhere else in the library. Everything offered
//! here is safe to call; conditions that a caller must uphold are checked at run time.

#[cfg(not(loom))]
pub mod allocation;
mod arch;
#[cfg(not(loom))]
pub mod async_io;
pub mod awake;
#[cfg(not(loom))]
pub mod bare_futex;
pub mod block;
#[cfg(not(loom))]
pub mod calls;
#[cfg(not(loom))]
pub mod clock;
pub mod counter;
#[cfg(not(loom))]
pub mod cpu;
pub mod doorbell;
#[cfg(not(loom))]
pub mod epoll;
pub mod error;
#[cfg(not(loom))]
pub mod event_fd;
#[cfg(not(loom))]
pub mod fault_cost;
#[cfg(not(loom))]
pub mod fd_exchange;
#[cfg(not(loom))]
pub mod filter;
#[cfg(any(not(loom), test))]
mod guarded_range;
pub mod handles;
pub mod inbox;
pub mod intake;
pub mod label;
#[cfg(not(loom))]
pub mod life;
#[cfg(not(loom))]
pub mod memory;
mod memory_traits;
mod mutant;
#[cfg(not(loom))]
pub mod namespace;
#[cfg(not(loom))]
pub mod own_file;
#[cfg(not(loom))]
pub mod packet;
pub mod parker;
#[cfg(not(loom))]
pub mod process;
pub mod ring;
#[cfg(not(loom))]
pub mod scheduling;
#[cfg(not(loom))]
pub mod signal;
pub mod skipped;
#[cfg(not(loom))]
pub mod sleep_cost;
pub mod slept;
pub mod slot;
#[cfg(not(loom))]
pub mod socket;
pub mod sync;
#[cfg(not(loom))]
pub mod thread_end;
#[cfg(not(loom))]
pub mod timer_fd;
#[cfg(not(loom))]
mod truncation;
#[cfg(not(loom))]
pub mod window;
#[cfg(not(loom))]
pub mod withheld;

pub use error::SystemError;
#[cfg(loom)]
pub use memory_traits::SharedObject;
