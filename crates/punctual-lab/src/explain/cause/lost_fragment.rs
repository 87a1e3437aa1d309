//! Lost fragment: messages larger than a packet came in part. They are late for ever, and in no stall.

use super::{BLANK, Definition};

pub(super) static DEFINITION: Definition = Definition {
    name: "lost_fragment",
    words: "lost: it came in part, because a fragment was missing",
    fix: "messages that fit into a packet (below the MTU), a larger MTU, or a path that loses less: one lost packet loses the whole message",
    verify: "run it again with --size below the MTU, and punctual compare RUN RUN",
    // A message that never came has no interval.
    in_trace: |_| None,
    ..BLANK
};
