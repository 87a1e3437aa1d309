//! Migration: taken off its CPU to run on another.

use super::{BLANK, Definition};
use crate::explain::account::Part;
use crate::explain::clue::Kind;
use crate::explain::injection::{How, Injection, Needs, Scratch};

pub(super) static DEFINITION: Definition = Definition {
    name: "migration",
    words: "taken off its CPU to run on another",
    fix: "pin it once, at its start (taskset; --client-cpu and --responder-cpu of run response), and look for who changes its affinity or its cpuset",
    fixes: &["pin"],
    in_trace: |clue| match clue.kind {
        Kind::Part(Part::Moving { by: Some(by) }) => Some(format!("asked for by {}", clue.trace.name(by))),
        Kind::Part(Part::Moving { by: None }) => Some(String::new()),
        _ => None,
    },
    // To its own clock it computes.
    without_trace: Some("busy"),
    injections: &[Injection { name: "move", how: How::Inside(Scratch::move_about), needs: Needs::Nothing }],
    ..BLANK
};
