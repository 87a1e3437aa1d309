//! The mistake this wall makes impossible: unsafe code or a system call anywhere else.
pub mod error;
pub mod host;
pub mod packet;
pub mod socket;

pub use error::SystemError;
