//! The mistake this wall makes impossible: a protocol decision that depends on a real clock,
//! thread or socket.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
