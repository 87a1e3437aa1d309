//! Construction: a node was opened, with all memory that messages need.

use super::{BLANK, Definition};
use crate::explain::injection::{How, Injection, Needs};
use crate::explain::start::StartStep;

pub(super) static DEFINITION: Definition = Definition {
    name: "construction",
    words: "a node was opened: memory was mapped and touched, sockets were made",
    fix: "open nodes and bind communicators before the first message is due",
    fixes: &["prime"],
    // A trace says what the thread did there: it ran, or waited.
    in_trace: |_| None,
    in_start: &[StartStep::Node, StartStep::NodeOnPath],
    injections: &[Injection { name: "pools-in-constructor", how: How::AtStart, needs: Needs::Nothing }],
    ..BLANK
};
