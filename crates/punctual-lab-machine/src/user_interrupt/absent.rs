//! The ends of a notification by user interrupts, on processors that have none.

use std::io;

use super::Calls;
use crate::wake::Ends;

/// Never reached: no kernel is identified without such a processor.
pub(super) fn register(calls: Calls) -> io::Result<Ends> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("no user interrupts here ({calls:?})")))
}
