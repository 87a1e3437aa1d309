//! Steal: the hypervisor took the CPU away. Not made on purpose: a guest cannot.

use super::{BLANK, Definition};

pub(super) static DEFINITION: Definition = Definition {
    name: "steal",
    words: "the hypervisor took the CPU away",
    fix: "use a dedicated host",
    verify: "run it there, and punctual compare RUN RUN",
    in_trace: |clue| clue.is_stolen().then(String::new),
    in_windows: |glance| glance.beyond_usual(glance.seen.stolen_us),
    ..BLANK
};
