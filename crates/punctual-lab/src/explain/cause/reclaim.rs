//! Reclaim: there was no free memory, and the thread took some back from others before it got its own.

use super::{BLANK, Definition};
use crate::explain::account::Part;
use crate::explain::clue::Kind;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "reclaim",
    words: "took memory back from others, because none was free",
    fix: "raise the memory limit of its control group (memory.max), or give the machine room; allocate and touch at the start; write large files elsewhere, or without the page cache",
    verify: "run it again, and punctual compare RUN RUN; memory.events of the group counts max",
    in_trace: |clue| match clue.kind {
        Kind::Part(Part::Reclaiming { is_limited: true }) => Some("its group's limit".to_owned()),
        Kind::Part(Part::Reclaiming { is_limited: false }) => Some("the machine's memory".to_owned()),
        _ => None,
    },
    // To its own clock it computes.
    without_trace: Some("busy"),
    injections: &[Injection {
        name: "reclaim",
        how: How::Inside(Scratch::reclaim),
        needs: Needs::MemoryLimit,
    }],
    ..BLANK
};
