//! Calibration: a clock was compared with another until its rate was known.

use super::{BLANK, Definition};
use crate::explain::start::StartStep;

pub(super) static DEFINITION: Definition = Definition {
    name: "calibration",
    words: "a clock was calibrated",
    fix: "run on a kernel that tells the rate of its counter, or start earlier than the first message is due",
    verify: "punctual run peel, and punctual compare RUN RUN",
    // A trace says what the thread did there: it ran, or waited.
    in_trace: |_| None,
    in_start: &[StartStep::Clock],
    ..BLANK
};
