//! Signals: they interrupted the thread again and again, at its start for each frame, or in a storm.

use super::{BLANK, Definition};
use crate::explain::account::Part;
use crate::explain::clue::Kind;
use crate::explain::injection::{How, Injection, Needs, Scratch};
use crate::explain::start::StartStep;

pub(super) static DEFINITION: Definition = Definition {
    name: "signals",
    words: "interrupted by signals again and again",
    fix: "wait in a blocking call or in epoll, and ask for SIGIO (O_ASYNC) only while nothing else listens; slow a timer or a profiler that signals",
    fixes: &["sigio-off"],
    in_trace: |clue| match clue.kind {
        Kind::Part(Part::Signalled(number)) => Some(format!("signal {number}")),
        _ => None,
    },
    // To its own clock it computes.
    without_trace: Some("busy"),
    in_start: &[StartStep::Signals],
    injections: &[
        Injection { name: "sigio-at-start", how: How::AtStart, needs: Needs::Nothing },
        Injection { name: "signal-storm", how: How::Inside(Scratch::be_signalled), needs: Needs::Nothing },
    ],
    ..BLANK
};
