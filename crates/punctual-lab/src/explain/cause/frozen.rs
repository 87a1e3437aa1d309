//! Frozen: the control group of the thread was frozen, and thawed.

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs, Scene};

pub(super) static DEFINITION: Definition = Definition {
    name: "frozen",
    words: "frozen: its control group was frozen until somebody thawed it",
    fix: "find who freezes it: a container that is paused, a checkpoint, a manager of background programs",
    in_trace: |clue| (clue.awaited() == Some(Awaited::Thaw)).then(|| clue.wakers()),
    in_windows: |glance| glance.beyond_usual(glance.seen.frozen_us.saturating_sub(glance.seen.stolen_us)),
    injections: &[Injection { name: "freeze", how: How::OutsideBoth(Scene::freeze), needs: Needs::Freezer }],
    ..BLANK
};
