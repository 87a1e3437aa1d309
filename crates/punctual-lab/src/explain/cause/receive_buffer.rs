//! Receive buffer: messages were lost where they are received, for want of room. They are late for ever, and in no stall.

use super::{BLANK, Definition};

pub(super) static DEFINITION: Definition = Definition {
    name: "receive_buffer",
    words: "lost: its receive buffer was full",
    fix: "a larger receive buffer (SO_RCVBUF, net.core.rmem_max), or a receiver that reads sooner",
    fixes: &["buffers"],
    // A message that never came has no interval.
    in_trace: |_| None,
    ..BLANK
};
