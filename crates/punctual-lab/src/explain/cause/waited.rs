//! Waited: the thread slept until another woke it, as the holder of a lock does.

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "waited",
    words: "waited until another thread woke it",
    fix: "see what its waker did before; hold locks for shorter, or give them priority inheritance",
    in_trace: |clue| (clue.awaited() == Some(Awaited::Thread)).then(|| clue.wakers()),
    without_trace: Some("handler_blocked"),
    injections: &[Injection { name: "lock", how: How::Inside(Scratch::lock), needs: Needs::Nothing }],
    ..BLANK
};
