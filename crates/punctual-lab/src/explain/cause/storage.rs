//! Storage: the thread waited for a disk, in the kernel where no signal wakes.

use std::io::Write;

use punctual_machine::clock::monotonic_ns;

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "storage",
    words: "waited for storage: to write, to sync or to read a file",
    fix: "write and sync files in another thread (logs, journals), or keep them in memory (/dev/shm)",
    in_trace: |clue| (clue.awaited() == Some(Awaited::Device)).then(|| clue.wakers()),
    without_trace: Some("handler_blocked"),
    injections: &[Injection { name: "sync", how: How::Inside(sync), needs: Needs::Disk }],
    ..BLANK
};

/// Bytes of one write: as many as take a disk longer than they take the processor.
const SIZE: usize = 256 << 10;

fn sync(scratch: &mut Scratch, until_ns: u64) {
    while monotonic_ns() < until_ns {
        let Some(file) = scratch.file() else { return };
        let _full = file.write_all(&[1; SIZE]).and_then(|()| file.sync_data());
    }
}
