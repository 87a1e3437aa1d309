//! Minor faults: memory was touched for the first time.

use punctual_machine::clock::monotonic_ns;

use super::{BLANK, Definition};
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "faults_minor",
    words: "memory was touched for the first time",
    fix: "touch and lock the memory before (mlockall, MAP_POPULATE)",
    fixes: &["prefault"],
    in_trace: |clue| clue.is_faulting().then(String::new),
    in_windows: |glance| glance.faults_us(),
    injections: &[Injection { name: "first-touch", how: How::Inside(touch), needs: Needs::Nothing }],
    ..BLANK
};

/// The memory stays until the trial is over: to give it back takes time that is no fault's.
fn touch(scratch: &mut Scratch, until_ns: u64) {
    while monotonic_ns() < until_ns {
        let fresh = scratch.fresh_page();
        *fresh = 1;
    }
}
