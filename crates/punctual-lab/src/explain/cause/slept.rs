//! Slept: the thread waited for a time, or for a device.

use punctual_machine::scheduling::sleep_until;

use super::{BLANK, Definition};
use crate::explain::clue::Awaited;
use crate::explain::injection::{How, Injection, Needs};

pub(super) static DEFINITION: Definition = Definition {
    name: "slept",
    words: "slept until a time, or until a device was ready",
    fix: "let another thread sleep and wait: no sleep, timeout or retry on the path of a message",
    in_trace: |clue| (clue.awaited() == Some(Awaited::Interrupt)).then(String::new),
    without_trace: Some("handler_blocked"),
    injections: &[Injection {
        name: "sleep",
        how: How::Inside(|_, until_ns| sleep_until(until_ns)),
        needs: Needs::Nothing,
    }],
    ..BLANK
};
