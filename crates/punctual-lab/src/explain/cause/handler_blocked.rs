//! Handler blocked: the program did not listen, and waited in code of its own.

use super::{BLANK, Definition};

pub(super) static DEFINITION: Definition = Definition {
    name: "handler_blocked",
    words: "did not listen: it slept or waited in its own code, such as the handler of a message before",
    fix: "wait on another thread: the one that receives should do nothing else that blocks",
    verify: "run it again, and look whether the log stays empty",
    // A trace says what it waited for: waited, slept, storage.
    in_trace: |_| None,
    in_windows: |glance| glance.blocked_us(),
    ..BLANK
};
