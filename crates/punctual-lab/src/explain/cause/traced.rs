//! Traced: a debugger held the process. No signal tells a process of that, so user space alone cannot say it.

use super::UNEXPLAINED;
use super::{Definition, Traits};
use crate::explain::account::Absence;
use crate::explain::injection::{How, Injection, Needs, Scene};

pub(super) static DEFINITION: Definition = Definition {
    name: "traced",
    words: "held by a debugger, or by a program that traces its system calls",
    evidence: "it left its CPU traced (sched_switch)",
    fix: "find who traces it (TracerPid in /proc/PID/status): strace, gdb, a profiler that stops threads",
    verify: "run it again, and punctual compare RUN RUN",
    in_trace: |clue| (clue.absence_without_quota() == Some(Absence::Traced)).then(String::new),
    in_windows: |_| 0,
    without_trace: Some(UNEXPLAINED),
    traits: Traits { is_work: false, is_of_class: false },
    in_start: &[],
    injections: &[Injection { name: "tracer", how: How::Outside(Scene::hold), needs: Needs::Tracing }],
};
