//! Traced: a debugger held the process, or a program that traces its system calls stopped it at each. A thread that is held for once
//! does not see who did that; of one who stays it reads the number.

use super::{BLANK, Definition, UNEXPLAINED};
use crate::explain::injection::{How, Injection, Needs, Scene};

pub(super) static DEFINITION: Definition = Definition {
    name: "traced",
    words: "held by a debugger, or by a program that traces its system calls",
    fix: "end what traces it (TracerPid in /proc/PID/status): strace, gdb, a profiler that stops threads",
    fixes: &["untrace"],
    in_trace: |clue| clue.tracers(),
    in_windows: |glance| glance.traced_us(),
    without_trace: Some(UNEXPLAINED),
    injections: &[Injection { name: "tracer", how: How::Outside(Scene::hold), needs: Needs::Tracing }],
    ..BLANK
};
