//! Kernel lock: the thread waited for a lock of the kernel that another program's thread had.

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "kernel_lock",
    words: "waited for a lock of the kernel, such as that of a file or of the memory map",
    fix: "do not share the file or the memory map: other threads that write the same file, map or unmap memory",
    in_trace: |clue| (clue.awaited() == Some(Awaited::KernelLock)).then(|| clue.wakers()),
    without_trace: Some("handler_blocked"),
    injections: &[Injection {
        name: "memory-map",
        how: How::Inside(Scratch::change_map),
        needs: Needs::Nothing,
    }],
    ..BLANK
};
