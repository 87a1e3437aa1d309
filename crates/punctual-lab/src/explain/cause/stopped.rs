//! Stopped: the process was stopped, and continued by a signal.

use super::{BLANK, Definition};
use crate::explain::account::Absence;
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scene};

pub(super) static DEFINITION: Definition = Definition {
    name: "stopped",
    words: "stopped, until a signal continued it",
    fix: "find who stops it: SIGSTOP, job control of a shell",
    in_trace: |clue| {
        let is_absent = clue.absence_without_quota() == Some(Absence::Stopped);
        (is_absent || clue.awaited() == Some(Awaited::Continuation)).then(String::new)
    },
    in_windows: |glance| glance.stopped_us(),
    injections: &[Injection { name: "stop", how: How::Outside(Scene::stop), needs: Needs::Nothing }],
    ..BLANK
};
