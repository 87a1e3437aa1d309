//! Storage: the thread waited in the kernel where no signal wakes, as for a disk.

use std::io::Write;

use punctual_machine::clock::monotonic_ns;

use super::{Definition, Traits};
use crate::explain::clue::Clue;
use crate::explain::injection::{How, Injection, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "storage",
    words: "waited for storage, or for a lock of the kernel, where no signal wakes",
    evidence: "it left its CPU in the uninterruptible state (sched_switch)",
    fix: "write and sync files in another thread (logs, journals), or keep them in memory (/dev/shm)",
    verify: "run it again, and punctual compare RUN RUN",
    in_trace,
    in_windows: |_| 0,
    without_trace: Some("handler_blocked"),
    traits: Traits { is_work: false, is_of_class: false },
    injections: &[Injection { name: "sync", how: How::Inside(sync) }],
};

fn in_trace(clue: &Clue<'_>) -> Option<String> {
    let by = clue.awaited().filter(|by| by.is_uninterruptible)?;
    Some(format!("woken by {}", clue.trace.name(by.waker)))
}

/// Bytes of one write: as many as take a disk longer than they take the processor.
const SIZE: usize = 256 << 10;

fn sync(scratch: &mut Scratch, until_ns: u64) {
    while monotonic_ns() < until_ns {
        let Some(file) = scratch.file() else { return };
        let _full = file.write_all(&[1; SIZE]).and_then(|()| file.sync_data());
    }
}
