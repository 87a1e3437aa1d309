//! Busy: the thread itself used the CPU all the while.

use punctual_machine::clock::monotonic_ns;

use super::{BLANK, Definition, Traits};
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "busy",
    words: "computed all the while",
    fix: "make the handler shorter, or give it more threads",
    in_trace: |clue| clue.is_own_work().then(String::new),
    in_windows: |glance| glance.work_us(),
    traits: Traits { is_work: true, is_of_class: false },
    injections: &[Injection { name: "compute", how: How::Inside(compute), needs: Needs::Nothing }],
    ..BLANK
};

fn compute(_scratch: &mut Scratch, until_ns: u64) {
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}
