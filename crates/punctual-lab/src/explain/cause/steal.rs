//! Steal: the hypervisor took the CPU away. Not made on purpose: a guest cannot.

use super::{BLANK, Definition};

pub(super) static DEFINITION: Definition = Definition {
    name: "steal",
    words: "the hypervisor took the CPU away",
    fix: "use a dedicated host",
    verify: "run it there, and punctual compare RUN RUN",
    in_trace: |clue| clue.is_stolen().then(String::new),
    // The counter is of the CPU: whoever wanted that was robbed. A handler that slept may not have wanted it, unless it was ready.
    in_windows: |glance| {
        let seen = glance.seen;
        let may_have_slept =
            glance.excess.runs_handlers && glance.is_in_own_code() && seen.switches_voluntary > 0;
        let is_taken = !may_have_slept || seen.wait_us_most >= seen.stolen_us / 2;
        if is_taken { glance.beyond_usual(seen.stolen_us) } else { 0 }
    },
    ..BLANK
};
