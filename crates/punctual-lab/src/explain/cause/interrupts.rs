//! Interrupts: the thread's CPU was in them, or in the thread that does what they left over.

use super::{BLANK, Definition};
use crate::explain::account::Part;
use crate::explain::clue::{Clue, Kind};
use crate::explain::injection::{How, Injection, Needs, Scene};
use crate::explain::naming::interruption;

pub(super) static DEFINITION: Definition = Definition {
    name: "interrupts",
    words: "its CPU was in interrupts",
    fix: "move the interrupts to another CPU (/proc/irq/*/smp_affinity_list, rps_cpus), or the thread",
    in_trace,
    // Its time counts as that of others who had the CPU.
    without_trace: Some("run_queue"),
    injections: &[Injection { name: "packets", how: How::Outside(Scene::interrupt), needs: Needs::Steering }],
    ..BLANK
};

fn in_trace(clue: &Clue<'_>) -> Option<String> {
    match clue.kind {
        Kind::Part(Part::Interrupted(what)) => Some(interruption(what, clue.trace)),
        _ => clue.deferred_neighbour().map(|thread| clue.trace.name(thread)),
    }
}
