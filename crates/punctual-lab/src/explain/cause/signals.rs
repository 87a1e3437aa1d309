//! Signals: each frame interrupted the process by a signal.

use super::{Definition, Traits};
use crate::explain::injection::{How, Injection, Needs};
use crate::explain::start::StartStep;

pub(super) static DEFINITION: Definition = Definition {
    name: "signals",
    words: "interrupted by signals: each frame raises SIGIO",
    evidence: "interruptions of the process counted by its own handler, for each frame received",
    fix: "wait in a blocking call or in epoll; ask for SIGIO (O_ASYNC) only while nothing else listens",
    verify: "punctual run peel, and punctual compare RUN RUN",
    // A trace says what the thread did there: it ran, or waited.
    in_trace: |_| None,
    in_windows: |_| 0,
    without_trace: None,
    traits: Traits { is_work: false, is_of_class: false },
    in_start: &[StartStep::Signals],
    injections: &[Injection { name: "sigio-at-start", how: How::AtStart, needs: Needs::Nothing }],
};
