//! First use: keys were read, checked and made ready.

use super::{BLANK, Definition};
use crate::explain::injection::{How, Injection, Needs};
use crate::explain::start::StartStep;

pub(super) static DEFINITION: Definition = Definition {
    name: "first_use",
    words: "keys were read and made ready for the first time",
    fix: "read keys, and use a library once, before the first message is due",
    fixes: &["prime"],
    // A trace says what the thread did there: it ran, or waited.
    in_trace: |_| None,
    in_start: &[StartStep::Keys, StartStep::KeysOnPath],
    injections: &[Injection { name: "cold-crypto", how: How::AtStart, needs: Needs::Nothing }],
    ..BLANK
};
