//! Major faults: memory was touched that had to be read from the disk.

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "faults_major",
    words: "memory was touched that was not there: it was read from the disk",
    fix: "lock the memory (mlockall), read files before they are needed, or turn swap off",
    fixes: &["prefault"],
    in_trace: |clue| (clue.awaited() == Some(Awaited::Page)).then(|| clue.wakers()),
    without_trace: Some("handler_blocked"),
    injections: &[Injection {
        name: "cold-pages",
        how: How::Inside(Scratch::touch_cold),
        needs: Needs::Disk,
    }],
    ..BLANK
};
