//! Holder preempted: the thread waited for another, whose CPU a third one had.

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "holder_preempted",
    words: "waited for another thread, which was ready to run but had no CPU",
    fix: "a mutex with priority inheritance, or the same urgency for all threads that hold the lock",
    in_trace: |clue| (clue.awaited() == Some(Awaited::PreemptedThread)).then(|| clue.wakers()),
    without_trace: Some("handler_blocked"),
    injections: &[Injection {
        name: "preempted-holder",
        how: How::Inside(Scratch::lock_of_preempted),
        needs: Needs::Nothing,
    }],
    ..BLANK
};
