//! Reasons why a ring takes no record.

use core::fmt;

/// Why no record could be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// A reader holds the writer back: retry after it has read.
    Full,
    /// The frame would never fit.
    TooLong {
        /// Bytes asked for.
        size: usize,
        /// Largest frame of this ring, bytes.
        size_max: usize,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("ring full"),
            Self::TooLong { size, size_max } => write!(f, "frame of {size} bytes in a ring for {size_max}"),
        }
    }
}

impl std::error::Error for ClaimError {}
